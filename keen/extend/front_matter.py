"""The YAML head of a Markdown file: what a skill, a command or an agent profile says of itself."""

from __future__ import annotations

import math
import re
from typing import Final, cast

from keen.core.errors import KeenError
from keen.core.messages import Json

HEAD_CHARACTERS: Final = 16_384
"""A longer head is refused: whoever reads only the start of a file has read the whole head."""

_FENCE: Final = "---"
_MOST_VALUES: Final = 2_000
_DEEPEST: Final = 20
_FIELD: Final = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_BLOCK: Final = ("", "|", ">", "|-", ">-", "|+", ">+")
_FENCE_LINE: Final = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


class FrontMatterError(KeenError):
    """The head of a file cannot be read; the message says why."""


def front_matter(text: str) -> tuple[dict[str, Json], str]:
    """The fields of the head and the body behind it; a text without a head is all body.

    Tolerant: what is no YAML because a plain sentence holds a colon is read line by line. Dates
    and other values that JSON lacks come as text. Raises: FrontMatterError.
    """
    text = text.removeprefix("\ufeff")
    opening = _FENCE_LINE.match(text)
    if opening is None:
        return {}, text
    limit = opening.end() + HEAD_CHARACTERS + len(_FENCE) + 2
    closing = _FENCE_LINE.search(text, opening.end(), limit)
    if closing is None:
        if len(text) > limit:
            raise FrontMatterError(
                f"its head is longer than {HEAD_CHARACTERS:,} characters, or no line --- ends it"
            )
        raise FrontMatterError("no line --- ends its head")
    head = text[opening.end() : closing.start()].replace("\r\n", "\n")
    return _fields(head), text[closing.end() :].lstrip("\r\n")


def _fields(head: str) -> dict[str, Json]:
    import yaml

    try:
        for event in yaml.parse(head, Loader=yaml.SafeLoader):
            # One that repeats itself grows without bounds when it is walked.
            if isinstance(event, yaml.AliasEvent):
                raise FrontMatterError("its head uses YAML aliases (*name), which are not read")
        value: object = yaml.safe_load(head)
    except yaml.YAMLError as error:
        if (fields := _line_by_line(head)) is not None:
            return fields
        raise FrontMatterError(f"its head is no YAML: {_reason(error)}") from error
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise FrontMatterError("its head holds a value that cannot be read") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrontMatterError("its head is no list of `name: value` lines")
    return _Conversion().mapping(cast("dict[object, object]", value), 0)


class _Conversion:
    """YAML's values as JSON, at most so many and so deep."""

    def __init__(self) -> None:
        self._count = 0

    def mapping(self, value: dict[object, object], depth: int) -> dict[str, Json]:
        return {str(key): self.value(inner, depth + 1) for key, inner in value.items()}

    def value(self, value: object, depth: int) -> Json:
        self._count += 1
        if self._count > _MOST_VALUES or depth > _DEEPEST:
            raise FrontMatterError("its head holds too many values")
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else str(value)
            case dict():
                return self.mapping(cast("dict[object, object]", value), depth)
            case list():
                return [self.value(inner, depth + 1) for inner in cast("list[object]", value)]
            case _:
                return str(value)


def _line_by_line(head: str) -> dict[str, Json] | None:
    """Fields of one line each, as text; None when a line is anything else.

    Indented lines go on with the field above.
    """
    fields: dict[str, Json] = {}
    last = ""
    for line in head.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t" and last:
            before = "" if fields[last] in _BLOCK else f"{fields[last]} "
            fields[last] = before + line.strip()
        elif (match := _FIELD.fullmatch(line.rstrip())) is not None:
            last = match[1]
            fields[last] = _word(match[2] or "")
        else:
            return None
    return fields


def _word(text: str) -> Json:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _reason(error: Exception) -> str:
    problem = getattr(error, "problem", None)
    mark = getattr(error, "problem_mark", None)
    line = getattr(mark, "line", None)
    where = f" (line {line + 2})" if isinstance(line, int) else ""
    return f"{problem or 'it cannot be parsed'}{where}"

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
_MOST_EVENTS: Final = 1_000
_DEEPEST: Final = 20
_FIELD: Final = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_PLAIN_FIELD: Final = re.compile(r"([A-Za-z][\w-]*): +([A-Za-z](?:[ -~]*[!-~])?) *")
_NOT_TEXT: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
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
    if (fields := _plain_fields(head)) is not None:
        return fields

    import yaml

    try:
        _check(head)
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
    return {str(key): _json(inner) for key, inner in cast("dict[object, object]", value).items()}


def _plain_fields(head: str) -> dict[str, Json] | None:
    """What YAML would say of lines that are all plain words, without loading its library."""
    fields: dict[str, Json] = {}
    for line in head.split("\n"):
        if not line:
            continue
        match = _PLAIN_FIELD.fullmatch(line)
        if match is None or match[2].casefold() in _NOT_TEXT or match[2].endswith(":"):
            return None
        if ": " in match[2] or " #" in match[2]:
            return None
        fields[match[1]] = match[2]
    return fields


def _check(head: str) -> None:
    """Refuse what would take long or grow: the scanner's work is quadratic in the depth."""
    import yaml

    depth = 0
    for count, event in enumerate(yaml.parse(head, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise FrontMatterError("its head uses YAML aliases (*name), which are not read")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST or count > _MOST_EVENTS:
            raise FrontMatterError("its head holds too many values")


def _json(value: object) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            fields = cast("dict[object, object]", value)
            return {str(key): _json(inner) for key, inner in fields.items()}
        case list():
            return [_json(inner) for inner in cast("list[object]", value)]
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

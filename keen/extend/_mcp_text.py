"""What servers say of their tools: pinned by a hash, and free of what a person cannot see."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from keen.core.messages import Json, JsonObject

CATALOGUE_BYTES: Final = 1_800
"""Of a request, for the names of all tools of all servers."""
_WORDS: Final = 60
"""Characters of a description in a list."""
_DIFFERENCE_BYTES: Final = 4_000
_PAGE_COLUMNS: Final = 76
_PAGE_LINES: Final = 8
_MOST_PAGES: Final = 40
_MOST_TOLD: Final = 1_500
"""Characters of one tool on a card."""
_MOST_ADDRESS: Final = 2_000
_MOST_LINE: Final = 200
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls, directions, fillers, zero width, selectors and tags: read by a model, by no person."""


@dataclass(frozen=True, slots=True)
class ToolText:
    """A tool as its server describes it, word for word."""

    name: str
    description: str = ""
    schema_text: str = "{}"
    """JSON: thousands of schemas as objects would keep the garbage collector busy."""
    hash: str = ""
    """Over all that the server says of it, title and output schema too."""

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of its arguments."""
        value: Json = json.loads(self.schema_text)
        return value if isinstance(value, dict) else {}

    @classmethod
    def read(cls, value: Json) -> ToolText | None:
        """From an entry of `tools/list`; None for one that has no name or schema."""
        if not isinstance(value, dict) or not (name := _word(value, "name")):
            return None
        schema = value.get("inputSchema", {})
        if not isinstance(schema, dict):
            return None
        said = [text for key in ("title", "description") if isinstance(text := value.get(key), str)]
        parts: Json = [name, [*said], schema, value.get("outputSchema")]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
        schema_text = json.dumps(schema, ensure_ascii=False)
        return cls(name, _word(value, "description"), schema_text, digest)

    def as_json(self) -> JsonObject:
        """As it is kept; `kept` takes it back."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": self.schema_text,
            "hash": self.hash,
        }

    @classmethod
    def kept(cls, value: Json) -> ToolText | None:
        """From what `as_json` gave."""
        if not isinstance(value, dict) or not (name := _word(value, "name")):
            return None
        schema_text = _word(value, "schema") or "{}"
        return cls(name, _word(value, "description"), schema_text, _word(value, "hash"))


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt that a server offers, and the arguments it takes, the required ones marked."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def read(cls, value: Json) -> PromptText | None:
        """From an entry of `prompts/list`, without what no person sees; None for one unnamed."""
        if not isinstance(value, dict) or not (name := _word(value, "name")):
            return None
        arguments = value.get("arguments")
        taken = (
            [each for each in arguments if isinstance(each, dict)]
            if isinstance(arguments, list)
            else []
        )
        return cls(
            name,
            _line(_word(value, "description") or _word(value, "title")),
            tuple((_word(one, "name"), one.get("required") is True) for one in taken),
        )

    @property
    def hint(self) -> str:
        """Its arguments for a menu, those that may be left out in brackets."""
        names = (name if is_needed else f"[{name}]" for name, is_needed in self.arguments)
        return _line(" ".join(names))


@dataclass(frozen=True, slots=True)
class ResourceText:
    """A resource that a server offers, by its address."""

    uri: str
    name: str = ""
    description: str = ""

    @classmethod
    def read(cls, value: Json) -> ResourceText | None:
        """From an entry of `resources/list`; None for an address that nobody could type."""
        if not isinstance(value, dict) or not (uri := _word(value, "uri")):
            return None
        if len(uri) > _MOST_ADDRESS or not uri.isprintable() or visible(uri)[1]:
            return None
        name = _line(_word(value, "title") or _word(value, "name"))
        return cls(uri, name, _line(_word(value, "description")))


def visible(text: str) -> tuple[str, int]:
    """`text` without characters that no person sees, and how many there were."""
    return _INVISIBLE.subn("", text)


def full_text(full_name: str, tool: ToolText) -> str:
    """Name, description and schema for the model, with a word on what was left out."""
    description, hidden = visible(tool.description.strip())
    schema, more = visible(tool.schema_text)
    lines = [
        f"{full_name}",
        description or "(no description)",
        f"Arguments (JSON Schema): {schema}",
    ]
    if hidden + more:
        lines.append(
            f"[{hidden + more} invisible characters were left out of this text; somebody "
            "may have hidden instructions there]"
        )
    return "\n".join(lines)


def pages(tools: Mapping[str, ToolText]) -> tuple[str, ...]:
    """What the model would be told of tools, by full name, for a person who is to agree to it.

    A page fits a card; what no person sees is counted, very long texts are cut.
    """
    lines: list[str] = []
    for name, tool in sorted(tools.items()):
        lines += textwrap.wrap(_told(name, tool), _PAGE_COLUMNS, subsequent_indent="  ")
    most = _PAGE_LINES * _MOST_PAGES
    if len(lines) > most:
        lines = [*lines[: most - 1], "… (the rest is not shown here)"]
    starts = range(0, len(lines), _PAGE_LINES)
    return tuple("\n".join(lines[start : start + _PAGE_LINES]) for start in starts)


def _told(name: str, tool: ToolText) -> str:
    properties = tool.schema.get("properties")
    parameters = ", ".join(properties) if isinstance(properties, dict) else ""
    words, hidden = visible(f"{name}({parameters}): {tool.description or 'no description'}")
    words = " ".join(words.split())
    if len(words) > _MOST_TOLD:
        words = f"{words[:_MOST_TOLD]}… ({len(words) - _MOST_TOLD:,} characters more)"
    return f"{words} [{hidden} invisible characters!]" if hidden else words


def first_words(tool: ToolText) -> str:
    """The beginning of a description, one line."""
    words = " ".join(visible(tool.description)[0].split())
    return words if len(words) <= _WORDS else words[: _WORDS - 1].rstrip() + "…"


def difference(before: ToolText | None, after: ToolText) -> str:
    """What changed, for a person, bounded; invisible characters are counted, not shown."""
    old = _lines(before) if before is not None else []
    lines = [
        line
        for line in unified_diff(old, _lines(after), lineterm="", n=1)
        if not line.startswith(("---", "+++", "@@"))
    ]
    text, hidden = visible("\n".join(lines))
    if len(text) > _DIFFERENCE_BYTES:
        text = text[:_DIFFERENCE_BYTES] + "\n… (`keen mcp test` shows all of it)"
    return f"{text}\n[{hidden} invisible characters not shown]" if hidden else text


def catalogue(servers: Sequence[tuple[str, Sequence[tuple[str, ToolText]]]]) -> str:
    """The tools of each server by full name, in as few bytes as there is room for.

    `servers`: the part of a server's name, and its tools as last known, none when not known.
    """
    for form in (_with_words, _names_alone, _counted):
        text = "\n".join(form(part, tools) for part, tools in servers)
        if len(text.encode()) <= CATALOGUE_BYTES:
            return text
    return _cut(servers)


def _cut(servers: Sequence[tuple[str, Sequence[tuple[str, ToolText]]]]) -> str:
    lines: list[str] = []
    room = CATALOGUE_BYTES - 40
    for number, (part, tools) in enumerate(servers):
        line = _counted(part, tools)
        room -= len(line.encode()) + 1
        if room < 0:
            lines.append(f"and {len(servers) - number} more servers")
            break
        lines.append(line)
    return "\n".join(lines)


def _with_words(part: str, tools: Sequence[tuple[str, ToolText]]) -> str:
    if not tools:
        return _unknown(part)
    return "\n".join(f"{name}: {first_words(tool)}" for name, tool in tools)


def _names_alone(part: str, tools: Sequence[tuple[str, ToolText]]) -> str:
    if not tools:
        return _unknown(part)
    return f"mcp__{part}__ then one of: " + " ".join(_short(part, tools))


def _counted(part: str, tools: Sequence[tuple[str, ToolText]]) -> str:
    if not tools:
        return _unknown(part)
    shown: list[str] = []
    room = 200
    for name in _short(part, tools):
        room -= len(name) + 1
        if room < 0:
            break
        shown.append(name)
    rest = len(tools) - len(shown)
    more = f" and {rest} more" if rest else ""
    return f"mcp__{part}__ then one of: {' '.join(shown)}{more}"


def _unknown(part: str) -> str:
    return f"mcp__{part}__… (its tools are not known yet)"


def _short(part: str, tools: Sequence[tuple[str, ToolText]]) -> Iterable[str]:
    return (name.removeprefix(f"mcp__{part}__") for name, _ in tools)


def _word(value: JsonObject, name: str) -> str:
    word = value.get(name)
    return word if isinstance(word, str) else ""


def _line(text: str) -> str:
    """One line of bounded length for a menu."""
    return " ".join(visible(text)[0].split())[:_MOST_LINE]


def _lines(tool: ToolText) -> list[str]:
    schema = json.dumps(tool.schema, indent=1, ensure_ascii=False, sort_keys=True)
    return [*tool.description.splitlines(), *schema.splitlines()]

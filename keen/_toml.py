"""Which line of a TOML text holds which key: tomllib itself keeps no positions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Location: TypeAlias = tuple[str | int, ...]
"""Keys from the outside in; a number counts the tables of an array of tables."""

_TOKEN: Final = re.compile(
    r"""
    (?P<string> \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5}
              | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<newline> \n )
    | (?P<sign> [\[\]{}=.,] )
    | (?P<bare> [^\s\[\]{}=.,"'\#]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclass(slots=True)
class _Scanner:
    """Walks statements of a text that tomllib has already accepted."""

    lines: dict[Location, int] = field(default_factory=dict[Location, int])
    table: Location = ()
    counts: dict[Location, int] = field(default_factory=dict[Location, int])

    def statement(self, tokens: list[_Token]) -> None:
        if tokens[0].text == "[":
            self._header(tokens)
            return
        end = next((n for n, token in enumerate(tokens) if token.text == "="), len(tokens))
        key = self.table + _names(tokens[:end])
        for length in range(len(self.table) + 1, len(key) + 1):
            self.lines.setdefault(key[:length], tokens[0].line)

    def _header(self, tokens: list[_Token]) -> None:
        location: Location = ()
        names = _names(tokens)
        for name in names[:-1]:
            location = (*location, name)
            if location in self.counts:  # inside the latest table of an array
                location = (*location, self.counts[location])
        location = (*location, names[-1])
        if tokens[1].text == "[":
            self.lines.setdefault(location, tokens[0].line)
            self.counts[location] = self.counts.get(location, -1) + 1
            location = (*location, self.counts[location])
        self.lines.setdefault(location, tokens[0].line)
        self.table = location


def key_lines(text: str) -> dict[Location, int]:
    """Line of each key of a valid TOML text; keys inside inline tables have their table's."""
    scanner = _Scanner()
    for statement in _statements(text):
        scanner.statement(statement)
    return scanner.lines


def line_of(lines: Mapping[Location, int], location: Location) -> int:
    """Line of a key, else of the nearest table around it; 1 when nothing is known."""
    for length in range(len(location), 0, -1):
        if (line := lines.get(location[:length])) is not None:
            return line
    return 1


def dotted(location: Location) -> str:
    """A location as TOML writes it: `providers.ollama.models."qwen3:8b".images`."""
    words: list[str] = []
    for name in location:
        if isinstance(name, int):
            words[-1] += f"[{name}]"
        else:
            words.append(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"')
    return ".".join(words)


def _statements(text: str) -> Iterator[list[_Token]]:
    statement: list[_Token] = []
    depth = 0
    line = 1
    for match in _TOKEN.finditer(text):
        kind, words = str(match.lastgroup), match.group()
        if kind == "newline" and depth == 0 and statement:
            yield statement
            statement = []
        elif kind not in ("comment", "newline"):
            statement.append(_Token(kind, words, line))
            depth += (words in "[{") - (words in "]}") if kind == "sign" else 0
        line += words.count("\n")
    if statement:
        yield statement


def _names(tokens: list[_Token]) -> tuple[str, ...]:
    return tuple(_name(token) for token in tokens if token.kind != "sign")


def _name(token: _Token) -> str:
    if token.kind == "bare":
        return token.text
    value: object = tomllib.loads(f"name = {token.text}")["name"]
    return str(value)

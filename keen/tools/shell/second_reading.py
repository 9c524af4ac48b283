"""A second, independent reading of plain command lines, to check the grammar's against."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from keen.tools.shell.syntax import unescaped


def split_plainly(command: str) -> list[list[str]] | None:
    """The words of a plain list of commands by a second, independent reading; None if not plain.

    It knows blanks, quotes, backslashes, comments, `;`, `&&`, `||`, `|`, newlines and the harmless
    redirections, nothing else. A command is plain only where both readings agree.
    """
    lexer = _Lexer(command)
    return lexer.commands if lexer.run() else None


_STOPS: Final = re.compile(r"&&|\|\||[;|\n]")
_HARMLESS: Final = re.compile(r"(?:2>&1|[12]?>[ \t]*/dev/null)(?=[ \t\n;|&]|$)")
_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_BARE: Final = re.compile(r"[^\s\\'\"`$&|;<>()!]|!(?=[=\w \t])")
_SINGLE: Final = re.compile(r"'([^']*)'")
_DOUBLE: Final = re.compile(r'"((?:[^"\\`$]|\\.)*)"', re.DOTALL)


@dataclass
class _Lexer:
    source: str
    position: int = 0
    commands: list[list[str]] = field(default_factory=list[list[str]])

    def run(self) -> bool:
        """Fill `commands`; False at the first thing that is not plain."""
        words: list[str] = []
        while self.position < len(self.source):
            if self._take(_BLANKS) or self._take(_COMMENT) or self._take(_HARMLESS):
                continue
            if self._take(_STOPS):
                if words:
                    self.commands.append(words)
                words = []
                continue
            word = self._word()
            if word is None:
                return False
            words.append(word)
        if words:
            self.commands.append(words)
        return True

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.source, self.position)
        if match:
            self.position = match.end()
        return match

    def _word(self) -> str | None:
        start = self.position
        pieces: list[str] = []
        while self.position < len(self.source):
            if match := self._take(_SINGLE):
                pieces.append(match[1])
            elif match := self._take(_DOUBLE):
                pieces.append(unescaped(match[1]))
            elif self.source.startswith("\\", self.position):
                pieces.append(self.source[self.position + 1 : self.position + 2].replace("\n", ""))
                self.position += 2
            elif match := self._take(_BARE):
                pieces.append(match[0])
            else:
                break
        return "".join(pieces) if self.position > start else None

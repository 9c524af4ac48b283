"""What was sent before, newest last: Up and Down walk in it, Ctrl+R searches it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 1_000


@dataclass
class History:
    """Earlier prompts. Walking keeps the draft that was left at the bottom."""

    entries: list[str] = field(default_factory=list[str])
    _position: int | None = None
    _draft: str = ""

    def load(self, older: Iterable[str]) -> None:
        """Entries from earlier sessions go in front."""
        self.entries = [*older, *self.entries][-MOST:]

    def add(self, text: str) -> None:
        """Something was sent or cleared."""
        self.rest()
        if text.strip() and self.entries[-1:] != [text]:
            self.entries.append(text)
            del self.entries[:-MOST]

    def rest(self) -> None:
        """Forget where the walk was."""
        self._position = None
        self._draft = ""

    def older(self, current: str) -> str | None:
        """The entry before the one shown; None at the oldest."""
        if self._position is None:
            if not self.entries:
                return None
            self._draft = current
            self._position = len(self.entries)
        if self._position == 0:
            return None
        self._position -= 1
        return self.entries[self._position]

    def newer(self) -> str | None:
        """The entry after the one shown, at the end the draft; None when not walking."""
        if self._position is None:
            return None
        self._position += 1
        if self._position < len(self.entries):
            return self.entries[self._position]
        draft = self._draft
        self.rest()
        return draft

    def matching(self, words: str, most: int = 50) -> list[str]:
        """Entries that hold all of the words, newest first, each once."""
        wanted = words.casefold().split()
        found: dict[str, None] = {}
        for entry in reversed(self.entries):
            folded = entry.casefold()
            if all(word in folded for word in wanted):
                found.setdefault(entry)
                if len(found) == most:
                    break
        return list(found)

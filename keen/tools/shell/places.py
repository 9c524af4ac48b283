"""Where a command may start, what its words lead to there, and what globs would match."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from keen.tools.base import Context
from keen.tools.guard import Guard, PathFacts, real_path
from keen.tools.shell.syntax import Word

MOST_MATCHES: Final = 2_000
"""Paths that a glob may stand for."""
MOST_ENTRIES: Final = 8_000
"""Directory entries looked at for one command: about 50 ms."""


@dataclass(frozen=True, slots=True)
class Places:
    """The directories a command may start in (a `cd` before it may have failed) and path facts."""

    context: Context
    guard: Guard
    starts: tuple[Path, ...]
    is_known: bool = True
    """False after a `cd` to a place that cannot be told."""
    memo: dict[str, PathFacts] = field(default_factory=dict[str, PathFacts])
    """Facts looked up for this command, so that each path is resolved once."""

    def facts(self, text: str) -> Iterator[PathFacts]:
        """Facts about a word taken as a path, from each directory it may be relative to."""
        starts = self.starts[:1] if os.path.isabs(text) else self.starts
        for start in starts:
            path = os.path.join(start, text)
            if path not in self.memo:
                self.memo[path] = self.guard.facts(path, self.context)
            yield self.memo[path]

    def moved(self, operand: Word) -> Places:
        """Where the next command may start after `cd operand`."""
        if not self.is_known or operand.is_dynamic or operand.has_glob or operand.has_brace:
            return replace(self, is_known=False)
        goals = [Path(real_path(start / operand.text)) for start in self.starts]
        starts = tuple(dict.fromkeys((*self.starts, *goals)))
        return replace(self, starts=starts, is_known=len(starts) <= 16)


def glob_matches(pattern: str, places: Places) -> list[str] | None:
    """At least the paths that bash would put in place of a glob; None when there are too many."""
    found: list[str] = []
    budget = MOST_ENTRIES
    for start in places.starts:
        level = [""]
        for part in pattern.split("/"):
            following: list[str] = []
            for prefix in level:
                if not any(character in part for character in "*?["):
                    following.append(f"{prefix}{part}/")
                    continue
                names = _names(start / (prefix or "."))
                budget -= len(names)
                following += [f"{prefix}{name}/" for name in names if _fits(name, part)]
            level = following
            if budget < 0 or len(level) > MOST_MATCHES:
                return None
        found += [path.rstrip("/") or "/" for path in level]
    return found


def _fits(name: str, pattern: str) -> bool:
    """True when bash might match; brackets count as anything, for what is in them is subtle."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    loose = pattern.partition("[")[0] + "*" if "[" in pattern else pattern
    return fnmatch.fnmatchcase(name, loose)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []

"""Which files a search sees: git's ignore rules and `.ignore`, and glob patterns for models."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keen.core.errors import ToolError
from keen.tools.guard import is_system

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MOST_SECONDS: Final = 20.0
"""Spent on one search."""

_RULE_FILES: Final = (".gitignore", ".ignore")
"""In the order of their weight, the heavier last."""
_MOST_RULES: Final = 1_000_000
_MOST_BRACES: Final = 256
_NOTHING: Final = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class _Rules:
    base: str
    """The directory they are relative to, with a final slash."""
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """True: ignored; False: taken back by `!`; None: nothing said."""
        return self.spec.check_file(path[len(self.base) :]).include


@dataclass(slots=True)
class Walk:
    """The files below a directory, in the order of their paths, without what is ignored.

    Links are never followed, `.git` is never entered. The directory itself is walked even if a
    rule above it ignores it. `is_cut`: the time was over before the end.
    """

    start: Path
    stop: threading.Event
    is_cut: bool = False
    _deadline: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)

    def files(self) -> Iterator[str]:
        """Absolute paths of regular files and of links to anything but directories."""
        pending = [(str(self.start), True, _rules_above(self.start))]
        while pending:
            path, is_directory, rules = pending.pop()
            if not is_directory:
                yield path
                continue
            if self.stop.is_set() or time.monotonic() > self._deadline:
                self.is_cut = True
                return
            rules = (*rules, *_rules_of(path))
            entries = sorted(_entries(path), key=lambda entry: entry[0], reverse=True)
            pending += [
                (inner, is_inner, rules)
                for inner, is_inner in entries
                if not _is_ignored(inner, is_inner, rules)
            ]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Tells whether a relative path matches a glob: `*`, `?`, `[…]`, `{a,b}`, `**`.

    A pattern without a slash matches names at any depth, one with a slash the whole path. The time
    is bounded by pattern times path, whatever they are.

    Raises:
        ToolError: the braces have too many alternatives.
    """
    choices = [_segments(plain) for plain in _without_braces(pattern)]

    def matches(path: str) -> bool:
        parts = path.split("/")
        return any(_is_match(choice, parts) for choice in choices)

    return matches


def _entries(path: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory:
                    if entry.name != ".git" and not is_system(Path(entry.path)):
                        found.append((entry.path, True))
                elif entry.is_file(follow_symlinks=False) or _is_file_link(entry):
                    found.append((entry.path, False))
    except OSError:
        return found  # unreadable, or gone since: the rest of the tree is still wanted
    return found


def _is_file_link(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink() and entry.is_file()
    except OSError:
        return False


def _is_ignored(path: str, is_directory: bool, rules: tuple[_Rules, ...]) -> bool:
    name = path + "/" if is_directory else path
    return next(
        (said for each in reversed(rules) if (said := each.verdict(name)) is not None), False
    )


def _rules_of(directory: str) -> list[_Rules]:
    base = directory.rstrip("/") + "/"
    found = (_parsed(base, base + name) for name in _RULE_FILES)
    return [rules for rules in found if rules is not None]


def _rules_above(start: Path) -> tuple[_Rules, ...]:
    """The rules of the repository around `start`, unless they ignore `start` itself."""
    tops = [top for top in start.parents if os.path.lexists(top / ".git")]
    inside = os.path.lexists(start / ".git")
    if inside or not tops:
        exclude = _parsed(f"{start}/", str(start / ".git/info/exclude")) if inside else None
        return () if exclude is None else (exclude,)
    top = tops[0]
    exclude = _parsed(f"{top}/", str(top / ".git/info/exclude"))
    rules = [] if exclude is None else [exclude]
    way = [parent for parent in start.parents if parent == top or parent.is_relative_to(top)]
    for parent in reversed(way):
        rules += _rules_of(str(parent))
    steps = [*reversed(way[:-1]), start]
    if any(_is_ignored(str(step), True, tuple(rules)) for step in steps):
        return ()
    return tuple(rules)


def _parsed(base: str, path: str) -> _Rules | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        lines = file.read(_MOST_RULES).removeprefix("\ufeff").split("\n")
    from pathspec import GitIgnoreSpec  # only searches need it

    try:
        return _Rules(base, GitIgnoreSpec.from_lines(lines))
    except ValueError:
        return _Rules(base, GitIgnoreSpec.from_lines(filter(_is_readable, lines)))


def _is_readable(line: str) -> bool:
    from pathspec import GitIgnoreSpec  # only searches need it

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _without_braces(pattern: str) -> list[str]:
    """The pattern with `{a,b}` multiplied out, innermost first."""
    done, pending = list[str](), [pattern]
    while pending:
        text = pending.pop()
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if inner is None:
            done.append(text)
            continue
        choices = inner[1].split(",")
        pending += [text[: inner.start()] + choice + text[inner.end() :] for choice in choices]
        if len(done) + len(pending) > _MOST_BRACES:
            raise ToolError(f"The pattern {pattern!r} has too many alternatives in braces.")
    return done


def _segments(pattern: str) -> list[re.Pattern[str] | None]:
    """One expression for each part of the path; None stands for `**`."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if "/" not in pattern:
        parts.insert(0, "**")
    return [None if part == "**" else _segment(part) for part in parts]


def _segment(part: str) -> re.Pattern[str]:
    plain = re.sub(r"\\(.)", lambda match: f"[{match[1]}]", part.replace("[^", "[!"))
    return re.compile(fnmatch.translate(plain))


def _is_match(segments: list[re.Pattern[str] | None], parts: list[str]) -> bool:
    """Leftmost matches suffice: only the last `**` ever has to take one part more."""
    at = position = retry = 0
    star = -1
    while position < len(parts):
        segment = segments[at] if at < len(segments) else _NOTHING
        if segment is None:
            star, retry = at, position
            at += 1
        elif segment.match(parts[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            retry += 1
            at, position = star + 1, retry
        else:
            return False
    return all(segment is None for segment in segments[at:])

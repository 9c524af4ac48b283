"""What a recursive search would show of a tree: secrets in it make it a question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from keen.tools.guard import is_environment_file, real_path
from keen.tools.shell.places import MOST_ENTRIES, Places
from keen.tools.shell.syntax import Finding, Word

_IGNORE_FILES: Final = frozenset({".ignore", ".rgignore", ".gitignore"})
_EXCLUDES: Final = ".git/info/exclude"


def tree_objection(name: str, operand: Word, places: Places, *, has_filter: bool) -> Finding | None:
    """What keeps `name` from searching the tree at `operand` unasked.

    `has_filter`: an option makes ripgrep look into hidden files that it would leave out.
    """
    skips_hidden = name == "rg"
    for start in places.starts:
        top = start / operand.text
        if Path(real_path(Path.home())).is_relative_to(real_path(top)):
            return Finding("ask", f"{name} would search the whole home directory")
        secret, turns, is_whole = _survey(top)
        turns = turns or (skips_hidden and any(map(_has_turn, Path(real_path(top)).parents)))
        if secret and (not skips_hidden or has_filter or turns):
            return Finding("ask", f"{name} would read {secret}, which may hold secrets")
        if not is_whole and (not skips_hidden or has_filter):
            return Finding("ask", f"{name} reads more files than can be checked for secrets")
    return None


def _survey(top: Path) -> tuple[str, bool, bool]:
    """The first secret file below, whether an ignore file lets hidden ones in, whether all was
    seen."""
    secret, turns, seen = "", False, 0
    for directory, folders, files in os.walk(top):
        if ".git" in folders:
            folders.remove(".git")
            turns = turns or _lets_in(Path(directory, _EXCLUDES))
        seen += len(folders) + len(files)
        for file in files:
            if file.isascii() and not file.startswith("."):
                continue  # neither a secret nor an ignore file, whose names begin with a dot
            path = Path(directory, file)
            if not secret and is_environment_file(path):
                secret = os.path.relpath(path, top)
            turns = turns or (file in _IGNORE_FILES and _lets_in(path))
        if seen > MOST_ENTRIES:
            return secret, turns, False
    return secret, turns, True


def _has_turn(directory: Path) -> bool:
    """Whether ignore files of a directory above the search let hidden files in."""
    return any(_lets_in(directory / name) for name in (*_IGNORE_FILES, _EXCLUDES))


def _lets_in(path: Path) -> bool:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            text = file.read(1_000_000) or b""
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return any(line.lstrip().startswith(b"!") for line in text.split(b"\n"))


def _without_waiting(path: str, flags: int) -> int:
    """A pipe would be waited for until somebody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)

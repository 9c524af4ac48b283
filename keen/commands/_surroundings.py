"""The folder around a session: its files and branch, and what was sent there before."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from keen.secrets import masked
from keen.tools._ignore import Walk
from keen.trust import current_branch

_PROMPTS: Final = 500
_PROMPT_BYTES: Final = 8 * 1024
_MOST_FILES: Final = 200_000


def files_below(root: str) -> list[str]:
    """Files below a folder, ignore rules honoured. Blocking.

    git is not asked: a repository's own configuration can make it run programs.
    """
    walk = Walk(Path(root), threading.Event())
    beginning = len(root.rstrip("/")) + 1
    return [path[beginning:] for path in islice(walk.files(), _MOST_FILES)]


def branch_of(root: str) -> str:
    """The branch that is checked out, empty without one. Blocking."""
    return current_branch(Path(root))


def read_prompts(path: Path, cwd: str) -> list[str]:
    """What was sent from a folder before, oldest first. Blocking."""
    found: list[str] = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").split("\n"):
            with suppress(ValueError, RecursionError):
                value: Any = json.loads(line)
                entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
                if entry.get("cwd") == cwd and isinstance(text := entry.get("text"), str):
                    found.append(text)
    return found[-_PROMPTS:]


def append_prompt(path: Path, cwd: str, text: str) -> None:
    """Keep what was sent: one line in one write, so that two windows do not mix. Blocking."""
    if len(text) > _PROMPT_BYTES:
        return
    entry = json.dumps({"cwd": cwd, "text": masked(text)}, ensure_ascii=True)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, entry.encode() + b"\n")
        finally:
            os.close(descriptor)

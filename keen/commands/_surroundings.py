"""The folder around a session: its files and branch, and what was sent there before."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

_PROMPTS: Final = 500
_PROMPT_BYTES: Final = 8 * 1024
_MOST_FILES: Final = 50_000
_GIT_SECONDS: Final = 2.0


def files_below(root: str) -> list[str]:
    """Files below a folder, git's ignore rules honoured where there is git. Blocking."""
    found = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if found:
        return sorted(set(found.split("\0")) - {""})[:_MOST_FILES]
    return _walked(root)


def branch_of(root: str) -> str:
    """The branch that is checked out, empty without one. Blocking."""
    return _git(root, "branch", "--show-current").strip()


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
    entry = json.dumps({"cwd": cwd, "text": text}, ensure_ascii=True)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, entry.encode() + b"\n")
        finally:
            os.close(descriptor)


def _git(root: str, *words: str) -> str:
    """What a reading git command prints; empty when there is no git or no repository."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", root]
    try:
        done = subprocess.run(
            [*command, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _walked(root: str) -> list[str]:
    """Files below a folder that is no repository, hidden ones and usual clutter left out."""
    clutter = {"node_modules", "__pycache__", "venv", "target", "dist", "build"}
    found: list[str] = []
    for directory, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in clutter)
        base = os.path.relpath(directory, root)
        found += [os.path.normpath(os.path.join(base, n)) for n in sorted(files) if n[0] != "."]
        if len(found) >= _MOST_FILES:
            break
    return found[:_MOST_FILES]

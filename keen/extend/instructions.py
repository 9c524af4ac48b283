"""The project's own words for agents: AGENTS.md from the git root down to the working directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""The first that exists in a directory counts; the later ones are other agents' names for it."""
BUDGET: Final = 32_768
"""Bytes of all instruction files together."""

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u061c\u202a-\u202e\u2060-\u2064"
    "\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Controls, directions, zero width and tags: a model reads what no person sees."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text for the system prompt, and the files it came from, outermost first."""

    text: str
    files: tuple[Path, ...]
    is_cut: bool = False
    hidden: int = 0
    """Invisible characters that were left out."""


def instructions(cwd: Path, root: Path | None, personal: Path | None = None) -> Instructions:
    """Instruction files as they apply: the person's own, then root to `cwd`, nearest last.

    `root` None means the folder is not trusted: only the personal file is read. Over the budget the
    outermost files are cut, since the nearest one knows best. Blocking.
    """
    found = [(path, _read(path)) for path in _files(cwd, root, personal)]
    room = BUDGET
    kept: list[tuple[Path, str]] = []
    is_cut = False
    hidden = 0
    for path, data in reversed(found):
        text = data[:room].decode("utf-8", "replace").removeprefix("\ufeff")
        text, count = _INVISIBLE.subn("", text)
        text = text.strip()
        hidden += count
        is_cut = is_cut or len(data) > room
        room -= min(room, len(data))
        if text:
            kept.append((path, text))
    kept.reverse()
    parts = [f"Instructions from {path}\n\n{text}" for path, text in kept]
    if is_cut:
        parts.append(f"[Instructions over {BUDGET // 1024} KiB were cut.]")
    return Instructions("\n\n".join(parts), tuple(path for path, _ in kept), is_cut, hidden)


def _files(cwd: Path, root: Path | None, personal: Path | None) -> Iterable[Path]:
    if personal is not None and personal.is_file():
        yield personal
    if root is None:
        return
    inside = cwd.relative_to(root).parts if cwd.is_relative_to(root) else ()
    directory = root
    for part in ("", *inside):
        directory = directory / part
        path = next((p for name in NAMES if _is_own(p := directory / name, root)), None)
        if path is not None:
            yield path


def _is_own(path: Path, root: Path) -> bool:
    """A regular file that lies inside the project also behind its symlinks."""
    try:
        return path.is_file() and Path(os.path.realpath(path)).is_relative_to(root)
    except OSError:
        return False


def _read(path: Path) -> bytes:
    """At most one byte more than the budget, so that a cut is noticed."""
    try:
        with path.open("rb") as file:
            return file.read(BUDGET + 1)
    except OSError:
        return b""

"""The project's own words for agents: AGENTS.md from the git root down to the working directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.extend.project_text import beginning, is_inside, visible

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""The first that exists in a directory counts; the later ones are other agents' names for it."""
BUDGET: Final = 32_768
"""Bytes of all instruction files together."""


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
    room = BUDGET
    kept: list[tuple[Path, str]] = []
    is_cut = False
    hidden = 0
    for path, boundary in reversed(list(_files(cwd, root, personal))):
        try:
            text, has_more = beginning(path, room, boundary=boundary)
        except OSError:
            continue
        room -= min(room, len(text.encode()))
        text, count = visible(text)
        text = text.strip()
        hidden += count
        is_cut = is_cut or has_more
        if text:
            kept.append((path, text))
    kept.reverse()
    parts = [f"Instructions from {path}\n\n{text}" for path, text in kept]
    if is_cut:
        parts.append(f"[Instructions over {BUDGET // 1024} KiB were cut.]")
    return Instructions("\n\n".join(parts), tuple(path for path, _ in kept), is_cut, hidden)


def _files(
    cwd: Path, root: Path | None, personal: Path | None
) -> Iterable[tuple[Path, Path | None]]:
    """Each file and what it must not leave, outermost first."""
    if personal is not None and personal.is_file():
        yield personal, None
    if root is None:
        return
    inside = cwd.relative_to(root).parts if cwd.is_relative_to(root) else ()
    directory = root
    for part in ("", *inside):
        directory = directory / part
        path = next((p for name in NAMES if _is_own(p := directory / name, root)), None)
        if path is not None:
            yield path, root


def _is_own(path: Path, root: Path) -> bool:
    """A regular file that lies inside the project also behind its symlinks."""
    try:
        return path.is_file() and is_inside(path, root)
    except OSError:
        return False

"""How skills and commands are put into words: in the system prompt, and when they are called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from keen.core.errors import ToolError
from keen.extend._skills_found import Entry
from keen.extend.front_matter import FrontMatterError, front_matter
from keen.extend.project_text import beginning, visible
from keen.extend.slash import filled, with_shell_note

WORDS: Final = 6_000
"""Characters of the section in the system prompt."""
BODY_BYTES: Final = 49_152
"""Of a skill or a command: what is longer is read on with read_file."""

_DESCRIPTIONS: Final = (300, 150, 80)
"""Characters of a description, less where there are many."""
_MOST_FILES: Final = 50
_MOST_SEEN: Final = 1_000
_DEEPEST: Final = 4
_UNLISTED: Final = frozenset({"node_modules", "__pycache__", "venv"})
_HEADING: Final = (
    "Skills\n"
    "Each is a text that tells how to do one kind of work. Where the task is of that kind, call "
    "skill with the name before you begin, and do as the text says."
)
_LISTED: Final = "call skill without a name to list all."


def section(entries: Sequence[Entry]) -> str:
    """Names and descriptions within `WORDS`; empty for no entries."""
    if not entries:
        return ""
    lines: list[str] = []
    for most in _DESCRIPTIONS:
        lines = [_line(entry, most) for entry in entries]
        if len(_HEADING) + sum(len(line) + 1 for line in lines) <= WORDS:
            return "\n".join([_HEADING, *lines])
    room = WORDS - len(_HEADING) - 80
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([_HEADING, *kept, f"- and {len(lines) - len(kept)} more: {_LISTED}"])


def listing(entries: Sequence[Entry]) -> str:
    """All that a model may use, with whole descriptions."""
    return "\n".join(_line(entry, 2_000) for entry in entries) or "There are no skills."


def called(entry: Entry, arguments: str) -> str:
    """What a call of `entry` says to the model: its text with the arguments in place. Blocking.

    Raises: ToolError when the file cannot be read any more.
    """
    try:
        text, is_cut = beginning(entry.path, BODY_BYTES, boundary=entry.boundary)
        _, body = front_matter(text)
    except (OSError, FrontMatterError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ToolError(f"{entry.path} cannot be read: {reason}") from error
    body, hidden = visible(body)
    is_skill = entry.kind == "skill"
    folder = os.path.realpath(entry.path.parent)
    if is_skill:
        # What other agents put in the place of these; the texts are written for them too.
        body = body.replace("${CLAUDE_SKILL_DIR}", folder).replace("{baseDir}", folder)
    body = filled(body.strip(), arguments, names=entry.argument_names, keeps_positions=is_skill)
    parts = [_head(entry, Path(folder))] if is_skill else []
    parts.append(with_shell_note(body))
    if is_cut:
        size = BODY_BYTES // 1024
        parts.append(f"[Only its first {size} KiB: read the rest of {entry.path} with read_file.]")
    if hidden:
        parts.append(f"[{hidden} invisible characters in {entry.path} were left out.]")
    return "\n\n".join(parts)


def _line(entry: Entry, most: int) -> str:
    said = entry.description
    return f"- {entry.name}: {said if len(said) <= most else said[:most].rstrip() + '…'}"


def _head(entry: Entry, folder: Path) -> str:
    """Where a skill's files are: its text names them relative to its folder."""
    files = sorted(_files_below(folder))
    head = f"Skill {entry.name}, in {folder}"
    if not files:
        return head
    shown = ", ".join(files[:_MOST_FILES])
    more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
    return f"{head}\nIts files, relative to that folder: {shown}{more}"


def _files_below(folder: Path) -> Iterator[str]:
    """Relative names of the files beside the skill's text; no links, nothing hidden."""
    waiting = [(folder, 0)]
    seen = 0
    while waiting:
        directory, depth = waiting.pop(0)
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            path = directory / name
            seen += 1
            if seen > _MOST_SEEN:
                return
            if name.startswith(".") or name in _UNLISTED or path.is_symlink():
                continue
            if path.is_dir():
                if depth < _DEEPEST:
                    waiting.append((path, depth + 1))
            elif path.name.upper() != "SKILL.MD" or depth:
                yield _spelled(path.relative_to(folder))


def _spelled(path: Path) -> str:
    text = path.as_posix()
    return text if text.isprintable() else ascii(text)

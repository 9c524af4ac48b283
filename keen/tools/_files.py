"""Files as the file tools see them: on disk, behind what an editor has open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from keen.core.errors import ToolError
from keen.tools._atomic import (
    Current,
    check_replaceable,
    read_current,
    regular_file,
    replace,
    tool_error,
)
from keen.tools._blocking import in_thread
from keen.tools.base import Context


async def in_editor(path: Path, context: Context) -> Current | None:
    """The file at the real `path` as an editor has it, None where the disk alone counts.

    Raises: ToolError when the editor cannot tell.
    """
    if context.editor is None:
        return None
    try:
        saved = await in_thread(lambda _stop: read_current(path))
    except ToolError:
        return None  # a directory, a pipe, too large: the disk has its own words for it
    content = await context.editor.read(path, None if saved is None else saved.content)
    if content is None:
        return None
    return Current(content, _unsaved(content) if saved is None else saved.status)


async def current(path: Path, context: Context) -> Current | None:
    """The file at the real `path`, whole, or None where there is none. Raises: ToolError."""
    there = await in_editor(path, context)
    return there if there is not None else await in_thread(lambda _stop: read_current(path))


async def put(
    path: Path, content: bytes, before: Current | None, context: Context
) -> os.stat_result:
    """Give the file at the real `path`, which was `before`, new content. Raises: ToolError."""
    expected = None if before is None or _is_unsaved(before.status) else before.status
    if context.editor is not None:
        await in_thread(lambda _stop: check_replaceable(path, expected))
        old = None if before is None else before.content
        if await context.editor.write(path, content, old):
            return await in_thread(lambda _stop: _status(path, content))
    return await in_thread(lambda _stop: replace(path, content, expected))


def _status(path: Path, content: bytes) -> os.stat_result:
    """Of the file that an editor wrote, found without following a link."""
    try:
        with regular_file(path) as (_descriptor, status):
            return status
    except FileNotFoundError:
        return _unsaved(content)
    except OSError as error:
        raise tool_error(error, path) from error


def _unsaved(content: bytes) -> os.stat_result:
    """The status of a file that an editor has and the disk has not."""
    mode = stat.S_IFREG | 0o644
    return os.stat_result((mode, 0, 0, 1, os.getuid(), os.getgid(), len(content), 0, 0, 0))


def _is_unsaved(status: os.stat_result) -> bool:
    return status.st_ino == 0

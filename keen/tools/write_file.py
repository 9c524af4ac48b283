"""The tool `write_file`: a new file, or another content for one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject, ToolSpec
from keen.tools import _files
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._atomic import MOST_BYTES, Current
from keen.tools._blocking import in_thread
from keen.tools._text import decode, lines_of, plain_ends
from keen.tools.base import Context, Effect, Outcome, PreparedCall
from keen.tools.diff import unified_diff
from keen.tools.file_memory import FileMemory, Judged
from keen.tools.guard import Place, locate, shown


class WriteFileArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"path": "docs/notes.md", "content": "# Notes\n"}

    path: str = Field(min_length=1)
    content: str


class WriteFile:
    """Writes as a whole or not at all; parents are made, mode and owner of an old file stay."""

    effect: Effect = "write"

    def __init__(self, memory: FileMemory) -> None:
        self._memory = memory
        self.spec: ToolSpec = tool_spec(
            "write_file",
            "Create a file, or replace all of one. Prefer edit_file for changes.",
            WriteFileArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(WriteFileArguments, input, "write_file")
        place = locate(arguments.path, context)
        content = _encoded(arguments.content)
        judged = Judged()

        async def run() -> Outcome:
            return await self._write(content, place, context, judged)

        async def preview() -> Json:
            old = await _files.current(place.real, context)
            return await in_thread(lambda _stop: _preview(content, old, place, context, judged))

        return PreparedCall(place.accesses("edit"), run, preview)

    async def _write(
        self, content: bytes, place: Place, context: Context, judged: Judged
    ) -> Outcome:
        path = place.real
        before = await _files.current(path, context)
        same = await in_thread(lambda _stop: self._check(content, before, place, context, judged))
        if same is not None:
            return same
        status = await _files.put(path, content, before, context)
        await in_thread(lambda _stop: self._memory.note(path, status, content))
        return Outcome(_report(content, shown(path, context), before))

    def _check(
        self, content: bytes, before: Current | None, place: Place, context: Context, judged: Judged
    ) -> Outcome | None:
        """None when it is to be written, and what is replaced has been kept. Raises: ToolError."""
        path, name = place.real, shown(place.real, context)
        old = None if before is None else before.content
        if judged.is_outdated(old):
            raise ToolError(
                f"{name} changed while the change was being approved; nothing was written."
                " Read it and try again."
            )
        if before is not None and self._memory.is_stale(path, before.status, before.content):
            raise ToolError(
                f"{name} changed since you last read it; nothing was written. Read it again first."
            )
        if before is not None and old == content:
            self._memory.note(path, before.status, content)
            return Outcome(f"{name} already has exactly this content.")
        context.keep(path, old, content)
        return None


def _report(content: bytes, name: str, current: Current | None) -> str:
    lines = len(lines_of(plain_ends(content.decode())))
    verb = "Created" if current is None else "Replaced"
    return f"{verb} {name}: {lines:,} lines, {len(content):,} bytes.{links_note(current)}"


def links_note(current: Current | None) -> str:
    """What a replaced file's other names are left with, for the model."""
    if current is None or current.status.st_nlink < 2:
        return ""
    return " It was one of several hard links; the other names keep the old content."


def _preview(
    content: bytes, current: Current | None, place: Place, context: Context, judged: Judged
) -> Json:
    judged.remember(None if current is None else current.content)
    name = shown(place.real, context)
    before = None
    if current is not None:
        decoded = decode(current.content)
        size = len(current.content)
        before = f"[binary, {size:,} bytes]\n" if decoded is None else decoded.text
    return unified_diff(name, before, plain_ends(content.decode())).preview(str(place.real))


def _encoded(text: str) -> bytes:
    content = text.encode()
    if len(content) > MOST_BYTES:
        raise ToolError("The content is larger than 25 MB; write it with a command.")
    return content

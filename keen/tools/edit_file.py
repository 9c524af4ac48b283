"""The tool `edit_file`: exact replacements in one file, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject, ToolSpec
from keen.tools import _files
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._atomic import Current
from keen.tools._blocking import in_thread
from keen.tools._nearest import nearest
from keen.tools._text import FileText, decode, plain_ends
from keen.tools.base import Context, Effect, Outcome, PreparedCall
from keen.tools.diff import unified_diff
from keen.tools.file_memory import FileMemory, Judged
from keen.tools.guard import Place, locate, shown
from keen.tools.write_file import links_note

_MOST_LINES: Final = 10
"""Places of an ambiguous text that are named."""


class Edit(BaseModel):
    """One replacement."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    old: str = Field(min_length=1)
    new: str
    all: bool = Field(default=False, description="every occurrence")


class EditFileArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {
        "path": "src/app.py",
        "edits": [{"old": "retries = 1\n", "new": "retries = 3\n"}],
    }

    path: str = Field(min_length=1)
    edits: tuple[Edit, ...] = Field(min_length=1)


class EditFile:
    """Matches on text with LF line ends; bytes outside the edits stay as they are."""

    effect: Effect = "write"

    def __init__(self, memory: FileMemory) -> None:
        self._memory = memory
        self.spec: ToolSpec = tool_spec(
            "edit_file",
            "Replace exact text in a file, edits in order, all or none. `old` must occur once"
            " (or set all), copied exactly, without line numbers.",
            EditFileArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(EditFileArguments, input, "edit_file")
        place = locate(arguments.path, context)
        judged = Judged()

        async def run() -> Outcome:
            return await self._edit(arguments.edits, place, context, judged)

        async def preview() -> Json:
            found = await _files.current(place.real, context)
            return await in_thread(
                lambda _stop: _preview(arguments.edits, found, place, context, judged)
            )

        return PreparedCall(place.accesses("edit"), run, preview)

    async def _edit(
        self, edits: tuple[Edit, ...], place: Place, context: Context, judged: Judged
    ) -> Outcome:
        path = place.real
        current = await _files.current(path, context)
        change = await in_thread(lambda _stop: self._change(edits, current, place, context, judged))
        status = await _files.put(path, change.content, current, context)
        if not change.is_stale:
            await in_thread(lambda _stop: self._memory.note(path, status, change.content))
        return Outcome(change.report)

    def _change(
        self,
        edits: tuple[Edit, ...],
        found: Current | None,
        place: Place,
        context: Context,
        judged: Judged,
    ) -> _Change:
        """What the edits come to; what they replace has been kept. Raises: ToolError."""
        name = shown(place.real, context)
        current, before = _opened(found, name)
        if judged.is_outdated(current.content):
            raise ToolError(
                f"{name} changed while the change was being approved; nothing was written."
                " Read it and try again."
            )
        after = _applied(before, edits, name)
        content = after.encoded()
        is_stale = self._memory.is_stale(place.real, current.status, current.content)
        diff = unified_diff(name, before.text, after.text)
        context.keep(place.real, current.content, content)
        count = "1 edit" if len(edits) == 1 else f"{len(edits)} edits"
        stale = " It had changed since you last read it." if is_stale else ""
        report = (
            f"Edited {name}: {count}, +{diff.added} -{diff.removed} lines."
            f"{stale}{links_note(current)}"
        )
        return _Change(content, report, is_stale)


@dataclass(frozen=True, slots=True)
class _Change:
    """A file's new content, and what is said of it."""

    content: bytes
    report: str
    is_stale: bool


def _preview(
    edits: tuple[Edit, ...], found: Current | None, place: Place, context: Context, judged: Judged
) -> Json:
    name = shown(place.real, context)
    current, before = _opened(found, name)
    judged.remember(current.content)
    after = _applied(before, edits, name)
    return unified_diff(name, before.text, after.text).preview(str(place.real))


def _opened(current: Current | None, name: str) -> tuple[Current, FileText]:
    if current is None:
        raise ToolError(f"{name} does not exist. Use write_file to create it, or glob to find it.")
    decoded = decode(current.content)
    if decoded is None:
        raise ToolError(f"{name} is binary ({len(current.content):,} bytes); edit it by a command.")
    return current, decoded


def _applied(text: FileText, edits: tuple[Edit, ...], name: str) -> FileText:
    for number, edit in enumerate(edits, 1):
        try:
            text = _replaced(text, edit)
        except ToolError as error:
            which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise ToolError(f"{name} is unchanged. {which}{error}") from None
    return text


def _replaced(text: FileText, edit: Edit) -> FileText:
    old, new = plain_ends(edit.old), plain_ends(edit.new)
    if old == new:
        raise ToolError("old and new are the same text.")
    starts = _occurrences(text.text, old)
    if not starts:
        raise ToolError(f"old does not occur in the file. {nearest(text.text, old)}")
    if len(starts) > 1 and not edit.all:
        lines = _line_numbers(text.text, starts[:_MOST_LINES])
        more = ", …" if len(starts) > _MOST_LINES else ""
        raise ToolError(
            f"old occurs {len(starts):,} times (lines {lines}{more}). Add neighbouring lines to"
            " make it unique, or set all to true."
        )
    head = _common(old, new)
    rest = min(len(old), len(new)) - head
    tail = min(rest, _common(old[::-1], new[::-1]))
    core = new[head : len(new) - tail]
    return text.spliced([start + head for start in starts], len(old) - head - tail, core)


def _common(left: str, right: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(left), len(right)))


def _occurrences(text: str, old: str) -> list[int]:
    starts: list[int] = []
    position = text.find(old)
    while position >= 0:
        starts.append(position)
        position = text.find(old, position + len(old))
    return starts


def _line_numbers(text: str, starts: list[int]) -> str:
    line, numbers = 1, list[str]()
    for before, start in pairwise([0, *starts]):
        line += text.count("\n", before, start)
        numbers.append(str(line))
    return ", ".join(numbers)

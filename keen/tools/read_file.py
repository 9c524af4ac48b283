"""The tool `read_file`: text with line numbers, pictures as pictures, directories as lists."""

from __future__ import annotations

import difflib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._atomic import MOST_BYTES, Current, regular_file, tool_error
from keen.tools._blocking import in_thread
from keen.tools._files import in_editor
from keen.tools._images import image
from keen.tools._text import decode, lines_of
from keen.tools.base import Context, Effect, Outcome, PreparedCall
from keen.tools.file_memory import FileMemory
from keen.tools.guard import Place, is_system, locate, printable, shown

_MOST_LINES: Final = 2_000
_MOST_OUTPUT: Final = 60_000
"""Bytes of one result, so that the toolbox need not cut its middle out."""
_MOST_WIDTH: Final = 2_000
"""Characters shown of a line, unless it is the only one asked for."""
_MOST_IMAGE: Final = 5 * 1024 * 1024
_MOST_ENTRIES: Final = 500
_MOST_SECONDS: Final = 10.0
"""Spent on looking for a late line in a very large file."""


class ReadFileArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"path": "src/app.py", "offset": 1, "limit": 200}

    path: str = Field(min_length=1)
    offset: int = Field(default=1, ge=0, description="first line")
    limit: int = Field(default=_MOST_LINES, ge=1, description="number of lines")


class ReadFile:
    """Lines go out as number, tab, text: numbers are what errors, grep and offsets speak of."""

    effect: Effect = "read"

    def __init__(self, memory: FileMemory) -> None:
        self._memory = memory
        self.spec: ToolSpec = tool_spec(
            "read_file",
            "Read a text file, image or directory list. Lines come as `number<TAB>text`, at most"
            " 2000 at once; go on with offset.",
            ReadFileArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(ReadFileArguments, input, "read_file")
        place = locate(arguments.path, context)

        async def run() -> Outcome:
            if (there := await in_editor(place.real, context)) is not None:
                return await in_thread(lambda _stop: self._show(arguments, place, context, there))
            return await in_thread(lambda stop: self._read(arguments, place, context, stop))

        return PreparedCall(place.accesses("read"), run)

    def _read(
        self, arguments: ReadFileArguments, place: Place, context: Context, stop: threading.Event
    ) -> Outcome:
        path, first = place.real, max(1, arguments.offset)
        try:
            with regular_file(path) as (descriptor, status):
                if status.st_size > MOST_BYTES:
                    self._memory.note(path, status, None)
                    return Outcome(_part_of_large(descriptor, status, first, arguments.limit, stop))
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(MOST_BYTES + 1)
                self._memory.note(path, os.fstat(descriptor), content)
        except FileNotFoundError:
            raise ToolError(_missing(place, context)) from None
        except IsADirectoryError:
            return Outcome(_listing(path, context))
        except OSError as error:
            raise tool_error(error, path) from error
        return _show(content, shown(path, context), first, arguments.limit)

    def _show(
        self, arguments: ReadFileArguments, place: Place, context: Context, there: Current
    ) -> Outcome:
        """A file as an editor has it."""
        self._memory.note(place.real, there.status, there.content)
        name, first = shown(place.real, context), max(1, arguments.offset)
        return _show(there.content, name, first, arguments.limit)


def _show(content: bytes, name: str, first: int, limit: int) -> Outcome:
    picture = image(content)
    if picture is not None:
        if len(content) > _MOST_IMAGE:
            raise ToolError(f"{name} is a picture of {len(content):,} bytes; scale it down first.")
        size = f"{picture.width}x{picture.height}"
        return Outcome(f"[{picture.media_type}, {size} pixels]", images=(picture,))
    decoded = decode(content)
    if decoded is None:
        return Outcome(f"[{name} is binary: {_guess(content)}, {len(content):,} bytes]")
    if not content:
        return Outcome(f"[{name} is empty]")
    lines = lines_of(decoded.text)
    if first > len(lines):
        raise ToolError(f"{name} has {len(lines):,} lines; offset {first:,} is behind its end.")
    body = _numbered(lines[first - 1 :], first, limit)
    last = first + len(body) - 1
    notes = list(decoded.traits)
    if first > 1 or last < len(lines):
        notes.insert(0, f"lines {first}-{last} of {len(lines)}")
    if last < len(lines):
        notes.append(f"go on with offset={last + 1}")
    return Outcome(_with_header(notes, body))


def _with_header(notes: list[str], body: list[str]) -> str:
    header = [f"[{'; '.join(notes)}]"] if notes else []
    return "\n".join(header + body)


def _numbered(lines: Iterable[str], first: int, limit: int) -> list[str]:
    """At most `limit` lines and `_MOST_OUTPUT` bytes, at least one line."""
    width = _MOST_WIDTH if limit > 1 else _MOST_OUTPUT // 4
    room, body = _MOST_OUTPUT, list[str]()
    for number, line in enumerate(islice(lines, min(limit, _MOST_LINES)), first):
        text = f"{number}\t{_cut(line, width)}"
        room -= len(text.encode("utf-8", "replace")) + 1
        if room < 0 and body:
            break
        body.append(text)
    return body


def _cut(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return f"{line[:width]}… [{len(line) - width:,} more characters in this line]"


def _part_of_large(
    descriptor: int, status: os.stat_result, first: int, limit: int, stop: threading.Event
) -> str:
    with open(descriptor, "rb", buffering=1 << 20, closefd=False) as file:
        sample = file.read(1 << 16)
        decoded = decode(sample[: sample.rfind(b"\n") + 1] or sample[:-4])
        if decoded is None or decoded.encoding.startswith(("utf-16", "utf-32")):
            return f"[binary: {_guess(sample)}, {status.st_size:,} bytes]"
        file.seek(len(decoded.bom))
        deadline = time.monotonic() + _MOST_SECONDS
        lines = _long_lines(iter(lambda: file.readline(_MOST_OUTPUT), b""), deadline, stop)
        texts = (line.decode(decoded.encoding, "backslashreplace") for line in lines)
        body = _numbered(islice(texts, first - 1, None), first, limit)
    if not body:
        raise ToolError(f"Offset {first:,} is behind the end of the file.")
    last = first + len(body) - 1
    notes = [f"lines {first}-{last} of a file of {status.st_size:,} bytes", *decoded.traits]
    return _with_header([*notes, f"go on with offset={last + 1}"], body)


def _long_lines(pieces: Iterator[bytes], deadline: float, stop: threading.Event) -> Iterator[bytes]:
    """The beginning of each line, its end taken off. Bounded in time, not in bytes read."""
    start, is_start = b"", True
    for count, piece in enumerate(pieces):
        if count % 4_096 == 0 and (stop.is_set() or time.monotonic() > deadline):
            raise ToolError(
                "The file is too large to find that line in 10 s; use a command (tail, sed -n)."
            )
        start = piece if is_start else start
        is_start = piece.endswith(b"\n")
        if is_start:
            yield start.rstrip(b"\r\n")
    if not is_start:
        yield start.rstrip(b"\r\n")


def _missing(place: Place, context: Context) -> str:
    name = shown(place.real, context)
    parent = place.real.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent != place.real.parent:
        there = shown(parent, context)
        return f"{name} does not exist, nor does its directory; {there} does. Use glob to find it."
    if is_system(parent):
        return f"{name} does not exist."
    names = {entry.lower(): entry for entry in islice(os.listdir(parent), 10_000)}
    near = difflib.get_close_matches(place.real.name.lower(), list(names), n=3, cutoff=0.6)
    if not near:
        return f"{name} does not exist. Use glob to find it."
    options = ", ".join(shown(parent / names[entry], context) for entry in near)
    return f"{name} does not exist. Similar names: {options}"


def _listing(path: Path, context: Context) -> str:
    if is_system(path):
        raise ToolError(f"{path}: keen reads nothing inside /proc, /sys and /dev.")
    try:
        with os.scandir(path) as entries:
            names = [
                printable(entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in islice(entries, 100_000)
            ]
    except OSError as error:
        raise tool_error(error, path) from error
    names.sort()
    rest = [f"… and {len(names) - _MOST_ENTRIES:,} more"] if len(names) > _MOST_ENTRIES else []
    head = f"[directory {shown(path, context)}, {len(names):,} entries; glob finds files below it]"
    return "\n".join([head, *names[:_MOST_ENTRIES], *rest])


_MAGIC: Final = (
    (b"\x7fELF", "ELF program or library"),
    (b"MZ", "Windows program"),
    (b"\xcf\xfa\xed\xfe", "macOS program"),
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP archive (or a document made of one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"SQLite format 3", "SQLite database"),
    (b"\x89PNG", "damaged PNG"),
    (b"\xff\xd8\xff", "damaged JPEG"),
    (b"\x00asm", "WebAssembly"),
    (b"\xca\xfe\xba\xbe", "Java class or macOS program"),
)


def _guess(content: bytes) -> str:
    if not content.strip(b"\0"):
        return "only NUL bytes as far as read"
    return next((name for magic, name in _MAGIC if content.startswith(magic)), "unknown type")

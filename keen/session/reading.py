"""Reads a session file whatever happened to it: torn, glued, doubled, with NULs or a BOM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from keen.session.records import MAX_LINE, Record, parsed

_START: Final = '{"v":'
_MAX_TRIES: Final = 1_000
_PADDING: Final = b"\0 \t\r\n\xef\xbb\xbf"
"""NUL runs of a file system that crashed, line ends of editors, a byte order mark."""


@dataclass(slots=True)
class Reading:
    """What a session file holds. `records` are in the order of `seq`, each number once.

    `unreadable` counts damaged lines, `unreadable_tail` those behind the last good one.
    `good_end` is the offset behind the last good record, `size` that of the file; what lies between
    is a torn tail. `is_open`: the last good record has no line end.
    """

    records: list[Record] = field(default_factory=list[Record])
    unreadable: int = 0
    unreadable_tail: int = 0
    good_end: int = 0
    size: int = 0
    is_open: bool = False

    @property
    def next_seq(self) -> int:
        return self.records[-1].seq + 1 if self.records else 1


def read(path: Path) -> Reading:
    """All records of a file. Raises: OSError."""
    reading = Reading()
    with path.open("rb") as source:
        for line in _lines(source):
            _take(reading, line)
    last = 0
    for record in reading.records:
        if record.seq <= last:
            _put_in_order(reading)
            break
        last = record.seq
    return reading


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines split at b"\\n" alone (text has U+2028 in it); of an endless one, pieces."""
    while line := source.readline(MAX_LINE + 1):
        yield line


def _take(reading: Reading, line: bytes) -> None:
    start = reading.size
    reading.size += len(line)
    if (record := parsed(line.rstrip(b"\r\n"))) is not None:
        reading.records.append(record)
        reading.unreadable_tail = 0
        reading.good_end, reading.is_open = reading.size, not line.endswith(b"\n")
        return
    if not line.strip(_PADDING):
        has_bytes = bool(line.strip(b"\r\n"))
        reading.unreadable += has_bytes
        reading.unreadable_tail += has_bytes
        return
    reading.unreadable += 1
    reading.unreadable_tail += 1
    found, end = _salvaged(line)
    if found:
        reading.records.extend(found)
        rest = line[end:]
        reading.unreadable_tail = 0
        is_whole = rest in (b"\n", b"\r\n")
        reading.good_end = start + (len(line) if is_whole else end)
        reading.is_open = not is_whole


def _salvaged(line: bytes) -> tuple[list[Record], int]:
    """Whole records inside a damaged line, and the offset behind the last of them."""
    text = line.decode(errors="surrogateescape")
    decoder = json.JSONDecoder()
    records: list[Record] = []
    position, stop, end, tries = text.find(_START), 0, 0, 0
    while position >= 0 and tries < _MAX_TRIES:
        tries += 1
        try:
            _, stop = decoder.raw_decode(text, position)
            record = parsed(text[position:stop].encode())
        except (ValueError, RecursionError):
            record = None
        if record is None:
            stop = position + 1
        else:
            records.append(record)
            end = stop
        position = text.find(_START, stop)
    return records, len(text[:end].encode(errors="surrogateescape"))


def _put_in_order(reading: Reading) -> None:
    """Sort by number and keep the first of each; a second one with other content is counted."""
    first: dict[int, Record] = {}
    for record in reading.records:
        if first.setdefault(record.seq, record) != record:
            reading.unreadable += 1
    reading.records = [first[seq] for seq in sorted(first)]

"""The output of a command, bounded: all of it in a file up to a limit, head and tail in memory."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from keen.tools.spill import RESULT_BYTES

SPOOL_BYTES: Final = 64 * 1024 * 1024
"""What one command may leave on disk."""

_EDGE: Final = RESULT_BYTES
"""Bytes of head and of tail kept in memory: enough for a result when the disk is full."""

_ROOM: Final = RESULT_BYTES - 2_048
"""What a result may fill, so that the notes around it fit too."""


class Spool:
    """Takes bytes as they come. Short output never touches the disk."""

    def __init__(
        self, directory: Path, limit: int = SPOOL_BYTES, *, is_eager: bool = False
    ) -> None:
        self.total = 0
        self.path: Path | None = None
        self.fault = ""
        """Why the file is not whole: "" or the system's words."""
        self._directory = directory
        self._head_limit = limit * 3 // 4
        self._ring = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._is_eager = is_eager
        if is_eager:
            self._open()

    def write(self, data: bytes) -> None:
        """Append; beyond the limit the file keeps its first three quarters and the newest rest."""
        if len(self._head) < _EDGE:
            self._head += data[: _EDGE - len(self._head)]
        self._tail += data
        if len(self._tail) > 2 * _EDGE:
            del self._tail[:-_EDGE]
        if self._file is None and not self.fault and self.total + len(data) > _ROOM:
            self._open()
            self._put(bytes(self._head[: self.total]), 0)
        self._put(data, self.total)
        self.total += len(data)

    def tail(self, size: int) -> str:
        """The newest `size` bytes at most, decoded."""
        return bytes(self._tail[-size:]).decode("utf-8", "replace").lstrip("\ufffd")

    def text(self) -> str:
        """All of it, or head and tail and where the rest lies; undecodable bytes are said."""
        if self.total <= _ROOM:
            whole = bytes(self._head)
            text = whole.decode("utf-8", "replace")
            return _fitted(text) + _said(whole)
        first = _ROOM * 2 // 3
        head = bytes(self._head[:first])
        tail = bytes(self._tail[first - _ROOM :])
        shown = _fitted(_decoded(head), first), _fitted(_decoded(tail), _ROOM - first, last=True)
        left_out = self.total - len(head) - len(tail)
        note = f"[… {left_out:,} bytes left out; {self._where()} …]"
        return f"{shown[0]}\n\n{note}\n\n{shown[1]}" + _said(head + tail, edges=True)

    def close(self) -> None:
        """Put the file's end in order and close it; a lazy one that says no more than `text`
        goes."""
        if self._file is None:
            return
        try:
            if self.total > self._head_limit + self._ring:
                self._straighten()
        except OSError as error:
            self.fault = error.strerror or str(error)
        finally:
            os.close(self._file)
            self._file = None
        if self.total <= _ROOM and self.path is not None and not self._is_eager:
            with suppress(OSError):
                self.path.unlink()
            self.path = None

    def _where(self) -> str:
        if self.path is None:
            return f"they could not be kept: {self.fault or 'no file'}"
        if self.fault:
            return f"part of it is in {self.path} ({self.fault})"
        if self.total > self._head_limit + self._ring:
            return f"the first and the last of it are in {self.path}"
        return f"the whole output is in {self.path}"

    def _open(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / f"bash-{secrets.token_hex(6)}.txt"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
            self.path = path
        except OSError as error:
            self.fault = error.strerror or str(error)

    def _put(self, data: bytes, offset: int) -> None:
        """Write at `offset` of the stream: the head in place, what follows round and round."""
        view = memoryview(data)
        while view and self._file is not None and not self.fault:
            if offset < self._head_limit:
                place, room = offset, self._head_limit - offset
            else:
                turn = (offset - self._head_limit) % self._ring
                place, room = self._head_limit + turn, self._ring - turn
            try:
                written = os.pwrite(self._file, view[:room], place)
            except OSError as error:
                self.fault = error.strerror or str(error)
                return
            view, offset = view[written:], offset + written

    def _straighten(self) -> None:
        """Turn the ring so that the file reads from the oldest to the newest."""
        assert self._file is not None
        ring = os.pread(self._file, self._ring, self._head_limit)
        turn = (self.total - self._head_limit) % self._ring
        left_out = self.total - self._head_limit - self._ring
        note = f"\n\n[… {left_out:,} bytes left out …]\n\n".encode()
        end = note + ring[turn:] + ring[:turn]
        os.pwrite(self._file, end, self._head_limit)


def _decoded(data: bytes) -> str:
    """Text whose ends may be cut inside a character."""
    return data.decode("utf-8", "replace").strip("\ufffd")


def _fitted(text: str, room: int = _ROOM, *, last: bool = False) -> str:
    """`text` cut to `room` bytes: replacement makes three bytes of one."""
    data = text.encode()
    if len(data) <= room:
        return text
    cut = data[-room:] if last else data[:room]
    return cut.decode("utf-8", "ignore")


def _said(data: bytes, *, edges: bool = False) -> str:
    """A line that says so where bytes were no UTF-8."""
    wrong = data.decode("utf-8", "replace").count("\ufffd") - data.count(b"\xef\xbf\xbd")
    if wrong <= (6 if edges else 0):
        return ""
    return f"\n[not UTF-8 in {wrong:,} places, shown there as \ufffd]"

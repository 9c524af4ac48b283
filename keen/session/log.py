"""Appends to a session file: one writer, whole records, nothing lost in silence."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from keen.core.errors import SessionError
from keen.session.files import (
    FileLayer,
    cause,
    copy,
    make_private,
    sync_directory,
    uninterrupted,
    write_all,
)
from keen.session.listing import State
from keen.session.lock import Lock, Locked, acquire
from keen.session.reading import Reading, read
from keen.session.records import (
    MAX_LINE,
    AssistantTurn,
    Payload,
    Record,
    Recovered,
    SessionStarted,
    UserMessage,
    encoded,
    parsed,
)
from keen.session.turns import settled

MAX_UNSAVED: Final = 64 * 1024 * 1024
"""Bytes of records that are kept in memory while the file cannot be written."""


class Log(Protocol):
    """Where a session's records go. All methods block; one thread at a time uses them."""

    @property
    def session_id(self) -> str: ...

    @property
    def path(self) -> Path | None:
        """The session's file, None when there will never be one."""
        ...

    @property
    def reason(self) -> str | None:
        """Why records are not being saved, None while they are."""
        ...

    def append(self, *payloads: Payload, strict: bool = False) -> int:
        """Add the records in one write; the number of the last, 0 before the session exists.

        What cannot be written now is kept and written later. `strict`: a write that fails now,
        after all went well so far, is an error and leaves nothing behind.

        Raises:
            SessionError: `strict` and the write failed; or a record is too large.
        """
        ...

    def heal(self) -> bool:
        """Try to write what was kept; True when nothing is left to save."""
        ...

    def records(self) -> list[Record]:
        """Everything so far, segments settled. Raises: SessionError."""
        ...

    def close(self) -> None:
        """Write what can be written and give up the lock. Idempotent."""
        ...


class SessionLog:
    """The file of one session, locked from its first record on until `close`."""

    def __init__(self, path: Path, *, files: FileLayer | None = None) -> None:
        self.path = path
        self.unreadable = 0
        self.lost = 0
        self._files = files or FileLayer()
        self._lock: Lock | None = None
        self._descriptor = -1
        self._prefix = b""
        self._next = 1
        self._state = State()
        self._held: list[Payload] = []
        self._has_begun = False
        self._is_created = False
        self._is_closed = False
        self._good_size = 0
        self._is_dirty = False
        self._needs_rewrite = False
        self._reason: str | None = None
        self._kept: deque[tuple[bytes, int]] = deque()

    @classmethod
    def draft(
        cls, path: Path, started: SessionStarted, *, files: FileLayer | None = None
    ) -> SessionLog:
        """A session that touches no disk until its first user message."""
        log = cls(path, files=files)
        log._held.append(started)
        return log

    @classmethod
    def open(cls, path: Path, *, files: FileLayer | None = None) -> SessionLog:
        """An existing session, for writing: locked, its torn tail put aside, its crash settled.

        Raises:
            SessionError: locked by another process, unreadable or not writable.
        """
        return cls.resume(path, files=files)[0]

    @classmethod
    def resume(
        cls, path: Path, *, files: FileLayer | None = None
    ) -> tuple[SessionLog, list[Record]]:
        """As `open`, with the records that were read on the way, segments settled."""
        log = cls(path, files=files)
        try:
            log._acquire()
            reading = read(path)
            if not reading.records:
                raise SessionError(f"{path}: no readable record; the session cannot be resumed.")
            log._descriptor = log._files.open(path, os.O_RDWR | os.O_APPEND, 0o600)
            records = log._resume(reading)
        except OSError as error:
            log.close()
            raise SessionError(f"{path}: {cause(error)}; cannot be opened for writing.") from error
        except SessionError:
            log.close()
            raise
        return log, records

    @property
    def session_id(self) -> str:
        return self.path.stem

    @property
    def reason(self) -> str | None:
        if self._reason is not None and self.lost:
            return f"{self._reason} {self.lost} records were given up: too much to keep."
        return self._reason

    @property
    def unsaved(self) -> int:
        """Records that are not on disk."""
        return self.lost + sum(count for _, count in self._kept)

    def append(self, *payloads: Payload, strict: bool = False) -> int:
        if self._is_closed:
            raise SessionError(f"{self.path}: this session is closed.")
        if not self._has_begun:
            self._held.extend(payloads)
            if not any(isinstance(payload, UserMessage) for payload in payloads):
                return 0
            payloads = tuple(self._held)
            self._held.clear()
            self._has_begun = True
        before = (self._next, self._state)
        group = b"".join(self._lines(payloads))
        if not self.heal():
            self._keep(group, len(payloads), strict=strict)
            return self._next - 1
        try:
            self._put(group)
        except OSError as error:
            self._fail(error)
            if strict:
                self._next, self._state = before
                raise SessionError(f"{self.path}: {cause(error)}; nothing was saved.") from error
            self._keep(group, len(payloads), strict=False)
        return self._next - 1

    def heal(self) -> bool:
        if self._reason is None:
            return True
        try:
            self._ready()
            while self._kept:
                self._put(self._kept[0][0])
                self._kept.popleft()
        except OSError as error:
            self._fail(error)
            return False
        self._reason = None
        return True

    def records(self) -> list[Record]:
        try:
            found = read(self.path).records if self._is_created else []
        except OSError as error:
            raise SessionError(f"{self.path}: {cause(error)}.") from error
        last = found[-1].seq if found else 0
        kept = (parsed(line) for group, _ in self._kept for line in group.split(b"\n"))
        return settled(found + [record for record in kept if record and record.seq > last])

    def close(self) -> None:
        if not self._is_closed and self._has_begun:
            self.heal()
        self._is_closed = True
        if self._descriptor >= 0:
            if self._good_size == os.fstat(self._descriptor).st_size == 0:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _lines(self, payloads: Sequence[Payload]) -> list[bytes]:
        """The encoded records, numbered; all or none count when one is too large."""
        lines: list[bytes] = []
        state = self._state
        for number, given in enumerate(payloads, self._next):
            state = state.after(given)
            payload = state.stamped(given) if isinstance(given, UserMessage) else given
            line = encoded(Record(number, now(), payload.kind, payload))
            if len(line) > MAX_LINE:
                raise SessionError(
                    f"A record of {len(line):,} bytes is too large for a session "
                    f"({MAX_LINE:,} at most): send less text or fewer images at once."
                )
            lines.append(line)
        self._next += len(lines)
        self._state = state
        return lines

    def _acquire(self) -> None:
        if self._lock is None:
            try:
                self._lock = acquire(self.path.with_suffix(".lock"))
            except Locked as holder:
                raise SessionError(in_use(self.session_id, str(holder))) from holder

    def _resume(self, reading: Reading) -> list[Record]:
        self._has_begun = self._is_created = True
        self._next = reading.next_seq
        self.unreadable = reading.unreadable
        for record in reading.records:
            self._state = self._state.after(record.payload)
        self._prefix = b"\n" if reading.is_open else b""
        self._good_size = reading.size
        if reading.size > reading.good_end:
            self._cut_tail(reading)
        whole = settled(reading.records)
        last = whole[-1]
        if isinstance(last.payload, AssistantTurn) and last != reading.records[-1]:
            self.append(last.payload)
        return whole

    def _cut_tail(self, reading: Reading) -> None:
        """Put the torn tail aside; when that is impossible it stays, closed by a line end."""
        torn = reading.size - reading.good_end
        aside = self.path.with_name(f"{self.path.stem}.torn-{time.time_ns()}")
        try:
            copy(self._files, self._descriptor, aside, reading.good_end, reading.size)
            self._files.truncate(self._descriptor, reading.good_end)
        except OSError:
            self._prefix = b"\n"
            self.append(Recovered(bytes=0))
            return
        self._good_size = reading.good_end
        self.unreadable -= reading.unreadable_tail
        self.append(Recovered(bytes=torn, aside=aside.name))

    def _put(self, group: bytes) -> None:
        """Write records durably, or leave the file as it was as far as that is possible."""
        self._ready()
        start = os.fstat(self._descriptor).st_size
        self._good_size = start
        group = self._prefix + group
        try:
            write_all(self._files, self._descriptor, group)
        except OSError:
            self._cut_back(start)
            raise
        try:
            uninterrupted(lambda: self._files.sync(self._descriptor))
        except OSError:
            self._needs_rewrite = True  # the kernel may have dropped pages and call them clean
            self._cut_back(start)
            raise
        self._prefix = b""
        self._good_size = start + len(group)

    def _ready(self) -> None:
        """A descriptor of the whole, undamaged, still linked file. Raises: OSError."""
        if not self._is_created:
            self._create()
        if self._descriptor < 0:
            self._descriptor = self._files.open(self.path, os.O_RDWR | os.O_APPEND, 0o600)
        if self._needs_rewrite or os.fstat(self._descriptor).st_nlink == 0:
            self._rewrite()
        if self._is_dirty:
            self._files.truncate(self._descriptor, self._good_size)
            self._is_dirty = False

    def _create(self) -> None:
        make_private(self.path.parent)
        self._acquire()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._descriptor = self._files.open(self.path, flags, 0o600)
        self._is_created = True
        sync_directory(self.path.parent)

    def _rewrite(self) -> None:
        """A new file takes the old one's place: what was durable is copied, the rest is kept."""
        make_private(self.path.parent)
        fresh = self.path.with_name(f"{self.path.stem}.new-{time.time_ns()}")
        copy(self._files, self._descriptor, fresh, 0, self._good_size)
        descriptor = self._files.open(fresh, os.O_RDWR | os.O_APPEND, 0o600)
        try:
            self._files.rename(fresh, self.path)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._needs_rewrite = self._is_dirty = False
        sync_directory(self.path.parent)

    def _cut_back(self, size: int) -> None:
        try:
            self._files.truncate(self._descriptor, size)
        except OSError:
            self._is_dirty = True

    def _fail(self, error: OSError) -> None:
        if error.errno == errno.ESTALE and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._reason = (
            f"The session is not being saved: {cause(error)} ({self.path.parent}). "
            "keen keeps it in memory and tries again."
        )

    def _keep(self, group: bytes, count: int, *, strict: bool) -> None:
        if sum(len(kept) for kept, _ in self._kept) + len(group) <= MAX_UNSAVED:
            self._kept.append((group, count))
            return
        if strict:
            raise SessionError(f"{self._reason} There is no room to keep more.")
        self.lost += count


def in_use(session_id: str, holder: str) -> str:
    """What someone is told who wants to write to a session that is being written to."""
    return (
        f"Session {session_id[:8]} is in use by another keen ({holder}). "
        "Continue there, or add --fork-session to work on a copy."
    )


def now() -> str:
    """The time as the lines carry it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

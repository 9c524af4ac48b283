"""What stood in files before keen's own edits, kept beside a session so that one can go back.

One file for each session, `<id>.files`, 0600: a line of JSON for each edit, followed by the old
bytes where they are new. It goes with its session, and what a crash leaves of a last entry is cut
off before the next one. Files that commands changed are unknown here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypedDict, cast

from keen.session.files import make_private
from keen.session.records import Record, SessionStarted

SUFFIX: Final = ".files"
FILE_BYTES: Final = 10 * 1024 * 1024
"""Larger files are noted, but their content is not kept."""
SESSION_BYTES: Final = 200 * 1024 * 1024
"""Once a session keeps this much, further edits are noted only."""
_LINE_BYTES: Final = 64 * 1024
_MODE: Final = 0o644
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One edit. `seq` is the number of the person's message it belongs to.

    `before` and `after` are digests of the file's content, empty where there was no file.
    """

    seq: int
    path: Path
    before: str
    after: str
    mode: int = _MODE
    start: int = -1
    """Where the old bytes stand in the session's file; -1: they were not kept."""
    size: int = 0

    @property
    def is_kept(self) -> bool:
        """True when the state before the edit can be had again."""
        return not self.before or self.start >= 0


class _Line(TypedDict):
    """An edit as it is stored. `bytes`: how many follow the line, None where none do."""

    seq: int
    path: str
    before: str
    after: str
    mode: int
    bytes: int | None


@dataclass(slots=True)
class Kept:
    """What a session's file holds. `end` is where its whole entries end."""

    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Start and size of each content, by digest."""
    end: int = 0


class Snapshots:
    """Writes one session's snapshots; any thread may."""

    def __init__(self, file: Path, seq: Callable[[], int]) -> None:
        """`seq` tells the number of the message that is being worked on."""
        self.file = file
        self._seq = seq
        self._kept = Kept()
        self._first: set[tuple[int, Path]] = set()
        self._lock = threading.Lock()

    def keep(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        """Note that the file at the real `path` is about to change. A full disk stops no edit."""
        with self._lock:
            try:
                self._keep(path, before, after)
            except OSError as error:
                _log.warning("no snapshot of %s: %s", path, error)

    def _keep(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        make_private(self.file.parent)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(self.file, flags, 0o600), "r+b") as file:
            if os.fstat(file.fileno()).st_size != self._kept.end:
                self._kept = _read(file)
                self._first = {(one.seq, one.path) for one in self._kept.snapshots}
                file.truncate(self._kept.end)
            file.seek(self._kept.end)
            self._add(file, path, before, _digest(after))

    def _add(self, file: BinaryIO, path: Path, before: bytes | None, after: str) -> None:
        mode = _MODE if before is None else stat.S_IMODE(path.lstat().st_mode)
        added = Snapshot(self._seq(), path, _digest(before), after, mode)
        data = before if self._is_new(added, before) else None
        entry = _encoded(added, data)
        file.write(entry)
        file.flush()
        self._kept.end += len(entry)
        self._first.add((added.seq, added.path))
        if data is not None:
            start = self._kept.end - len(data) - 1
            self._kept.places[added.before] = (start, len(data))

    def _is_new(self, added: Snapshot, before: bytes | None) -> bool:
        """True when these bytes must be stored: one goes back to before a message, never inside."""
        if before is None or added.before in self._kept.places:
            return False
        if (added.seq, added.path) in self._first or len(before) > FILE_BYTES:
            return False
        return self._kept.end + len(before) <= SESSION_BYTES


def file_of(log: Path) -> Path:
    """Where the snapshots of the session in the file `log` are."""
    return log.with_suffix(SUFFIX)


def opened(log: Path, records: Iterable[Record], seq: Callable[[], int]) -> Snapshots:
    """The snapshots of a session that goes on; a copy takes over those of its original. Blocking.

    `seq` tells the number of the message being worked on, 0 while there was none in this process.
    """
    known = list(records)
    last = known[-1].seq if known else 0
    first = known[0].payload if known else None
    file = file_of(log)
    if isinstance(first, SessionStarted) and first.parent and not file.exists():
        try:
            _take_over(file, first.parent, last)
        except OSError as error:
            _log.warning("no snapshots from the original of %s: %s", log, error)
    return Snapshots(file, lambda: seq() or last)


def kept(log: Path) -> list[Snapshot]:
    """Every edit of a session, oldest first; nothing where its file cannot be read."""
    try:
        with file_of(log).open("rb") as file:
            return _read(file).snapshots
    except OSError:
        return []


def content(log: Path, snapshot: Snapshot) -> bytes | None:
    """The bytes before an edit, None where there was no file.

    Raises: OSError when they were not kept or are damaged.
    """
    if not snapshot.before:
        return None
    with file_of(log).open("rb") as file:
        file.seek(max(snapshot.start, 0))
        data = file.read(snapshot.size)
    if snapshot.start < 0 or digest(data) != snapshot.before:
        raise OSError(f"what stood in {snapshot.path} was not kept")
    return data


def digest(data: bytes) -> str:
    """A content's name."""
    return hashlib.sha256(data).hexdigest()


def _digest(data: bytes | None) -> str:
    return "" if data is None else digest(data)


def _encoded(snapshot: Snapshot, data: bytes | None) -> bytes:
    line: _Line = {
        "seq": snapshot.seq,
        "path": str(snapshot.path),
        "before": snapshot.before,
        "after": snapshot.after,
        "mode": snapshot.mode,
        "bytes": None if data is None else len(data),
    }
    head = json.dumps(line).encode() + b"\n"  # ASCII: a path need not be valid Unicode
    return head if data is None else head + data + b"\n"


def _read(file: BinaryIO) -> Kept:
    """All whole entries from the start of a session's file."""
    result = Kept()
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    for line in _lines(file):
        start = file.tell()
        length = line["bytes"]
        end = start if length is None else start + length + 1
        if not start <= end <= size:
            break
        before = line["before"]
        if length is not None:
            result.places[before] = (start, length)
            file.seek(end)
        place = result.places.get(before, (-1, 0))
        result.snapshots.append(
            Snapshot(line["seq"], Path(line["path"]), before, line["after"], line["mode"], *place)
        )
        result.end = end
    return result


def _lines(file: BinaryIO) -> Iterator[_Line]:
    """The heads of the entries, up to the first that is torn."""
    while (head := file.readline(_LINE_BYTES)).endswith(b"\n"):
        try:
            value: object = json.loads(head)
        except ValueError:
            return
        if not isinstance(value, dict) or value.keys() != _Line.__annotations__.keys():
            return
        yield cast("_Line", value)


def _take_over(file: Path, parent: str, upto: int) -> None:
    """Copy what the original of a session kept up to and with the record `upto`."""
    found = [file.with_name(parent + SUFFIX), *file.parent.parent.glob(f"*/{parent}{SUFFIX}")]
    source = next((one for one in found if one.is_file()), None)
    if source is None:
        return
    log = source.with_suffix(".jsonl")
    written: set[str] = set()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(file, flags, 0o600), "wb") as target:
        for snapshot in kept(log):
            if snapshot.seq > upto:
                continue
            data = None
            if snapshot.start >= 0 and snapshot.before not in written:
                data = content(log, snapshot)
                written.add(snapshot.before)
            target.write(_encoded(snapshot, data))

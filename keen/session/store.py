"""Where sessions are kept: a directory for each workspace, a file for each session."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.errors import SessionError
from keen.session.files import cause, make_private
from keen.session.listing import Summary, summary
from keen.session.lock import Locked, acquire, is_held
from keen.session.log import Log, SessionLog, in_use, now
from keen.session.reading import Reading, read
from keen.session.records import (
    AssistantTurn,
    Compaction,
    Payload,
    Record,
    SessionRenamed,
    SessionStarted,
    ToolItem,
    UserMessage,
    encoded,
)
from keen.session.turns import settled

_SLUG_LENGTH: Final = 40
_ID: Final = re.compile(r"[0-9a-fA-F-]{1,36}")
_SURELY_ID: Final = 4
"""Characters from which what may begin an id is one; a shorter word may be a name."""
_EXCERPT: Final = 120


class MemoryLog:
    """A session that is never saved, and says why."""

    path = None

    def __init__(self, started: SessionStarted, reason: str | None) -> None:
        self.session_id = started.session_id
        self.reason = reason
        self._records: list[Record] = []
        self.append(started)

    def append(self, *payloads: Payload, strict: bool = False) -> int:
        for payload in payloads:
            number = len(self._records) + 1
            self._records.append(Record(number, now(), payload.kind, payload))
        return len(self._records)

    def heal(self) -> bool:
        return self.reason is None

    def records(self) -> list[Record]:
        return settled(self._records)

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a text was found. `excerpt` is one line around it."""

    path: Path
    seq: int
    kind: str
    excerpt: str


class NoSession(SessionError):
    """Nothing fits what was asked for, or more than one session does."""


@dataclass(frozen=True, slots=True)
class Store:
    """All sessions below one directory, which need not exist."""

    root: Path

    def directory(self, cwd: Path) -> Path:
        """The directory of the sessions of a workspace."""
        real = os.path.realpath(cwd)
        slug = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(real)).strip("-").lower()
        digest = hashlib.sha1(os.fsencode(real), usedforsecurity=False).hexdigest()[:10]
        return self.root / f"{slug[:_SLUG_LENGTH].strip('-') or 'root'}-{digest}"

    def draft(self, cwd: Path, *, model: str, keen_version: str, is_saved: bool = True) -> Log:
        """A new session, on disk from its first user message on; in memory where that cannot be.

        `reason` of the result says why it is not saved, if it is not.
        """
        directory = self.directory(cwd)
        started = SessionStarted(
            session_id=str(uuid.uuid4()),
            cwd=os.path.realpath(cwd),
            model=model,
            keen_version=keen_version,
        )
        if not is_saved:
            return MemoryLog(started, None)
        if problem := _cannot_write(directory):
            reason = f"{directory}: {problem}; this session is kept in memory only."
            return MemoryLog(started, reason)
        return SessionLog.draft(directory / f"{started.session_id}.jsonl", started)

    def sessions(self, cwd: Path | None) -> list[Summary]:
        """The sessions of a workspace, or of all (None), newest first."""
        found = [item for path in self._paths(cwd) if (item := summary(path)) is not None]
        return sorted(found, key=lambda item: item.time, reverse=True)

    def latest(self, cwd: Path, *, is_copied: bool = False) -> Path:
        """The newest session of a workspace that no other keen is using; any may be copied.

        Raises:
            NoSession: there is none.
            SessionError: all are in use.
        """
        found = self.sessions(cwd)
        for item in found:
            if is_copied or not self.is_locked(item.path):
                return item.path
        if found:
            raise SessionError(in_use(found[0].session_id, "another process"))
        raise NoSession(f"No session to continue in {cwd}.")

    def find(self, wanted: str, cwd: Path | None) -> Path:
        """The session of this id or name, or of a prefix that no other one has; here first.

        `cwd` None looks in all workspaces alike.

        Raises:
            NoSession: none or several fit.
        """
        if not wanted.strip():
            raise NoSession("An empty name fits no session.")
        for place in (cwd, None) if cwd is not None else (None,):
            if found := self._matches(wanted.strip(), place):
                return _only(found, wanted)
        raise NoSession(f"No session {wanted!r}. `keen sessions list --all` shows all of them.")

    def is_locked(self, path: Path) -> bool:
        """True while some process writes to the session."""
        return is_held(path.with_suffix(".lock"))

    def open(self, path: Path) -> SessionLog:
        """The session for writing. Raises: SessionError, which offers a fork when it is locked."""
        return SessionLog.open(path)

    def resume(self, path: Path) -> tuple[SessionLog, list[Record]]:
        """As `open`, with the session's records. Raises: SessionError."""
        return SessionLog.resume(path)

    def read(self, path: Path) -> Reading:
        """The session for reading, segments settled. Raises: SessionError."""
        try:
            reading = read(path)
        except OSError as error:
            raise SessionError(f"{path}: {cause(error)}.") from error
        reading.records = settled(reading.records)
        return reading

    def rename(self, path: Path, name: str) -> None:
        """Give a session a name. Raises: SessionError."""
        if not name.strip():
            raise SessionError("A session's name cannot be empty.")
        self.append(path, SessionRenamed(name=" ".join(name.split())[:200]))

    def append(self, path: Path, payload: Payload) -> None:
        """Add one record to a session nobody is using. Raises: SessionError."""
        log = self.open(path)
        try:
            log.append(payload, strict=True)
        finally:
            log.close()

    def delete(self, path: Path) -> None:
        """Remove a session with what belongs to it. Raises: SessionError, while it is in use."""
        try:
            lock = acquire(path.with_suffix(".lock"))
        except Locked as holder:
            raise SessionError(
                f"Session {path.stem[:8]} is in use by another keen ({holder}); it was not deleted."
            ) from holder
        except OSError as error:
            raise SessionError(f"{path}: {cause(error)}; it was not deleted.") from error
        try:
            path.unlink()
        except OSError as error:
            raise SessionError(f"{path}: {cause(error)}; it was not deleted.") from error
        finally:
            lock.release()
        for other in path.parent.glob(f"{path.stem}.*"):
            with contextlib.suppress(OSError):
                other.unlink()
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def fork(self, path: Path, cwd: Path, *, upto: int | None = None) -> Path:
        """A copy of a session in the workspace `cwd`, up to and with record `upto`.

        Raises:
            SessionError: the session cannot be read, or the copy not written.
        """
        records = self.read(path).records
        if not records:
            raise SessionError(f"{path}: no readable record; there is nothing to fork.")
        fresh = str(uuid.uuid4())
        target = self.directory(cwd) / f"{fresh}.jsonl"
        lines = [encoded(record) for record in _forked(records, fresh, path.stem, cwd, upto)]
        try:
            make_private(target.parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                target.unlink()
            raise SessionError(f"{target}: {cause(error)}; the fork was not made.") from error
        return target

    def search(self, text: str, cwd: Path | None, limit: int = 100) -> list[Hit]:
        """Places in what was said and done, newest session first; case does not matter."""
        hits: list[Hit] = []
        for item in self.sessions(cwd):
            for hit in search(item.path, text):
                if len(hits) == limit:
                    return hits
                hits.append(hit)
        return hits

    def _paths(self, cwd: Path | None) -> list[Path]:
        places = [self.directory(cwd)] if cwd is not None else _directories(self.root)
        return [
            Path(entry.path)
            for place in places
            for entry in _entries(place)
            if entry.name.endswith(".jsonl") and entry.name.count(".") == 1
        ]

    def _matches(self, wanted: str, cwd: Path | None) -> list[Path]:
        paths = self._paths(cwd) if _ID.fullmatch(wanted) else []
        by_id = [path for path in paths if path.stem.startswith(wanted.lower())]
        if by_id and len(wanted) >= _SURELY_ID:
            return by_id
        sessions, name = self.sessions(cwd), wanted.casefold()
        whole = [item.path for item in sessions if item.name.casefold() == name]
        begun = [item.path for item in sessions if item.name.casefold().startswith(name)]
        return whole or list(dict.fromkeys((*by_id, *begun)))


def search(path: Path, text: str) -> Iterator[Hit]:
    """Places in one session file, oldest first. Raises: SessionError."""
    try:
        records = settled(read(path).records)
    except OSError as error:
        raise SessionError(f"{path}: {cause(error)}.") from error
    wanted = text.casefold()
    for record in records:
        for words in _words(record.payload):
            if (place := words.casefold().find(wanted)) >= 0:
                yield Hit(path, record.seq, record.kind, _excerpt(words, place, len(text)))


def recall(path: Path, text: str, limit: int = 20) -> str:
    """What the model is told that searches its own session, compacted parts included."""
    if not text.strip():
        return "Say what to search for."
    hits = list(search(path, text.strip()))
    if not hits:
        return f"Nothing in this session contains {text.strip()!r}."
    lines = [f"{hit.seq} {hit.kind}: {hit.excerpt}" for hit in hits[-limit:]]
    if len(hits) > limit:
        lines.insert(0, f"{len(hits)} places; the last {limit}:")
    return "\n".join(lines)


def _words(payload: Payload) -> Iterator[str]:
    match payload:
        case UserMessage(content=content):
            yield content
        case AssistantTurn(transcript=items):
            for item in items:
                if isinstance(item, ToolItem):
                    arguments = json.dumps(item.input, ensure_ascii=False)
                    yield f"{item.name} {arguments}\n{item.output}"
                else:
                    yield item.content
        case Compaction(summary=str() as words):
            yield words
        case _:
            return


def _excerpt(words: str, place: int, length: int) -> str:
    start, end = max(0, place - _EXCERPT), place + length + _EXCERPT
    before, after = "…" if start else "", "…" if end < len(words) else ""
    return before + " ".join(words[start:end].split()) + after


def _only(found: Sequence[Path], wanted: str) -> Path:
    if len(found) == 1:
        return found[0]
    some = ", ".join(path.stem[:13] for path in found[:4])
    raise NoSession(f"{wanted!r} fits {len(found)} sessions: {some}. Give more of it, or an id.")


def _forked(
    records: Iterable[Record], fresh: str, parent: str, cwd: Path, upto: int | None
) -> Iterator[Record]:
    """The records of a fork: a start of its own, then the others unchanged but without names."""
    records = list(records)
    first = records[0].payload
    started = first if isinstance(first, SessionStarted) else SessionStarted(session_id=fresh)
    own = {"session_id": fresh, "parent": parent, "cwd": os.path.realpath(cwd)}
    yield Record(1, now(), started.kind, started.model_copy(update=own))
    for record in records:
        if upto is not None and record.seq > upto:
            return
        if isinstance(record.payload, SessionStarted | SessionRenamed) or record.seq == 1:
            continue
        if isinstance(record.payload, UserMessage):
            nameless = record.payload.model_copy(update={"name": ""})
            yield Record(record.seq, record.ts, record.kind, nameless)
        else:
            yield record


def _cannot_write(directory: Path) -> str:
    """Why no session can be written there, "" when it can: the nearest parent decides."""
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        if not place.is_dir():
            return os.strerror(errno.ENOTDIR)
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            return os.strerror(errno.EROFS)
    except OSError as error:
        return cause(error)
    return "" if os.access(place, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def _directories(root: Path) -> list[Path]:
    return [Path(entry.path) for entry in _entries(root) if entry.is_dir()]


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """What a directory holds; nothing when it is missing or closed to us."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []

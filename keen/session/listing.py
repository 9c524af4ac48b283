"""What a list of sessions shows of each, read from the head and the tail of its file."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from keen.core.messages import Json
from keen.session.records import ModelChanged, Payload, SessionRenamed, UserMessage

_HEAD: Final = 16 * 1024
_LARGEST_HEAD: Final = 4 * 1024 * 1024
_TAIL: Final = 16 * 1024
_LINE: Final = re.compile(
    rb'^\{"v":\d+,"seq":\d+,"ts":"([^"]{1,40})","kind":"([a-z_]+)","payload":(.*)$', re.MULTILINE
)
_USER: Final = b'"kind":"user_message"'
_RENAMED: Final = b'"kind":"session_renamed"'


@dataclass(frozen=True, slots=True)
class Summary:
    """One session of a list. `time` is that of its last record; `title` is never empty."""

    path: Path
    title: str
    time: datetime
    turns: int
    model: str
    cwd: str
    name: str = ""
    size: int = 0

    @property
    def session_id(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True)
class State:
    """What lists show of a session; every user message carries it."""

    turn: int = 0
    name: str = ""
    model: str = ""

    def after(self, payload: Payload) -> State:
        match payload:
            case UserMessage(steering=False):
                return replace(self, turn=self.turn + 1)
            case SessionRenamed():
                return replace(self, name=payload.name)
            case ModelChanged():
                return replace(self, model=payload.model)
            case _:
                return self

    def stamped(self, message: UserMessage) -> UserMessage:
        state = {"turn": self.turn, "name": self.name, "model": self.model}
        return message.model_copy(update=state)


def summary(path: Path) -> Summary | None:
    """The summary of a session file, None when it has no readable head or cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            started, first = _beginning(file.fileno(), status.st_size)
            if started is None and first is None:
                return None
            time, turns, name, model = _ending(file.fileno(), status.st_size)
    except OSError:
        return None
    started = started or {}
    text = _text(first or {}, "content")
    changed = datetime.fromtimestamp(status.st_mtime, UTC)
    return Summary(
        path=path,
        title=name or " ".join(text.split())[:200] or "(no text)",
        time=min(time or changed, changed),
        turns=turns,
        model=model or _text(started, "model"),
        cwd=_text(started, "cwd"),
        name=name,
        size=status.st_size,
    )


def _beginning(descriptor: int, size: int) -> tuple[dict[str, Json] | None, dict[str, Json] | None]:
    """Payloads of the session's start and of the first user message."""
    length = _HEAD
    while True:
        started = first = None
        head = os.pread(descriptor, min(length, size), 0)
        for line in _LINE.finditer(head):
            match line[2]:
                case b"session_started":
                    started = started or _payload(line[3])
                case b"user_message":
                    first = first or _payload(line[3])
                    if first is not None:
                        return started, first
                case _:
                    pass
        if length >= min(size, _LARGEST_HEAD):
            return started, first
        length *= 16


def _ending(descriptor: int, size: int) -> tuple[datetime | None, int, str, str]:
    """Time of the last record, number of turns, name and model, as far as the tail tells."""
    length = _TAIL
    while True:
        tail = os.pread(descriptor, min(length, size), max(0, size - length))
        if _USER in tail or length >= size:
            break
        length *= 8
    time, turns, name, model = None, 0, "", ""
    for line in _LINE.finditer(tail):
        time = _time(line[1]) or time
        if line[2] not in (b"user_message", b"session_renamed", b"model_changed"):
            continue
        payload = _payload(line[3]) or {}
        model = _text(payload, "model") or model
        turn = payload.get("turn")
        if isinstance(turn, int) and turn:
            turns, name = turn, _text(payload, "name")
        elif line[2] == b"user_message":
            turns += payload.get("steering") is not True
        name = _text(payload, "name") or name
    return time, turns, name, model


def _payload(rest: bytes) -> dict[str, Json] | None:
    """The payload that ends a line, without the line's closing brace."""
    try:
        value: Json = json.loads(rest.rstrip(b"\r").removesuffix(b"}"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(payload: dict[str, Json], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


def _time(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)

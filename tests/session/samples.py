"""Sessions and turns that the tests of this room share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keen.core.events import Event
from keen.session.checkpoint import Recorder
from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.reading import read
from keen.session.records import (
    AssistantTurn,
    Payload,
    Record,
    SessionStarted,
    TextItem,
    UserMessage,
)

SESSION = "6f1c0d5e-2f3b-4a52-9d57-0f6f0e1f9a11"


def a_draft(directory: Path, *, files: FileLayer | None = None) -> SessionLog:
    started = SessionStarted(session_id=SESSION, cwd="/work", model="demo/demo", keen_version="1")
    return SessionLog.draft(directory / f"{SESSION}.jsonl", started, files=files)


def user(text: str) -> UserMessage:
    return UserMessage(content=text)


def turn(text: str) -> AssistantTurn:
    return AssistantTurn(transcript=(TextItem(content=text),), message=text)


def a_session(directory: Path, rounds: int) -> Path:
    """A closed session of `rounds` questions and answers, with text of every awkward kind."""
    log = a_draft(directory)
    for number in range(rounds):
        log.append(
            user(f"question {number}\u2028\u0085 ☕ \x1c"), turn(f'answer {number} {{"v":1}}')
        )
    log.close()
    return log.path


def said(records: Sequence[Record]) -> list[str]:
    """The texts of the conversation, in order."""
    texts: list[str] = []
    for record in records:
        payload: Payload = record.payload
        if isinstance(payload, UserMessage):
            texts.append(payload.content)
        elif isinstance(payload, AssistantTurn):
            texts.append(payload.message)
    return texts


def kinds(path: Path) -> list[str]:
    return [record.kind for record in read(path).records]


async def play(recorder: Recorder, *events: Event) -> list[Event]:
    """Send events through the recorder's tap; what came out on the other side."""
    seen: list[Event] = []

    async def put(event: Event) -> None:
        seen.append(event)

    emit = recorder.tap(put)
    for event in events:
        await emit(event)
    return seen

"""An engine with a session file, and what another process would make of that file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keen._settings import Settings
from keen.agent.compaction import Compactor
from keen.agent.conversation import Conversation
from keen.agent.sampling import Sampler
from keen.core.events import Event, TextDelta
from keen.core.messages import History
from keen.core.models import ModelSpec
from keen.engine import Engine
from keen.session.checkpoint import Recorder
from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.projection import conversation, remembered
from keen.session.reading import read
from keen.session.records import AssistantTurn, Record, SessionStarted, TextItem
from keen.session.turns import settled
from keen.tools.base import Tool
from keen.tools.jobs import Jobs
from tests.agent.playing import a_conversation
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

UNSYNCED = FileLayer(sync=lambda _descriptor: None)
"""Files without fsync: what is tested here is order, not the disk."""


@dataclass
class Kept:
    """An engine and the file its session is kept in."""

    engine: Engine
    path: Path

    @property
    def conversation(self) -> Conversation:
        return self.engine.conversation

    @property
    def in_memory(self) -> History:
        """What a resumed session may know of the conversation in memory."""
        return remembered(self.conversation.history, 0)

    @property
    def on_disk(self) -> History:
        """The conversation that a resumed session starts from."""
        return conversation(self.records())

    def records(self) -> list[Record]:
        return settled(read(self.path).records) if self.path.exists() else []

    def texts(self) -> list[str]:
        """The visible texts of the session, in the order they were shown."""
        turns = [r.payload for r in self.records() if isinstance(r.payload, AssistantTurn)]
        items = [item for turn in turns for item in turn.transcript]
        return [item.content for item in items if isinstance(item, TextItem)]


def kept(talk: Conversation, path: Path) -> Kept:
    """`talk` with a session at `path`, a new one or the one that is there."""
    if path.exists():
        log, records = SessionLog.resume(path, files=UNSYNCED)
        talk.history = conversation(records)
    else:
        started = SessionStarted(session_id=path.stem, cwd="/work", model=talk.sampler.model.name)
        log = SessionLog.draft(path, started, files=UNSYNCED)
    recorder = Recorder(log)
    talk.commit = recorder.commit
    talk.remember = lambda history: remembered(history, 0)
    return Kept(Engine(talk, recorder, Settings(), path.parent, Jobs()), path)


def an_engine(
    dialect: Dialect,
    provider: FakeProvider,
    scratch: Path,
    *tools: Tool,
    model: ModelSpec | None = None,
    compactor: Callable[[Sampler], Compactor] | None = None,
) -> Kept:
    """A conversation with the fake, kept in a session below `scratch`."""
    talk = a_conversation(dialect, provider, scratch, *tools, model=model, compactor=compactor)
    return kept(talk, scratch / "session.jsonl")


def said(seen: list[Event]) -> str:
    return "".join(event.text for event in seen if isinstance(event, TextDelta))

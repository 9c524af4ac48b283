"""Esc and Ctrl+C at every step of a compaction, its commit included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    Event,
    TextDelta,
    TurnFinished,
)
from keen.core.messages import Results, User
from keen.session.records import Compaction
from keen.wire.base import Wire
from tests.agent.engines import Kept, an_engine, said
from tests.agent.playing import FakeTool, small
from tests.agent.stepping import Steps, count_tasks
from tests.agent.test_compaction import LARGE, SUMMARY, TASK
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.session.test_kill import is_valid

How: TypeAlias = Literal["esc", "ctrl-c", "both", "ctrl-c twice"]

LOOKING = "Let me look."
pytestmark = pytest.mark.timeout(120)


@dataclass
class Model:
    """Looks once, and is done when it has seen a result, a checkpoint or a second message."""

    dialect: Dialect
    summaries: int = 0
    looks: int = 0
    dones: int = 0

    def answer(self, request: Recorded) -> Scripted:
        transcript = self.dialect.read(request)
        if not transcript.tools:
            self.summaries += 1
            return self.dialect.says(SUMMARY, pieces=(SUMMARY,), usage=None)
        if transcript.results or "compacted_context" in request.text or "go on" in request.text:
            self.dones += 1
            return self.dialect.says("Done.", pieces=("Done.",), usage=None)
        self.looks += 1
        call = ("read_file", {"path": "big.log"})
        return self.dialect.calls_many(call, text=LOOKING, usage=None)


@dataclass
class Injected:
    """One turn in which something is pressed at one step, and the turn after it."""

    kept: Kept
    how: How
    at: int
    seen: list[Event] = field(default_factory=list[Event])
    cancels: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    async def run(self, *, from_the_start: bool) -> Steps:
        steps = Steps(self.at, self._press)
        if from_the_start:
            steps.begin()

        async def emit(event: Event) -> None:
            self.seen.append(event)
            if isinstance(event, CompactionStarted):
                self.cancels.append(event.cancel)
                steps.begin()
            await asyncio.sleep(0)

        self.task = steps.start(self.kept.engine.run(User(TASK), emit))
        await asyncio.wait([self.task])
        return steps

    def _press(self) -> None:
        if self.how in ("esc", "both"):
            for cancel in self.cancels:
                cancel()
        if self.how != "esc":
            self.task.cancel()
        if self.how == "ctrl-c twice":
            asyncio.get_running_loop().call_soon(self.task.cancel)


@dataclass
class Campaign:
    """The same turn again and again over one wire, something pressed one step later each time."""

    dialect: Dialect
    scratch: Path
    how: How
    is_whole_turn: bool = False
    """Press from the first step of the turn on, not from the first of the compaction."""

    async def run(self) -> int:
        """Press at step 0, 1, 2 … until a turn ends before its step; how many there were."""
        count_tasks()
        model = Model(self.dialect)
        async with FakeProvider(model.answer) as provider:
            wire = self.dialect.wire(provider.url)
            try:
                at = 0
                while await self._pressed(at, model, provider, wire):
                    at += 1
            finally:
                await wire.aclose()
            assert provider.violations == []
        return at

    async def _pressed(self, at: int, model: Model, provider: FakeProvider, wire: Wire) -> bool:
        place = self.scratch / str(at)
        place.mkdir()
        tool, size = FakeTool(output=LARGE), small(self.dialect)
        kept = an_engine(self.dialect, provider, place, tool, model=size)
        kept.conversation.sampler.wire = wire
        model.summaries = model.looks = model.dones = 0
        injected = Injected(kept, self.how, at)
        steps = await injected.run(from_the_start=self.is_whole_turn)
        where = f"{self.how} at step {at}: {[type(e).__name__ for e in injected.seen]}"
        _check(injected, steps, model, where)
        await _goes_on(kept, where)
        assert kept.engine.recorder is not None
        await kept.engine.recorder.aclose()
        return steps.has_acted


def _check(injected: Injected, steps: Steps, model: Model, where: str) -> None:
    kept, seen = injected.kept, injected.seen
    assert steps.left_over == [], where
    assert kept.in_memory == kept.on_disk, where
    is_valid(kept.on_disk)
    outcomes = [
        event
        for event in seen
        if isinstance(event, CompactionApplied | CompactionCancelled | CompactionFailed)
    ]
    started = [event for event in seen if isinstance(event, CompactionStarted)]
    assert model.summaries <= len(started) <= 1, where
    assert len(outcomes) <= len(started), where
    applied = [r for r in kept.records() if isinstance(r.payload, Compaction)]
    raw = [m for m in kept.conversation.history if isinstance(m, Results)]
    if injected.task.cancelled():
        assert injected.how != "esc", where
        if started and not applied:
            assert raw[0].results[0].output == LARGE, where
    else:
        assert injected.task.exception() is None, where
        assert isinstance(seen[-1], TurnFinished), where
        assert len(outcomes) == len(started) == 1, where
        assert bool(applied) == isinstance(outcomes[0], CompactionApplied), where
        assert (model.looks, model.dones) == (1, 1), where
    shown = [event.text for event in seen if isinstance(event, TextDelta)]
    assert "".join(kept.texts()) == "".join(shown), where
    assert SUMMARY not in "".join(shown), where


async def _goes_on(kept: Kept, where: str) -> None:
    later: list[Event] = []

    async def emit(event: Event) -> None:
        later.append(event)

    await kept.engine.run(User("go on"), emit)
    assert isinstance(later[-1], TurnFinished), where
    assert said(later) == "Done.", where
    assert kept.in_memory == kept.on_disk, where
    is_valid(kept.on_disk)


HOWS: tuple[How, ...] = ("esc", "ctrl-c", "both", "ctrl-c twice")
NAMES = ("chat", "anthropic", "bedrock")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", NAMES)
async def test_memory_and_disk_agree_whatever_is_pressed_at_any_step(
    name: str, tmp_path: Path, how: How
) -> None:
    steps = await Campaign(dialect_named(name), tmp_path, how).run()
    print(f"\n{name} {how}: {steps} steps")
    assert steps > 10


async def test_memory_and_disk_agree_when_a_turn_is_cancelled_at_any_step(tmp_path: Path) -> None:
    steps = await Campaign(dialect_named("chat"), tmp_path, "ctrl-c", is_whole_turn=True).run()
    assert steps > 20


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", HOWS)
async def test_in_all_six_at_any_step_of_the_whole_turn(
    dialect: Dialect, tmp_path: Path, how: How
) -> None:
    steps = await Campaign(dialect, tmp_path, how, is_whole_turn=True).run()
    print(f"\n{dialect.name} {how}: {steps} steps")
    assert steps > 20

"""Any interleaving of answers, tools, faults, presses, steering, crashes and resumes is sound."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keen.agent.compaction import (
    CheckpointStrategy,
    Compactor,
    RecentStrategy,
    Summariser,
    WindowStrategy,
)
from keen.agent.conversation import Conversation
from keen.agent.sampling import Sampler
from keen.core.errors import CompactionError, ToolError
from keen.core.events import (
    CompactionApplied,
    CompactionStarted,
    Event,
    Rewound,
    SteeringDelivered,
    TextDelta,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import JsonObject, User
from keen.core.models import ModelSpec
from keen.headless.output import Transcript
from keen.session.records import Compaction
from keen.tools.base import Outcome
from tests.agent.engines import Kept, kept
from tests.agent.playing import SYSTEM, FakeTool, a_toolbox
from tests.agent.scripted import SECRET, Fault, Line, Script, ScriptedWire, SummaryKind, check_pairs
from tests.session.test_kill import is_valid

Press: TypeAlias = Literal["esc", "ctrl-c", "crash", "steer"]
Between: TypeAlias = Literal["", "resume", "compact", "undo"]
StrategyName: TypeAlias = Literal["checkpoint", "recent", "window", "off"]

MODEL = ModelSpec("fake", "scripted", "chat", 20_000, True, 2_000, 2_000)
LIFE_CYCLE = (
    "CompactionStarted",
    "CompactionApplied",
    "CompactionCancelled",
    "CompactionFailed",
)
OUTPUTS = {"small": 60, "some": 3_000, "half": 20_000, "tight": 45_000, "huge": 100_000}


@dataclass(frozen=True)
class TurnPlan:
    lines: tuple[Line, ...]
    summaries: tuple[SummaryKind, ...]
    presses: tuple[tuple[int, Press], ...]
    """After which event of the turn what is pressed."""
    between: Between


CALLS = st.sampled_from(
    (
        *("read_file:small", "read_file:some", "read_file:half", "read_file:tight"),
        *("read_file:huge", "write:small", "write:half", "broken:small", "nowhere:small"),
    )
)
FAULTS: st.SearchStrategy[Fault] = st.sampled_from(
    ["cut", "cut", "overflow", "overflow in stream", "rejected"]
)
LINES = st.builds(
    Line,
    words=st.integers(0, 3),
    calls=st.one_of(st.lists(CALLS, min_size=1, max_size=3), st.lists(CALLS, max_size=2)).map(
        tuple
    ),
    faults=st.one_of(st.just(()), st.just(()), st.lists(FAULTS, max_size=2).map(tuple)),
    finish=st.sampled_from(["stop"] * 8 + ["length", "refused", "overflow"]),
    reports=st.sampled_from([0, 0, 100, 70, 150]),
)
SUMMARIES: st.SearchStrategy[SummaryKind] = st.sampled_from(
    ("good", "good", "good", "good", "empty", "cut", "called", "overflow", "rejected", "hangs")
)
PRESSES: st.SearchStrategy[tuple[int, Press]] = st.tuples(
    st.integers(1, 12), st.sampled_from(["esc", "ctrl-c", "crash", "steer", "steer"])
)
BETWEEN: st.SearchStrategy[Between] = st.sampled_from(["", "", "resume", "compact", "undo"])
TURNS = st.builds(
    TurnPlan,
    lines=st.lists(LINES, min_size=1, max_size=5).map(tuple),
    summaries=st.lists(SUMMARIES, max_size=3).map(tuple),
    presses=st.lists(PRESSES, max_size=3).map(tuple),
    between=BETWEEN,
)
STRATEGIES: st.SearchStrategy[StrategyName] = st.sampled_from(
    ["checkpoint", "checkpoint", "recent", "window", "off"]
)


class Screen:
    """What a person sees of the turns: voided words gone, every other word once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._boundary = 0

    def see(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self.words.append(text)
            case Rewound():
                del self.words[self._boundary :]
            case ToolFinished() | CompactionApplied():
                self._boundary = len(self.words)
            case _:
                pass

    def end_turn(self) -> None:
        self._boundary = len(self.words)


@dataclass
class World:
    """One session over several processes, and what must hold of it."""

    directory: Path
    strategy: StrategyName
    script: Script = field(default_factory=Script)
    screen: Screen = field(default_factory=Screen)
    output: Transcript = field(default_factory=Transcript)
    processes: int = 0
    turns: int = 0
    seen: list[Event] = field(default_factory=list[Event])
    cancels: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def __post_init__(self) -> None:
        self.script.on_hang = self.esc
        self.now = self.start(self.directory / "session.jsonl")

    def esc(self) -> None:
        for cancel in self.cancels:
            cancel()

    def start(self, path: Path) -> Kept:
        """A process that goes on with the session at `path`."""
        self.wire = ScriptedWire(self.script)
        sampler = Sampler(self.wire, MODEL)
        tools = (
            FakeTool(act=_outcome),
            FakeTool(name="write", effect="write", act=_outcome),
            FakeTool(name="broken", act=_broken),
        )
        talk = Conversation(
            sampler,
            a_toolbox(self.directory, *tools),
            SYSTEM,
            compactor=_compactor(self.strategy, sampler),
            is_automatic=self.strategy != "off",
        )
        self.processes += 1
        return kept(talk, path)

    async def play(self, plan: TurnPlan) -> None:
        self.script.lines, self.script.summaries = list(plan.lines), list(plan.summaries)
        await self.turn(plan)
        await self.do(plan.between)

    async def turn(self, plan: TurnPlan) -> None:
        self.turns += 1
        prompt = f"please do {self.turns}"
        self.seen, self.cancels, delivered = [], [], [prompt]
        presses, copy = dict(plan.presses), self.directory / f"crash-{self.turns}.jsonl"
        first = len(self.wire.bodies)
        engine = self.now.engine
        before = len(self.screen.words)

        async def emit(event: Event) -> None:
            self.seen.append(event)
            self.screen.see(event)
            if isinstance(event, CompactionStarted):
                self.cancels.append(event.cancel)
            if isinstance(event, SteeringDelivered):
                delivered.append(event.message.text)
            match presses.get(len(self.seen)):
                case "esc":
                    self.esc()
                case "ctrl-c":
                    task.cancel()
                case "crash" if not copy.exists() and self.now.path.exists():
                    shutil.copy(self.now.path, copy)
                    task.cancel()
                case "steer" if engine.turn is not None:
                    engine.turn.steering.append(User(f"rather {len(self.seen)}"))
                case _:
                    pass
            await asyncio.sleep(0)

        task = asyncio.create_task(engine.run(User(prompt), emit))
        await asyncio.wait([task])
        self.screen.end_turn()
        is_cut = task.cancelled()
        if not is_cut:
            task.result()
        self.check_events(is_cut)
        self.check_requests(first, prompt)
        if copy.exists():
            await self.crashed(copy, before)
        self.check(delivered)

    async def crashed(self, copy: Path, before: int) -> None:
        """The process died when `copy` was made: what came later never was."""
        recorded = Kept(self.now.engine, copy)
        shown = "".join(recorded.texts())
        words = self.screen.words
        whole = "".join(words)
        assert whole.startswith(shown), "a crash loses the last words and nothing else"
        assert len(shown) >= len("".join(words[:before])), "earlier turns are whole"
        while len("".join(words)) > len(shown):
            words.pop()
        self.screen.end_turn()
        await self.close()
        self.now = self.start(copy)

    async def close(self) -> None:
        assert self.now.engine.recorder is not None
        await self.now.engine.recorder.aclose()

    async def do(self, between: Between) -> None:
        match between:
            case "resume":
                await self.close()
                self.now = self.start(self.now.path)
            case "compact":
                await self.compact()
            case "undo":
                try:
                    await self.now.engine.undo_compaction()
                except CompactionError:
                    return
            case "":
                return
        self.check([])

    async def compact(self) -> None:
        async def emit(event: Event) -> None:
            if isinstance(event, CompactionStarted):
                self.cancels = [event.cancel]

        try:
            await self.now.conversation.compact("", emit)
        except CompactionError:
            return

    def check_events(self, is_cut: bool) -> None:
        """Started has exactly one outcome, the end is said once, and no event tells a summary."""
        kinds = [event for event in self.seen if type(event).__name__ in LIFE_CYCLE]
        starts = [event for event in kinds if isinstance(event, CompactionStarted)]
        assert all(isinstance(kind, CompactionStarted) for kind in kinds[::2])
        assert len(kinds) in (2 * len(starts), 2 * len(starts) - (1 if is_cut else 0))
        ends = [event for event in self.seen if isinstance(event, TurnFinished | TurnFailed)]
        assert len(ends) == 1 or (is_cut and not ends)
        for event in self.seen:
            match event:
                case CompactionApplied(receipt=receipt):
                    assert SECRET not in repr(receipt)
                case TurnFinished():
                    pass
                case _:
                    assert SECRET not in repr(event)

    def check_requests(self, first: int, prompt: str) -> None:
        """What was sent is counted exactly, keeps the task, and has one system and toolset."""
        assert self.wire.requests == self.now.engine.requests
        assert self.wire.spent == self.now.engine.usage
        for body in self.wire.bodies[first:]:
            assert prompt in json.dumps(body["messages"])
            assert body["system"] == SYSTEM
            assert body["tools"] == ["read_file", "write", "broken"]

    def check(self, delivered: list[str]) -> None:
        """Memory is what a resume would find; words are told once, in order, everywhere."""
        now = self.now
        check_pairs(now.conversation.history)
        on_disk = now.on_disk
        is_valid(on_disk)
        assert now.in_memory == on_disk
        told = "".join(now.texts())
        assert told == "".join(self.screen.words)
        for record in now.records():
            if isinstance(record.payload, Compaction) and record.payload.trigger != "manual":
                assert record.payload.status == ""
                assert record.payload.transcript == ()
        if self.seen and isinstance(self.seen[-1], TurnFinished):
            self.check_output(delivered)

    def check_output(self, delivered: list[str]) -> None:
        output, shown = Transcript(), Screen()
        for event in self.seen:
            shown.see(event)
            match event:
                case TextDelta(text=text):
                    output.add(text)
                case Rewound():
                    output.rewind()
                case UsageReported() | CompactionStarted() | SteeringDelivered():
                    output.end_answer()
                case _ if type(event).__name__ == "ToolStarted":
                    output.end_answer()
                case _:
                    pass
        output.end_answer()
        assert output.text.replace("\n\n", "") == "".join(shown.words)
        texts = [m.text for m in self.now.conversation.history if isinstance(m, User)]
        assert all(any(word in text for text in texts) for word in delivered)


async def _outcome(arguments: JsonObject) -> Outcome:
    await asyncio.sleep(0)
    size = str(arguments["path"]).partition(":")[2]
    return Outcome("output line\n" * (OUTPUTS[size] // 12))


async def _broken(_arguments: JsonObject) -> Outcome:
    raise ToolError("broken")


def _compactor(name: StrategyName, sampler: Sampler) -> Compactor:
    match name:
        case "recent":
            return RecentStrategy(Summariser(sampler), 2_000)
        case "window":
            return WindowStrategy(sampler, 2_000)
        case _:
            return CheckpointStrategy(Summariser(sampler))


async def play(strategy: StrategyName, plans: list[TurnPlan]) -> World:
    with TemporaryDirectory() as directory:
        world = World(Path(directory), strategy)
        try:
            for plan in plans:
                await world.play(plan)
            quiet = TurnPlan((), (), (), "resume")
            await world.play(quiet)
            await world.play(replace(quiet, between=""))
        finally:
            await world.close()
        return world


ALIKE = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.timeout(180)
@settings(ALIKE, max_examples=300)
@given(STRATEGIES, st.lists(TURNS, min_size=1, max_size=3))
async def test_whatever_happens_in_whatever_order(
    strategy: StrategyName, plans: list[TurnPlan]
) -> None:
    await play(strategy, plans)


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
@settings(ALIKE, max_examples=10_000)
@given(STRATEGIES, st.lists(TURNS, min_size=1, max_size=5))
async def test_whatever_happens_in_whatever_order_at_length(
    strategy: StrategyName, plans: list[TurnPlan]
) -> None:
    await play(strategy, plans)


A_FILLED_WINDOW_TWICE = TurnPlan(
    lines=(
        Line(0, ("read_file:half",)),
        Line(1, ("read_file:small",), finish="overflow"),
        Line(0, finish="overflow"),
    ),
    summaries=(),
    presses=(),
    between="",
)
CANCELLED_AFTER_A_REFUSAL = TurnPlan(
    lines=(
        Line(1, ("read_file:small", "read_file:small")),
        Line(2, ("read_file:small",), faults=("overflow in stream",)),
    ),
    summaries=(),
    presses=((8, "ctrl-c"),),
    between="",
)


@pytest.mark.parametrize("strategy", ["checkpoint", "recent", "window"])
@pytest.mark.parametrize("plan", [A_FILLED_WINDOW_TWICE, CANCELLED_AFTER_A_REFUSAL])
async def test_what_was_once_found(strategy: StrategyName, plan: TurnPlan) -> None:
    await play(strategy, [plan])

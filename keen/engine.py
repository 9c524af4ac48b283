"""A conversation with its session and its limits: what the app and `keen run` drive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from keen._settings import Settings
from keen.agent.conversation import Conversation
from keen.agent.gate import Gate
from keen.agent.sampling import Sampler
from keen.agent.transaction import written
from keen.agent.turn import Turn
from keen.core.budget import Budget, output_reserve
from keen.core.errors import CompactionError, KeenError, Transient
from keen.core.events import (
    CompactionApplied,
    Emit,
    Event,
    Stop,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import History, Usage, User
from keen.core.models import ModelSpec
from keen.extensions import Extensions
from keen.session.checkpoint import Recorder
from keen.session.projection import conversation, last_compaction
from keen.session.records import CompactionReverted, Record
from keen.tools.jobs import Jobs
from keen.wire.base import Endpoint, FixedKey
from keen.wire.registry import wire_for

_FAREWELL_SECONDS: Final = 3.0
"""How long the end of a session may be told to whoever wants to know."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """--max-turns, --max-tokens and --max-budget-usd; None is no limit.

    `cost` is what the run has cost so far, in dollars.
    """

    answers: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    cost: Callable[[], float | None] = lambda: None

    def reached(self, answers: int, spent: Usage) -> Stop | None:
        """Why no further request may be sent, or None."""
        if self.answers is not None and answers >= self.answers:
            return "max_turns"
        if self.tokens is not None and spent.total_tokens >= self.tokens:
            return "budget"
        cost = self.cost()
        if self.dollars is not None and cost is not None and cost >= self.dollars:
            return "budget"
        return None


@dataclass(frozen=True, slots=True)
class Undone:
    """A compaction that was taken back: its record, the tokens of the conversation now.

    `is_raw`: the tool results before it were still in memory, so that they are back too.
    """

    seq: int
    tokens: int
    is_raw: bool


@dataclass
class Engine:
    """A conversation with its session, as the app and `keen run` drive it."""

    conversation: Conversation
    recorder: Recorder | None
    settings: Settings
    working_directory: Path
    jobs: Jobs
    notices: tuple[str, ...] = ()
    """What the person should know before the first turn, one line each."""
    limits: RunLimits | None = None
    summariser: Sampler | None = None
    """Another model that writes the summaries; what it costs is booked on the run as well."""
    extensions: Extensions | None = None
    """Skills, subagents, MCP servers and hooks; None where a conversation has none."""
    turn: Turn | None = field(default=None)
    """The running turn: steering goes there."""
    _has_begun: bool = False
    _opening: str = ""
    """What the gate said when the session began, for the first message that is sent."""

    @property
    def session_id(self) -> str | None:
        return self.recorder.session_id if self.recorder is not None else None

    @property
    def gate(self) -> Gate:
        """Who is told what happens here, and may object."""
        return self.conversation.gate

    @property
    def cwd(self) -> str:
        return str(self.working_directory)

    @property
    def model(self) -> str:
        return self.conversation.sampler.model.name

    @property
    def requests(self) -> int:
        return self.conversation.sampler.requests

    @property
    def usage(self) -> Usage:
        return self.conversation.sampler.spent

    @property
    def cost_usd(self) -> float | None:
        """None where the price of a model that may be asked is not known."""
        total = 0.0
        for model, spent in self._bills():
            if model.price is None:
                return None
            total += model.price.cost(spent)
        return round(total, 6)

    @property
    def unpriced(self) -> str:
        """The first model whose price is not known; empty when all are."""
        return next((model.name for model, _ in self._bills() if model.price is None), "")

    def _bills(self) -> list[tuple[ModelSpec, Usage]]:
        """Each model that may be asked or was, with what it was sent."""
        others: list[tuple[ModelSpec, Usage]] = []
        if self.summariser is not None:
            others.append((self.summariser.model, self.summariser.spent))
        if self.extensions is not None:
            others += [(bill.model, bill.spent) for bill in self.extensions.ledger.bills]
        elsewhere = sum((spent for _, spent in others), Usage())
        return [(self.conversation.sampler.model, self.usage - elsewhere), *others]

    async def check_key(self) -> None:
        """Raises: Unauthorized when there is no key, before anything is sent or kept."""
        with contextlib.suppress(Transient):  # the turn tries again, and tells it
            await self.conversation.sampler.wire.endpoint.credential.secret()

    async def run(self, user: User, emit: Emit) -> None:
        """One turn, recorded; however it ends, session and history are whole afterwards."""
        try:
            user = await self._admitted(user, emit)
        except KeenError as error:
            await emit(TurnFailed(error))
            return
        text = await asyncio.to_thread(self.conversation.sendable, user.text)
        user = replace(user, text=text)
        turn = self.turn = self.conversation.turn(user, self.limits)
        try:
            if self.recorder is None:
                await self.conversation.run(turn, emit)
            else:
                await self._recorded(self.recorder, turn, user, emit)
        finally:
            self.turn = None

    async def _admitted(self, user: User, emit: Emit) -> User:
        """What is sent for a message: with what the gate adds. Raises: KeenError for a refusal."""
        if not self._has_begun:
            self._has_begun = True
            source = "resume" if self.conversation.history else "startup"
            self._opening = await self.gate.session_started(source)
        word = await self.gate.before_prompt(user.text)
        if word.refusal:
            raise KeenError(word.refusal)
        if self.extensions is not None:
            context = self.conversation.toolbox.context
            user = await self.extensions.spelled_out(user, context, emit)
        added = "\n\n".join(filter(None, (self._opening, word.context)))
        self._opening = ""
        if not added:
            return user
        return replace(user, text=f"{user.text}\n\n<hook_context>\n{added}\n</hook_context>")

    def listen(self, tell: Callable[[str], None]) -> None:
        """Hand what the person should know to `tell`, one line each, from now on."""
        self.gate.listen(tell)
        if self.extensions is not None:
            self.extensions.listen(tell)

    async def _recorded(self, recorder: Recorder, turn: Turn, user: User, emit: Emit) -> None:
        before = self.usage
        # Cancelled meanwhile, the message is in the session, so the next turn must know it too.
        await written(recorder.user_message(user), lambda: self._begun(turn))
        is_interrupted, failure, context_tokens = True, None, 0

        async def watch(event: Event) -> None:
            nonlocal is_interrupted, failure, context_tokens
            match event:
                case TurnFinished():
                    is_interrupted = False  # also when cancelled while this is told
                case TurnFailed(error=error):
                    is_interrupted, failure = False, str(error)
                case UsageReported(usage=usage):
                    context_tokens = usage.input_tokens
                case CompactionApplied():
                    context_tokens = 0  # what was reported is no longer there
                case _:
                    pass
            await emit(event)

        try:
            await self.conversation.run(turn, recorder.tap(watch))
        finally:
            await recorder.finish(
                is_interrupted,
                failure,
                self.usage - before,
                context_tokens,
                turn.history,
            )

    def _begun(self, turn: Turn) -> None:
        self.conversation.history = turn.history

    async def undo_compaction(self) -> Undone:
        """Bring back the conversation before the last compaction; what came later stays.

        Raises:
            CompactionError: a turn is running, there is none to take back, or what it replaced
                would not fit the window.
        """
        if self.turn is not None:
            raise CompactionError("A turn is running: stop it, then take the compaction back.")
        records = await self.recorder.records() if self.recorder is not None else []
        last = last_compaction(records)
        if self.recorder is None or last is None:
            raise CompactionError("There is no compaction to take back.")
        history, is_raw = self._without(records, last)
        await written(self.recorder.reverted(last.seq), lambda: self._bring_back(history))
        return Undone(last.seq, self._size(history), is_raw)

    def _without(self, records: list[Record], last: Record) -> tuple[History, bool]:
        """The conversation without its last compaction, raw where memory still has it so.

        Raises: CompactionError when neither form fits the window.
        """
        room = self.conversation.sampler.budget.effective
        raw = self.conversation.before_compaction()
        if raw is not None and self._size(raw) <= room:
            return raw, True
        payload = CompactionReverted(seq=last.seq)
        undone = Record(records[-1].seq + 1, records[-1].ts, payload.kind, payload)
        told = conversation([*records, undone])
        if (size := self._size(told)) <= room:
            return told, False
        raise CompactionError(
            f"The conversation before it measures about {size:,} tokens and "
            f"{self.model} leaves {room:,} for input: it stays compacted."
        )

    def _bring_back(self, history: History) -> None:
        self.conversation.replaced = None
        self.conversation.adopt(history)

    def _size(self, history: History) -> int:
        return self.conversation.size_of(history)

    def fits(self, model: ModelSpec) -> bool:
        """True when the conversation could go on with `model` as it is; else compact it before."""
        wire = wire_for(model.client, Endpoint(model.provider, FixedKey("")))
        reserve = output_reserve(model.window, wire.asked_output(model))
        budget = Budget(model.window, reserve, model.max_input)
        # The ratio measured so far is the present model's, not the other one's.
        estimated = self._size(self.conversation.history) / self.conversation.sampler.meter.ratio
        return estimated <= budget.effective

    async def aclose(self) -> None:
        """Stop background commands, let connections and session go. Idempotent."""
        try:
            await self._say_farewell()
            await self.jobs.aclose()
            if self.extensions is not None:
                await self.extensions.aclose()
            await self.conversation.sampler.wire.aclose()
            if self.summariser is not None:
                await self.summariser.wire.aclose()
        finally:
            if self.recorder is not None:
                await self.recorder.aclose()

    async def _say_farewell(self) -> None:
        has_begun, self._has_begun = self._has_begun, False
        if has_begun:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await self.gate.session_ended()

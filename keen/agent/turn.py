"""The turn: ask, run tools, ask again, until done. The one loop, the same for all wires.

Before each request it measures, compacts when tight, prunes as a last guardrail, and after a
refusal for size compacts once more and sends the smaller request.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

from keen.agent.compaction import Compactor, Job, has_something_to_summarise
from keen.agent.gate import OPEN, Gate
from keen.agent.sampling import Sampler, is_empty
from keen.agent.toolbox import Toolbox
from keen.agent.transaction import Commit, Transaction, no_commit
from keen.agent.view import prune, pruned_tokens
from keen.core.errors import ContextOverflow, KeenError
from keen.core.events import (
    CompactionSuspended,
    Emit,
    Event,
    Rewound,
    SteeringDelivered,
    TextDelta,
    Trigger,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import (
    Assistant,
    History,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
    interrupted,
    tool_calls,
    visible_text,
)
from keen.wire.base import Reply, Request

Stop: TypeAlias = Literal["done", "length", "refused", "max_turns", "budget"]

_STRIKES = 2
"""Proactive attempts of one turn that may fail or be cancelled."""
_CONTINUATIONS = 8
"""Times that the gate may make a turn go on that was done."""
_WORTHWHILE = 80
"""Percent of the trigger under which the first request after a compaction must be."""


class Limits(Protocol):
    """What a run may spend."""

    def reached(self, answers: int, spent: Usage) -> Stop | None:
        """Why no further request may be sent, or None."""
        ...


@dataclass
class Turn:
    """One message of the person's, carried out. `history` ends with that message at the start.

    While it runs it owns the history; whatever ends it, `history` is whole and valid afterwards.
    """

    sampler: Sampler
    toolbox: Toolbox
    system: str
    history: History
    live: tuple[User, ...]
    """The user messages of this turn, oldest first."""
    compactor: Compactor | None = None
    """None: nothing is compacted by itself."""
    commit: Commit = no_commit
    limits: Limits | None = None
    cache_key: str = ""
    gate: Gate = OPEN
    answers: int = 0
    steering: list[User] = field(default_factory=list[User])
    """Messages to deliver at the next tool boundary; what is left at the end was not delivered."""
    replaced: tuple[History, History] | None = None
    """The last compaction of this turn: the history before it and the one it left."""
    _partial: list[str] = field(default_factory=list[str])
    _settled: History | None = None
    _strikes: int = 0
    _is_suspended: bool = False
    _continuations: int = 0

    async def run(self, emit: Emit) -> bool:
        """Drive the turn to its end; the last event is TurnFinished (True) or TurnFailed (False).

        Cancelling the awaiting task cancels everything below it, a running compaction included.
        """
        try:
            stop = await self._rounds(emit)
        except KeenError as error:
            self._keep_partial()
            await emit(TurnFailed(error))
            return False
        except BaseException:
            self._keep_partial()
            raise
        else:
            await emit(TurnFinished(self.history, stop))
            return True

    async def _rounds(self, emit: Emit) -> Stop:
        """Answers and their tools, until an answer calls nothing or a limit is reached."""
        while True:
            spent = self.sampler.spent
            if self.limits and (stop := self.limits.reached(self.answers, spent)):
                return stop
            reply = await self._step(emit)
            self.answers += 1
            if reply.finish == "overflow":
                await self._continue_after_full_window(reply, emit)
                continue
            if reply.finish in ("length", "refused"):
                self._append(without_calls(reply.message))
                return "length" if reply.finish == "length" else "refused"
            calls = tool_calls(reply.message)
            if not calls:
                with self._standing(reply.message):
                    if not await self._goes_on(emit):
                        return "done"
                continue
            await self._run_tools(reply.message, calls, emit)
            await self._deliver_steering(emit)

    async def _run_tools(self, answer: Assistant, calls: tuple[ToolCall, ...], emit: Emit) -> None:
        """Append the answer and one result per call, whatever happens: an open call is answered."""
        self._partial.clear()
        results: dict[str, ToolResult] = {}
        try:
            await self.toolbox.run(calls, emit, results)
        finally:
            ordered = tuple(results.get(call.id) or interrupted(call) for call in calls)
            self.history = (*self.history, answer, Results(ordered))

    async def _deliver_steering(self, emit: Emit) -> None:
        while self.steering:
            await self._deliver(self.steering.pop(0), emit)

    async def _deliver(self, user: User, emit: Emit) -> None:
        message = replace(user, steering=True)
        self.history = (*self.history, message)
        self.live = (*self.live, message)
        await emit(SteeringDelivered(message))

    async def _goes_on(self, emit: Emit) -> bool:
        """False when the turn is done; else why it is not has become a message for the model."""
        if self._continuations >= _CONTINUATIONS:
            return False
        reason = await self.gate.before_stop(is_again=self._continuations > 0)
        if not reason:
            return False
        self._continuations += 1
        await self._deliver(User(reason), emit)
        return True

    async def _continue_after_full_window(self, reply: Reply, emit: Emit) -> None:
        """Keep the text of an answer that filled the window, make room and go on."""
        with self._standing(without_calls(reply.message)):
            await self._force(ContextOverflow("The answer filled the model's window."), emit)

    @contextmanager
    def _standing(self, answer: Assistant) -> Generator[None, None, None]:
        """Append an answer; if the block fails with it still the last, it was interrupted."""
        before = self.history
        self._append(answer)
        grown = self.history
        try:
            yield
        except BaseException:
            if grown is not before and self.history is grown:
                self.history = (*before, replace(answer, interrupted=True))
            raise

    async def _step(self, emit: Emit) -> Reply:
        """One model answer. Compacts before an unsafe request, and once more after a refusal."""
        await self._compact_if_tight(emit)
        try:
            self._fit()
        except ContextOverflow as error:
            await self._force(error, emit)
        try:
            reply = await self._sample(emit)
        except ContextOverflow as error:
            await self._recover(error, emit)
            reply = await self._sample_again(emit)
        if reply.usage is not None:
            await emit(UsageReported(reply.usage, self.sampler.budget.effective))
        return reply

    async def _sample_again(self, emit: Emit) -> Reply:
        """The compacted request; refused for its size too, it ends the turn with advice."""
        try:
            return await self._sample(emit)
        except ContextOverflow as error:
            raise self._advised(error) from error

    async def _recover(self, error: ContextOverflow, emit: Emit) -> None:
        """Make room after a refusal for size; raises it with advice when that is impossible."""
        body = self.sampler.encode(self.request())
        known = error.actual or error.limit or 0
        self.sampler.meter.raise_to(body, known)
        self.sampler.learn(error, self.sampler.meter.measure(body))
        self._partial.clear()
        await emit(Rewound("overflow", 2, 0.0, str(error)))
        await self._force(error, emit)

    async def _force(self, error: ContextOverflow, emit: Emit) -> None:
        """Compact because the request cannot be sent as it is; raises `error` when that fails."""
        possible = self.compactor if self._has_something_to_summarise() else None
        if possible is None or not await self._compact(possible, "forced", emit):
            raise self._advised(error)

    def _has_something_to_summarise(self) -> bool:
        return has_something_to_summarise(self.history, self.live)

    def _advised(self, error: ContextOverflow) -> ContextOverflow:
        measured = self._measure()
        budget = self.sampler.budget
        return ContextOverflow(
            f"{error} The request measures about {measured:,} tokens; {self.sampler.model.name} "
            f"leaves {budget.effective:,} of its {budget.window:,} for input. What helps: "
            "/compact with a focus, a new session (/new), a larger window, fewer tools.",
            status=error.status,
            actual=error.actual,
            limit=error.limit,
        )

    async def _sample(self, emit: Emit) -> Reply:
        """Send the request; an answer without anything in it is asked for once more."""
        for is_last in (False, True):
            reply, _body = await self.sampler.sample(self.request(), self._watched(emit))
            if is_last or reply.finish != "stop" or not is_empty(reply.message):
                return reply
            await emit(Rewound("transient", 2, 0.0, "The model answered nothing."))
        raise AssertionError("unreachable")

    def _watched(self, emit: Emit) -> Emit:
        """Remembers the visible text of the running answer, for when it is interrupted."""

        async def watch(event: Event) -> None:
            match event:
                case TextDelta(text=text):
                    self._partial.append(text)
                case Rewound():
                    self._partial.clear()
                case _:
                    pass
            await emit(event)

        return watch

    def request(self) -> Request:
        """The next request as it stands, before the sampler's reductions."""
        return Request(
            model=self.sampler.model,
            system=self.system,
            messages=self.history,
            tools=self.toolbox.specs,
            output_tokens=self.sampler.reserve,
            effort=self.sampler.effort,
            cache_key=self.cache_key,
        )

    def _measure(self) -> int:
        """Tokens of the next request if nothing were pruned from it."""
        sent = self.sampler.meter.measure(self.sampler.encode(self.request()))
        pruned = pruned_tokens(self.history, self.sampler.view.pruned)
        return sent + round(pruned * self.sampler.meter.ratio)

    async def _compact_if_tight(self, emit: Emit) -> None:
        budget = self.sampler.budget
        measured = self._measure()
        if (
            self.compactor is None
            or self._is_suspended
            or self._settled is self.history
            or not budget.is_tight(measured)
            or not self._has_something_to_summarise()
        ):
            return
        if not await self._compact(self.compactor, "proactive", emit):
            self._strikes += 1
            if self._strikes >= _STRIKES:
                await self._suspend(measured, emit)

    async def _suspend(self, measured: int, emit: Emit) -> None:
        if not self._is_suspended:
            self._is_suspended = True
            await emit(CompactionSuspended(measured, self.sampler.budget.trigger))

    def _fit(self) -> None:
        """Prune what keeps the request from fitting.

        Raises:
            ContextOverflow: pruning cannot make it fit, and compacting could.
        """
        sampler = self.sampler
        effective = sampler.budget.effective
        measured = sampler.meter.measure(sampler.encode(self.request()))
        if measured <= effective:
            return
        excess = round((measured - effective) / sampler.meter.ratio)
        chosen = prune(self.history, sampler.view.pruned, excess)
        if pruned_tokens(self.history, chosen) >= excess:
            sampler.view.prune(chosen)
            sampler.meter.recount()
            return
        can_compact = self.compactor is not None and self._has_something_to_summarise()
        if can_compact or measured > sampler.budget.window:
            raise ContextOverflow(
                f"The next request measures about {measured:,} tokens, {effective:,} fit."
            )

    async def _compact(self, compactor: Compactor, trigger: Trigger, emit: Emit) -> bool:
        """Replace the history by its summary; False leaves it untouched and settled."""
        transaction = Transaction(
            self.sampler, compactor, self.commit, self.size_of, self._replace, self.gate
        )
        job = Job(self.history, self.live)
        is_applied = await transaction.run(trigger, job, self._measure(), emit)
        self._settled = self.history
        if is_applied:
            await self._suspend_if_futile(emit)
        return is_applied

    async def _suspend_if_futile(self, emit: Emit) -> None:
        """Where a request is still large after a compaction, the next one would free no more."""
        measured = self._measure()
        if measured * 100 >= self.sampler.budget.trigger * _WORTHWHILE:
            await self._suspend(measured, emit)

    def _replace(self, replacement: History) -> None:
        alive = {id(user) for user in self.live}
        self.replaced = (self.history, replacement)
        self.history = replacement
        self.live = tuple(
            message
            for message in replacement
            if isinstance(message, User)
            and (message.checkpoint is not None or id(message) in alive)
        )
        self.sampler.view.reset()
        self.sampler.meter.reset()
        self._partial.clear()

    def size_of(self, history: History) -> int:
        """Tokens of a request with this history, nothing reduced and no report used."""
        request = replace(self.request(), messages=history)
        body = self.sampler.wire.encode(request)
        return type(self.sampler.meter)(self.sampler.meter.ratio).measure(body)

    def _append(self, message: Assistant) -> None:
        self._partial.clear()
        if not is_empty(message):
            self.history = (*self.history, message)

    def _keep_partial(self) -> None:
        """What the person saw of an unfinished answer enters the history as plain text."""
        text = "".join(self._partial)
        self._partial.clear()
        if text.strip():
            self.history = (*self.history, Assistant((Text(text),), interrupted=True))


def without_calls(message: Assistant) -> Assistant:
    """The visible text of an answer that was cut: its calls are never run."""
    text = visible_text(message)
    return Assistant((Text(text),) if text else ())

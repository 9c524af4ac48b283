"""The turn: ask, run tools, ask again, until done. The one loop, the same for all wires."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from keen.agent.dialogue import Dialogue
from keen.agent.gate import OPEN, Gate
from keen.agent.headroom import Headroom
from keen.core.errors import ContextOverflow, KeenError
from keen.core.events import (
    Emit,
    Event,
    Rewound,
    SteeringDelivered,
    Stop,
    TextDelta,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import (
    Assistant,
    History,
    Message,
    Results,
    Text,
    ToolResult,
    Usage,
    User,
    interrupted,
    is_empty,
    told_apart,
    tool_calls,
    visible_text,
)
from keen.wire.base import Reply

_CONTINUATIONS: Final = 8
"""Times that the gate may make a turn go on that was done."""


class Limits(Protocol):
    """What a run may spend."""

    def reached(self, answers: int, spent: Usage) -> Stop | None:
        """Why no further request may be sent, or None."""
        ...


class _LimitReached(Exception):
    """No further request may be sent."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop: Stop = stop


@dataclass
class Turn:
    """One message of the person's, carried out. The dialogue ends with it at the start.

    While the turn runs it owns the dialogue; whatever ends it, the history is whole and valid.
    """

    dialogue: Dialogue
    headroom: Headroom
    limits: Limits | None = None
    gate: Gate = OPEN
    answers: int = 0
    steering: list[User] = field(default_factory=list[User])
    """Messages to deliver at the next tool boundary; what is left at the end was not delivered."""
    _partial: list[str] = field(default_factory=list[str])
    """Visible text of the answer that is not in the history yet."""
    _continuations: int = 0

    @property
    def history(self) -> History:
        return self.dialogue.history

    async def run(self, emit: Emit) -> bool:
        """Drive the turn to its end; the last event is TurnFinished (True) or TurnFailed (False).

        Cancelling the awaiting task cancels everything below it, a running compaction included.
        """
        try:
            stop = await self._rounds(self._watched(emit))
        except _LimitReached as limit:
            stop = limit.stop
        except KeenError as error:
            self._keep_partial()
            await emit(TurnFailed(error))
            return False
        except BaseException:
            self._keep_partial()
            raise
        await emit(TurnFinished(self.history, stop))
        return True

    async def _rounds(self, emit: Emit) -> Stop:
        """Answers and their tools, until an answer calls nothing or a limit is reached."""
        while True:
            self._check_limits()
            reply = await self._step(emit)
            self.answers += 1
            match reply.finish:
                case "length" | "refused" as stop:
                    self._append(without_calls(reply.message))
                    return stop
                case "overflow":
                    await self._continue_after_full_window(reply.message, emit)
                case "stop" if tool_calls(reply.message):
                    await self._run_tools(told_apart(reply.message), emit)
                    await self._deliver_steering(emit)
                case "stop":
                    if not await self._goes_on_after(reply.message, emit):
                        return "done"

    def _check_limits(self) -> None:
        """Before a request, and after a compaction, which may have spent the rest of a limit."""
        if self.limits is None:
            return
        stop = self.limits.reached(self.answers, self.dialogue.sampler.spent)
        if stop is not None:
            raise _LimitReached(stop)

    async def _step(self, emit: Emit) -> Reply:
        """One answer. Room is made before its request and, once, after a refusal for size."""
        await self.headroom.ensure(emit)
        try:
            reply = await self._sample(emit)
        except ContextOverflow as refusal:
            await self.headroom.recover(refusal, emit)
            reply = await self._sample_again(emit)
        await self._report(reply, emit)
        return reply

    async def _report(self, reply: Reply, emit: Emit) -> None:
        if reply.usage is not None:
            effective = self.dialogue.sampler.budget.effective
            await emit(UsageReported(reply.usage, effective))

    async def _sample(self, emit: Emit) -> Reply:
        """Send the request; an answer without anything in it is asked for once more."""
        self._check_limits()
        sampler = self.dialogue.sampler
        reply = await sampler.sample(self.dialogue.request, emit)
        if reply.finish == "stop" and is_empty(reply.message):
            await self._report(reply, emit)
            await emit(Rewound("transient", 2, 0.0, "The model answered nothing."))
            reply = await sampler.sample(self.dialogue.request, emit)
        return reply

    async def _sample_again(self, emit: Emit) -> Reply:
        """The compacted request; refused for its size too, it ends the turn with advice."""
        try:
            return await self._sample(emit)
        except ContextOverflow as refusal:
            raise self.headroom.advised(refusal) from refusal

    async def _run_tools(self, answer: Assistant, emit: Emit) -> None:
        """Append the answer and one result per call, whatever happens: an open call is answered."""
        calls = tool_calls(answer)
        results: dict[str, ToolResult] = {}
        try:
            await self.dialogue.toolbox.run(calls, emit, results)
        finally:
            ordered = tuple(results.get(call.id) or interrupted(call) for call in calls)
            self._append(answer, Results(ordered))

    async def _deliver_steering(self, emit: Emit) -> None:
        while self.steering:
            await self._deliver(self.steering.pop(0), emit)

    async def _deliver(self, user: User, emit: Emit) -> None:
        message = replace(user, steering=True)
        self.dialogue.hear(message)
        await emit(SteeringDelivered(message))

    async def _goes_on_after(self, answer: Assistant, emit: Emit) -> bool:
        """False when the turn is done; else why it is not has become a message for the model."""
        with self._standing(answer):
            if self._continuations >= _CONTINUATIONS:
                return False
            reason = await self.gate.before_stop(is_again=self._continuations > 0)
            if not reason:
                return False
            self._continuations += 1
            await self._deliver(User(reason), emit)
            return True

    async def _continue_after_full_window(self, answer: Assistant, emit: Emit) -> None:
        """Keep the text of an answer that filled the window, make room and go on."""
        with self._standing(without_calls(answer)):
            full = ContextOverflow("The answer filled the model's window.")
            await self.headroom.force(full, emit)

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
                self.dialogue.history = (*before, replace(answer, interrupted=True))
            raise

    def _append(self, answer: Assistant, *results: Message) -> None:
        """Put an answer that says or calls something into the history."""
        self._partial.clear()
        if not is_empty(answer):
            self.dialogue.append(answer, *results)

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

    def _keep_partial(self) -> None:
        """What the person saw of an unfinished answer enters the history as plain text."""
        text = "".join(self._partial)
        if text.strip():
            self._append(Assistant((Text(text),), interrupted=True))


def without_calls(message: Assistant) -> Assistant:
    """The visible text of an answer that was cut: its calls are never run."""
    text = visible_text(message)
    return Assistant((Text(text),) if text else ())

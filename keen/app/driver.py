"""Drives one turn at a time: takes its events, tells the screen, and holds what stops it.

It knows no widget. What the screen must know leaves through `post`; keys come in as `escape`,
`cancel`, `steer`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, assert_never

from textual.message import Message

from keen.agent.stream import events
from keen.app import messages as ui
from keen.app.coalesce import Channel, Coalescer
from keen.core.errors import KeenError
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Emit,
    Event,
    PermissionRequested,
    QuestionAsked,
    ReasoningDelta,
    Rewound,
    SteeringDelivered,
    SubagentProgress,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import User

GRACE_SECONDS: Final = 1.0
"""After an automatic compaction ended, an Esc does nothing for this long."""

Run: TypeAlias = Callable[[Emit], Coroutine[Any, Any, object]]
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing runs."""


@dataclass(frozen=True, slots=True)
class Running:
    """A turn runs."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """A compaction runs, inside a turn or by hand; `stop` ends it alone."""

    is_automatic: bool
    stop: Callable[[], None]


Mode: TypeAlias = Idle | Running | Compacting


class Steerable(Protocol):
    """A running turn, as far as steering goes."""

    steering: list[User]


@dataclass
class Driver:
    """The running turn's events, and the two ways to stop it."""

    post: Callable[[Message], object]
    clock: Callable[[], float] = time.monotonic
    mode: Mode = field(default_factory=Idle)
    _abort: Callable[[], object] | None = None
    _turn: Steerable | None = None
    _is_by_hand: bool = False
    """The run is a compaction by hand."""
    _is_cancelled: bool = False
    _has_begun: bool = False
    _ended: ui.TurnEnded | None = None
    _quiet_until: float = 0.0
    _task: str = ""
    """The `task` call that runs, or ran last."""
    _deltas: Coalescer = field(init=False)

    def __post_init__(self) -> None:
        self._deltas = Coalescer(self._said)

    @property
    def is_idle(self) -> bool:
        return isinstance(self.mode, Idle)

    @property
    def is_cancelled(self) -> bool:
        """True from the moment the running turn was told to stop."""
        return self._is_cancelled and not self.is_idle

    @property
    def is_quiet(self) -> bool:
        """True for a moment after an automatic compaction ended: an Esc then does nothing."""
        return self.clock() < self._quiet_until

    def begin(self, *, is_compaction: bool = False) -> None:
        """A turn is about to be consumed: from here on keys mean the running turn."""
        self.mode = Running()
        self._abort = None
        self._turn = None
        self._is_by_hand = is_compaction
        self._is_cancelled = False
        self._has_begun = False
        self._ended = None

    def attach(self, abort: Callable[[], object]) -> None:
        """`abort` cancels the task that consumes. A cancel that came before it counts."""
        self._abort = abort

    async def consume(self, run: Run) -> None:
        """Take the events of `run` to their end; TurnEnded is the last message, always."""
        self._has_begun = True
        if self._is_cancelled:
            self._end(ui.TurnEnded("interrupted"))
            return
        outcome: ui.TurnEnded
        try:
            async with aclosing(events(_as_coroutine(run))) as seen:
                async for event in seen:
                    self._take(event)
            outcome = self._ended or ui.TurnEnded("done")
        except KeenError as error:
            outcome = ui.TurnEnded("failed", str(error))
        except Exception as error:  # the screen must go on, whatever the turn did
            _log.exception("a turn failed")
            outcome = ui.TurnEnded("failed", f"keen failed: {type(error).__name__}: {error}")
        except BaseException:
            self._end(ui.TurnEnded("interrupted"))
            raise
        self._end(outcome)

    def escape(self) -> bool:
        """Esc: stop the compaction alone, else the turn. False when there is nothing to stop."""
        if self.is_quiet:
            return True
        match self.mode:
            case Compacting(stop=stop):
                stop()
                return True
            case Running():
                self.cancel()
                return True
            case Idle():
                return False

    def cancel(self) -> bool:
        """Stop the whole turn, whatever it does. False when none runs."""
        if self.is_idle:
            return False
        if not self._is_cancelled:
            # Once: a second cancellation would interrupt the clean-up of the first. A task that was
            # cancelled before its first step would never tell that it ended.
            self._is_cancelled = True
            if self._has_begun and self._abort is not None:
                self._abort()
        return True

    def steer(self, turn: Steerable | None, message: User) -> bool:
        """Deliver at the next boundary of the running `turn`; False when that is impossible."""
        if self.is_idle or self._is_by_hand or turn is None:
            return False
        self._turn = turn
        turn.steering.append(message)
        return True

    def _end(self, ended: ui.TurnEnded) -> None:
        self._deltas.flush()
        undelivered = tuple(self._turn.steering) if self._turn is not None else ()
        if self._turn is not None:
            self._turn.steering.clear()
        self._turn = None
        self._abort = None
        self.mode = Idle()
        ended.undelivered = undelivered
        ended.is_compaction = self._is_by_hand
        self.post(ended)

    def _said(self, channel: Channel, text: str) -> None:
        self.post(ui.Said(channel, text))

    def _take(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._deltas.add("text", text)
                return
            case ReasoningDelta(text=text):
                self._deltas.add("reasoning", text)
                return
            case Rewound():
                self._deltas.drop()
            case _:
                self._deltas.flush()
        self._tell(event)

    def _tell(self, event: Event) -> None:
        match event:
            case TextDelta() | ReasoningDelta():
                raise AssertionError("deltas are coalesced")
            case ToolStarted() | ToolProgress() | ToolFinished() | SubagentProgress():
                self._tool(event)
            case PermissionRequested() as asked:
                self.post(
                    ui.PermissionWanted(
                        asked.call,
                        asked.preview,
                        asked.reason,
                        asked.reply,
                        asked.choices,
                        asked.rule,
                        asked.prefix,
                        asked.agent,
                    )
                )
            case QuestionAsked(questions=questions, reply=reply, agent=agent):
                self.post(ui.AnswerWanted(questions, reply, agent))
            case Rewound(reason=reason, attempt=attempt, delay=delay, detail=detail):
                self.post(ui.Voided(reason == "overflow", attempt, delay, detail))
            case UsageReported(usage=usage, budget=budget):
                self.post(ui.Measured(usage, budget))
            case (
                CompactionStarted()
                | CompactionSuspended()
                | CompactionApplied()
                | CompactionCancelled()
                | CompactionFailed()
            ):
                self._compaction(event)
            case SteeringDelivered(message=message):
                self.post(ui.SteeringArrived(message))
            case TurnFinished() | TurnFailed():
                self._ended = _ending(event)
            case _:
                assert_never(event)

    def _tool(self, event: ToolStarted | ToolProgress | ToolFinished | SubagentProgress) -> None:
        match event:
            case ToolStarted(call=call):
                if call.name == "task":
                    self._task = call.id
                self.post(ui.ToolOpened(call))
            case ToolProgress(call_id=call_id, text=text):
                self.post(ui.ToolOutput(call_id, text))
            case ToolFinished(result=result, seconds=seconds):
                self.post(ui.ToolClosed(result, seconds))
            case SubagentProgress():
                self.post(ui.SubagentMoved(self._task, event))

    def _compaction(
        self,
        event: CompactionStarted
        | CompactionSuspended
        | CompactionApplied
        | CompactionCancelled
        | CompactionFailed,
    ) -> None:
        match event:
            case CompactionSuspended(measured=measured, trigger=trigger):
                self.post(ui.CompactionSuspended(measured, trigger))
            case CompactionStarted(trigger=trigger, cancel=stop):
                self.mode = Compacting(trigger != "manual", stop)
                self.post(ui.CompactionBegan(trigger != "manual"))
            case _:
                self._compacted(event)

    def _compacted(self, event: CompactionApplied | CompactionCancelled | CompactionFailed) -> None:
        receipt = event.receipt
        is_automatic = receipt.trigger != "manual"
        if is_automatic:
            self._quiet_until = self.clock() + GRACE_SECONDS
        self.mode = Running()
        match event:
            case CompactionApplied():
                ended = ui.CompactionEnded(is_automatic, "applied")
            case CompactionCancelled():
                ended = ui.CompactionEnded(is_automatic, "cancelled")
            case CompactionFailed(error=error):
                ended = ui.CompactionEnded(is_automatic, "failed", str(error))
        ended.tokens_before = receipt.tokens_before
        ended.tokens_after = receipt.tokens_after or 0
        self.post(ended)


def _ending(event: TurnFinished | TurnFailed) -> ui.TurnEnded:
    match event:
        case TurnFinished(stop=stop):
            return ui.TurnEnded(stop)
        case TurnFailed(error=error):
            return ui.TurnEnded("failed", str(error))


def _as_coroutine(run: Run) -> Callable[[Emit], Coroutine[Any, Any, None]]:
    async def driven(emit: Emit) -> None:
        await run(emit)

    return driven

"""Records a turn while it runs: a tap on its events that sees each before any screen does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from typing import Final, TypeVar

from keen.core.events import (
    CompactionApplied,
    Emit,
    Event,
    Receipt,
    SteeringDelivered,
    ToolFinished,
    ToolStarted,
    UsageReported,
)
from keen.core.messages import Assistant, History, Results, ToolCall, Usage, User, tool_calls
from keen.session.bounds import bounded, clean
from keen.session.log import Log
from keen.session.projection import kept_messages
from keen.session.records import (
    AssistantTurn,
    Compaction,
    CompactionReverted,
    ModelChanged,
    Payload,
    Record,
    SessionRenamed,
    Spent,
    TextItem,
    UserMessage,
)
from keen.session.segments import Segments
from keen.session.turns import status_of

MANUAL_STATUS: Final = "Context compacted."
_TURN_BYTES: Final = 4 * 1024 * 1024
"""A running turn is put into a record of its own when its segments have grown to this."""

T = TypeVar("T")


class Recorder:
    """Writes one session from the events of its turns, in one thread of its own.

    What the disk refuses is kept and written later (`reason` says so, `heal` tries); only a
    compaction's commit fails with the disk. A write that has begun is finished, even when the
    caller is cancelled meanwhile.
    """

    def __init__(self, log: Log, on_reason: Callable[[str | None], None] | None = None) -> None:
        """`on_reason` is called on the event loop when saving stops working or works again."""
        self.log = log
        self._on_reason = on_reason
        self._reason = log.reason
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keen-session")
        self._segments = Segments()
        self._unrecorded = Usage()
        self._recorded = Usage()
        self._context_tokens = 0
        self._bytes = 0
        self.message_seq = 0
        """The number of the message that began the last turn; 0 before this process's first."""

    @property
    def session_id(self) -> str:
        return self.log.session_id

    @property
    def reason(self) -> str | None:
        """Why the session is not being saved, None while it is."""
        return self.log.reason

    def tap(self, put: Emit) -> Emit:
        """An `emit` that records each event and then passes it on to `put`."""

        async def emit(event: Event) -> None:
            self._segments.add(event)
            match event:
                case ToolFinished():
                    await self._batch_finished()
                case UsageReported(usage=usage):
                    self._unrecorded += usage
                    self._context_tokens = usage.input_tokens
                case SteeringDelivered(message=message):
                    await self._append(*self._turn_so_far(), UserMessage.of(message))
                case CompactionApplied():
                    self._context_tokens = 0
                case _:
                    pass
            await put(event)

        return emit

    async def user_message(self, user: User) -> None:
        """Record the message that begins a turn; steering messages come through the tap.

        Raises:
            SessionError: the message is too large for a session file.
        """
        unfinished = () if self._segments.is_empty else (self._segments.take(interrupted=True),)
        self._unrecorded = self._recorded = Usage()
        self._bytes = 0
        self.message_seq = await self._append(*unfinished, UserMessage.of(user))

    async def commit(self, replacement: History, receipt: Receipt) -> None:
        """Record what a compaction left, with the turn so far, in one write.

        Raises:
            SessionError: the write failed; nothing has changed, on disk and here.
        """
        is_manual = receipt.trigger == "manual"
        before = () if is_manual or self._segments.is_empty else (self._turn(),)
        await self._append(*before, _compaction(replacement, receipt), strict=True)
        self._segments.clear()
        if before:
            self._booked(before[0])
        if receipt.usage:
            self._recorded += receipt.usage
        self._context_tokens = 0

    async def finish(
        self,
        interrupted: bool,
        error: str | None,
        usage: Usage,
        context_tokens: int,
        history: History = (),
    ) -> None:
        """Record the end of a turn.

        `usage` is that of the whole turn, compactions included; what earlier records of the turn
        have told is taken off, so that the records add up to it. `history` is the turn's own at
        its end: calls that were answered but never began are known from it alone.
        """
        for call in _unstarted(history, self._segments) if interrupted else ():
            self._segments.add(ToolStarted(call))
        spent = Spent.of(_difference(usage, self._recorded), context_tokens)
        turn = self._segments.take(
            interrupted=interrupted, error=error and bounded(error), usage=spent
        )
        if turn.transcript or interrupted or error or spent.total_tokens:
            await self._append(turn)
        self._unrecorded = self._recorded = Usage()
        self._bytes = 0

    async def model_changed(self, model: str) -> None:
        """Record that PROVIDER/MODEL answers from here on."""
        await self._append(ModelChanged(model=clean(model)))

    async def renamed(self, name: str) -> None:
        """Record the session's new name."""
        await self._append(SessionRenamed(name=clean(name)))

    async def reverted(self, seq: int) -> None:
        """Record that the compaction of line `seq` counts no longer."""
        await self._append(CompactionReverted(seq=seq))

    async def records(self) -> list[Record]:
        """Everything recorded so far. Raises: SessionError."""
        return await self._in_writer(self.log.records)

    async def heal(self) -> bool:
        """Try to save what could not be saved; True when all is. For a timer of the caller's."""
        is_healthy = await self._in_writer(self.log.heal)
        self._tell()
        return is_healthy

    async def aclose(self) -> None:
        """Save what can be saved and let the session go. Idempotent."""
        try:
            await self._in_writer(self.log.close)
        except RuntimeError:  # the writer has been shut down before
            return
        finally:
            self._writer.shutdown(wait=False)

    async def _batch_finished(self) -> None:
        segment = self._segments.segment()
        if segment is None:
            return
        spent = Spent.of(self._unrecorded, self._context_tokens)
        await self._append(segment.model_copy(update={"usage": spent}))
        self._bytes += sum(len(item.model_dump_json()) for item in segment.transcript)
        if self._bytes > _TURN_BYTES:
            await self._append(*self._turn_so_far())

    def _turn(self) -> AssistantTurn:
        return self._segments.turn(usage=Spent.of(self._unrecorded, self._context_tokens))

    def _turn_so_far(self) -> tuple[Payload, ...]:
        """The turn so far, taken out of the segments, unless there is nothing of it."""
        if self._segments.is_empty:
            return ()
        turn = self._turn()
        self._segments.clear()
        self._booked(turn)
        return (turn,)

    def _booked(self, turn: AssistantTurn) -> None:
        self._recorded += turn.usage.usage()
        self._unrecorded = Usage()
        self._bytes = 0

    async def _append(self, *payloads: Payload, strict: bool = False) -> int:
        try:
            return await self._in_writer(lambda: self.log.append(*payloads, strict=strict))
        finally:
            self._tell()

    async def _in_writer(self, work: Callable[[], T]) -> T:
        """Run blocking work in the writer's thread, to its end even when cancelled meanwhile."""
        job = asyncio.get_running_loop().run_in_executor(self._writer, work)
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError:
            await _ended(job)
            raise
        return job.result()

    def _tell(self) -> None:
        if (reason := self.log.reason) != self._reason:
            self._reason = reason
            if self._on_reason:
                self._on_reason(reason)


async def _ended(job: asyncio.Future[T]) -> None:
    """Wait for a job whatever is cancelled meanwhile; the caller re-raises the cancellation."""
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError:
            continue
    job.exception()


def _compaction(replacement: History, receipt: Receipt) -> Compaction:
    first = replacement[0]
    checkpoint = first.checkpoint if isinstance(first, User) else None
    summary = clean(checkpoint.summary) if checkpoint else None
    is_manual = receipt.trigger == "manual"
    return Compaction(
        status=MANUAL_STATUS if is_manual else "",
        transcript=(TextItem(content=summary),) if is_manual and summary else (),
        messages=kept_messages(replacement),
        summary=summary,
        user_messages=tuple(map(clean, checkpoint.user_messages)) if checkpoint else (),
        trigger=receipt.trigger,
        tokens_before=receipt.tokens_before,
        tokens_after=receipt.tokens_after,
        seconds=round(receipt.seconds, 3),
        usage=Spent.of(receipt.usage) if receipt.usage else None,
        model=clean(receipt.model),
    )


def _unstarted(history: History, segments: Segments) -> tuple[ToolCall, ...]:
    """Calls of the last answer that no event told: they were answered without having begun."""
    match history[-2:]:
        case (Assistant() as answer, Results(results=results)):
            open_ids = {result.call_id for result in results if status_of(result) == "interrupted"}
        case _:
            return ()
    return tuple(
        call
        for call in tool_calls(answer)
        if call.id in open_ids and not segments.has_seen(call.id)
    )


def _difference(whole: Usage, part: Usage) -> Usage:
    """What of `whole` is not in `part`, never less than nothing."""
    return Usage(*(max(0, count) for count in astuple(whole - part)))

"""One compaction as a transaction: private request, session, memory; all of it or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from keen.agent.compaction import Compactor, Job
from keen.agent.dialogue import Dialogue
from keen.agent.gate import OPEN, Gate
from keen.agent.stream import finished, reaped
from keen.core.errors import CompactionError, KeenError
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    Emit,
    Receipt,
    Trigger,
)
from keen.core.messages import History, User

Commit: TypeAlias = Callable[[History, Receipt], Awaitable[None]]
"""Writes a replacement to the session before it is adopted; raising changes nothing."""


async def no_commit(_replacement: History, _receipt: Receipt) -> None:
    """For a conversation that is kept nowhere."""
    return


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a compaction needs of the conversation that it compacts; `adopt` assigns its history."""

    dialogue: Dialogue
    compactor: Compactor
    commit: Commit
    adopt: Callable[[History], None]
    gate: Gate = OPEN

    async def run(self, trigger: Trigger, job: Job, tokens_before: int, emit: Emit) -> bool:
        """Replace the history by its summary; False leaves everything as it was.

        Emits CompactionStarted and then exactly one outcome, unless the turn itself is cancelled.
        """
        started, sampler = time.monotonic(), self.dialogue.sampler
        requests, spent = sampler.requests, sampler.spent
        child = asyncio.create_task(self._replacement(trigger, job))

        def cancel() -> None:
            child.cancel()

        async with reaped(child):
            await emit(CompactionStarted(trigger, tokens_before, cancel))
            # Waiting raises our own cancellation only, never the child's outcome.
            await asyncio.wait([child])
        receipt = Receipt(
            trigger,
            tokens_before,
            seconds=time.monotonic() - started,
            usage=sampler.spent - spent,
            requests=sampler.requests - requests,
            model=sampler.summarises_with or sampler.model.name,
        )
        if child.cancelled():
            await emit(CompactionCancelled(receipt))
            return False
        try:
            replacement = child.result()
            await self._apply(replacement, job, receipt, emit)
        except KeenError as error:
            await emit(CompactionFailed(replace(receipt, error=str(error)), error))
            return False
        await self.gate.after_compaction(trigger, _summary(replacement))
        return True

    async def _replacement(self, trigger: Trigger, job: Job) -> History:
        """Part of what can be cancelled: whoever is asked first may take long.

        Raises: CompactionError for a veto, and what the compactor raises.
        """
        word = await self.gate.before_compaction(trigger, job.focus)
        if word.veto and trigger != "forced":
            raise CompactionError(word.veto)
        if word.focus:
            job = replace(job, focus="\n".join(filter(None, (job.focus, word.focus))))
        return await self.compactor.replacement(job)

    async def _apply(self, replacement: History, job: Job, receipt: Receipt, emit: Emit) -> None:
        """Session, then memory, then who listens; once begun, no cancellation stops it half way.

        Raises:
            CompactionError: the replacement is no smaller than what it replaces.
            KeenError: the session could not be written.
        """
        after = self.dialogue.size_of(replacement)
        if after >= self.dialogue.size_of(job.history):
            raise CompactionError("The summary is no smaller than what it would replace.")
        receipt = replace(receipt, tokens_after=after)

        async def apply() -> None:
            await self.commit(replacement, receipt)
            self.adopt(replacement)
            await emit(CompactionApplied(replacement, receipt))

        applying = asyncio.create_task(apply())
        await finished(applying)
        applying.result()


def _summary(replacement: History) -> str:
    first = replacement[0] if replacement else None
    checkpoint = first.checkpoint if isinstance(first, User) else None
    return checkpoint.summary if checkpoint is not None else ""


async def written(write: Awaitable[None], adopt: Callable[[], None]) -> None:
    """Finish `write` and then `adopt`, also when cancelled meanwhile: memory follows the disk.

    Raises: what `write` raises, and then nothing was adopted.
    """
    writing = asyncio.ensure_future(write)
    try:
        await finished(writing)
    finally:
        if writing.done() and not writing.cancelled() and writing.exception() is None:
            adopt()
    writing.result()

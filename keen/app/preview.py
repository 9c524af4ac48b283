"""A compaction by hand that shows its summary first and goes on only with a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from keen.agent.compaction import Compactor, Job, checkpoint_message
from keen.core.messages import History, User


@dataclass(frozen=True, slots=True)
class Previewed:
    """A compactor that asks. `ask` gets the summary and returns it, edited perhaps, or None."""

    inner: Compactor
    ask: Callable[[str], Awaitable[str | None]]

    async def replacement(self, job: Job) -> History:
        """As the inner one; a no cancels the compaction."""
        made = await self.inner.replacement(job)
        first = made[0]
        if not isinstance(first, User) or first.checkpoint is None:
            return made
        summary = await self.ask(first.checkpoint.summary)
        if summary is None:
            raise asyncio.CancelledError
        if summary == first.checkpoint.summary:
            return made
        said = job.live
        return (checkpoint_message(summary, said, is_automatic=job.is_automatic), *made[1:])

"""A compaction that was applied while the run was being interrupted."""

from __future__ import annotations

import asyncio

import pytest

from keen.core.events import CompactionApplied, Emit, Receipt
from keen.core.messages import Usage, User
from keen.headless.output import Output
from keen.headless.run import Headless


class Compacting:
    """Compacts while it is cancelled, as an engine does whose session is being written."""

    session_id: str | None = None
    cwd = "/work"
    model = "acme/m"
    requests = 1
    usage = Usage()
    cost_usd: float | None = None

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()

    async def run(self, user: User, emit: Emit) -> None:
        try:
            self.has_begun.set()
            await asyncio.Event().wait()
        finally:
            await emit(CompactionApplied((user,), Receipt("proactive", 900, 90)))


async def test_its_receipt_stands_in_the_result() -> None:
    engine = Compacting()
    headless = Headless(engine, Output(1), "json", "1")
    task = asyncio.create_task(headless.run(User("go")))
    await engine.has_begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert headless.result.stop_reason == "interrupted"
    assert [entry["outcome"] for entry in headless.result.compactions] == ["applied"]

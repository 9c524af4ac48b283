from __future__ import annotations

import asyncio
from contextlib import aclosing

from keen.agent.stream import events
from keen.core.events import Emit, TextDelta


async def test_what_is_told_on_the_way_out_never_waits_for_the_consumer_that_left() -> None:
    told: list[int] = []

    async def talk_on(emit: Emit) -> None:
        try:
            await emit(TextDelta("first"))
            await asyncio.Event().wait()
        finally:
            for number in range(2_000):
                await emit(TextDelta(str(number)))
                told.append(number)

    async with aclosing(events(talk_on)) as seen:
        async for event in seen:
            assert event == TextDelta("first")
            break

    assert len(told) == 2_000


async def test_a_full_queue_does_not_hold_back_the_end() -> None:
    async def flood(emit: Emit) -> None:
        while True:
            await emit(TextDelta("more"))

    async with aclosing(events(flood)) as seen:
        async for _ in seen:
            break

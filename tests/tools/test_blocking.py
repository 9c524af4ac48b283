from __future__ import annotations

import asyncio
import threading

import pytest

from keen.tools._blocking import in_thread


async def test_the_result_and_the_error_of_the_thread_come_back() -> None:
    def fails(_stop: threading.Event) -> int:
        raise KeyError("x")

    assert await in_thread(lambda _stop: threading.get_ident()) != threading.get_ident()
    with pytest.raises(KeyError):
        await in_thread(fails)


async def test_a_cancelled_call_stops_its_thread_and_waits_for_it() -> None:
    loop = asyncio.get_running_loop()
    begun, ended = asyncio.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        loop.call_soon_threadsafe(begun.set)
        stop.wait()
        ended.set()
        raise ValueError("nobody is there to hear this")

    task = asyncio.create_task(in_thread(work))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()

"""Blocking work in a thread that can be told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

_Result = TypeVar("_Result")

_GRACE: Final = 2.0
"""Seconds a cancelled call waits for its thread to notice."""


def _retrieve(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()


async def in_thread(work: Callable[[threading.Event], _Result]) -> _Result:
    """Run `work` in a thread; cancelled, set its event and wait until it is done or 2 s are over.

    So a write that has begun is finished, or has changed nothing, before the cancellation goes on.
    """
    stop = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(work, stop))
    task.add_done_callback(_retrieve)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({task}, timeout=_GRACE)
        raise
    return task.result()

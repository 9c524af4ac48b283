"""From a coroutine that emits to one async generator of events, with nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeAlias

from keen.core.events import Emit, Event

Task: TypeAlias = asyncio.Task[Any]

_BACK_PRESSURE = 256
"""Events that may wait for the consumer before the turn does."""


class reaped:
    """Leave no child behind: on the way out it is finished, or cancelled and waited for."""

    def __init__(self, child: Task) -> None:
        self._child = child

    async def __aenter__(self) -> None:
        return

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._child.done():
            self._child.cancel()
            await finished(self._child)


async def finished(child: Task) -> None:
    """Wait until `child` is done even when cancelled meanwhile; then raise that cancellation.

    For what must not stop half way, a commit, and for what must not be left behind. The child's
    outcome stays in the child.
    """
    cancelled: asyncio.CancelledError | None = None
    while not child.done():
        try:
            await asyncio.wait([child])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def events(
    run: Callable[[Emit], Coroutine[Any, Any, object]],
) -> AsyncGenerator[Event, None]:
    """Everything a consumer sees, in order, with back-pressure. Closing it cancels the turn.

    What the turn still tells on its way out goes nowhere, and never waits for a consumer.
    """
    queue: asyncio.Queue[Event] = asyncio.Queue(maxsize=_BACK_PRESSURE)
    is_open = True

    async def emit(event: Event) -> None:
        if is_open:
            await queue.put(event)

    task = asyncio.create_task(run(emit))
    async with reaped(task):
        try:
            while not (task.done() and queue.empty()):
                # Drained first: a task per event costs half a second of CPU per 20,000.
                while not queue.empty():
                    yield queue.get_nowait()
                getter = asyncio.create_task(queue.get())
                async with reaped(getter):
                    await asyncio.wait([getter, task], return_when=asyncio.FIRST_COMPLETED)
                if not getter.cancelled():
                    yield getter.result()
        finally:
            is_open = False
            while not queue.empty():
                queue.get_nowait()
    task.result()

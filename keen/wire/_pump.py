"""A blocking event stream as an async generator that a cancellation ends at once."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from keen.core.errors import Transient

Client = TypeVar("Client")

_AHEAD: Final = 64
"""Events the thread may be ahead of the consumer before it waits."""
_UNREADABLE: Final = (
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    RecursionError,
    struct.error,
)
"""What botocore's parser trips over in frames and payloads of other forms than it expects."""


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


class _Opened:
    """The stream is open: the answer's head has come."""


async def pump(
    connect: Callable[[], Client],
    send: Callable[[Client], Any],
    *,
    opens_within: float | None = None,
) -> AsyncGenerator[Any, None]:
    """The events of the botocore stream that `send(connect())` opens.

    Both run in a daemon thread of their own, which also reads, closes and owns the stream. Closing
    the generator never waits for that thread: while the stream is open its socket is shut down;
    before, the thread sends nothing or closes what it has just opened.

    Raises:
        TimeoutError: the stream was not open after `opens_within` seconds.
        Transient: an event is in no form that botocore can read.
        whatever `connect`, `send` or the stream raised.
    """
    handover = _Handover(asyncio.get_running_loop())
    threading.Thread(
        target=handover.run, args=(connect, send), name="keen-pump", daemon=True
    ).start()
    try:
        async with asyncio.timeout(opens_within):
            await handover.opened()
        while True:
            match await handover.take():
                case _End(error=None):
                    return
                case _End(error=BaseException() as error):
                    raise error
                case event:
                    yield event
    finally:
        handover.stop()


@dataclass
class _Handover:
    """What the thread and the loop share. `lock` is held for assignments and the shutdown only."""

    loop: asyncio.AbstractEventLoop
    items: deque[Any] = field(default_factory=deque[Any])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AHEAD))
    lock: threading.Lock = field(default_factory=threading.Lock)
    stream: Any = None
    is_stopped: bool = False

    async def opened(self) -> None:
        """Wait for the stream, or for the end that came instead of it."""
        await self._some()
        if isinstance(self.items[0], _Opened):
            self.items.popleft()

    async def take(self) -> Any:
        """The next event, or `_End`."""
        await self._some()
        item = self.items.popleft()
        self.room.release()
        return item

    async def _some(self) -> None:
        """Wait, without a thread, until there is an item."""
        while not self.items:
            self.arrived.clear()
            # Cleared first: what is put from here on sets it again.
            if not self.items:
                await self.arrived.wait()

    def stop(self) -> None:
        """Let go of the thread. Idempotent, never blocks."""
        with self.lock:
            self.is_stopped = True
            if self.stream is not None:
                # Closing the stream from here would wait for the reader, up to its read timeout.
                # These errors mean that the stream ended by itself at this moment.
                with suppress(ValueError, RuntimeError, OSError):
                    self.stream._raw_stream.shutdown()
                self.stream = None
        self.room.release()

    def run(self, connect: Callable[[], Client], send: Callable[[Client], Any]) -> None:
        """The thread's whole life."""
        try:
            client = connect()
            if self.is_stopped:
                return
            self._read(send(client))
        except BaseException as error:  # raised again where the events are awaited
            self._put(_End(error))
        else:
            self._put(_End())

    def _read(self, stream: Any) -> None:
        with self.lock:
            is_wanted = not self.is_stopped
            self.stream = stream if is_wanted else None
        try:
            if is_wanted:
                self._put(_Opened())
                self._hand_over(stream)
        finally:
            with self.lock:
                self.stream = None
            stream.close()

    def _hand_over(self, stream: Any) -> None:
        for event in _readable(stream):
            self.room.acquire()
            if self.is_stopped:
                return
            self._put(event)

    def _put(self, item: Any) -> None:
        self.items.append(item)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self.arrived.set)


def _readable(stream: Any) -> Iterator[Any]:
    events = iter(stream)
    while True:
        try:
            event = next(events)
        except StopIteration:
            return
        except _UNREADABLE as error:
            raise Transient(f"The answer's stream is broken: {error!r}.") from error
        yield event

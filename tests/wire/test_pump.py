from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from keen.wire._pump import pump
from tests.wire.loopback import AWS, Answer, Loopback, aws_event

START = aws_event("messageStart", {"role": "assistant"})

importlib.import_module("boto3")  # before the time limit of a test runs


def delta(text: str) -> bytes:
    return aws_event("contentBlockDelta", {"delta": {"text": text}, "contentBlockIndex": 0})


def converse(url: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The two halves a pump takes, on a real client."""

    def connect() -> Any:
        boto3: Any = importlib.import_module("boto3")
        config: Any = importlib.import_module("botocore.config")
        return boto3.client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=config.Config(retries={"total_max_attempts": 1}),
        )

    def send(client: Any) -> Any:
        message = {"role": "user", "content": [{"text": "x"}]}
        return client.converse_stream(modelId="m", messages=[message])["stream"]

    return connect, send


class Raw:
    """Stands where botocore has urllib3's response."""

    def __init__(self) -> None:
        self.shutdowns = 0
        self.released = threading.Event()

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.released.set()


class Scripted:
    """An event stream whose reader can be held, as by a socket that stays silent."""

    def __init__(self, count: int, *, holds: bool = False) -> None:
        self.count = count
        self.holds = holds
        self.given = 0
        self.is_far = threading.Event()
        self.is_closed = threading.Event()
        self._raw_stream = Raw()

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.given = number + 1
            if number in {60, 1_050}:
                self.is_far.set()
            yield number
        if self.holds:
            self._raw_stream.released.wait()
            raise ConnectionError("shut down")

    def close(self) -> None:
        self.is_closed.set()

    @property
    def shutdowns(self) -> int:
        return self._raw_stream.shutdowns


async def in_thread(event: threading.Event) -> None:
    """Wait for what a thread does, without holding the loop."""
    assert await asyncio.to_thread(event.wait, 5)


async def taken(source: Any) -> list[Any]:
    async with aclosing(source) as events:
        return [event async for event in events]


async def test_all_events_arrive_in_order_and_a_natural_end_shuts_nothing_down() -> None:
    stream = Scripted(5_000)
    assert await taken(pump(lambda: None, lambda _: stream)) == list(range(5_000))
    assert stream.shutdowns == 0
    await in_thread(stream.is_closed)


async def test_the_thread_waits_for_a_slow_consumer_and_the_loop_does_not() -> None:
    stream = Scripted(5_000)
    async with aclosing(pump(lambda: None, lambda _: stream)) as events:
        taken_so_far = 0
        async for _ in events:
            taken_so_far += 1
            if taken_so_far in {1, 1_000}:
                await in_thread(stream.is_far)
                stream.is_far.clear()
            assert stream.given - taken_so_far <= 70
            if taken_so_far == 2_000:
                break
    await in_thread(stream.is_closed)
    assert stream.given < 2_100


async def test_closing_while_the_reader_hangs_shuts_the_socket_down() -> None:
    stream = Scripted(1, holds=True)
    async with aclosing(pump(lambda: None, lambda _: stream)) as events:
        assert await anext(events) == 0
    assert stream.shutdowns == 1
    await in_thread(stream.is_closed)


async def test_cancelled_while_connecting_nothing_is_sent() -> None:
    go, connecting = threading.Event(), threading.Event()
    sent: list[Any] = []
    done = threading.Event()

    def connect() -> None:
        connecting.set()
        go.wait()
        done.set()

    task = asyncio.create_task(taken(pump(connect, sent.append)))
    await in_thread(connecting)
    thread = next(t for t in threading.enumerate() if t.name == "keen-pump")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await asyncio.to_thread(thread.join)
    assert done.is_set()
    assert sent == []


async def test_cancelled_before_the_headers_the_stream_is_closed_as_soon_as_it_exists() -> None:
    stream = Scripted(3)
    go, sending = threading.Event(), threading.Event()

    def send(_: None) -> Scripted:
        sending.set()
        go.wait()
        return stream

    task = asyncio.create_task(taken(pump(lambda: None, send)))
    await in_thread(sending)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not stream.is_closed.is_set()
    go.set()
    await in_thread(stream.is_closed)
    assert stream.given == 0


@pytest.mark.parametrize("place", ["connect", "send"])
async def test_an_error_of_the_thread_is_raised_where_the_events_are_awaited(place: str) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no")

    connect, send = (fail, fail) if place == "connect" else (lambda: None, fail)
    with pytest.raises(ValueError, match="no"):
        await taken(pump(connect, send))


async def test_a_stream_that_does_not_open_in_time_is_given_up() -> None:
    stream = Scripted(3)
    go = threading.Event()

    def send(_: None) -> Scripted:
        go.wait()
        return stream

    with pytest.raises(TimeoutError):
        await taken(pump(lambda: None, send, opens_within=0.01))
    go.set()
    await in_thread(stream.is_closed)
    assert stream.given == 0


async def test_the_limit_of_opening_is_none_of_the_open_stream() -> None:
    stream = Scripted(1, holds=True)
    events = pump(lambda: None, lambda _: stream, opens_within=1)
    assert await anext(events) == 0
    waiting = asyncio.create_task(taken(events))
    await asyncio.wait([waiting], timeout=1.2)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_botocore_still_has_the_attribute_that_cancelling_stands_on() -> None:
    async with Loopback([Answer([START], content_type=AWS)]) as server:
        connect, send = converse(server.url)
        stream = await asyncio.to_thread(lambda: send(connect()))
        assert callable(stream._raw_stream.shutdown)
        await asyncio.to_thread(stream.close)


async def test_a_real_stream_is_read_to_its_end() -> None:
    frames = [START, *(delta(str(n)) for n in range(300))]
    async with Loopback([Answer(frames, content_type=AWS)]) as server:
        events = await taken(pump(*converse(server.url)))
    assert len(events) == 301
    assert events[-1]["contentBlockDelta"]["delta"] == {"text": "299"}


@pytest.mark.parametrize("frames", [[START], []], ids=["streaming", "before the first event"])
async def test_a_hanging_connection_is_closed_on_cancel(frames: list[bytes]) -> None:
    async with Loopback([Answer(frames, content_type=AWS, hangs=True)]) as server:
        task = asyncio.create_task(taken(pump(*converse(server.url))))
        await server.arrived.wait()
        thread = next(t for t in threading.enumerate() if t.name == "keen-pump")
        task.cancel()
        async with asyncio.timeout(1):
            with pytest.raises(asyncio.CancelledError):
                await task
        async with asyncio.timeout(5):
            await server.disconnected.wait()
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()


def test_a_thread_that_outlives_its_loop_ends_quietly() -> None:
    stream = Scripted(3)
    go, sending = threading.Event(), threading.Event()

    def send(_: None) -> Scripted:
        sending.set()
        go.wait()
        return stream

    async def leave() -> None:
        task = asyncio.create_task(taken(pump(lambda: None, send)))
        await in_thread(sending)
        task.cancel()

    asyncio.run(leave())
    go.set()
    assert stream.is_closed.wait(5)

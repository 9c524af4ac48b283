"""Messages to and from a server's process, a line each, none of them of unbounded length."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, cast

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from keen.core.messages import Json
from keen.extend._mcp_log import ServerLog
from keen.extend._mcp_process import ServerProcess

LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest message; a server that sends a longer one is ended."""
_LARGE: Final = 128 * 1024
"""Bytes from which a message is read outside of the event loop."""
_AFTER: Final = 0.5
"""Seconds that output may still come after the process itself ended."""
_QUEUE: Final = 64

Reading = MemoryObjectReceiveStream["SessionMessage | Exception"]
Writing = MemoryObjectSendStream[SessionMessage]


class StdioTransport:
    """The two streams a session of the SDK runs on, over a started process that it then owns."""

    def __init__(
        self, process: ServerProcess, log: ServerLog, on_end: Callable[[str], None]
    ) -> None:
        """`on_end` hears once, in a few words, why no more messages will come."""
        self._process = process
        self._log = log
        self._on_end = on_end
        self._received, self._reading = anyio.create_memory_object_stream[
            SessionMessage | Exception
        ](0)
        self._writing, self._sent = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
        self._tasks: list[asyncio.Task[None]] = []
        self._eof = asyncio.Event()
        self._has_ended = False
        self._is_over = False

    async def __aenter__(self) -> tuple[Reading, Writing]:
        work: tuple[Coroutine[Any, Any, None], ...] = (
            self._read(),
            self._write(),
            self._keep_errors(),
            self._watch(),
        )
        self._tasks = [asyncio.create_task(each) for each in work]
        return self._reading, self._writing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process and everything it started, also for a caller that is cancelled."""
        cancelled: asyncio.CancelledError | None = None
        while not self._is_over:
            # A task of its own, and another one where the loop's end cancels it before it began.
            ending = asyncio.create_task(self._end())
            while not ending.done():
                try:
                    await asyncio.wait({ending})
                except asyncio.CancelledError as caught:
                    cancelled = caught
            if not ending.cancelled():
                ending.result()
        if cancelled is not None:
            raise cancelled

    async def _end(self) -> None:
        """Each step also where the one before is cancelled, as at the end of the loop itself."""
        try:
            # What was accepted goes out first: that a call was cancelled may be the last word.
            self._writing.close()
            await asyncio.wait({self._tasks[1]}, timeout=0.2)
        finally:
            for task in self._tasks:
                task.cancel()
            try:
                await asyncio.wait(self._tasks)
            finally:
                try:
                    await self._process.end()
                finally:
                    self._is_over = True
                    for stream in (self._received, self._reading, self._sent):
                        stream.close()

    async def _read(self) -> None:
        buffer = bytearray()
        while data := await self._process.read(self._process.output):
            length = len(buffer)
            buffer += data
            if b"\n" in data:
                *lines, rest = bytes(buffer).split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    await self._deliver(line)
            elif length > LINE_BYTES:
                self._ended(f"it sent a line of more than {LINE_BYTES // 1024**2} MB")
                return
        self._eof.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AFTER):
                await self._process.exited()
                return
        self._ended("it closed its output")

    async def _deliver(self, line: bytes) -> None:
        if not line.strip():
            return
        large = len(line) > _LARGE
        message = await asyncio.to_thread(_parsed, line) if large else _parsed(line)
        if message is None:
            await asyncio.to_thread(self._log.write, b"[stdout] " + line[:2_000] + b"\n")
            return
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._received.send(SessionMessage(message))

    async def _write(self) -> None:
        async for item in self._sent:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self._process.write(text.encode() + b"\n")
            except OSError:
                self._ended("it closed its input")
                return

    async def _keep_errors(self) -> None:
        while data := await self._process.read(self._process.errors):
            await asyncio.to_thread(self._log.write, data)

    async def _watch(self) -> None:
        code = await self._process.exited()
        # Something it started may hold the other end of the pipe for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AFTER):
                await self._eof.wait()
                await asyncio.wait({self._tasks[2]})
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        self._ended(f"its process ended with {how}")

    def _ended(self, why: str) -> None:
        """No more messages: whoever waits for an answer hears of it."""
        if not self._has_ended:
            self._has_ended = True
            self._on_end(why)
            self._received.close()


def _parsed(line: bytes) -> mcp_types.JSONRPCMessage | None:
    """The message of a line; None when it is none."""
    try:
        if len(line) <= _LARGE:
            return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        value = cast("Json", json.loads(line))
        if isinstance(value, dict) and isinstance(number := value.get("id"), int | str):
            # What a large result holds is looked at by whoever asked; that is much faster.
            result = value.get("result")
            if isinstance(result, dict) and "method" not in value:
                return mcp_types.JSONRPCResponse.model_construct(
                    jsonrpc="2.0", id=number, result=result
                )
        return mcp_types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValidationError, ValueError, RecursionError):
        return None

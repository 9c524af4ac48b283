"""A provider on a loopback socket that answers from a script and keeps what it was asked."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.fakes.refusals import refusal, wording
from tests.fakes.script import Recorded, Script, Scripted, json_reply, recorded
from tests.fakes.strict import violations

__all__ = ["FakeProvider", "Recorded", "Script", "Scripted", "json_reply"]

_LARGEST_HEAD = 256 * 1024
_OVERRUN = "the script of the fake provider has run out"


@dataclass
class FakeProvider:
    """Speaks HTTP/1.1 on 127.0.0.1 and answers each request with the next entry of its script.

    A callable entry answers all further requests. A request that its protocol would refuse is
    answered with 400, uses up no entry and is told in `violations`; `is_strict=False` lets it
    pass. `limit_tokens` refuses a request of more bytes / 4 as an input that is too large.
    """

    script: list[Script]
    limit_tokens: int | None = None
    is_strict: bool = True
    url: str = ""
    requests: list[Recorded] = field(default_factory=list[Recorded])
    """What was asked for an answer, in order."""
    strays: list[Recorded] = field(default_factory=list[Recorded])
    """Requests to paths of none of the six protocols; they are answered with 404."""
    violations: list[str] = field(default_factory=list[str])
    overruns: int = 0
    disconnects: int = 0
    """Connections the client left before their answer was written."""

    def __init__(
        self, *script: Script, limit_tokens: int | None = None, is_strict: bool = True
    ) -> None:
        self.script = list(script)
        self.limit_tokens = limit_tokens
        self.is_strict = is_strict
        self.url = ""
        self.requests = []
        self.strays = []
        self.violations = []
        self.overruns = 0
        self.disconnects = 0
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_LARGEST_HEAD
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        handlers = list(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def asked(self, count: int = 1) -> None:
        """Wait until `count` requests have come."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def left(self, count: int = 1) -> None:
        """Wait until the client has left `count` answers."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.disconnects >= count)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection is over."""
        request = await self._receive(reader)
        if not request.protocol:
            self.strays.append(request)
            reply = json_reply(404, {"error": {"message": f"nothing is at {request.path}"}})
        else:
            self.requests.append(request)
            reply = self._reply(request)
        await self._tell()
        return await _Sender(self, reader, writer).send(reply)

    async def _receive(self, reader: asyncio.StreamReader) -> Recorded:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await _chunked(reader)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return recorded(len(self.requests), method, path, headers, body)

    def _reply(self, request: Recorded) -> Scripted:
        if self.is_strict and (found := violations(request)):
            self.violations += [f"request {request.number}: {fault}" for fault in found]
            words = wording("malformed_history", request.protocol, detail="; ".join(found))
            assert words is not None
            return refusal(request.protocol, words)
        size = len(request.text.encode()) // 4
        if self.limit_tokens is not None and size > self.limit_tokens:
            words = wording("overflow", request.protocol, actual=size, limit=self.limit_tokens)
            assert words is not None
            return refusal(request.protocol, words)
        if not self.script:
            self.overruns += 1
            return json_reply(500, {"error": {"message": _OVERRUN}, "message": _OVERRUN})
        entry = self.script[0]
        if callable(entry):
            return entry(request)
        del self.script[0]
        return entry

    async def count_disconnect(self) -> None:
        """The client left an answer that was not finished."""
        self.disconnects += 1
        await self._tell()


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return bytes(body)


@dataclass(frozen=True, slots=True)
class _Sender:
    """Writes one answer to one connection."""

    provider: FakeProvider
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, reply: Scripted) -> bool:
        """Write the answer; False when the connection is over."""
        try:
            if reply.hang_before_headers:
                return await self._until_the_client_leaves()
            if not await self._write(reply):
                return False
            if reply.hold:
                return await self._until_the_client_leaves()
        except ConnectionError:
            await self.provider.count_disconnect()
            return False
        if reply.cut is not None:
            await self._cut(is_reset=reply.cut == "rst")
            return False
        if reply.raw is not None:
            return False
        if reply.status == 200:
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
        return True

    async def _write(self, reply: Scripted) -> bool:
        """Head and frames: chunked when it is a stream, bare behind `raw`, else with a length."""
        is_chunked = reply.status == 200 and reply.raw is None
        self.writer.write(self._head(reply) if reply.raw is None else reply.raw)
        for frame in filter(None, reply.frames):
            self.writer.write(b"%x\r\n%s\r\n" % (len(frame), frame) if is_chunked else frame)
            await self.writer.drain()
            if reply.delay and await self._has_left(reply.delay):
                await self.provider.count_disconnect()
                return False
        await self.writer.drain()
        return True

    def _head(self, reply: Scripted) -> bytes:
        headers = {"content-type": reply.content_type, **reply.headers}
        if reply.status == 200:
            headers["transfer-encoding"] = "chunked"
        else:
            headers["content-length"] = str(len(reply.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {reply.status} Fake\r\n{lines}\r\n".encode("latin-1")

    async def _has_left(self, seconds: float) -> bool:
        """Wait; True as soon as the client closes its side."""
        try:
            return await asyncio.wait_for(self.reader.read(1), seconds) == b""
        except TimeoutError:
            return False

    async def _until_the_client_leaves(self) -> bool:
        await self.writer.drain()
        while await self.reader.read(1):
            pass
        await self.provider.count_disconnect()
        return False

    async def _cut(self, *, is_reset: bool) -> None:
        """End the connection: in order, or with a reset that forgets what was not sent."""
        if not is_reset:
            self.writer.close()
            return
        connection: socket.socket = self.writer.get_extra_info("socket")
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

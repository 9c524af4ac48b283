"""A small HTTP server on 127.0.0.1 that answers from a script and tells what it saw."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from keen.core.messages import History, ToolSpec, User
from keen.core.models import Effort, ModelSpec
from keen.wire.base import Delta, Reply, Request, Wire

AnyWire = TypeVar("AnyWire", bound=Wire)

READ: Final = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {}}})

SSE = "text/event-stream"
AWS = "application/vnd.amazon.eventstream"


@dataclass(frozen=True)
class Answer:
    """One scripted answer. `hangs` keeps the connection open after the frames, or before the head.

    `cut` drops the connection without the end of the body.
    """

    frames: Sequence[bytes] = ()
    status: int = 200
    content_type: str = SSE
    headers: dict[str, str] = field(default_factory=dict[str, str])
    hangs: bool = False
    hangs_before_head: bool = False
    cut: bool = False


@dataclass
class Seen:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Loopback:
    """Answers in order; `disconnected` is set when a hanging client goes away."""

    answers: list[Answer]
    requests: list[Seen] = field(default_factory=list[Seen])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        while self._writers:
            for writer in self._writers:
                writer.close()
            await asyncio.sleep(0)  # each handler sees the end of its connection and leaves

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Seen(first.split(" ")[1], headers, json.loads(body or b"null")))
        self.arrived.set()
        answer = self.answers.pop(0)
        if answer.hangs_before_head:
            return await self._hang(reader)
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\ncontent-type: {answer.content_type}\r\n{extra}"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        for frame in answer.frames:
            writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        await writer.drain()
        if answer.hangs:
            return await self._hang(reader)
        if answer.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _hang(self, reader: asyncio.StreamReader) -> bool:
        with suppress(ConnectionError):
            await reader.read(1)
        self.disconnected.set()
        return False


def sse(*events: dict[str, Any]) -> list[bytes]:
    """Events with their type as name, as Anthropic sends them; others ignore the name."""
    return [
        f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()
        for event in events
    ]


def aws_event(name: str, payload: dict[str, Any], *, kind: str = "event") -> bytes:
    """One frame of the AWS event stream: prelude, headers, payload, two checksums."""
    type_name = ":exception-type" if kind == "exception" else ":event-type"
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in (
            (type_name, name),
            (":content-type", "application/json"),
            (":message-type", kind),
        )
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


@asynccontextmanager
async def serving(
    make: Callable[[str], AnyWire], *answers: Answer
) -> AsyncGenerator[tuple[Loopback, AnyWire]]:
    """A server that gives these answers, and a wire to it."""
    async with Loopback([*answers]) as server:
        wire = make(server.url)
        try:
            yield server, wire
        finally:
            await wire.aclose()


async def heard(wire: Wire, request: Request) -> list[Delta | Reply]:
    """All that one request is answered with."""
    return [item async for item in wire.stream(wire.encode(request))]


def a_request(
    model: ModelSpec,
    *messages: Any,
    tools: tuple[ToolSpec, ...] = (READ,),
    effort: Effort | None = None,
    output_tokens: int = 8_192,
) -> Request:
    """A request in a conversation of these messages, or of one that says hello."""
    history = cast(History, messages or (User("hello"),))
    return Request(model, "Be good.", history, tools, output_tokens=output_tokens, effort=effort)

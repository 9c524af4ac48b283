"""A server on 127.0.0.1 that records what it is asked and answers as scripted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self, cast

from keen.core.messages import Json, JsonObject


def sse(*events: Json) -> bytes:
    """Events as a Responses stream writes them."""
    frames: list[str] = []
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        frames.append(f"event: {kind}\ndata: {json.dumps(event)}\n\n")
    return "".join(frames).encode()


@dataclass(frozen=True)
class Answer:
    """One scripted answer: what is sent, then how it ends.

    "end" closes the body properly, "cut" drops the connection in the middle, "hold" says nothing
    more, "silent" does not even send headers.
    """

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    then: Literal["end", "cut", "hold", "silent"] = "end"


@dataclass
class Asked:
    """One recorded request."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> JsonObject:
        return cast(JsonObject, json.loads(self.raw))


@dataclass
class ResponsesServer:
    """`async with ResponsesServer(answers) as server`; the last answer is repeated."""

    answers: list[Answer]
    asked: list[Asked] = field(default_factory=list[Asked])
    connections: int = 0
    held: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnected.set()
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(head[0].split(" ")[1], headers, raw))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if answer.then != "silent":
            lines = [f"HTTP/1.1 {answer.status} Said", "transfer-encoding: chunked"]
            lines += [f"{name}: {value}" for name, value in answer.headers]
            writer.write("\r\n".join((*lines, "", "")).encode())
            if answer.body:
                writer.write(b"%x\r\n%s\r\n" % (len(answer.body), answer.body))
            await writer.drain()
        if answer.then in ("hold", "silent"):
            self.held.set()
            await reader.readexactly(1)
        if answer.then == "cut":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

"""A server on 127.0.0.1 that answers paths with JSON: local model servers and sign-in issuers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import parse_qs


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body).items()}

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)


Answer: TypeAlias = object
"""What is sent as JSON with 200; a number is a status without a body; a `str` is sent as it is."""
Route: TypeAlias = "Answer | Callable[[Asked], Answer]"


@dataclass
class JsonServer:
    """Paths and their answers; `HANG` as an answer never answers. Other paths are 404."""

    routes: Mapping[str, Route]
    asked: list[Asked] = field(default_factory=list[Asked])
    url: str = ""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request."""
    _server: asyncio.Server | None = None
    _handlers: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        handlers = list(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        fields = (line.split(":", 1) for line in head[1:] if ":" in line)
        headers = {name.lower(): value.strip() for name, value in fields}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body.decode())
        self.asked.append(asked)
        self.arrived.set()
        route = self.routes.get(path.partition("?")[0], 404)
        answer = route(asked) if callable(route) else route
        if answer is HANG:
            await asyncio.Event().wait()
        status = answer if isinstance(answer, int) else 200
        text = answer if isinstance(answer, str) else json.dumps(answer)
        content = b"" if isinstance(answer, int) else text.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        await writer.drain()
        return headers.get("connection") != "close"


HANG = object()
"""The answer that never comes."""

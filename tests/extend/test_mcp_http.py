from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from keen.extend.mcp import Limits
from keen.extend.mcp_config import ServerConfig
from tests.extend.mcp_place import McpPlace

TOOLS = [{"name": "echo", "description": "Says it.", "inputSchema": {"type": "object"}}]


@dataclass
class HttpServer:
    """An MCP server on loopback; `special` may answer a method with a whole response of its own."""

    special: dict[str, Callable[[dict[str, Any]], bytes | None]] = field(
        default_factory=dict[str, Callable[[dict[str, Any]], "bytes | None"]]
    )
    is_stream: bool = False
    seen: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list[tuple[str, str, dict[str, str]]]
    )
    """HTTP method, MCP method, headers."""
    url: str = ""
    _server: asyncio.Server | None = None
    _handlers: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for handler in [*self._handlers]:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while True:
                await self._one(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        verb = head[0].split(" ")[0]
        fields = (line.split(":", 1) for line in head[1:] if ":" in line)
        headers = {name.lower(): value.strip() for name, value in fields}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message: dict[str, Any] = json.loads(body) if body else {}
        self.seen.append((verb, message.get("method", ""), headers))
        special = self.special.get(message.get("method", ""))
        answer = special(message) if special is not None else None
        writer.write(answer if answer is not None else self._usual(verb, message))
        await writer.drain()

    def _usual(self, verb: str, message: dict[str, Any]) -> bytes:
        if verb != "POST":
            return response(b"", status="405 No")
        if "id" not in message:
            return response(b"", status="202 Accepted")
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            },
            "tools/list": {"tools": TOOLS},
            "tools/call": {"content": [{"type": "text", "text": "said"}]},
        }
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        content = json.dumps(reply).encode()
        if self.is_stream:
            event = b"event: message\ndata: " + content + b"\n\n"
            return response(event, kind="text/event-stream")
        return response(content)


def response(
    content: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{more}"
    return head.encode() + b"\r\n" + content


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    work = tmp_path / "work"
    work.mkdir()
    return McpPlace(tmp_path / "home", work)


def web(url: str) -> ServerConfig:
    headers = {"Authorization": "Bearer s3cret-key"}
    return ServerConfig("web", "user", "x", transport="http", url=url, headers=headers, key="web")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_tool_is_called_over_http_with_the_configured_headers(
    place: McpPlace, is_stream: bool
) -> None:
    async with HttpServer(is_stream=is_stream) as server, place.running(web(server.url)) as session:
        result = await session.call("mcp__web__echo")

    assert (result.output, result.is_error) == ("said", False)
    posts = [headers for verb, _, headers in server.seen if verb == "POST"]
    assert all(headers["authorization"] == "Bearer s3cret-key" for headers in posts)
    assert all(headers["user-agent"].startswith("keen/") for headers in posts)


async def test_a_redirect_to_another_host_is_refused_and_the_key_stays_here(
    place: McpPlace,
) -> None:
    async with HttpServer() as other, HttpServer() as server:

        def away(_message: dict[str, Any]) -> bytes:
            return response(b"", status="307 There", more=f"Location: {other.url}\r\n")

        server.special["tools/call"] = away
        async with place.running(web(server.url)) as session:
            result = await session.call("mcp__web__echo")

    assert result.is_error
    assert "not followed" in result.output
    assert other.seen == []


async def test_an_answer_that_is_too_long_ends_the_call_not_keen(place: McpPlace) -> None:
    async with HttpServer() as server:
        server.special["tools/call"] = lambda _: response(b" " * (17 * 1024 * 1024))
        async with place.running(web(server.url)) as session:
            result = await session.call("mcp__web__echo")

    assert result.is_error
    assert "more than 16 MB" in result.output


async def test_a_packed_answer_is_refused_since_it_may_unpack_to_anything(
    place: McpPlace,
) -> None:
    async with HttpServer() as server:
        packed = gzip.compress(b" " * 1_000_000)
        server.special["tools/call"] = lambda _: response(packed, more="Content-Encoding: gzip\r\n")
        async with place.running(web(server.url)) as session:
            result = await session.call("mcp__web__echo")

    assert result.is_error
    assert "compressed" in result.output


async def test_a_refused_key_is_told_by_its_status(place: McpPlace) -> None:
    async with HttpServer() as server:
        server.special["initialize"] = lambda _: response(b"", status="401 Who")
        async with place.running(web(server.url)) as session:
            result = await session.call("mcp__web__echo")

    assert result.is_error
    assert "HTTP 401" in result.output
    assert "s3cret-key" not in result.output


async def test_nobody_at_the_address_is_a_clear_error(place: McpPlace) -> None:
    async with HttpServer() as server:
        url = server.url
    async with place.running(web(url)) as session:
        result = await session.call("mcp__web__echo")

    assert result.is_error
    assert "did not start" in result.output


async def test_a_session_that_the_server_forgot_is_begun_anew(place: McpPlace) -> None:
    async with HttpServer() as server:
        gone = [response(b"", status="404 Gone")]
        server.special["tools/call"] = lambda _: gone.pop() if gone else None
        server.special["initialize"] = lambda message: response(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": message["id"],
                    "result": {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {},
                        "serverInfo": {"name": "web", "version": "1"},
                    },
                }
            ).encode(),
            more="Mcp-Session-Id: abc\r\n",
        )
        async with place.running(web(server.url)) as session:
            first = await session.call("mcp__web__echo")
            second = await session.call("mcp__web__echo")

    assert first.is_error
    assert second.output == "said"


async def test_a_slow_server_is_cancelled_at_its_limit(place: McpPlace) -> None:
    place.limits = Limits(connect=8, call=0.4)
    async with HttpServer() as server:
        server.special["tools/call"] = lambda _: b""
        async with place.running(web(server.url)) as session:
            result = await session.call("mcp__web__echo")
            while "notifications/cancelled" not in [method for _, method, _ in server.seen]:
                await asyncio.sleep(0.01)

    assert "neither an answer nor progress" in result.output

"""Servers of the older HTTP transport: the SDK's own, and one that never says where to write."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from keen.extend.mcp import Limits
from keen.extend.mcp_config import ServerConfig
from keen.tools.base import Context
from tests.extend.mcp_place import McpPlace

SCRIPT = Path(__file__).with_name("mcp_sse_server.py")
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    work = tmp_path / "work"
    work.mkdir()
    return McpPlace(tmp_path / "home", work, limits=Limits(connect=30.0, call=30.0))


@pytest.fixture
async def port() -> AsyncGenerator[int, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    yield int(await process.stdout.readline())
    process.kill()
    await process.wait()


def older(port: int) -> ServerConfig:
    url = f"http://127.0.0.1:{port}/sse"
    return ServerConfig("older", "user", "x", transport="sse", url=url, key="older")


async def test_tools_and_resources_of_the_older_transport_are_used(
    place: McpPlace, port: int
) -> None:
    async with place.running(older(port)) as session:
        added = await session.call("mcp__older__add", a=2, b=3)
        server = session.servers.server("older")
        assert server is not None
        note = await server.read_resource(
            "note://one", Context(place.work, (place.work,), place.work)
        )
        wrong = await session.call("mcp__older__add", a="two", b=3)

    assert (added.output, added.is_error) == ("5", False)
    assert "what the note says" in note.output
    assert wrong.is_error


async def test_a_server_that_never_says_where_to_write_is_given_up(place: McpPlace) -> None:
    place.limits = Limits(connect=0.5)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with place.running(older(server.sockets[0].getsockname()[1])) as session:
        result = await session.call("mcp__older__add", a=1, b=1)
    await ended.wait()
    server.close()

    assert "did not start: it did not answer in time" in result.output

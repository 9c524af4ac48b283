"""What is no message of the protocol: answered with an error of JSON-RPC, never a crash."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from keen.acp.stdio import MOST_LINE
from tests.acp.editor import start
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
pytestmark = pytest.mark.timeout(90)


async def answers(place: Place, *lines: bytes, count: int = 1) -> list[dict[str, Any]]:
    """What a process says to these lines: a message to each of the first `count`.

    It must still answer a good request then, leave with 0 when stdin ends, and say nothing else.
    """
    process = await start(place)
    assert process.stdin is not None
    assert process.stdout is not None
    found: list[dict[str, Any]] = []
    try:
        for line in lines:
            process.stdin.write(line + b"\n")
            await process.stdin.drain()
            if len(found) < count:
                found.append(json.loads(await process.stdout.readline()))
        process.stdin.write(request("initialize", {"protocolVersion": 1}, number="last") + b"\n")
        last = json.loads(await process.stdout.readline())
        assert last["id"] == "last"
        assert last["result"]["protocolVersion"] == 1
        process.stdin.close()
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return found


def request(method: Any, params: Any = None, number: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


async def test_lines_that_are_no_message_are_answered_one_by_one(place: Place) -> None:
    lines = {
        b"{not json": -32700,
        b"\xff\xfe\x00": -32700,
        b"[" * 100_000: -32700,
        b"[]": -32600,
        b'"words"': -32600,
        b'{"id": [1], "method": "initialize"}': -32600,
        b'{"id": true, "method": "initialize"}': -32600,
        request(["initialize"]): -32600,
        request("no/such"): -32601,
        request("_no/such", {}): -32601,
        request("session/prompt"): -32602,
        request("session/prompt", [1, 2]): -32602,
        request("session/prompt", {"sessionId": 5, "prompt": "x"}): -32602,
        request("session/new", {"cwd": "/"}): -32602,
        request("session/load", {}): -32602,
        request("initialize", []): -32602,
    }
    found = await answers(place, *lines, count=len(lines))
    for (line, code), answer in zip(lines.items(), found, strict=True):
        assert answer.get("error", {}).get("code") == code, (line[:60], answer)
        assert answer["error"]["message"]


async def test_answers_nobody_waits_for_and_empty_lines_are_passed_over(place: Place) -> None:
    lines = [
        b"",
        b"   \r",
        b'{"jsonrpc": "2.0", "id": 7, "result": {}}',
        b'{"jsonrpc": "2.0", "id": "x", "error": "words"}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1}}',
        b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "nobody"}}',
        b'{"jsonrpc": "2.0", "method": "session/cancel"}',
        b'{"jsonrpc": "2.0", "method": "no/such"}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 3}}',
    ]
    assert await answers(place, *lines, count=0) == []


async def test_a_line_without_measure_is_refused_and_the_next_one_is_read(place: Place) -> None:
    (answer,) = await answers(place, b"x" * (MOST_LINE + 1024 * 1024))

    assert answer["id"] is None
    assert answer["error"]["code"] == -32600
    assert "32 MiB" in answer["error"]["message"]


async def test_another_version_is_answered_with_ours(place: Place) -> None:
    (answer,) = await answers(place, request("initialize", {"protocolVersion": 99}))

    result = answer["result"]
    assert result["protocolVersion"] == 1
    assert result["agentInfo"]["name"] == "keen"
    capabilities = result["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert capabilities["promptCapabilities"] == {"image": True, "embeddedContext": True}
    assert "list" in capabilities["sessionCapabilities"]


async def test_a_client_that_is_gone_ends_the_process(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("half an answer")) as provider:
        place.configure(CHAT, provider.url)
        process = await start(place)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            request("session/new", {"cwd": str(place.work), "mcpServers": []}) + b"\n"
        )
        answer = json.loads(await process.stdout.readline())
        assert "result" in answer, answer
        session_id = answer["result"]["sessionId"]
        words = [{"type": "text", "text": "hello"}]
        params = {"sessionId": session_id, "prompt": words}
        process.stdin.write(request("session/prompt", params, number=2) + b"\n")
        await provider.asked()
        process.stdin.close()
        code = await process.wait()
        await asyncio.wait_for(provider.left(), 30)

    assert code == 0
    (path,) = place.sessions()
    assert path.stem == session_id


async def test_a_client_that_reads_nothing_does_not_hold_the_end(place: Place) -> None:
    pieces = tuple(f"piece {number} of the answer " for number in range(2_000))
    async with FakeProvider(CHAT.says("", pieces=pieces)) as provider:
        place.configure(CHAT, provider.url)
        reading, writing = os.pipe()
        process = await start(place, stdout=writing)
        os.close(writing)
        assert process.stdin is not None
        try:
            process.stdin.write(
                request("session/new", {"cwd": str(place.work), "mcpServers": []}) + b"\n"
            )
            line = b""
            while not line.endswith(b"\n"):
                line += await asyncio.to_thread(os.read, reading, 1)
            session_id = json.loads(line)["result"]["sessionId"]
            words = [{"type": "text", "text": "hello"}]
            params = {"sessionId": session_id, "prompt": words}
            process.stdin.write(request("session/prompt", params, number=2) + b"\n")
            await provider.asked()
            process.stdin.close()
            code = await process.wait()
        finally:
            os.close(reading)
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert code == 0
    assert [path.stem for path in place.sessions()] == [session_id]


@pytest.mark.parametrize("flag", ["--continue", "--fork-session", "--resume"])
async def test_flags_that_the_editor_decides_are_wrong_use(place: Place, flag: str) -> None:
    process = await start(place, flag)
    _out, error = await process.communicate()

    assert process.returncode != 0
    assert b"the editor says which session" in error

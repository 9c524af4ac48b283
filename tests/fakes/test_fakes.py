"""The fake refuses what it should: without this the contract could not fail."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from keen.core.messages import Json, JsonObject, User
from tests.conftest import WentOnline
from tests.fakes.asking import asking, hear, open_wire, results_of
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.server import FakeProvider
from tests.fakes.shapes import entries

HELLO = User("hello")


async def good_request(dialect: Dialect) -> tuple[str, JsonObject]:
    """Path and body of a second step: signed reasoning, two calls, their results."""
    calls = dialect.calls_many(
        ("read_file", {"path": "a"}), ("glob", {"pattern": "*"}), reasoning="hm", text="Looking."
    )
    async with FakeProvider(calls, dialect.says("ok")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            asked = await hear(wire, asking(dialect, HELLO, effort="high"))
            history = (HELLO, asked.message, results_of(asked.message))
            await hear(wire, asking(dialect, *history, effort="high"))
        request = provider.requests[1]
        return request.path, request.json


def items(body: JsonObject) -> list[Json]:
    """The list that holds the conversation."""
    key = next(name for name in ("messages", "input", "contents") if name in body)
    value = body[key]
    assert isinstance(value, list)
    return value


def without_the_last_result(body: JsonObject) -> None:
    last = items(body)[-1]
    assert isinstance(last, dict)
    inner = last.get("content", last.get("parts"))
    answers = entries(inner)
    if len(answers) > 1:
        kept = [part for part in answers if "cachePoint" not in json.dumps(part)]
        answers.remove(kept[-1])
    else:
        del items(body)[-1]


def without_the_first_message(body: JsonObject) -> None:
    """Leaves calls and results; the call turn now stands first, or its results stand alone."""
    kept = items(body)
    place = next(n for n, item in enumerate(kept) if "Looking." in json.dumps(item))
    del kept[place:-1]


def with_another_signature(body: JsonObject) -> None:
    text = json.dumps(body)
    signature = re.search(r'"[A-Za-z0-9+/_-]{20}([A-Za-z0-9+/_-]{151}=)"', text)
    if signature is None:
        pytest.skip("the protocol signs nothing")
    body.clear()
    body.update(json.loads(text.replace(signature[1], signature[1][-2::-1] + "=")))


SPOILED: list[Callable[[JsonObject], None]] = [
    without_the_last_result,
    without_the_first_message,
    with_another_signature,
]


async def post(provider: FakeProvider, path: str, body: JsonObject) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        return await client.post(provider.url + path, json=body)


async def test_a_good_request_passes_and_uses_up_the_script(dialect: Dialect) -> None:
    path, body = await good_request(dialect)
    async with FakeProvider(dialect.says("fine")) as provider:
        first = await post(provider, path, body)
        second = await post(provider, path, body)

    assert provider.violations == []
    assert (first.status_code, second.status_code) == (200, 500)
    assert "run out" in second.text
    assert provider.overruns == 1


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
async def test_a_spoiled_request_is_refused(
    dialect: Dialect, spoil: Callable[[JsonObject], None]
) -> None:
    path, body = await good_request(dialect)
    spoil(body)
    async with FakeProvider(dialect.says("fine")) as provider:
        response = await post(provider, path, body)

    assert response.status_code == 400
    assert provider.violations != []
    assert len(provider.script) == 1


async def test_a_request_above_the_limit_overflows(dialect: Dialect) -> None:
    path, body = await good_request(dialect)
    async with FakeProvider(dialect.says("fine"), limit_tokens=50) as provider:
        response = await post(provider, path, body)

    assert response.status_code == 400
    assert "ontext" in response.text or "too long" in response.text or "token" in response.text
    assert provider.violations == []


def test_a_test_cannot_go_online(offline: list[object]) -> None:
    with socket.socket() as connection, pytest.raises(WentOnline):
        connection.connect(("192.0.2.1", 80))
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("example.org", 443)

    assert offline == [("192.0.2.1", 80), "example.org"]
    offline.clear()


async def test_the_fake_as_a_program_answers(tmp_path: Path) -> None:
    origin, settings = tmp_path / "origin", tmp_path / "config.toml"
    given = ["--dialect", "chat", "--port-file", str(origin), "--settings", str(settings)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes", *given, "--script", "chunks 50"
    )
    try:
        while not origin.exists():
            assert process.returncode is None
            await asyncio.sleep(0.02)
        url = origin.read_text().strip()
        async with open_wire(dialect_named("chat"), url) as wire:
            heard = await hear(wire, asking(dialect_named("chat"), HELLO))
        assert len(heard.deltas) == 50
        assert url in settings.read_text()
    finally:
        process.terminate()
        await process.wait()

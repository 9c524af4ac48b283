"""The Responses wire: what it does over real sockets, and how it goes wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from keen.core.errors import (
    ContextOverflow,
    ProviderError,
    Quirk,
    Rejected,
    Transient,
    Unauthorized,
)
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    History,
    Json,
    JsonObject,
    Results,
    ToolResult,
    ToolSpec,
    User,
)
from keen.core.models import ModelSpec
from keen.wire.base import Body, Delta, Endpoint, FixedKey, Reply, Request
from keen.wire.responses import ResponsesWire
from tests.wire.responses_events import (
    CALL,
    MESSAGE,
    REASONING,
    a_whole_answer,
    changed,
    completed,
)
from tests.wire.responses_server import Answer, ResponsesServer, sse

MODEL = ModelSpec("openai", "gpt-test", "responses")
READ = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {}})


def a_request(*messages: User | Assistant | Results, **changes: object) -> Request:
    request = Request(MODEL, "Be brief.", messages, (READ,), 9_000, "high", "session-1")
    return replace(request, **changes)


def encoded(request: Request, *quirks: str) -> JsonObject:
    return (
        ResponsesWire(Endpoint("openai", FixedKey("k"), quirks=frozenset(quirks)))
        .encode(request)
        .json
    )


def plain(value: Json) -> Json:
    result: Json = json.loads(json.dumps(value))
    return result


@asynccontextmanager
async def a_wire(
    server: ResponsesServer, *, key: str = "sk-test", idle_seconds: float = 5.0
) -> AsyncGenerator[ResponsesWire]:
    wire = ResponsesWire(
        Endpoint("openai", FixedKey(key), f"{server.origin}/v1", idle_seconds=idle_seconds)
    )
    try:
        yield wire
    finally:
        await wire.aclose()


async def played(wire: ResponsesWire, body: Body) -> list[Delta | Reply]:
    async with aclosing(wire.stream(body)) as pieces:
        return [piece async for piece in pieces]


async def test_an_answer_goes_back_byte_for_byte_and_the_prefix_stays() -> None:
    async with ResponsesServer([Answer(sse(*a_whole_answer()))]) as server, a_wire(server) as wire:
        history: History = (User("go"),)
        body = wire.encode(a_request(*history))
        *deltas, reply = await played(wire, body)
        assert isinstance(reply, Reply)
        assert all(isinstance(delta, TextDelta | ReasoningDelta) for delta in deltas)
        result = ToolResult("call_1", "read_file", "content")
        history = (*history, reply.message, Results((result,)))
        await played(wire, wire.encode(a_request(*history)))

    first, second = server.asked
    assert first.path == "/v1/responses"
    assert first.headers["authorization"] == "Bearer sk-test"
    assert first.raw.endswith(b"]}")
    assert second.raw.startswith(first.raw[:-2] + b",")
    items = second.json["input"]
    assert isinstance(items, list)
    assert items[1:] == [
        {key: value for key, value in REASONING.items() if key != "status"},
        changed(
            MESSAGE,
            {"content": [{"type": "output_text", "text": "I will look.", "annotations": []}]},
        ),
        CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": "content"},
    ]
    assert server.connections == 1


async def test_what_is_sent_is_what_was_encoded() -> None:
    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server, a_wire(server) as wire:
        body = wire.encode(a_request(User("go")))
        await played(wire, body)

    assert server.asked[0].json == plain(body.json)


async def test_a_renewed_key_is_sent_and_an_empty_one_is_not() -> None:
    keys = ["one", "two", ""]

    class Renewed:
        async def secret(self) -> str:
            return keys.pop(0)

        async def renew(self) -> bool:
            return True

        async def account(self) -> str:
            return ""

    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server:
        wire = ResponsesWire(Endpoint("local", Renewed(), f"{server.origin}/v1"))
        for _ in range(3):
            await played(wire, wire.encode(a_request(User("go"))))
        await wire.aclose()

    assert [asked.headers.get("authorization") for asked in server.asked] == [
        "Bearer one",
        "Bearer two",
        None,
    ]


async def test_headers_of_the_settings_are_sent_and_win() -> None:
    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server:
        headers = {"X-Title": "keen", "authorization": "Basic x"}
        wire = ResponsesWire(
            Endpoint("local", FixedKey("k"), f"{server.origin}/v1", headers=headers)
        )
        await played(wire, wire.encode(a_request(User("go"))))
        await wire.aclose()

    assert server.asked[0].headers["x-title"] == "keen"
    assert server.asked[0].headers["authorization"] == "Basic x"


async def test_openais_organisation_is_not_told_to_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server, a_wire(server) as wire:
        await played(wire, wire.encode(a_request(User("go"))))

    assert not {"openai-organization", "openai-project"} & set(server.asked[0].headers)


def refusal(status: int, code: str, message: str, *headers: tuple[str, str]) -> Answer:
    error = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    return Answer(
        json.dumps(error).encode(), status, (("content-type", "application/json"), *headers)
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(400, "context_length_exceeded", "too long"), ContextOverflow),
        (refusal(401, "invalid_api_key", "Incorrect API key provided"), Unauthorized),
        (refusal(400, "invalid_value", "Nonsense."), Rejected),
        (refusal(500, "server_error", "Oops."), Transient),
        (Answer(sse(*a_whole_answer()[:9]), then="cut"), Transient),
        (Answer(sse(*a_whole_answer()[:9])), Transient),
        (Answer(b""), Transient),
        (Answer(b"data: {broken\n\n"), Transient),
        (
            Answer(sse({"type": "error", "code": "context_length_exceeded", "message": ""})),
            ContextOverflow,
        ),
    ],
)
async def test_each_way_to_fail_has_its_error(answer: Answer, kind: type[ProviderError]) -> None:
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(kind):
            await played(wire, wire.encode(a_request(User("go"))))

    assert len(server.asked) == 1


async def test_a_429_carries_the_wait() -> None:
    answer = refusal(429, "rate_limit_exceeded", "Slow down.", ("retry-after", "7"))
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Transient) as caught:
            await played(wire, wire.encode(a_request(User("go"))))

    assert caught.value.retry_after == 7.0
    assert caught.value.status == 429


async def test_a_field_refused_by_name_is_a_quirk() -> None:
    answer = refusal(400, "unsupported_parameter", "Unsupported parameter: 'prompt_cache_key'.")
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Quirk) as caught:
            await played(wire, wire.encode(a_request(User("go"))))

    assert caught.value.field == "prompt_cache_key"


async def test_an_answer_is_whole_even_if_the_server_does_not_hang_up() -> None:
    answer = Answer(sse(*a_whole_answer()), then="hold")
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        *_, reply = await played(wire, wire.encode(a_request(User("go"))))

    assert isinstance(reply, Reply)
    assert reply.finish == "stop"


async def test_a_closed_wire_can_be_closed_again_and_opens_anew() -> None:
    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server, a_wire(server) as wire:
        await wire.aclose()
        await played(wire, wire.encode(a_request(User("go"))))
        await wire.aclose()
        await wire.aclose()
        await played(wire.without("store"), wire.encode(a_request(User("go"))))

    assert len(server.asked) == 2

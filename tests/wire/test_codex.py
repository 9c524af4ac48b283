"""The Codex wire: what it adds to Responses, what it leaves out, and how its backend refuses."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from keen.core.errors import ContextOverflow, Rejected, Transient, Unauthorized
from keen.core.messages import (
    Assistant,
    Json,
    JsonObject,
    Native,
    Results,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)
from keen.core.models import ModelSpec
from keen.wire.base import Body, Delta, Endpoint, FixedKey, Reply, Request
from keen.wire.codex import CodexWire, failure
from tests.wire.responses_events import CALL, MESSAGE, REASONING, a_whole_answer, completed
from tests.wire.responses_server import Answer, ResponsesServer, sse

MODEL = ModelSpec("openai-codex", "gpt-test-codex", "codex")
READ = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {}})


def a_request(*messages: User | Assistant | Results, **changes: object) -> Request:
    request = Request(MODEL, "Be brief.", messages, (READ,), 9_000, "low", "session-1")
    return replace(request, **changes)


@asynccontextmanager
async def a_wire(server: ResponsesServer, key: FixedKey | None = None) -> AsyncGenerator[CodexWire]:
    base = f"{server.origin}/backend-api/codex"
    wire = CodexWire(Endpoint("openai-codex", key or FixedKey("token", "acct-1"), base))
    try:
        yield wire
    finally:
        await wire.aclose()


async def played(wire: CodexWire, body: Body) -> list[Delta | Reply]:
    async with aclosing(wire.stream(body)) as pieces:
        return [piece async for piece in pieces]


def without_id(item: JsonObject, *others: str) -> JsonObject:
    return {key: value for key, value in item.items() if key not in ("id", *others)}


def refusal(status: int, body: Json) -> Answer:
    return Answer(json.dumps(body).encode(), status, (("content-type", "application/json"),))


def test_the_body_has_no_output_cap_but_the_budget_keeps_one_free() -> None:
    wire = CodexWire(Endpoint("openai-codex", FixedKey("t")))

    body = wire.encode(a_request(User("hi"))).json

    assert "max_output_tokens" not in body
    assert body["instructions"] == "Be brief."
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert list(body)[-1] == "input"
    assert wire.asked_output(MODEL) == 8_192
    assert wire.asked_output(replace(MODEL, asked_output=20_000, max_output=10_000)) == 10_000


def test_instructions_are_sent_even_when_there_are_none() -> None:
    wire = CodexWire(Endpoint("openai-codex", FixedKey("t")))

    assert wire.encode(a_request(User("hi"), system="")).json["instructions"] == ""


def test_answers_of_the_responses_client_are_foreign_here() -> None:
    native = Native("openai-codex", "responses", "gpt-test-codex", (MESSAGE,))
    wire = CodexWire(Endpoint("openai-codex", FixedKey("t")))

    items = wire.encode(a_request(User("hi"), Assistant((Text("so"),), native))).json["input"]

    assert isinstance(items, list)
    assert items[1] == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "so"}],
    }


async def test_an_answer_goes_back_byte_for_byte_without_ids_and_the_prefix_stays() -> None:
    async with ResponsesServer([Answer(sse(*a_whole_answer()))]) as server, a_wire(server) as wire:
        first_body = wire.encode(a_request(User("go")))
        reply = (await played(wire, first_body))[-1]
        assert isinstance(reply, Reply)
        assert reply.message.parts[-1] == ToolCall("call_1", "read_file", {"path": "a.py"})
        result = ToolResult("call_1", "read_file", "content")
        await played(wire, wire.encode(a_request(User("go"), reply.message, Results((result,)))))

    first, second = server.asked
    assert first.path == "/backend-api/codex/responses"
    assert second.raw.startswith(first.raw[:-2] + b",")
    items = second.json["input"]
    assert isinstance(items, list)
    sent_message = without_id(MESSAGE)
    sent_message["content"] = [{"type": "output_text", "text": "I will look.", "annotations": []}]
    assert items[1:] == [
        without_id(REASONING, "status"),
        sent_message,
        without_id(CALL),
        {"type": "function_call_output", "call_id": "call_1", "output": "content"},
    ]


async def test_the_headers_name_account_program_and_session() -> None:
    async with ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server, a_wire(server) as wire:
        await played(wire, wire.encode(a_request(User("go"))))

    headers = server.asked[0].headers
    assert headers["authorization"] == "Bearer token"
    assert headers["chatgpt-account-id"] == "acct-1"
    assert headers["originator"] == "keen"
    assert headers["session_id"] == "session-1"


async def test_without_account_and_session_their_headers_are_not_sent() -> None:
    async with (
        ResponsesServer([Answer(sse(completed(MESSAGE)))]) as server,
        a_wire(server, FixedKey("token")) as wire,
    ):
        await played(wire, wire.encode(a_request(User("go"), cache_key="")))

    assert not {"chatgpt-account-id", "session_id"} & set(server.asked[0].headers)


async def test_a_detail_is_the_reason_that_is_shown() -> None:
    answer = refusal(400, {"detail": "The model is not supported with a ChatGPT account."})
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Rejected, match="not supported with a ChatGPT account") as caught:
            await played(wire, wire.encode(a_request(User("go"))))

    assert caught.value.status == 400


async def test_a_refused_token_is_unauthorized() -> None:
    answer = refusal(401, {"detail": "Unauthorized"})
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Unauthorized):
            await played(wire, wire.encode(a_request(User("go"))))


@pytest.mark.parametrize("in_stream", [False, True], ids=["http", "stream"])
@pytest.mark.parametrize("name", ["usage_limit_reached", "usage_not_included"])
async def test_a_spent_plan_says_when_to_come_back(name: str, in_stream: bool) -> None:
    error: JsonObject = {
        "type": name,
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_in_seconds": 11_500,
    }
    failed: JsonObject = {
        "type": "response.failed",
        "response": {"error": {**error, "type": None, "code": name}},
    }
    answer = Answer(sse(failed)) if in_stream else refusal(429, {"error": error})
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Transient, match=r"Come back in 3 h 12 min \(2") as caught:
            await played(wire, wire.encode(a_request(User("go"))))

    assert caught.value.is_spent
    assert caught.value.retry_after == 11_500


async def test_a_reset_given_as_a_moment_is_a_wait_and_none_is_no_wait() -> None:
    moment = int(time.time()) + 2 * 86_400
    answers = [
        refusal(429, {"error": {"type": "usage_limit_reached", "resets_at": moment}}),
        refusal(429, {"error": {"type": "usage_limit_reached", "resets_at": None}}),
    ]
    async with ResponsesServer(answers) as server, a_wire(server) as wire:
        with pytest.raises(Transient, match="Come back in") as caught:
            await played(wire, wire.encode(a_request(User("go"))))
        assert caught.value.retry_after == pytest.approx(2 * 86_400, abs=60)

        with pytest.raises(Transient, match="another provider") as caught:
            await played(wire, wire.encode(a_request(User("go"))))
        assert caught.value.is_spent
        assert caught.value.retry_after is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "in 1 min "),
        (3_599, "in 1 h "),
        (93_600, "in 1 d 2 h "),
        (1e300, "another provider"),
        (-5, "another provider"),
        ("soon", "another provider"),
    ],
)
def test_the_wait_is_told_in_whole_minutes_and_only_if_it_can_be_one(
    seconds: Json, words: str
) -> None:
    error: JsonObject = {"code": "usage_limit_reached", "resets_in_seconds": seconds}

    assert words in str(failure(error, "openai-codex"))


async def test_an_ordinary_rate_limit_is_not_a_spent_plan() -> None:
    answer = refusal(429, {"error": {"type": "rate_limit_exceeded", "message": "Slow down."}})
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        with pytest.raises(Transient) as caught:
            await played(wire, wire.encode(a_request(User("go"))))

    assert not caught.value.is_spent


async def test_an_overflow_in_the_stream_is_one_though_its_message_is_empty() -> None:
    failed: JsonObject = {
        "type": "response.failed",
        "response": {"error": {"code": "context_length_exceeded", "message": ""}},
    }
    async with ResponsesServer([Answer(sse(failed))]) as server, a_wire(server) as wire:
        with pytest.raises(ContextOverflow):
            await played(wire, wire.encode(a_request(User("go"))))


async def test_a_stream_without_terminal_event_or_cut_is_tried_again() -> None:
    begun = sse(*a_whole_answer()[:9])
    async with (
        ResponsesServer([Answer(begun), Answer(begun, then="cut")]) as server,
        a_wire(server) as wire,
    ):
        for _ in range(2):
            with pytest.raises(Transient):
                await played(wire, wire.encode(a_request(User("go"))))


def test_a_refused_field_is_left_out_here_too() -> None:
    wire = CodexWire(Endpoint("openai-codex", FixedKey("t"))).without("truncation")

    assert "truncation" not in wire.encode(a_request(User("hi"))).json

"""The Responses wire: what is sent, over real sockets, and how it goes wrong."""

from __future__ import annotations

import asyncio
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
from keen.core.estimate import Opaque, json_tokens
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    History,
    Image,
    Json,
    JsonObject,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
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


# What is sent.


def test_the_body_asks_for_what_the_request_says() -> None:
    assert plain(encoded(a_request(User("hi")))) == {
        "model": "gpt-test",
        "stream": True,
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "Reads.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "max_output_tokens": 9_000,
        "store": False,
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "prompt_cache_key": "session-1",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }


def test_a_model_without_reasoning_is_not_asked_for_any() -> None:
    body = encoded(a_request(User("hi"), model=replace(MODEL, reasoning=False)))

    assert not {"include", "reasoning"} & set(body)


@pytest.mark.parametrize(
    "field",
    [
        "max_output_tokens",
        "store",
        "truncation",
        "parallel_tool_calls",
        "prompt_cache_key",
        "include",
        "reasoning",
    ],
)
def test_a_field_the_server_refuses_is_left_out(field: str) -> None:
    wire = ResponsesWire(Endpoint("openai", FixedKey("k"))).without(field)
    whole = encoded(a_request(User("hi")))

    assert wire.encode(a_request(User("hi"))).json == {
        name: value for name, value in whole.items() if name != field
    }


def test_without_effort_or_summary_the_rest_of_reasoning_stays() -> None:
    body = encoded(a_request(User("hi")), "no:reasoning_effort")
    assert body["reasoning"] == {"summary": "auto"}

    body = encoded(a_request(User("hi")), "no:reasoning.summary")
    assert body["reasoning"] == {"effort": "high"}


def test_a_summary_request_has_no_tools_and_no_parallel_calls() -> None:
    body = encoded(a_request(User("hi"), tools=()))

    assert not {"tools", "parallel_tool_calls"} & set(body)


def test_images_are_sent_as_data_and_counted_by_their_pixels() -> None:
    picture = Image("image/png", b"\x89PNG" * 10_000, 750, 100)
    result = ToolResult("c1", "read_file", "a picture", images=(picture,))
    request = a_request(
        User("see", (picture,)),
        Assistant((ToolCall("c1", "read_file", {}),)),
        Results((result,)),
    )
    wire = ResponsesWire(Endpoint("openai", FixedKey("k")))

    body = wire.encode(request)
    items = body.json[body.items]

    assert isinstance(items, list)
    user, _, output = (item for item in items if isinstance(item, dict))
    assert isinstance(user["content"], list)
    shown = user["content"][1]
    assert isinstance(shown, dict)
    url = shown["image_url"]
    assert isinstance(url, Opaque)
    assert url.startswith("data:image/png;base64,iVBOR")
    assert url.tokens == 100
    assert output["output"] == [{"type": "input_text", "text": "a picture"}, shown]
    assert json_tokens(items) < 350


def test_a_model_without_images_gets_a_line_in_their_place() -> None:
    request = a_request(
        User("see", (Image("image/png", b"x"),)), model=replace(MODEL, images=False)
    )

    assert "image_url" not in json.dumps(encoded(request))
    assert "left out" in json.dumps(encoded(request))


def test_a_foreign_history_is_sent_from_its_parts() -> None:
    foreign = Native("other", "anthropic", "m", ({"type": "thinking"},))
    request = a_request(
        User("go"),
        Assistant(
            (
                Reasoning("secret"),
                Text("one "),
                Text("two"),
                ToolCall("toolu:1", "read_file", {"path": "ä"}),
                Text("three"),
            ),
            foreign,
        ),
        Results((ToolResult("toolu:1", "read_file", "content"),)),
    )

    assert plain(encoded(request)["input"]) == [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "message", "role": "assistant", "content": "one two"},
        {
            "type": "function_call",
            "call_id": "toolu_1",
            "name": "read_file",
            "arguments": '{"path": "ä"}',
        },
        {"type": "message", "role": "assistant", "content": "three"},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "content"},
    ]


def test_lone_surrogates_never_reach_the_request() -> None:
    text = "a\ud83d"
    request = a_request(
        User(text),
        Assistant((Text(text), ToolCall("c", "read_file", {"path": text}))),
        Results((ToolResult("c", "read_file", text),)),
        system=text,
    )

    json.dumps(encoded(request), ensure_ascii=False).encode()


def test_output_asked_for_is_the_settings_or_the_default_within_the_models_cap() -> None:
    wire = ResponsesWire(Endpoint("openai", FixedKey("k")))

    assert wire.asked_output(MODEL) == 8_192
    assert wire.asked_output(replace(MODEL, asked_output=32_000)) == 32_000
    assert wire.asked_output(replace(MODEL, asked_output=32_000, max_output=16_000)) == 16_000
    assert wire.asked_output(replace(MODEL, max_output=4_000)) == 4_000


# Over a socket.


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


async def test_nobody_listening_and_silence_are_tried_again() -> None:
    async with (
        ResponsesServer([Answer(then="silent")]) as server,
        a_wire(server, idle_seconds=0.2) as wire,
    ):
        with pytest.raises(Transient):
            await played(wire, wire.encode(a_request(User("go"))))
        origin = server.origin

    gone = ResponsesWire(Endpoint("openai", FixedKey("k"), origin))
    with pytest.raises(Transient):
        await played(gone, gone.encode(a_request(User("go"))))
    await gone.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(sse(*a_whole_answer()[:9]), then="hold"),
        Answer(then="hold"),
        Answer(then="silent"),
    ],
    ids=["in the middle", "before the first event", "before the headers"],
)
async def test_cancelling_closes_the_socket(answer: Answer) -> None:
    async with ResponsesServer([answer]) as server, a_wire(server, idle_seconds=60) as wire:
        task = asyncio.create_task(played(wire, wire.encode(a_request(User("go")))))
        await server.held.wait()

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.wait_for(server.disconnected.wait(), 0.1)


async def test_closing_the_stream_closes_the_socket() -> None:
    answer = Answer(sse(*a_whole_answer()[:9]), then="hold")
    async with ResponsesServer([answer]) as server, a_wire(server) as wire:
        async with aclosing(wire.stream(wire.encode(a_request(User("go"))))) as pieces:
            assert await anext(pieces) == ReasoningDelta("Look ")

        await asyncio.wait_for(server.disconnected.wait(), 0.5)


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

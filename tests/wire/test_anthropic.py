from __future__ import annotations

import asyncio
import importlib
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast

import pytest

from keen.core.errors import (
    ContextOverflow,
    MalformedHistory,
    OutputReserve,
    ProviderError,
    Rejected,
    Transient,
    Unauthorized,
)
from keen.core.estimate import json_tokens
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    Image,
    Json,
    JsonObject,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from keen.core.models import Effort, ModelSpec
from keen.wire._anthropic import Decoder
from keen.wire.anthropic import AnthropicWire
from keen.wire.base import Endpoint, FixedKey, Reply, Request
from tests.wire.loopback import Answer, Loopback, a_request, heard, serving, sse

importlib.import_module("anthropic.resources.messages")  # before the time limit of a test runs


def model(name: str = "claude-sonnet-4-5", **fields: Any) -> ModelSpec:
    return ModelSpec("acme", name, "anthropic", max_output=64_000, **fields)


def wire(url: str = "http://127.0.0.1:1", **fields: Any) -> AnthropicWire:
    return AnthropicWire(Endpoint("acme", FixedKey("k"), base_url=url, **fields))


def request(*messages: Any, name: str = "claude-sonnet-4-5", **fields: Any) -> Request:
    return a_request(model(name), *messages, **fields)


def served(
    *answers: Answer, **fields: Any
) -> AbstractAsyncContextManager[tuple[Loopback, AnthropicWire]]:
    return serving(lambda url: wire(url, **fields), *answers)


async def ask(client: AnthropicWire, asked: Request | None = None) -> list[Any]:
    return await heard(client, asked or request())


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": {"input_tokens": 7} | usage}}


def block(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": fields}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ended(reason: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    counts = {"output_tokens": 5} | usage
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": counts},
        {"type": "message_stop"},
    ]


def says(text: str) -> list[dict[str, Any]]:
    return [start(), block(0, type="text", text=""), delta(0, "text_delta", text=text), *ended()]


THINKS_AND_CALLS = [
    start(cache_read_input_tokens=100, cache_creation_input_tokens=20),
    {"type": "ping"},
    block(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me "),
    delta(0, "thinking_delta", thinking="see."),
    delta(0, "signature_delta", signature="EqQB+/="),
    {"type": "content_block_stop", "index": 0},
    block(1, type="redacted_thinking", data="c2VjcmV0"),
    block(2, type="text", text=""),
    delta(2, "text_delta", text="Reading."),
    block(3, type="tool_use", id="toolu_1", name="read_file", input={}),
    delta(3, "input_json_delta", partial_json=""),
    delta(3, "input_json_delta", partial_json='{"pa'),
    delta(3, "input_json_delta", partial_json='th": "a.py"}'),
    block(4, type="tool_use", id="toolu_2", name="read_file", input={}),
    *ended("tool_use"),
]
NATIVE_ITEMS: tuple[Json, ...] = (
    {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB+/="},
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
    {"type": "text", "text": "Reading."},
    {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
    {"type": "tool_use", "id": "toolu_2", "name": "read_file", "input": {}},
)
OWN = Native("acme", "anthropic", "claude-sonnet-4-5", NATIVE_ITEMS)


def decoded(*events: dict[str, Any]) -> Reply:
    decoder = Decoder("acme", "m")
    for event in events:
        list(decoder.feed(cast(JsonObject, event)))
    return decoder.reply()


def content(message: Json) -> list[Any]:
    return cast("list[Any]", cast(JsonObject, message)["content"])


def messages(asked: Request, client: AnthropicWire | None = None) -> list[Any]:
    return cast("list[Any]", (client or wire()).encode(asked).json["messages"])


def without_breakpoints(value: Any) -> Any:
    return json.loads(json.dumps(value).replace(', "cache_control": {"type": "ephemeral"}', ""))


RESULTS = Results(
    (ToolResult("toolu_1", "read_file", "x"), ToolResult("toolu_2", "read_file", "y"))
)


async def test_an_answer_with_thinking_and_two_calls_comes_whole() -> None:
    async with served(Answer(sse(*THINKS_AND_CALLS))) as (server, client):
        *deltas, reply = await ask(client)

    assert deltas == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Reading.")]
    assert isinstance(reply, Reply)
    assert reply.finish == "stop"
    assert reply.message.parts == (
        Reasoning("Let me see."),
        Text("Reading."),
        ToolCall("toolu_1", "read_file", {"path": "a.py"}),
        ToolCall("toolu_2", "read_file", {}),
    )
    assert reply.message.native == OWN
    assert reply.usage == Usage(127, 100, 20, 5)
    assert server.requests[0].path == "/v1/messages"


async def test_what_is_sent_is_the_body_as_encoded() -> None:
    asked = request(User("näher", (Image("image/png", b"\x89PNG", 10, 10),)), effort="high")
    async with served(Answer(sse(*says("hi")))) as (server, client):
        await ask(client, asked)
        body = client.encode(asked).json

    assert server.requests[0].body == json.loads(json.dumps(body))
    assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_thinking_is_replayed_exactly_and_results_of_one_answer_share_a_message() -> None:
    answer = replace(decoded(*THINKS_AND_CALLS).message, native=OWN)
    sent = messages(request(User("go"), answer, RESULTS, User("and hurry", steering=True)))

    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert tuple(content(sent[1])) == NATIVE_ITEMS
    assert [part["type"] for part in content(sent[2])] == ["tool_result", "tool_result", "text"]


async def test_the_prefix_of_a_step_stands_byte_for_byte_in_the_next() -> None:
    client = wire()
    answer = replace(decoded(*THINKS_AND_CALLS).message, native=OWN)
    history: tuple[Any, ...] = (User("go"),)
    one = client.encode(request(*history)).json
    two = client.encode(request(*history, answer, RESULTS)).json

    def prefix(body: JsonObject, count: int) -> str:
        kept = body | {"messages": cast("list[Json]", body["messages"])[:count]}
        return json.dumps(without_breakpoints(kept))

    assert prefix(one, 1) == prefix(two, 1)
    assert json.dumps(two) == json.dumps(wire().encode(request(*history, answer, RESULTS)).json)


def test_breakpoints_stand_on_system_tools_and_the_last_two_user_messages() -> None:
    history = (User("1"), Assistant((Text("a"),)), User("2"), Assistant((Text("b"),)), User("3"))
    body = wire().encode(request(*history)).json
    again = wire().encode(request(*history)).json

    marked = [
        place
        for place, message in enumerate(cast("list[Any]", body["messages"]))
        if "cache_control" in content(message)[-1]
    ]
    assert marked == [2, 4]
    assert json.dumps(body).count("cache_control") == 4
    assert body == again


def test_a_server_that_refuses_cache_control_gets_none() -> None:
    assert "cache_control" not in json.dumps(wire().without("cache_control").encode(request()).json)


def test_blank_texts_are_never_sent() -> None:
    native = Native("acme", "anthropic", "claude-sonnet-4-5", ({"type": "text", "text": "x"},))
    sent = messages(
        request(
            User("go"),
            Assistant((Text(" \n"), ToolCall("c", "read_file", {}))),
            Results((ToolResult("c", "read_file", "", is_error=True),)),
            Assistant((Text("x"),), native),
            User("  ", (Image("image/png", b"1"),)),
        )
    )
    assert [part["type"] for part in content(sent[1])] == ["tool_use"]
    result = content(sent[2])[0]
    assert result["content"] == [{"type": "text", "text": "(no output)"}]
    assert result["is_error"] is True
    assert [part["type"] for part in content(sent[4])] == ["image"]


def test_images_of_a_result_stand_inside_it_and_cost_tokens_by_their_pixels() -> None:
    picture = Image("image/png", b"\0" * 90_000, 750, 100)
    sent = messages(
        request(
            User("go"),
            Assistant((ToolCall("c", "read_file", {}),)),
            Results((ToolResult("c", "read_file", "seen", images=(picture,)),)),
        )
    )
    inner = content(sent[2])[0]["content"]
    assert [part["type"] for part in inner] == ["text", "image"]
    assert json_tokens(inner) < 200


def test_lone_surrogates_do_not_leave() -> None:
    odd = "a\ud800b"
    call = ToolCall("c", "read_file", {odd: [odd]})
    results = Results((ToolResult("c", "read_file", odd),))
    sent = messages(request(User(odd), Assistant((Text(odd), call)), results))
    assert json.dumps(sent, ensure_ascii=False).encode()


CALLS = (ToolCall("toolu_1", "read_file", {}), ToolCall("toolu_2", "read_file", {}))


@pytest.mark.parametrize(
    ("native", "is_on"),
    [(OWN, True), (None, False), (replace(OWN, model="claude-opus-4-5"), False)],
    ids=["own", "resumed", "another model's"],
)
def test_thinking_is_off_after_a_call_without_thinking_of_its_own(
    native: Native | None, is_on: bool
) -> None:
    asked = request(User("go"), Assistant(CALLS, native), RESULTS, effort="high")
    assert ("thinking" in wire().encode(asked).json) is is_on


def test_thinking_is_on_again_in_the_next_turn() -> None:
    asked = request(
        User("go"),
        Assistant(CALLS),
        RESULTS,
        Assistant((Text("done"),)),
        User("more"),
        effort="low",
    )
    assert "thinking" in wire().encode(asked).json


@pytest.mark.parametrize(
    ("name", "effort", "thinking", "output_config"),
    [
        ("claude-sonnet-4-5", None, None, None),
        ("claude-sonnet-4-5", "none", None, None),
        ("claude-sonnet-4-5-20250929", "low", {"type": "enabled", "budget_tokens": 4_096}, None),
        ("claude-opus-4-20250514", "high", {"type": "enabled", "budget_tokens": 6_144}, None),
        (
            "claude-3-7-sonnet-20250219",
            "minimal",
            {"type": "enabled", "budget_tokens": 1_024},
            None,
        ),
        ("glm-4.6", "max", {"type": "enabled", "budget_tokens": 6_144}, None),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, {"effort": "high"}),
        ("claude-opus-4.6", None, {"type": "adaptive"}, None),
        ("claude-opus-4-8", "none", None, None),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        (
            "claude-opus-5-5",
            "none",
            {"type": "adaptive", "display": "summarized"},
            {"effort": "low"},
        ),
        (
            "claude-opus-4-7",
            "xhigh",
            {"type": "adaptive", "display": "summarized"},
            {"effort": "xhigh"},
        ),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    name: str, effort: Effort | None, thinking: JsonObject | None, output_config: JsonObject | None
) -> None:
    body = wire().encode(request(name=name, effort=effort)).json
    assert body.get("thinking") == thinking
    assert body.get("output_config") == output_config


@pytest.mark.parametrize("output_tokens", [1, 1_024, 2_047, 2_048, 4_000, 64_000])
def test_a_thinking_budget_always_leaves_room_for_the_answer(output_tokens: int) -> None:
    body = wire().encode(request(effort="max", output_tokens=output_tokens)).json
    assert body["max_tokens"] == output_tokens
    thinking = cast(JsonObject, body.get("thinking", {}))
    budget = cast(int, thinking.get("budget_tokens", 0))
    assert budget == 0 or 1_024 <= budget <= output_tokens - 1_024


@pytest.mark.parametrize(
    ("asked", "max_output", "expected"),
    [(None, None, 64_000), (None, 32_000, 32_000), (None, 128_000, 64_000), (9, 32_000, 9)],
)
def test_the_output_asked_for_is_the_settings_or_the_models_up_to_64000(
    asked: int | None, max_output: int | None, expected: int
) -> None:
    spec = ModelSpec("acme", "m", "anthropic", max_output=max_output, asked_output=asked)
    assert wire().asked_output(spec) == expected


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("refusal", "refused"),
        ("model_context_window_exceeded", "overflow"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    reply = decoded(*says("x")[:-2], *ended(reason))
    assert reply.finish == finish
    assert reply.message.parts == (Text("x"),)


def test_a_refusal_without_words_gets_a_line_to_show() -> None:
    decoder = Decoder("acme", "m")
    shown = [d for event in [start(), *ended("refusal")] for d in decoder.feed(event)]
    reply = decoder.reply()
    assert [TextDelta(cast(Text, part).text) for part in reply.message.parts] == shown
    assert len(shown) == 1
    assert reply.message.native is None


@pytest.mark.parametrize(
    "arguments", ['{"path": ', "[1]", '"text"', "NaN", '{"a": 1}{"b": 2}', "{" * 100_000]
)
def test_arguments_that_are_no_object_make_the_call_malformed(arguments: str) -> None:
    reply = decoded(
        block(0, type="tool_use", id="t", name="read_file", input={}),
        delta(0, "input_json_delta", partial_json=arguments),
        *ended("tool_use"),
    )
    assert reply.message.parts == (ToolCall("t", "read_file", {}, malformed=arguments),)


def test_odd_events_change_nothing() -> None:
    odd: list[Any] = [
        {},
        {"type": None},
        {"type": "content_block_delta"},
        {"type": "content_block_delta", "index": None, "delta": None},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
        {"type": "content_block_start", "index": 9, "content_block": None},
        {"type": "content_block_start", "index": 8, "content_block": {"type": "server_tool_use"}},
        delta(8, "input_json_delta", partial_json='{"q": 1}'),
        {"type": "content_block_stop"},
        {"type": "message_start", "message": None},
        {"type": "message_start", "message": {"usage": None}},
        {"type": "message_delta", "delta": None, "usage": None},
        {"type": "message_delta", "delta": {"stop_reason": 3}, "usage": {"output_tokens": "x"}},
        {"type": "from_the_future", "data": [1]},
    ]
    begun = says("hello")
    reply = decoded(
        *odd, *begun[:3], *odd, *begun[3:], *odd, *ended(), delta(0, "text_delta", text="!")
    )
    assert reply.message.parts == (Text("hello"),)
    assert reply.usage == Usage(7, output_tokens=5)


def test_blocks_stand_in_the_order_of_their_index_also_when_repeated_or_late() -> None:
    reply = decoded(
        delta(2, "input_json_delta", partial_json='{"a"'),
        block(2, type="tool_use", id="two", name="t", input={}),
        delta(2, "input_json_delta", partial_json=": 1}"),
        block(0, type="text", text="first "),
        block(1, type="tool_use", id="one", name="t", input={"whole": True}),
        block(1, type="tool_use", id="one again", name="t", input={}),
        *ended("tool_use"),
    )
    assert reply.message.parts == (
        Text("first "),
        ToolCall("one", "t", {"whole": True}),
        ToolCall("one again", "t", {}),
        ToolCall("two", "t", {"a": 1}),
    )


def test_usage_that_was_never_sent_is_unknown() -> None:
    stop: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    assert decoded(stop, {"type": "message_stop"}).usage is None


def test_a_message_in_place_of_a_stream_is_an_answer() -> None:
    whole = {
        "type": "message",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    reply = decoded(whole)
    assert (reply.message.parts, reply.finish) == ((Text("hi"),), "length")


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "clean end"])
@pytest.mark.parametrize("count", [0, 1, 3, 4], ids=lambda n: f"after {n} events")
async def test_a_stream_without_message_stop_is_transient(count: int, cut: bool) -> None:
    answer = Answer(sse(*says("hi")[:count]), cut=cut)
    async with served(answer) as (_, client):
        with pytest.raises(Transient):
            await ask(client)


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 213462 tokens > 200000 maximum",
            ContextOverflow,
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000",
            OutputReserve,
        ),
        (
            400,
            "invalid_request_error",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            MalformedHistory,
        ),
        (401, "authentication_error", "invalid x-api-key", Unauthorized),
        (404, "not_found_error", "model: x", Rejected),
        (529, "overloaded_error", "Overloaded", Transient),
        (500, "api_error", "Internal server error", Transient),
    ],
)
async def test_refusals_by_status(
    status: int, kind: str, message: str, expected: type[ProviderError]
) -> None:
    body = json.dumps(error(kind, message)).encode()
    answer = Answer([body], status=status, content_type="application/json")
    async with served(answer) as (server, client):
        with pytest.raises(expected) as caught:
            await ask(client)
    assert caught.value.status == status
    assert len(server.requests) == 1


async def test_a_rate_limit_carries_the_wait() -> None:
    body = json.dumps(error("rate_limit_error", "slow down")).encode()
    answer = Answer([body], 429, "application/json", {"retry-after": "17"})
    async with served(answer) as (server, client):
        with pytest.raises(Transient) as caught:
            await ask(client)
    assert caught.value.retry_after == 17
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("overloaded_error", "Overloaded", Transient),
        ("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", ContextOverflow),
    ],
)
async def test_an_error_in_mid_stream_goes_by_its_type(
    kind: str, message: str, expected: type[ProviderError]
) -> None:
    answer = Answer(sse(*says("par")[:3], error(kind, message)))
    async with served(answer) as (_, client):
        with pytest.raises(expected):
            await ask(client)


async def test_one_connection_serves_all_steps() -> None:
    async with served(*[Answer(sse(*says("x")))] * 3) as (server, client):
        for _ in range(3):
            await ask(client)
    assert server.connections == 1


async def test_an_answer_that_is_complete_does_not_wait_for_the_connection_to_end() -> None:
    async with served(Answer(sse(*says("x")), hangs=True)) as (_, client):
        async with asyncio.timeout(5):
            assert (await ask(client))[-1].finish == "stop"


async def test_a_renewed_key_is_used_at_once() -> None:
    class Rotating(FixedKey):
        async def secret(self) -> str:
            return f"key{len(server.requests)}"

    async with served(*[Answer(sse(*says("x")))] * 2) as (server, client):
        client.endpoint = replace(client.endpoint, credential=Rotating("k"))
        await ask(client)
        await ask(client)
    sent = [seen.headers["authorization"] for seen in server.requests]
    assert sent == ["Bearer key0", "Bearer key1"]


def test_a_model_without_images_is_told_that_one_was_left_out() -> None:
    picture = Image("image/png", b"1")
    results = Results((ToolResult("c", "read_file", "seen", images=(picture,)),))
    asked = request(User("go", (picture,)), Assistant((ToolCall("c", "read_file", {}),)), results)
    blind = replace(asked, model=replace(asked.model, images=False))
    client = wire()
    assert json.dumps(client.encode(asked).json).count("left out") == 0
    assert json.dumps(client.encode(blind).json).count("left out") == 2

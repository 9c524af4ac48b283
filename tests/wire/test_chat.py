from __future__ import annotations

import gzip
import json
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from keen.core.errors import (
    ContextOverflow,
    OutputReserve,
    ProviderError,
    Quirk,
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
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    User,
    tool_calls,
    visible_text,
)
from keen.core.models import ModelSpec
from keen.wire._chat import Decoder
from keen.wire.base import Body, Delta, Endpoint, FixedKey, Reply, Request
from keen.wire.chat import ChatWire
from tests.wire.loopback import Answer, Loopback

MODEL = ModelSpec("acme", "m-1", "chat")
HELLO = User("hello")
PICTURE = Image("image/png", b"\x89PNG" * 10_000, 300, 200)
TOOL = ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {}})


def wire_to(url: str, *quirks: str, provider: str = "acme", key: str = "k") -> ChatWire:
    return ChatWire(Endpoint(provider, FixedKey(key), f"{url}/v1", quirks=frozenset(quirks)))


def encoded(request: Request, *quirks: str, provider: str = "acme") -> JsonObject:
    return wire_to("http://127.0.0.1:1", *quirks, provider=provider).encode(request).json


def frame(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Json = None, finish: str | None = None, **more: Json) -> JsonObject:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def says(text: str) -> Answer:
    return Answer([frame(chunk({"content": text})), frame(chunk({}, "stop")), b"data: [DONE]\n\n"])


@asynccontextmanager
async def talking(*answers: Answer) -> AsyncGenerator[tuple[Loopback, ChatWire]]:
    async with Loopback(list(answers)) as server:
        wire = wire_to(server.url)
        try:
            yield server, wire
        finally:
            await wire.aclose()


async def answer_of(wire: ChatWire, body: Body | None = None) -> tuple[list[Delta], Reply]:
    deltas: list[Delta] = []
    reply: Reply | None = None
    async with aclosing(wire.stream(body or wire.encode(Request(MODEL, "", (HELLO,))))) as stream:
        async for piece in stream:
            assert reply is None, "nothing comes behind the reply"
            match piece:
                case Reply():
                    reply = piece
                case _:
                    deltas.append(piece)
    assert reply is not None
    return deltas, reply


async def refusal_of(*answers: Answer) -> ProviderError:
    async with talking(*answers) as (server, wire):
        with pytest.raises(ProviderError) as caught:
            await answer_of(wire)
        assert len(server.requests) == 1
    return caught.value


def decoded(*events: JsonObject, is_done: bool = False) -> tuple[list[Delta], Reply]:
    decoder = Decoder("acme", "m-1")
    deltas = [delta for event in events for delta in decoder.feed(event)]
    if is_done:
        decoder.done()
    return deltas, decoder.reply()


def native(reply: Reply) -> dict[str, Any]:
    assert reply.message.native is not None
    (item,) = reply.message.native.items
    assert isinstance(item, dict)
    return item


# Encoding.


def test_an_unknown_server_gets_the_smallest_body() -> None:
    body = encoded(Request(MODEL, "Be brief.", (HELLO,), (TOOL,), 500, cache_key="session"))
    assert body == {
        "model": "m-1",
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "Reads a file.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "max_tokens": 500,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
        ],
    }


@pytest.mark.parametrize(
    ("quirks", "fields"),
    [
        (["max_completion_tokens"], {"max_completion_tokens": 9}),
        (["no:max_tokens"], {"max_completion_tokens": 9}),
        (["no:max_completion_tokens"], {"max_tokens": 9}),
        (["max_completion_tokens", "no:max_completion_tokens"], {"max_tokens": 9}),
        (["no:max_tokens", "no:max_completion_tokens"], {}),
    ],
)
def test_the_output_cap_has_the_name_the_server_takes(
    quirks: list[str], fields: dict[str, int]
) -> None:
    body = encoded(Request(MODEL, "", (HELLO,), output_tokens=9), *quirks)
    assert {name: value for name, value in body.items() if "tokens" in name} == fields


@pytest.mark.parametrize(
    ("quirks", "fields"),
    [
        ([], {"reasoning_effort": "high"}),
        (["reasoning"], {"reasoning": {"effort": "high"}}),
        (["thinking"], {"thinking": {"type": "enabled"}}),
        (["no:reasoning_effort"], {}),
        (["thinking", "no:thinking", "no:reasoning_effort"], {}),
    ],
)
def test_the_effort_goes_as_the_server_wants_it(quirks: list[str], fields: JsonObject) -> None:
    names = ("reasoning", "reasoning_effort", "thinking")
    body = encoded(Request(MODEL, "", (HELLO,), effort="high"), *quirks)
    assert {name: value for name, value in body.items() if name in names} == fields
    body = encoded(Request(MODEL, "", (HELLO,)), *quirks)
    assert not set(names) & set(body)


def test_fields_are_sent_where_they_are_wanted_and_left_out_where_refused() -> None:
    request = Request(MODEL, "", (HELLO,), cache_key="session")
    assert encoded(request, "prompt_cache_key")["prompt_cache_key"] == "session"
    assert "prompt_cache_key" not in encoded(request, "prompt_cache_key", "no:prompt_cache_key")
    assert "stream_options" not in encoded(request, "no:stream_options")
    assert encoded(request, provider="openrouter")["transforms"] == []
    assert "transforms" not in encoded(request)


def test_images_are_data_urls_that_cost_their_pixels() -> None:
    body = encoded(Request(MODEL, "", (User("look", (PICTURE,)),)))
    messages: Any = body["messages"]
    content = messages[0]["content"]
    assert content[0] == {"type": "text", "text": "look"}
    assert content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBO")
    assert json_tokens(body) < 300


def test_images_of_results_follow_in_a_user_message() -> None:
    calls = (ToolCall("a", "read_file", {}), ToolCall("b", "read_file", {}))
    results = (
        ToolResult("a", "read_file", "one", images=(PICTURE,)),
        ToolResult("b", "read_file", "two"),
    )
    body = encoded(Request(MODEL, "", (HELLO, Assistant(calls), Results(results))))
    messages: Any = body["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert messages[4]["content"][1]["type"] == "image_url"


def test_a_model_without_eyes_is_told_that_an_image_was_left_out() -> None:
    blind = ModelSpec("acme", "m-1", "chat", images=False)
    text = json.dumps(encoded(Request(blind, "", (User("look", (PICTURE,)),))))
    assert "image_url" not in text
    assert "left out" in text


def test_a_strict_server_gets_turns_and_short_ids() -> None:
    call_id = "call_0123456789"
    history = (
        HELLO,
        User("and this", (PICTURE,)),
        Assistant((ToolCall(call_id, "read_file", {}), ToolCall("abcDEF123", "read_file", {}))),
        Results((ToolResult(call_id, "read_file", "x"), ToolResult("abcDEF123", "read_file", "y"))),
    )
    quirks = ("no:consecutive_messages", "no:long_call_ids")
    messages: Any = encoded(Request(MODEL, "", history), *quirks)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:]] == ids
    assert ids[1] == "abcDEF123"
    assert all(len(item) == 9 and item.isalnum() for item in ids)


def test_lone_surrogates_of_a_file_name_can_be_sent() -> None:
    history = (
        User("a\udc80"),
        Assistant((ToolCall("a", "read_file", {"path": "b\udc81"}),)),
        Results((ToolResult("a", "read_file", "c\udc82"),)),
    )
    json.dumps(encoded(Request(MODEL, "s\udc83", history)), ensure_ascii=False).encode()


# Decoding.


def test_a_native_holds_what_the_server_takes_back_and_no_more() -> None:
    deltas, reply = decoded(
        chunk({"role": "assistant", "content": None, "refusal": None, "audio": {}, "x": 1}),
        chunk({"reasoning_content": "think "}),
        chunk({"reasoning_content": "hard"}),
        chunk({"content": "Hello"}),
        chunk({"content": " there", "annotations": []}),
        chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1.0'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
        chunk(None, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
    )
    assert deltas == [
        ReasoningDelta("think "),
        ReasoningDelta("hard"),
        TextDelta("Hello"),
        TextDelta(" there"),
    ]
    assert reply.message.parts == (
        Reasoning("think hard"),
        Text("Hello there"),
        ToolCall("c1", "f", {"a": 1.0}),
    )
    assert reply.usage == Usage(9, 0, 0, 3, 0)
    assert reply.finish == "stop"
    function = {"name": "f", "arguments": '{"a": 1.0}'}
    assert native(reply) == {
        "role": "assistant",
        "content": "Hello there",
        "reasoning_content": "think hard",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def test_a_native_goes_back_until_its_fields_are_refused() -> None:
    _, reply = decoded(chunk({"reasoning_content": "hm", "content": "x"}), chunk({}, "stop"))
    request = Request(MODEL, "", (HELLO, reply.message, HELLO))
    sent: Any = encoded(request)["messages"]
    assert sent[1] == native(reply)
    sent = encoded(request, "no:reasoning_content")["messages"]
    assert sent[1] == {"role": "assistant", "content": "x"}


def test_reasoning_details_are_put_together_again() -> None:
    def piece(**fields: Json) -> JsonObject:
        return chunk({"reasoning": fields.get("text"), "reasoning_details": [fields]})

    deltas, reply = decoded(
        piece(type="reasoning.text", index=0, text="one "),
        piece(type="reasoning.text", index=0, text="two", signature=None),
        piece(type="reasoning.text", index=0, text="", signature="sig"),
        piece(type="reasoning.encrypted", index=1, data="abc"),
        chunk({"content": "x"}, "stop"),
    )
    assert deltas[:2] == [ReasoningDelta("one "), ReasoningDelta("two")]
    assert native(reply)["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "one two", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "abc"},
    ]


def call(index: Json, call_id: Json, name: Json, arguments: Json) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "function": function}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([call(1, "b", "g", "{}"), call(0, "a", "f", "{}")], [("a", "f"), ("b", "g")]),
        ([call(0, "a", "f", "{"), call(1, "b", "g", "{"), call(0, None, None, "}"),
          call(1, None, None, "}")], [("a", "f"), ("b", "g")]),
        ([call(None, "a", "f", "{"), call(None, None, None, "}"), call(None, "b", "g", "{}")],
         [("a", "f"), ("b", "g")]),
        ([call(0, "a", "f", "{}"), call(0, "b", "f", "{}")], [("a", "f"), ("b", "f")]),
        ([call(0, "a", "f", "{"), call(0, "a", "f", "}")], [("a", "f")]),
        ([call(0, "a", "f", "{"), call(0, "", "", "}")], [("a", "f")]),
        ([call(None, None, "f", "{}"), call(None, None, "g", "{}")], [("?", "f"), ("?", "g")]),
        ([call(0, "a", "f", "{}"), call(1, "a", "g", "{}")], [("a", "f"), ("?", "g")]),
        ([call(0, "a", "f", {})], [("a", "f")]),
        ([call("0", 7, "f", "{}")], [("?", "f")]),
    ],
)  # fmt: skip
def test_calls_come_together_however_they_arrive(
    pieces: list[Json], expected: list[tuple[str, str]]
) -> None:
    _, reply = decoded(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "stop"))
    calls = tool_calls(reply.message)
    assert [call.name for call in calls] == [name for _, name in expected]
    assert all(call.malformed == "" and call.input == {} for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    for found, (call_id, _) in zip(calls, expected, strict=True):
        assert found.id == call_id or (call_id == "?" and found.id.startswith("call-"))
    assert [item["id"] for item in native(reply)["tool_calls"]] == [found.id for found in calls]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "null", "{} {}", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_malformed_and_never_sent_back(arguments: str) -> None:
    _, reply = decoded(chunk({"tool_calls": [call(0, "a", "f", arguments)]}, "tool_calls"))
    assert tool_calls(reply.message) == (ToolCall("a", "f", {}, arguments),)
    assert native(reply)["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_name_no_server_takes_back_is_made_sendable() -> None:
    _, reply = decoded(chunk({"tool_calls": [call(0, "a", "functions.read file", "")]}, "stop"))
    assert tool_calls(reply.message)[0].name == "functions.read file"
    assert native(reply)["tool_calls"][0]["function"]["name"] == "functions_read_file"


def test_a_thought_signature_of_a_compatible_server_goes_back() -> None:
    extra: JsonObject = {"google": {"thought_signature": "sig"}}
    signed = call(0, "a", "f", "{}")
    signed["extra_content"] = extra
    _, reply = decoded(chunk({"tool_calls": [signed]}, "stop"))
    assert native(reply)["tool_calls"][0]["extra_content"] == extra


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "refused"),
        ("model_length", "overflow"),
        ("model_context_window_exceeded", "overflow"),
    ],
)
def test_reasons_have_one_meaning(reason: str, finish: str) -> None:
    assert decoded(chunk({"content": "x"}, reason))[1].finish == finish


def test_a_refusal_is_shown_and_told() -> None:
    deltas, reply = decoded(chunk({"refusal": "I cannot."}), chunk({}, "stop"))
    assert deltas == [TextDelta("I cannot.")]
    assert reply.finish == "refused"
    assert "refusal" not in native(reply)


def test_an_answer_that_failed_is_worth_another_try() -> None:
    with pytest.raises(Transient, match="error"):
        decoded(chunk({"content": "x"}, "error"))


def test_only_the_first_of_several_choices_counts() -> None:
    def both(index: Json, text: str) -> Json:
        return {"index": index, "delta": {"content": text}, "finish_reason": "stop"}

    assert visible_text(decoded({"choices": [both(1, "no"), both(0, "yes")]})[1].message) == "yes"
    assert visible_text(decoded({"choices": [both(None, "yes")]})[1].message) == "yes"


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
          "prompt_tokens_details": {"cached_tokens": 60},
          "completion_tokens_details": {"reasoning_tokens": 5}}, Usage(100, 60, 0, 20, 5)),
        ({"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 70,
          "prompt_cache_miss_tokens": 30}, Usage(100, 70, 0, 20, 0)),
        ({"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 10},
         Usage(100, 10, 0, 20, 0)),
        ({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 170,
          "completion_tokens_details": {"reasoning_tokens": 50}}, Usage(100, 0, 0, 70, 50)),
        ({"prompt_tokens": 100, "completion_tokens": None, "prompt_tokens_details": None},
         Usage(100, 0, 0, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": -3, "cached_tokens": 99},
         Usage(10, 10, 0, 0, 0)),
        ({"prompt_tokens": "many"}, None),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)  # fmt: skip
def test_usage_is_normalised(report: Json, usage: Usage | None) -> None:
    assert decoded(chunk({"content": "x"}, "stop"), {"usage": report})[1].usage == usage


def test_usage_is_found_where_vendors_keep_it() -> None:
    usage: JsonObject = {"prompt_tokens": 4, "completion_tokens": 2}
    expected = Usage(4, 0, 0, 2, 0)
    assert decoded(chunk({}, "stop", x_groq={"usage": usage}))[1].usage == expected
    choice: JsonObject = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}
    assert decoded({"choices": [choice]})[1].usage == expected


WRONG: list[Json] = [None, True, 3, -1.5, "text", [], [None], [[]], {}, {"a": None}]


def test_wrong_types_anywhere_do_no_harm() -> None:
    chance = random.Random(11)

    def spoiled(value: Json) -> Json:
        if chance.random() < 0.12:
            return chance.choice(WRONG)
        if isinstance(value, dict):
            return {key: spoiled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [spoiled(item) for item in value]
        return value

    good = [
        chunk({"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "c"}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "t", "index": 0}]}),
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}),
        chunk({"tool_calls": [call(0, "i", "f", "{}"), call(1, "j", "g", '{"a": 1}')]}),
        chunk({}, "stop", usage={"prompt_tokens": 1, "prompt_tokens_details": {"a": 1}}),
    ]
    for _ in range(3_000):
        decoder = Decoder("acme", "m-1")
        try:
            for event in good:
                value = spoiled(event)
                if isinstance(value, dict):
                    decoder.feed(value)
            reply = decoder.reply()
        except ProviderError:
            continue
        json.dumps(reply.message.native.items if reply.message.native else None)


# On the wire.


async def test_plain_json_in_place_of_a_stream_is_an_answer() -> None:
    message: JsonObject = {"role": "assistant", "content": "whole"}
    whole: JsonObject = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    answer = Answer([json.dumps(whole, indent=1).encode()], content_type="application/json")
    async with talking(answer) as (_, wire):
        deltas, reply = await answer_of(wire)
    assert deltas == [TextDelta("whole")]
    assert reply.usage == Usage(3, 0, 0, 1, 0)


async def test_a_web_page_says_where_to_look() -> None:
    error = await refusal_of(Answer([b"<!doctype html><p>hi"], content_type="text/html"))
    assert type(error) is Rejected
    assert "base_url" in str(error)


async def test_an_empty_stream_points_at_the_context() -> None:
    error = await refusal_of(Answer([]))
    assert type(error) is Transient
    assert "context" in str(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"error": {"code": "context_length_exceeded", "message": ""}}, ContextOverflow),
        ({"error": {"code": 400, "message": "maximum context length is 4096 tokens"}},
         ContextOverflow),
        ({"error": "The number of tokens to keep from the initial prompt is greater than the "
          "context length (n_keep: 12000>= n_ctx: 4096)"}, ContextOverflow),
        ({"object": "error", "message": "boom", "code": 500}, Transient),
        ({"error": {"code": 429, "message": "slow"}}, Transient),
        ({"error": {"message": "?"}}, Transient),
        (chunk({"content": ""}, "error") | {"error": {"code": 502, "message": "bad"}}, Transient),
    ],
)  # fmt: skip
async def test_an_error_inside_a_200_is_one(
    error: JsonObject, expected: type[ProviderError]
) -> None:
    first = frame(chunk({"content": "so far"}))
    assert type(await refusal_of(Answer([first, frame(error), b"data: [DONE]\n\n"]))) is expected
    plain = Answer([json.dumps(error).encode()], content_type="application/json")
    assert type(await refusal_of(plain)) is expected


async def test_an_answer_is_whole_when_only_what_follows_it_is_lost() -> None:
    frames = [frame(chunk({"content": "x"})), frame(chunk({}, "stop"))]
    for answer in (Answer(frames, cut=True), Answer([*frames, b"data: {garbage\n\n"])):
        async with talking(answer) as (_, wire):
            deltas, reply = await answer_of(wire)
            assert (deltas, reply.finish) == ([TextDelta("x")], "stop")


async def test_a_server_that_forgets_the_reason_but_says_done_is_believed() -> None:
    async with talking(Answer([frame(chunk({"content": "x"})), b"data: [DONE]\n\n"])) as (_, wire):
        assert (await answer_of(wire))[1].finish == "stop"
    assert type(await refusal_of(Answer([b"data: [DONE]\n\n"]))) is Transient


async def test_a_stream_cut_anywhere_is_an_answer_or_transient() -> None:
    events: list[JsonObject] = [
        chunk({"content": "grüße"}),
        chunk({"tool_calls": [call(0, "a", "f", '{"path": "x"}')]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
    ]
    whole = b"".join(map(frame, events)) + b"data: [DONE]\n\n"
    cuts = range(0, len(whole), 7)
    async with talking(*(Answer([whole[:cut]], cut=bool(cut % 2)) for cut in cuts)) as (_, wire):
        for _ in cuts:
            try:
                _, reply = await answer_of(wire)
            except Transient:
                continue
            assert tool_calls(reply.message) == (ToolCall("a", "f", {"path": "x"}),)


async def test_an_optional_field_is_a_quirk_only_if_it_was_sent() -> None:
    def refusing(message: str) -> Answer:
        body = json.dumps({"error": {"message": message}}).encode()
        return Answer([body], status=400, content_type="application/json")

    refused = [
        refusing("Unrecognized request argument supplied: stream_options"),
        refusing("Unsupported parameter: prompt_cache_key"),
        refusing("m-1 does not support thinking"),
    ]
    async with talking(*refused) as (server, wire):
        body = wire.encode(Request(MODEL, "", (HELLO,), effort="low"))
        with pytest.raises(Quirk) as caught:
            await answer_of(wire, body)
        assert caught.value.field == "stream_options"
        lean = wire.without("stream_options")
        assert "stream_options" not in lean.encode(Request(MODEL, "", (HELLO,))).json
        with pytest.raises(Rejected):
            await answer_of(lean, body)
        with pytest.raises(Quirk) as caught:
            await answer_of(lean, body)
        assert caught.value.field == "reasoning_effort"
        assert server.connections <= 3


async def test_numbers_of_a_refusal_arrive() -> None:
    message = "maximum context length is 8192 tokens. However, you requested 9000 tokens "
    body = {"error": {"message": message + "(5000 in the messages, 4000 in the completion)"}}
    error = await refusal_of(
        Answer([json.dumps(body).encode()], status=400, content_type="application/json")
    )
    assert isinstance(error, OutputReserve)
    assert error.limit == 3_192


@pytest.mark.parametrize("status", [200, 400])
async def test_a_compressed_bomb_is_not_unpacked(status: int) -> None:
    bomb = gzip.compress(b"data: " + b"x" * (96 * 2**20), 9)
    headers = {"content-encoding": "gzip"}
    async with talking(Answer([bomb], status=status, headers=headers)) as (_, wire):
        with pytest.raises(ProviderError) as caught:
            await answer_of(wire)
    assert type(caught.value) is (Transient if status == 200 else Rejected)
    assert len(str(caught.value)) < 2_500


async def test_one_connection_serves_many_requests() -> None:
    async with talking(says("a"), says("b"), says("c")) as (server, wire):
        for text in "abc":
            assert visible_text((await answer_of(wire))[1].message) == text
        assert visible_text(decoded(chunk({"content": "x"}, "stop"))[1].message) == "x"
        assert server.connections == 1


async def test_without_a_key_no_key_is_sent() -> None:
    async with Loopback([says("a")]) as server:
        wire = wire_to(server.url, key="")
        await answer_of(wire)
        await wire.aclose()
        await wire.aclose()
    assert "authorization" not in server.requests[0].headers


async def test_a_refused_key_is_unauthorized() -> None:
    body = b'{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}'
    error = await refusal_of(Answer([body], status=401, content_type="application/json"))
    assert type(error) is Unauthorized
    assert "keen auth login acme" in str(error)


async def test_nobody_listening_is_told_with_the_address() -> None:
    wire = wire_to("http://127.0.0.1:9")
    with pytest.raises(Transient, match=r"127\.0\.0\.1:9.*is the server running"):
        await answer_of(wire)
    await wire.aclose()


async def test_an_address_that_is_none_is_rejected() -> None:
    wire = ChatWire(Endpoint("acme", FixedKey("k"), "localhost:1/v1"))
    with pytest.raises(Rejected, match="base_url"):
        await answer_of(wire)
    await wire.aclose()


async def test_a_key_that_cannot_stand_in_a_header_is_rejected() -> None:
    async with Loopback([says("a")]) as server:
        wire = wire_to(server.url, key="bad\nkey")
        with pytest.raises(ProviderError):
            await answer_of(wire)
        await wire.aclose()

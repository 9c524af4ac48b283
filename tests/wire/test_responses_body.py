"""The Responses wire: the body of a request."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from keen.core.estimate import Opaque, json_tokens
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
    ToolSpec,
    User,
)
from keen.core.models import ModelSpec
from keen.wire.base import Endpoint, FixedKey, Request
from keen.wire.responses import ResponsesWire

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

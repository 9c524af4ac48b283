"""The Responses stream when a server fails, or sends what nobody expects."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keen.core.errors import (
    ContextOverflow,
    ProviderError,
    Transient,
)
from keen.core.events import TextDelta
from keen.core.messages import (
    Json,
    JsonObject,
    Usage,
    tool_calls,
    visible_text,
)
from tests.wire.responses_events import (
    MESSAGE,
    a_whole_answer,
    completed,
    decoded,
    raised,
)


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "response.failed",
            "response": {"error": {"code": "context_length_exceeded", "message": ""}},
        },
        {"type": "error", "code": "context_length_exceeded", "message": "", "param": "input"},
        {"type": "error", "error": {"code": "context_length_exceeded", "message": None}},
        {
            "type": "response.failed",
            "response": {
                "error": {
                    "code": None,
                    "message": "Your input exceeds the context window of this model.",
                }
            },
        },
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
    ],
)
def test_an_overflow_inside_the_stream_is_one(event: JsonObject) -> None:
    assert isinstance(raised(event), ContextOverflow)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.failed", "response": None},
        {"type": "response.failed", "response": {"error": None}},
        {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
        {"type": "response.completed", "response": {"status": "failed", "error": {}}},
        {"type": "response.cancelled"},
        {"type": "error", "message": "The server had an error."},
    ],
)
def test_other_failures_inside_the_stream_are_tried_again(event: JsonObject) -> None:
    assert isinstance(raised(event), Transient)


def test_a_rate_limit_inside_the_stream_says_how_long_to_wait() -> None:
    error = raised(
        {
            "type": "response.failed",
            "response": {
                "error": {
                    "code": "rate_limit_exceeded",
                    "message": "Rate limit reached. Please try again in 11.054s.",
                }
            },
        }
    )

    assert isinstance(error, Transient)
    assert error.retry_after == pytest.approx(11.054)


def test_a_stream_without_terminal_event_is_tried_again() -> None:
    assert isinstance(raised(*a_whole_answer()[:-1]), Transient)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": None},
        {"type": 7},
        {"type": "response.something.new", "delta": "x"},
        {"type": "response.output_text.delta", "delta": None, "output_index": "x"},
        {"type": "response.output_text.delta", "delta": ["x"], "item_id": 5},
        {"type": "response.output_item.added", "item": None},
        {"type": "response.output_item.done", "item": "x", "output_index": None},
        {"type": "response.output_item.done", "item": {"type": "web_search_call", "id": "ws"}},
        {"type": "response.output_item.added", "item": {"type": "function_call", "name": None}},
        {"type": "response.reasoning_summary_text.delta", "delta": {}},
        {"type": "response.function_call_arguments.done", "arguments": None},
    ],
)
def test_events_of_no_use_change_nothing(event: JsonObject) -> None:
    deltas, reply = decoded(event, *a_whole_answer())
    expected_deltas, expected = decoded(*a_whole_answer())

    assert deltas == expected_deltas
    assert visible_text(reply.message) == visible_text(expected.message)
    assert tool_calls(reply.message) == tool_calls(expected.message)


def test_usage_of_wrong_types_counts_as_nothing() -> None:
    broken: JsonObject = {
        "input_tokens": "12",
        "input_tokens_details": None,
        "output_tokens": True,
        "output_tokens_details": [],
    }

    assert decoded(completed(MESSAGE, usage=broken))[1].usage == Usage()
    assert decoded(completed(MESSAGE, usage=None))[1].usage is None


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from(["", "a", "completed", "incomplete", "failed", "{}", "message", "reasoning"]),
)
KEYS = ["type", "id", "call_id", "name", "arguments", "status", "content", "text", "summary"]
ITEMS = st.dictionaries(st.sampled_from(KEYS), LEAVES, max_size=6).flatmap(
    lambda item: st.sampled_from(["message", "reasoning", "function_call", "x", None]).map(
        lambda kind: {**item, "type": kind}
    )
)
VALUES = st.one_of(LEAVES, ITEMS, st.lists(ITEMS, max_size=3))
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                *(f"response.output_item.{what}" for what in ("added", "done")),
                "response.output_text.delta",
                "response.refusal.delta",
                "response.reasoning_summary_text.delta",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.completed",
                "response.incomplete",
                "response.failed",
                "",
            ]
        )
    },
    optional={
        "item": VALUES,
        "output_index": LEAVES,
        "item_id": LEAVES,
        "delta": VALUES,
        "arguments": VALUES,
        "response": st.one_of(
            LEAVES,
            st.fixed_dictionaries(
                {}, optional={"output": VALUES, "usage": VALUES, "error": VALUES}
            ),
        ),
    },
)


@given(st.lists(EVENTS, max_size=12))
def test_whatever_a_server_sends_is_an_answer_or_a_provider_error(events: list[Json]) -> None:
    try:
        deltas, reply = decoded(*events)
    except ProviderError:
        return

    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert sorted(shown) == sorted(visible_text(reply.message))
    json.dumps(list(reply.message.native.items) if reply.message.native else [])
    assert all(call.id and call.name for call in tool_calls(reply.message))

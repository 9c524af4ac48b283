"""The Responses stream as a state machine, whatever a server sends."""

from __future__ import annotations

import json

import pytest

from keen.core.estimate import json_tokens
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    Json,
    JsonObject,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    tool_calls,
    visible_text,
)
from keen.wire.base import Reply
from tests.wire.responses_events import (
    CALL,
    MESSAGE,
    REASONING,
    USAGE,
    a_whole_answer,
    added,
    changed,
    completed,
    decoded,
    done,
    piece,
)


def plain(value: Json) -> Json:
    result: Json = json.loads(json.dumps(value))
    return result


def test_a_whole_answer_becomes_deltas_parts_usage_and_native_items() -> None:
    deltas, reply = decoded(*a_whole_answer())

    assert deltas == [
        ReasoningDelta("Look "),
        ReasoningDelta("first."),
        TextDelta("I will "),
        TextDelta("look."),
    ]
    assert reply.message.parts == (
        Reasoning("Look first."),
        Text("I will look."),
        ToolCall("call_1", "read_file", {"path": "a.py"}),
    )
    assert reply.usage == Usage(100, 60, 7, 30, 20)
    assert reply.finish == "stop"
    native = reply.message.native
    assert native is not None
    assert (native.provider, native.dialect, native.model) == ("openai", "responses", "gpt-test")
    assert plain(list(native.items)) == [
        {key: value for key, value in REASONING.items() if key != "status"},
        changed(
            MESSAGE,
            {"content": [{"type": "output_text", "text": "I will look.", "annotations": []}]},
        ),
        CALL,
    ]


def test_encrypted_content_costs_no_tokens() -> None:
    _, reply = decoded(*a_whole_answer())

    assert reply.message.native is not None
    assert json_tokens(reply.message.native.items[0]) < 50


def test_reasoning_without_encrypted_content_goes_with_the_ids_of_what_follows() -> None:
    bare = {key: value for key, value in REASONING.items() if key != "encrypted_content"}
    _, reply = decoded(done(0, MESSAGE), done(1, bare), done(2, CALL), completed())

    assert reply.message.native is not None
    first, second = (plain(item) for item in reply.message.native.items)
    assert isinstance(first, dict)
    assert first["id"] == "msg_1"
    assert second == {key: value for key, value in CALL.items() if key != "id"}


def test_reasoning_that_nothing_follows_is_not_sent_back() -> None:
    _, reply = decoded(done(0, MESSAGE), done(1, REASONING), completed())
    assert reply.message.native is not None
    assert len(reply.message.native.items) == 1

    _, reply = decoded(done(0, REASONING), completed())
    assert reply.message == Assistant((Reasoning("Look first."),))


@pytest.mark.parametrize(
    "events",
    [
        [completed(MESSAGE)],
        [done(0, MESSAGE), completed(MESSAGE)],
        [piece("output_text", 0, MESSAGE, "I will "), done(0, MESSAGE), completed(MESSAGE)],
        [piece("output_text", 0, MESSAGE, "I will look."), completed(MESSAGE)],
        [piece("output_text", 0, MESSAGE, "I will look."), completed()],
        [
            piece("output_text", 0, MESSAGE, "I will look."),
            completed(changed(MESSAGE, {"id": "other"})),
        ],
        [
            added(0, changed(MESSAGE, {"id": "a"})),
            piece("output_text", 0, changed(MESSAGE, {"id": "b"}), "I will look."),
            done(0, changed(MESSAGE, {"id": "c"})),
            completed(changed(MESSAGE, {"id": "d"})),
        ],
        [
            {"type": "response.output_text.delta", "delta": "I will "},
            {"type": "response.output_text.delta", "delta": "look."},
            {"type": "response.output_item.done", "item": MESSAGE},
            completed(MESSAGE),
        ],
        [done(0, MESSAGE), done(0, MESSAGE), completed(MESSAGE), completed(MESSAGE)],
        [{"object": "response", "status": "completed", "output": [MESSAGE], "usage": None}],
    ],
    ids=[
        "only at the end",
        "without deltas",
        "with some deltas",
        "without done",
        "nothing repeated",
        "repeated under another id",
        "another id in every event",
        "neither index nor id",
        "everything twice",
        "no stream at all",
    ],
)
def test_text_is_shown_exactly_once_however_it_comes(events: list[Json]) -> None:
    deltas, reply = decoded(*events)

    assert "".join(delta.text for delta in deltas) == "I will look."
    assert visible_text(reply.message) == "I will look."
    assert reply.message.native is not None
    content = plain(reply.message.native.items[0])
    assert isinstance(content, dict)
    assert isinstance(content["content"], list)
    assert [part["text"] for part in content["content"] if isinstance(part, dict)] == [
        "I will look."
    ]


def test_items_that_come_out_of_order_stand_in_their_order() -> None:
    _, reply = decoded(done(2, CALL), done(1, MESSAGE), done(0, REASONING), completed())

    assert [type(part) for part in reply.message.parts] == [Reasoning, Text, ToolCall]


def test_two_calls_side_by_side_keep_their_own_arguments() -> None:
    other = changed(CALL, {"id": "fc_2", "call_id": "call_2", "arguments": '{"path": "b"}'})
    _, reply = decoded(
        added(0, CALL),
        added(1, other),
        piece("function_call_arguments", 1, other, '{"path": '),
        piece("function_call_arguments", 0, CALL, '{"path":  "a.py"'),
        piece("function_call_arguments", 1, other, '"b"}'),
        piece("function_call_arguments", 0, CALL, "}"),
        completed(),
    )

    assert tool_calls(reply.message) == (
        ToolCall("call_1", "read_file", {"path": "a.py"}),
        ToolCall("call_2", "read_file", {"path": "b"}),
    )


def test_a_server_that_gives_every_item_the_same_index_is_understood() -> None:
    other = changed(CALL, {"id": "fc_2", "call_id": "call_2"})
    _, reply = decoded(
        added(0, MESSAGE),
        piece("output_text", 0, MESSAGE, "I will look."),
        added(0, CALL),
        done(0, MESSAGE),
        done(0, CALL),
        added(0, other),
        done(0, other),
        completed(),
    )

    assert visible_text(reply.message) == "I will look."
    assert [call.id for call in tool_calls(reply.message)] == ["call_1", "call_2"]


@pytest.mark.parametrize("arguments", ['{"path": ', "[1]", "NaN", "nul"])
def test_broken_arguments_are_kept_for_the_model_and_sent_back_as_none(arguments: str) -> None:
    _, reply = decoded(done(0, changed(CALL, {"arguments": arguments})), completed())

    assert tool_calls(reply.message) == (ToolCall("call_1", "read_file", {}, arguments),)
    assert reply.message.native is not None
    assert reply.message.native.items[0] == changed(CALL, {"arguments": "{}"})


def test_a_call_without_arguments_has_empty_ones() -> None:
    _, reply = decoded(done(0, changed(CALL, {"arguments": ""})), completed())

    assert tool_calls(reply.message) == (ToolCall("call_1", "read_file", {}),)


def test_a_refusal_is_visible_text_and_a_refused_answer() -> None:
    refusing = changed(MESSAGE, {"content": [{"type": "refusal", "refusal": "I cannot."}]})
    for events in (
        [piece("refusal", 0, MESSAGE, "I cannot."), done(0, refusing), completed(refusing)],
        [completed(refusing)],
    ):
        deltas, reply = decoded(*events)

        assert deltas == [TextDelta("I cannot.")]
        assert reply.finish == "refused"
        assert visible_text(reply.message) == "I cannot."


def test_sections_of_reasoning_are_told_apart() -> None:
    two = changed(
        REASONING,
        {
            "summary": [
                {"type": "summary_text", "text": "One."},
                {"type": "summary_text", "text": "Two."},
            ]
        },
    )
    deltas, reply = decoded(
        piece("reasoning_summary_text", 0, two, "One.", summary_index=0),
        piece("reasoning_summary_text", 0, two, "Two.", summary_index=1),
        done(0, two),
        completed(two),
    )

    assert deltas == [ReasoningDelta("One."), ReasoningDelta("\n\nTwo.")]
    assert reply.message.parts == (Reasoning("One.\n\nTwo."),)


def test_raw_reasoning_text_is_shown_and_sent_back() -> None:
    raw = changed(REASONING, {"summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]})
    deltas, reply = decoded(
        piece("reasoning_text", 0, raw, "hm", content_index=0),
        done(0, raw),
        done(1, MESSAGE),
        completed(),
    )

    assert deltas[0] == ReasoningDelta("hm")
    assert reply.message.native is not None
    sent = reply.message.native.items[0]
    assert isinstance(sent, dict)
    assert sent["content"] == [{"type": "reasoning_text", "text": "hm"}]


def incomplete(reason: str | None) -> JsonObject:
    return {
        "type": "response.incomplete",
        "response": {
            "status": "incomplete",
            "incomplete_details": {"reason": reason},
            "usage": USAGE,
        },
    }


def test_an_answer_cut_at_the_output_cap_keeps_its_text_and_no_open_call() -> None:
    cut = CALL | {"status": "incomplete", "arguments": '{"path": "/'}
    for tail in (
        [done(1, cut), incomplete("max_output_tokens")],
        [piece("function_call_arguments", 1, cut, '{"a": 1}'), incomplete("max_output_tokens")],
    ):
        _, reply = decoded(done(0, MESSAGE), added(1, cut), *tail)

        assert reply.finish == "length"
        assert reply.usage is not None
        assert tool_calls(reply.message) == ()
        assert visible_text(reply.message) == "I will look."
        assert reply.message.native is not None
        assert len(reply.message.native.items) == 1


def test_the_reasons_of_an_incomplete_answer_are_told_apart() -> None:
    assert decoded(incomplete("max_output_tokens"))[1].finish == "length"
    assert decoded(incomplete("content_filter"))[1].finish == "refused"
    assert decoded(incomplete(None))[1].finish == "length"


def test_length_with_no_output_at_all_is_left_as_length() -> None:
    _, reply = decoded(incomplete("max_output_tokens"))

    assert reply == Reply(Assistant(()), reply.usage, "length")

"""Events of a Responses stream as the API sends them, and what keen makes of them."""

from __future__ import annotations

import pytest

from keen.core.errors import ProviderError
from keen.core.messages import Json, JsonObject
from keen.wire._responses import Decoder
from keen.wire.base import Delta, Reply
from keen.wire.responses import failure

REASONING: JsonObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Look first."}],
    "encrypted_content": "gAAAA" * 50,
    "status": "completed",
}
CALL: JsonObject = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "read_file",
    "arguments": '{"path":  "a.py"}',
    "status": "completed",
}
MESSAGE: JsonObject = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "I will look.", "annotations": [], "logprobs": []}],
}
USAGE: JsonObject = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 7},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}


def changed(item: JsonObject, changes: JsonObject) -> JsonObject:
    """`item` with some of its fields another way."""
    return {**item, **changes}


def completed(*output: JsonObject, usage: JsonObject | None = USAGE) -> JsonObject:
    return {
        "type": "response.completed",
        "response": {"status": "completed", "output": list(output), "usage": usage},
    }


def done(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def added(index: int, item: JsonObject) -> JsonObject:
    begun: JsonObject = {**item, "status": "in_progress"}
    if "content" in item:
        begun["content"] = []
    if "arguments" in item:
        begun["arguments"] = ""
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def piece(kind: str, index: int, item: JsonObject, delta: Json, **more: Json) -> JsonObject:
    return {
        "type": f"response.{kind}.delta",
        "output_index": index,
        "item_id": item["id"],
        "delta": delta,
        **more,
    }


def a_whole_answer() -> list[Json]:
    """Reasoning, text and a call, with everything a real stream has between them."""
    return [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
        {"type": "response.in_progress", "response": {"id": "resp_1"}},
        added(0, changed(REASONING, {"encrypted_content": None, "summary": []})),
        piece("reasoning_summary_text", 0, REASONING, "Look ", summary_index=0),
        piece("reasoning_summary_text", 0, REASONING, "first.", summary_index=0),
        done(0, REASONING),
        added(1, MESSAGE),
        {"type": "response.content_part.added", "output_index": 1, "part": {}},
        piece("output_text", 1, MESSAGE, "I will "),
        piece("output_text", 1, MESSAGE, "look."),
        {"type": "response.output_text.done", "output_index": 1, "text": "I will look."},
        done(1, MESSAGE),
        added(2, CALL),
        piece("function_call_arguments", 2, CALL, '{"path":'),
        piece("function_call_arguments", 2, CALL, '  "a.py"}'),
        {
            "type": "response.function_call_arguments.done",
            "output_index": 2,
            "item_id": "fc_1",
            "arguments": CALL["arguments"],
        },
        done(2, CALL),
        completed(REASONING, MESSAGE, CALL),
    ]


def decoder(*, keeps_ids: bool = True) -> Decoder:
    return Decoder(
        "openai",
        "responses",
        "gpt-test",
        failure=lambda error: failure(error, "openai"),
        keeps_ids=keeps_ids,
    )


def decoded(*events: Json) -> tuple[list[Delta], Reply]:
    machine = decoder()
    deltas = [delta for event in events if isinstance(event, dict) for delta in machine.feed(event)]
    return deltas, machine.reply()


def raised(*events: Json) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decoded(*events)
    return caught.value

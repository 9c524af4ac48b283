"""Native stream frames of the six protocols, made from one canonical answer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from keen.core.messages import Finish, Json, JsonObject, Usage
from tests.fakes.signing import fresh_id, issued, sign


@dataclass(frozen=True, slots=True)
class Called:
    """One call of an answer; `arguments` is the raw text, in the pieces it is streamed in."""

    id: str
    name: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        """The argument text whole."""
        return "".join(self.arguments)

    @property
    def input(self) -> JsonObject:
        """The arguments as JSON; {} where they are none."""
        try:
            value: Json = json.loads(self.text)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says. `finish` None: the stream stops before its terminal event."""

    pieces: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()
    usage: Usage | None = field(default_factory=lambda: Usage(input_tokens=12, output_tokens=5))
    finish: Finish | None = "stop"
    is_cut_in_call: bool = False
    """The last call's block is never closed."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def thought(self) -> str:
        return "".join(self.reasoning)


def sse(event: Json, name: str = "", end: str = "\n") -> bytes:
    """One server-sent event."""
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {json.dumps(event, ensure_ascii=False)}{end}{end}".encode()


def aws(kind: str, payload: JsonObject, *, is_exception: bool = False) -> bytes:
    """One message of an AWS event stream; the value type of every header is 7, a string."""

    def header(name: str, value: str) -> bytes:
        encoded = value.encode()
        size = struct.pack(">H", len(encoded))
        return bytes([len(name)]) + name.encode() + b"\x07" + size + encoded

    headers = header(":exception-type" if is_exception else ":event-type", kind)
    headers += header(":content-type", "application/json")
    headers += header(":message-type", "exception" if is_exception else "event")
    return aws_message(headers, json.dumps(payload, ensure_ascii=False).encode())


def aws_message(headers: bytes, payload: bytes) -> bytes:
    """Prelude with its checksum, headers, payload, and the checksum over all of it."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def chat_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """Chat Completions chunks, the usage in a chunk of its own, then `[DONE]`."""
    del account
    return tuple(_chat(answer, model))


def _chat(answer: Answer, model: str) -> Iterator[bytes]:
    head: JsonObject = {
        "id": fresh_id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": model,
    }

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse({**head, "choices": [choice], "usage": None})

    yield chunk({"role": "assistant", "content": ""})
    for piece in answer.reasoning:
        yield chunk({"reasoning_content": piece})
    for piece in answer.pieces:
        yield chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        function: JsonObject = {"name": call.name, "arguments": ""}
        first: JsonObject = {"index": index, "id": call.id, "type": "function"}
        yield chunk({"tool_calls": [{**first, "function": function}]})
        for piece in call.arguments:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if answer.finish is None:
        return
    reasons = {"length": "length", "refused": "content_filter", "overflow": "model_length"}
    yield chunk({}, reasons.get(answer.finish, "tool_calls" if answer.calls else "stop"))
    if answer.usage is not None:
        yield sse({**head, "choices": [], "usage": _chat_usage(answer.usage)})
    yield b"data: [DONE]\n\n"


def _chat_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def responses_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """Responses events; the terminal one repeats the whole output."""
    return tuple(_responses(answer, model, account, repeats_output=True))


def codex_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """Responses events as Codex' backend sends them: the terminal one has no output."""
    return tuple(_responses(answer, model, account, repeats_output=False))


def _responses(
    answer: Answer, model: str, account: str, *, repeats_output: bool
) -> Iterator[bytes]:
    response: JsonObject = {
        "id": fresh_id("resp_"),
        "object": "response",
        "model": model,
        "status": "in_progress",
        "output": [],
        "usage": None,
    }
    output: list[Json] = []
    events = _responses_events(answer, account, output)
    number = 0
    for number, event in enumerate(
        [
            {"type": "response.created", "response": response},
            {"type": "response.in_progress", "response": response},
            *events,
        ]
    ):
        yield sse({**event, "sequence_number": number}, str(event["type"]))
    if answer.finish is None:
        return
    stopped = {"length": "max_output_tokens", "refused": "content_filter"}.get(answer.finish)
    status = "incomplete" if stopped else "completed"
    end: JsonObject = {
        "type": f"response.{status}",
        "sequence_number": number + 1,
        "response": {
            **response,
            "status": status,
            "incomplete_details": {"reason": stopped} if stopped else None,
            "output": output if repeats_output else [],
            "usage": _responses_usage(answer.usage) if answer.usage else None,
        },
    }
    yield sse(end, str(end["type"]))


def _responses_usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _responses_events(answer: Answer, account: str, output: list[Json]) -> Iterator[JsonObject]:
    """The events of every output item in turn; whole items are put into `output`."""
    if answer.reasoning:
        yield from _reasoning_item(answer, account, output)
    if answer.pieces:
        yield from _message_item(answer, output)
    for call in answer.calls:
        yield from _call_item(answer, call, output)


def _reasoning_item(answer: Answer, account: str, output: list[Json]) -> Iterator[JsonObject]:
    place: JsonObject = {"output_index": len(output)}
    item: JsonObject = {"id": fresh_id("rs_"), "type": "reasoning", "summary": []}
    at: JsonObject = {**place, "item_id": item["id"], "summary_index": 0}
    yield {"type": "response.output_item.added", "item": item, **place}
    empty: JsonObject = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", "part": empty, **at}
    for piece in answer.reasoning:
        yield {"type": "response.reasoning_summary_text.delta", "delta": piece, **at}
    part: JsonObject = {"type": "summary_text", "text": answer.thought}
    yield {"type": "response.reasoning_summary_text.done", "text": answer.thought, **at}
    yield {"type": "response.reasoning_summary_part.done", "part": part, **at}
    whole: JsonObject = {
        **item,
        "summary": [part],
        "encrypted_content": sign(account, answer.thought),
    }
    yield {"type": "response.output_item.done", "item": whole, **place}
    output.append(whole)
    for call in answer.calls:
        issued[call.id] = str(item["id"])


def _message_item(answer: Answer, output: list[Json]) -> Iterator[JsonObject]:
    place: JsonObject = {"output_index": len(output)}
    item: JsonObject = {"id": fresh_id("msg_"), "type": "message", "role": "assistant"}
    at: JsonObject = {**place, "item_id": item["id"], "content_index": 0}
    started: JsonObject = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "item": started, **place}
    part: JsonObject = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", "part": part, **at}
    for piece in answer.pieces:
        yield {"type": "response.output_text.delta", "delta": piece, **at}
    if answer.finish is None and not answer.calls:
        return
    status = "incomplete" if answer.finish == "length" and not answer.calls else "completed"
    part: JsonObject = {**part, "text": answer.text}
    yield {"type": "response.output_text.done", "text": answer.text, **at}
    yield {"type": "response.content_part.done", "part": part, **at}
    whole: JsonObject = {**item, "status": status, "content": [part]}
    yield {"type": "response.output_item.done", "item": whole, **place}
    output.append(whole)


def _call_item(answer: Answer, call: Called, output: list[Json]) -> Iterator[JsonObject]:
    place: JsonObject = {"output_index": len(output)}
    item: JsonObject = {
        "id": fresh_id("fc_"),
        "type": "function_call",
        "status": "in_progress",
        "call_id": call.id,
        "name": call.name,
        "arguments": "",
    }
    at: JsonObject = {**place, "item_id": item["id"]}
    yield {"type": "response.output_item.added", "item": item, **place}
    for piece in call.arguments:
        yield {"type": "response.function_call_arguments.delta", "delta": piece, **at}
    if answer.is_cut_in_call and call is answer.calls[-1]:
        return
    yield {"type": "response.function_call_arguments.done", "arguments": call.text, **at}
    whole: JsonObject = {**item, "status": "completed", "arguments": call.text}
    yield {"type": "response.output_item.done", "item": whole, **place}
    output.append(whole)


def anthropic_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """Messages API events, with a ping as the real one sends."""
    return tuple(sse(event, str(event["type"])) for event in _anthropic(answer, model, account))


def _anthropic(answer: Answer, model: str, account: str) -> Iterator[JsonObject]:
    usage = answer.usage or Usage()
    counts: JsonObject = {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": 1,
    }
    message: JsonObject = {
        "id": fresh_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts,
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, (start, deltas) in enumerate(_anthropic_blocks(answer, account)):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if not (answer.is_cut_in_call and start["type"] == "tool_use"):
            yield {"type": "content_block_stop", "index": index}
    if answer.finish is None:
        return
    reasons = {
        "length": "max_tokens",
        "refused": "refusal",
        "overflow": "model_context_window_exceeded",
    }
    reason = reasons.get(answer.finish, "tool_use" if answer.calls else "end_turn")
    end: JsonObject = {"stop_reason": reason, "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": end,
        "usage": {"output_tokens": usage.output_tokens},
    }
    yield {"type": "message_stop"}


def _anthropic_blocks(
    answer: Answer, account: str
) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    if answer.reasoning:
        signature = sign(account, answer.thought)
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                *({"type": "thinking_delta", "thinking": piece} for piece in answer.reasoning),
                {"type": "signature_delta", "signature": signature},
            ],
        )
    if answer.pieces:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in answer.pieces],
        )
    for call in answer.calls:
        if answer.reasoning:
            issued[call.id] = answer.thought
        yield (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ("", *call.arguments)
            ],
        )


def google_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """Gemini chunks; the first call of an answer is signed, else its thoughts are, at the end."""
    head: JsonObject = {"modelVersion": model, "responseId": fresh_id("r")}

    def chunk(parts: list[Json], finish: str | None) -> bytes:
        candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        event: JsonObject = {"candidates": [candidate], **head}
        if answer.usage is not None:
            event["usageMetadata"] = _google_usage(answer.usage, is_last=finish is not None)
        return sse(event, end="\r\n")

    frames = [chunk([part], None) for part in _google_parts(answer, account)]
    if answer.finish is not None:
        reason = {"length": "MAX_TOKENS", "refused": "SAFETY"}.get(answer.finish, "STOP")
        frames.append(chunk([{"text": ""}], reason))
    return tuple(frames)


def _google_parts(answer: Answer, account: str) -> Iterator[JsonObject]:
    for piece in answer.reasoning:
        yield {"text": piece, "thought": True}
    for piece in answer.pieces:
        yield {"text": piece}
    if answer.reasoning and not answer.calls and answer.finish is not None:
        yield {"text": "", "thoughtSignature": sign(account, "text\0")}
    for call in answer.calls[:-1] if answer.is_cut_in_call else answer.calls:
        made: JsonObject = {"name": call.name, "args": call.input}
        if call.id:
            made["id"] = call.id
        part: JsonObject = {"functionCall": made}
        if call is answer.calls[0]:
            stands_for = google_call(call.name, call.input)
            issued[stands_for] = account
            part["thoughtSignature"] = sign(account, stands_for)
        yield part


def google_call(name: str, arguments: Json) -> str:
    """What a Gemini signature of a function call stands for; no id, since it may have none."""
    return f"call\0{name}\0{json.dumps(arguments, sort_keys=True)}"


def _google_usage(usage: Usage, *, is_last: bool) -> JsonObject:
    counts: JsonObject = {
        "promptTokenCount": usage.input_tokens,
        "totalTokenCount": usage.input_tokens,
    }
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    if is_last:
        counts["candidatesTokenCount"] = usage.output_tokens - usage.reasoning_tokens
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
        counts["totalTokenCount"] = usage.total_tokens
    return counts


def bedrock_frames(answer: Answer, model: str, account: str) -> tuple[bytes, ...]:
    """ConverseStream events; the usage comes behind the stop."""
    del model
    return tuple(aws(name, payload) for name, payload in _bedrock(answer, account))


def _bedrock(answer: Answer, account: str) -> Iterator[tuple[str, JsonObject]]:
    yield "messageStart", {"role": "assistant"}
    for index, (start, deltas) in enumerate(_bedrock_blocks(answer, account)):
        at: JsonObject = {"contentBlockIndex": index}
        if start:
            yield "contentBlockStart", {"start": start, **at}
        for delta in deltas:
            yield "contentBlockDelta", {"delta": delta, **at}
        if not (answer.is_cut_in_call and start):
            yield "contentBlockStop", at
    if answer.finish is None:
        return
    reasons = {
        "length": "max_tokens",
        "refused": "content_filtered",
        "overflow": "model_context_window_exceeded",
    }
    reason = reasons.get(answer.finish, "tool_use" if answer.calls else "end_turn")
    yield "messageStop", {"stopReason": reason}
    if (usage := answer.usage) is not None:
        counts: JsonObject = {
            "inputTokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
            "outputTokens": usage.output_tokens,
            "totalTokens": usage.total_tokens,
            "cacheReadInputTokens": usage.cached_tokens,
            "cacheWriteInputTokens": usage.cache_write_tokens,
        }
        yield "metadata", {"usage": counts, "metrics": {"latencyMs": 7}}


def _bedrock_blocks(answer: Answer, account: str) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    if answer.reasoning:
        signature = sign(account, answer.thought)
        yield (
            {},
            [
                *({"reasoningContent": {"text": piece}} for piece in answer.reasoning),
                {"reasoningContent": {"signature": signature}},
            ],
        )
    if answer.pieces:
        yield {}, [{"text": piece} for piece in answer.pieces]
    for call in answer.calls:
        if answer.reasoning:
            issued[call.id] = answer.thought
        yield (
            {"toolUse": {"toolUseId": call.id, "name": call.name}},
            [{"toolUse": {"input": piece}} for piece in call.arguments],
        )

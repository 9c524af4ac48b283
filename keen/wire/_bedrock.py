"""Reads an answer of Bedrock's Converse API from its stream events."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from keen.core.errors import Transient
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    Finish,
    Json,
    JsonObject,
    Native,
    Part,
    Reasoning,
    Text,
    ToolCall,
    Usage,
)
from keen.wire._claude import REFUSED_LINE
from keen.wire._json import as_count, as_index, as_string, call_input
from keen.wire.base import Delta, Reply

DIALECT: Final = "bedrock"
_FINISHES: Final[dict[str, Finish]] = {
    "max_tokens": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
    "model_context_window_exceeded": "overflow",
}
_MALFORMED: Final = frozenset({"malformed_model_output", "malformed_tool_use"})


@dataclass
class _Block:
    """One content block while it comes in. Only a tool's block has a start worth knowing."""

    kind: str
    place: int
    pieces: list[str] = field(default_factory=list[str])
    call_id: str = ""
    name: str = ""
    signature: str | None = None

    def text(self) -> str:
        return "".join(self.pieces)

    def native(self) -> JsonObject | None:
        """The block as the API takes it back; base64 where the SDK has bytes."""
        match self.kind:
            case "text" if self.text().strip():
                return {"text": self.text()}
            case "reasoning" if self.signature is not None:
                thought: JsonObject = {"text": self.text(), "signature": self.signature}
                return {"reasoningContent": {"reasoningText": thought}}
            case "redacted":
                return {"reasoningContent": {"redactedContent": _joined(self.pieces)}}
            case "tool":
                call = self.call()
                use: JsonObject = {"toolUseId": call.id, "name": call.name, "input": call.input}
                return {"toolUse": use}
            case _:
                return None

    def part(self) -> Part | None:
        match self.kind:
            case "text" if self.text():
                return Text(self.text())
            case "reasoning" if self.text():
                return Reasoning(self.text())
            case "tool":
                return self.call()
            case _:
                return None

    def call(self) -> ToolCall:
        value, malformed = call_input(self.text())
        return ToolCall(self.call_id or f"call_{self.place}", self.name, value, malformed)


@dataclass
class Decoder:
    """Stream events, bytes as base64, in; deltas out. The reply is whole after messageStop."""

    provider: str
    model: str
    blocks: list[tuple[int, _Block]] = field(default_factory=list[tuple[int, _Block]])
    usage: Usage | None = None
    stop_reason: str = ""
    finished: bool = False

    def feed(self, event: JsonObject) -> Iterable[Delta]:
        match event:
            case {"metadata": {"usage": dict(usage)}}:
                self.usage = _usage(usage)
            case _ if self.finished:
                return ()
            case {"contentBlockStart": {"start": {"toolUse": dict(tool)}, **place}}:
                block = self._open(as_index(place.get("contentBlockIndex")), "tool", is_new=True)
                block.call_id = as_string(tool.get("toolUseId"))
                block.name = as_string(tool.get("name"))
            case {"contentBlockDelta": {"delta": dict(delta), **place}}:
                return self._delta(as_index(place.get("contentBlockIndex")), delta)
            case {"messageStop": dict(stop)}:
                self.stop_reason = as_string(stop.get("stopReason"))
                return self._stop()
            case _:
                pass
        return ()

    def reply(self) -> Reply:
        """Raises: Transient, when the answer is not complete or the model garbled it."""
        if not self.finished:
            raise Transient(f"{self.provider} ended the stream before the answer was complete.")
        if self.stop_reason in _MALFORMED:
            raise Transient(f"{self.provider}: the model's answer was unusable: {self.stop_reason}")
        blocks = [block for _, block in sorted(self.blocks, key=lambda entry: entry[0])]
        parts = tuple(part for block in blocks if (part := block.part()) is not None)
        items = tuple(item for block in blocks if (item := block.native()) is not None)
        native = Native(self.provider, DIALECT, self.model, items) if items else None
        finish = self._finish()
        if finish == "refused":
            native = None
        return Reply(Assistant(parts, native), self.usage, finish)

    def _stop(self) -> Iterable[Delta]:
        """A refusal without a word gets a line that tells it."""
        self.finished = True
        is_empty = not any(block.kind == "text" and block.text() for _, block in self.blocks)
        if self._finish() != "refused" or not is_empty:
            return ()
        self._open(None, "text", is_new=True).pieces.append(REFUSED_LINE)
        return (TextDelta(REFUSED_LINE),)

    def _finish(self) -> Finish:
        return _FINISHES.get(self.stop_reason, "stop")

    def _delta(self, index: int | None, delta: JsonObject) -> Iterable[Delta]:
        match delta:
            case {"text": str(piece)} if piece:
                self._open(index, "text").pieces.append(piece)
                return (TextDelta(piece),)
            case {"toolUse": {"input": str(piece)}}:
                self._open(index, "tool").pieces.append(piece)
            case {"reasoningContent": {"text": str(piece)}} if piece:
                self._open(index, "reasoning").pieces.append(piece)
                return (ReasoningDelta(piece),)
            case {"reasoningContent": {"signature": str(piece)}}:
                block = self._open(index, "reasoning")
                block.signature = (block.signature or "") + piece
            case {"reasoningContent": {"redactedContent": str(piece)}}:
                self._open(index, "redacted").pieces.append(piece)
            case _:
                pass
        return ()

    def _open(self, index: int | None, kind: str, *, is_new: bool = False) -> _Block:
        """The latest block of that index and kind; without an index the latest of that kind.

        Only a tool's block is announced, and its arguments may come before the announcement.
        """
        for known, block in reversed(self.blocks):
            if block.kind == kind and index in {known, None} and not (is_new and block.name):
                return block
        block = _Block(kind, len(self.blocks))
        self.blocks.append((len(self.blocks) if index is None else index, block))
        return block


def _usage(counts: JsonObject) -> Usage | None:
    """`inputTokens` of the API leaves out what was read from and written to the cache."""
    if not {"inputTokens", "outputTokens"} & counts.keys():
        return None
    cached = as_count(counts.get("cacheReadInputTokens"))
    written = as_count(counts.get("cacheWriteInputTokens"))
    return Usage(
        input_tokens=as_count(counts.get("inputTokens")) + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=as_count(counts.get("outputTokens")),
    )


def _joined(pieces: list[str]) -> str:
    """Base64 of the bytes that came in several pieces; one piece stays as it is."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return base64.b64encode(b"".join(map(base64.b64decode, pieces))).decode()
    except binascii.Error:
        return "".join(pieces)


def with_bytes(body: JsonObject) -> dict[str, Any]:
    """The body as the SDK takes it. Linear in the history: for the pump's thread."""
    messages = cast("list[JsonObject]", body["messages"])
    return body | {"messages": [_raw(message) for message in messages]}


def _raw(value: Json, key: str = "") -> Any:
    match value:
        case dict():
            # A tool's input is the model's own JSON: its keys mean nothing here.
            return {k: v if k == "input" else _raw(v, k) for k, v in value.items()}
        case list():
            return [_raw(item) for item in value]
        case str() if key in {"bytes", "redactedContent"}:
            return base64.b64decode(value)
        case _:
            return value


def without_bytes(event: Any) -> JsonObject:
    """An event as JSON."""
    match event:
        case dict():
            return {str(k): _plain(v) for k, v in cast("dict[str, Any]", event).items()}
        case _:
            return {}


def _plain(value: Any) -> Json:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return without_bytes(value)
        case list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case _:
            return cast(Json, value)

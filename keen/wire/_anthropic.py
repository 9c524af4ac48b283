"""Reads an answer of the Anthropic Messages API from its stream events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from keen.core.errors import ProviderError, Transient
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
from keen.wire._json import as_index, as_string, call_input
from keen.wire._overflow import classified
from keen.wire.base import Delta, Reply

DIALECT: Final = "anthropic"
_FINISHES: Final[dict[str, Finish]] = {
    "max_tokens": "length",
    "refusal": "refused",
    "model_context_window_exceeded": "overflow",
}


@dataclass
class _Block:
    """One content block while it comes in; `pieces` are text, thinking or argument deltas."""

    kind: str
    place: int
    start: JsonObject = field(default_factory=dict[str, Json])
    pieces: list[str] = field(default_factory=list[str])
    signature: str | None = None

    def text(self) -> str:
        return "".join(self.pieces)

    def native(self) -> JsonObject | None:
        """The block as the API takes it back: known fields, values unchanged."""
        match self.kind:
            case "text":
                return {"type": "text", "text": self.text()} if self.text().strip() else None
            case "thinking" if self.signature is not None:
                return {
                    "type": "thinking",
                    "thinking": self.text(),
                    "signature": self.signature,
                }
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": as_string(self.start.get("data"))}
            case "tool_use":
                call = self.call()
                return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
            case _:
                return None

    def part(self) -> Part | None:
        match self.kind:
            case "text" if self.text():
                return Text(self.text())
            case "thinking" if self.text():
                return Reasoning(self.text())
            case "tool_use":
                return self.call()
            case _:
                return None

    def call(self) -> ToolCall:
        """Some servers put the whole input into the block's start and stream nothing."""
        given = self.start.get("input")
        arguments = self.text()
        if not arguments.strip() and isinstance(given, dict):
            value, malformed = given, ""
        else:
            value, malformed = call_input(arguments)
        call_id = as_string(self.start.get("id")) or f"call_{self.place}"
        return ToolCall(call_id, as_string(self.start.get("name")), value, malformed)


@dataclass
class Decoder:
    """Stream events in, deltas out; the reply is whole only after message_stop."""

    provider: str
    model: str
    blocks: list[tuple[int, _Block]] = field(default_factory=list[tuple[int, _Block]])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    thinking_tokens: int = 0
    stop_reason: str = ""
    finished: bool = False

    def feed(self, event: JsonObject) -> Iterable[Delta]:
        """Raises: ProviderError, when the event is the provider's error."""
        match event:
            case {"type": "error"} | {"error": dict()}:
                raise _in_stream(event, self.provider)
            case _ if self.finished:
                return ()
            case {"type": "content_block_start", "content_block": dict(start)}:
                return self._start(as_index(event.get("index")), start)
            case {"type": "content_block_delta", "delta": dict(delta)}:
                return self._delta(as_index(event.get("index")), delta)
            case {"type": "message_start", "message": dict(message)}:
                self._usage(message.get("usage"))
            case {"type": "message_delta"}:
                if isinstance(delta := event.get("delta"), dict):
                    self.stop_reason = as_string(delta.get("stop_reason")) or self.stop_reason
                self._usage(event.get("usage"))
            case {"type": "message_stop"}:
                return self._stop()
            case {"type": "message", "content": list(content)}:
                return self._whole(event, content)
            case _:
                pass
        return ()

    def reply(self) -> Reply:
        """Raises: Transient, when the stream ended before the answer did."""
        if not self.finished:
            raise Transient(f"{self.provider} ended the stream before the answer was complete.")
        blocks = [block for _, block in sorted(self.blocks, key=lambda entry: entry[0])]
        parts = tuple(part for block in blocks if (part := block.part()) is not None)
        items = tuple(item for block in blocks if (item := block.native()) is not None)
        native = Native(self.provider, DIALECT, self.model, items) if items else None
        finish = self._finish()
        if finish == "refused":
            native = None
        return Reply(Assistant(parts, native), self._reported(), finish)

    def _whole(self, message: JsonObject, content: list[Json]) -> Iterable[Delta]:
        """A compatible server that does not stream sends the message itself."""
        starts = [start for start in content if isinstance(start, dict)]
        deltas = [delta for start in starts for delta in self._start(None, start)]
        self.stop_reason = as_string(message.get("stop_reason"))
        self._usage(message.get("usage"))
        return [*deltas, *self._stop()]

    def _stop(self) -> Iterable[Delta]:
        """A refusal without a word gets a line that tells it."""
        self.finished = True
        is_empty = not any(block.kind == "text" and block.text() for _, block in self.blocks)
        if self._finish() != "refused" or not is_empty:
            return ()
        return self._grown(self._new(None, "text"), REFUSED_LINE)

    def _finish(self) -> Finish:
        return _FINISHES.get(self.stop_reason, "stop")

    def _start(self, index: int | None, start: JsonObject) -> Iterable[Delta]:
        block = self._known(index, as_string(start.get("type")))
        if block is None or block.start:
            block = self._new(index, as_string(start.get("type")))
        block.start = start
        if isinstance(signature := start.get("signature"), str):
            block.signature = signature + (block.signature or "")
        given = as_string(start.get("thinking" if block.kind == "thinking" else "text"))
        return self._grown(block, given)

    def _delta(self, index: int | None, delta: JsonObject) -> Iterable[Delta]:
        match delta:
            case {"type": "text_delta", "text": str(piece)}:
                return self._grown(self._open(index, "text"), piece)
            case {"type": "thinking_delta", "thinking": str(piece)}:
                return self._grown(self._open(index, "thinking"), piece)
            case {"type": "signature_delta", "signature": str(piece)}:
                block = self._open(index, "thinking")
                block.signature = (block.signature or "") + piece
            case {"type": "input_json_delta", "partial_json": str(piece)}:
                if not self._is_foreign(index):
                    self._open(index, "tool_use").pieces.append(piece)
            case _:
                pass
        return ()

    def _is_foreign(self, index: int | None) -> bool:
        """True for arguments of a block kind that is not keen's to run, as a server's own tool."""
        kinds = {block.kind for known, block in self.blocks if known == index}
        return bool(kinds) and "tool_use" not in kinds

    def _open(self, index: int | None, kind: str) -> _Block:
        """The block a delta belongs to, also when its start is late or missing."""
        return self._known(index, kind) or self._new(index, kind)

    def _known(self, index: int | None, kind: str) -> _Block | None:
        """The latest block of that kind and index; without an index the latest of that kind."""
        for known, block in reversed(self.blocks):
            if block.kind == kind and index in {known, None}:
                return block
        return None

    def _new(self, index: int | None, kind: str) -> _Block:
        block = _Block(kind, len(self.blocks))
        self.blocks.append((len(self.blocks) if index is None else index, block))
        return block

    def _grown(self, block: _Block, piece: str) -> Iterable[Delta]:
        if not piece:
            return ()
        block.pieces.append(piece)
        if block.kind == "thinking":
            return (ReasoningDelta(piece),)
        return (TextDelta(piece),) if block.kind == "text" else ()

    def _usage(self, usage: Json) -> None:
        """Counts are cumulative: a later one stands for the earlier."""
        if not isinstance(usage, dict):
            return
        for name, count in usage.items():
            if isinstance(count, int) and not isinstance(count, bool):
                self.counts[name] = count
        details = usage.get("output_tokens_details")
        if isinstance(details, dict) and isinstance(tokens := details.get("thinking_tokens"), int):
            self.thinking_tokens = tokens

    def _reported(self) -> Usage | None:
        """`input_tokens` of the API leaves out what was read from and written to the cache."""
        if "input_tokens" not in self.counts and "output_tokens" not in self.counts:
            return None
        cached = self.counts.get("cache_read_input_tokens", 0)
        written = self.counts.get("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=self.counts.get("input_tokens", 0) + cached + written,
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=self.counts.get("output_tokens", 0),
            reasoning_tokens=self.thinking_tokens,
        )


def _in_stream(event: JsonObject, provider: str) -> ProviderError:
    """The error of an answer that had begun with HTTP 200: its type says what it is."""
    error = event.get("error")
    details = error if isinstance(error, dict) else event
    return classified(
        status=200,
        code=as_string(details.get("type")),
        message=as_string(details.get("message")),
        retry_after=None,
        provider=provider,
        body=event,
    )

"""Reads an answer of the Gemini API from its stream chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from keen.core.errors import MalformedHistory, Transient
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    Finish,
    JsonObject,
    Native,
    Part,
    Reasoning,
    Text,
    ToolCall,
    Usage,
)
from keen.wire._json import as_count, as_objects, as_string
from keen.wire._overflow import classified
from keen.wire.base import Delta, Reply

DIALECT: Final = "google"
_UNSAID: Final = frozenset({"", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_FINISHES: Final[dict[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
}
"""Every other reason is a filter's or a refusal: SAFETY, RECITATION, BLOCKLIST, SPII, …"""
_GARBLED: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MALFORMED_RESPONSE",
    }
)


@dataclass
class _Piece:
    """One part of the answer, or adjacent text parts joined."""

    is_thought: bool = False
    texts: list[str] = field(default_factory=list[str])
    call: JsonObject | None = None
    signature: str = ""

    def text(self) -> str:
        return "".join(self.texts)

    def takes(self, other: _Piece) -> bool:
        """True for two texts of one kind. A signature belongs to its part and keeps it apart."""
        both = (self, other)
        is_plain = all(piece.call is None and not piece.signature for piece in both)
        return is_plain and self.is_thought == other.is_thought

    def native(self) -> JsonObject | None:
        """The part as the API takes it back. Summaries of thoughts are not wanted back."""
        part: JsonObject = {}
        if self.call is not None:
            call = self.call
            sent: JsonObject = {n: text for n in ("id", "name") if (text := as_string(call.get(n)))}
            if isinstance(arguments := call.get("args"), dict) and arguments:
                sent["args"] = arguments
            part["functionCall"] = sent
        elif self.signature or (self.text() and not self.is_thought):
            part["text"] = self.text()
            if self.is_thought:
                part["thought"] = True
        else:
            return None
        if self.signature:
            part["thoughtSignature"] = self.signature
        return part


@dataclass
class Decoder:
    """Chunks in, deltas out. Calls without an id get `call-<turn>-<n>`, which is never sent."""

    provider: str
    model: str
    turn: int
    pieces: list[_Piece] = field(default_factory=list[_Piece])
    usage: Usage | None = None
    reason: str = ""
    is_blocked: bool = False

    @property
    def finished(self) -> bool:
        return self.reason not in _UNSAID

    def feed(self, chunk: JsonObject) -> Iterable[Delta]:
        """Raises: ProviderError, when the chunk is an error, as `classified` names it."""
        if chunk.get("error"):
            raise classified(status=None, provider=self.provider, body=chunk)
        deltas: list[Delta] = []
        for candidate in as_objects(chunk.get("candidates"))[:1]:
            content = candidate.get("content")
            if isinstance(content, dict):
                for part in as_objects(content.get("parts")):
                    deltas += self._part(part)
            deltas += self._ended(as_string(candidate.get("finishReason")), "stopped this answer")
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and (reason := as_string(feedback.get("blockReason"))):
            self.is_blocked = True
            deltas += self._ended(reason, "blocked this request")
        counts = chunk.get("usageMetadata")
        if isinstance(counts, dict):
            self.usage = _usage(counts) or self.usage
        return deltas

    def reply(self) -> Reply:
        """Raises: Transient, when the answer is not complete or the model garbled it."""
        if not self.finished:
            raise Transient(f"{self.provider} ended the stream before the answer was complete.")
        if self.reason in _GARBLED:
            raise Transient(f"{self.provider}: the model's call was unusable: {self.reason}")
        if self.reason == "MISSING_THOUGHT_SIGNATURE":
            raise MalformedHistory(f"{self.provider} misses a thought signature: {self.reason}")
        finish = self._finish()
        items = tuple(item for piece in self.pieces if (item := piece.native()) is not None)
        native = Native(self.provider, DIALECT, self.model, items) if items else None
        if finish == "refused":
            native = None
        return Reply(Assistant(self._parts(), native), self.usage, finish)

    def _finish(self) -> Finish:
        return "refused" if self.is_blocked else _FINISHES.get(self.reason, "refused")

    def _ended(self, reason: str, what: str) -> Iterable[Delta]:
        """A refusal without a word gets a line that tells why."""
        if reason in _UNSAID or self.finished:
            return ()
        self.reason = reason
        is_empty = not any(piece.text() and not piece.is_thought for piece in self.pieces)
        if not is_empty or self._finish() != "refused" or reason in _GARBLED:
            return ()
        line = f"The provider {what} ({reason})."
        self.pieces.append(_Piece(texts=[line]))
        return (TextDelta(line),)

    def _part(self, part: JsonObject) -> Iterable[Delta]:
        call = part.get("functionCall")
        text = as_string(part.get("text"))
        piece = _Piece(
            is_thought=part.get("thought") is True,
            texts=[text] if text else [],
            call=call if isinstance(call, dict) else None,
            signature=as_string(part.get("thoughtSignature")),
        )
        if not (text or piece.call is not None or piece.signature):
            return ()
        if self.pieces and self.pieces[-1].takes(piece):
            self.pieces[-1].texts += piece.texts
        else:
            self.pieces.append(piece)
        if not text:
            return ()
        return (ReasoningDelta(text) if piece.is_thought else TextDelta(text),)

    def _parts(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        calls = 0
        for piece in self.pieces:
            if piece.call is not None:
                parts.append(_call(piece.call, f"call-{self.turn}-{calls}"))
                calls += 1
            elif text := piece.text():
                parts.append(Reasoning(text) if piece.is_thought else Text(text))
        return tuple(parts)


def _call(call: JsonObject, invented: str) -> ToolCall:
    arguments = call.get("args")
    call_id, name = as_string(call.get("id")) or invented, as_string(call.get("name"))
    if arguments is None:
        return ToolCall(call_id, name, {})
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, {}, malformed=json.dumps(arguments))


def _usage(counts: JsonObject) -> Usage | None:
    """`promptTokenCount` of the API includes what was cached; thoughts are counted apart."""
    if not {"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"} & counts.keys():
        return None
    thoughts = as_count(counts.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=as_count(counts.get("promptTokenCount")),
        cached_tokens=as_count(counts.get("cachedContentTokenCount")),
        output_tokens=as_count(counts.get("candidatesTokenCount")) + thoughts,
        reasoning_tokens=thoughts,
    )

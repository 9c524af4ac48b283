"""Chat Completions chunks in, canonical deltas and one reply out; no I/O."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

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
from keen.wire._handoff import sendable_name
from keen.wire._json import as_count, as_object, as_objects, as_string, call_input
from keen.wire._overflow import classified
from keen.wire.base import Delta, Reply

DIALECT: Final = "chat"
REPLAYED: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an answer, beside content and calls, that go back as they came."""
_FINISHES: Final[Mapping[str, Finish]] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
    "refusal": "refused",
    "safety": "refused",
    "sensitive": "refused",  # z.ai
    "model_length": "overflow",  # Mistral: the answer filled the window
    "model_context_window_exceeded": "overflow",
}
"""Any other reason is an ordinary end."""
_FAILURES: Final = frozenset({"error", "network_error", "insufficient_system_resource"})
_Kind: TypeAlias = Literal["text", "reasoning", "call"]


@dataclass(slots=True)
class _Call:
    """One call as it arrives."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: JsonObject | None = None
    """What Gemini's compatible server keeps its thought signatures in."""


@dataclass(slots=True)
class _Segment:
    """Neighbouring pieces of one kind."""

    kind: _Kind
    pieces: list[str] = field(default_factory=list[str])


@dataclass
class Decoder:
    """State of one streamed answer. `reply` is whole once the stream has ended.

    A chunk may hold nulls, wrong types, calls out of order or without index or id: what cannot be
    read is passed over, what is missing is invented.
    """

    provider: str
    model: str
    is_finished: bool = False
    is_done: bool = False
    """`[DONE]` was seen: a clean end even where a server forgets the reason."""
    _reason: str = ""
    _has_begun: bool = False
    _is_refusal: bool = False
    _usage: Usage | None = None
    _segments: list[_Segment] = field(default_factory=list[_Segment])
    _calls: list[_Call] = field(default_factory=list[_Call])
    _replayed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _details: list[JsonObject] = field(default_factory=list[JsonObject])

    def feed(self, event: JsonObject) -> list[Delta]:
        """The deltas of one chunk, or of a whole answer in place of a stream.

        Raises:
            ProviderError: the chunk is an error, as `classified` names it.
        """
        self._has_begun = True
        choices = as_objects(event.get("choices"))
        self._refuse(event, choices)
        self._count(event, choices)
        deltas: list[Delta] = []
        for choice in choices:
            if choice.get("index") not in (0, None):
                continue
            delta = as_object(choice.get("delta")) or as_object(choice.get("message"))
            deltas.extend(self._delta(delta))
            if reason := as_string(choice.get("finish_reason")):
                self._reason, self.is_finished = reason, True
        return deltas

    def done(self) -> None:
        """`[DONE]` came."""
        self.is_done = True

    def reply(self) -> Reply:
        """The whole answer.

        Raises:
            Transient: the stream ended without a reason, or the reason is a failure.
        """
        if not self.is_finished and not (self.is_done and self._segments):
            raise Transient(self._unfinished(), is_empty=not self._has_begun)
        if self._reason in _FAILURES:
            raise Transient(f"{self.provider} broke off the answer (reason: {self._reason}).")
        finish: Finish = (
            "refused" if self._is_refusal else _FINISHES.get(self._reason.lower(), "stop")
        )
        calls = self._whole_calls()
        parts = tuple(self._parts(calls))
        item = self._native(calls)
        native = Native(self.provider, DIALECT, self.model, (item,))
        return Reply(Assistant(parts, native), self._usage, finish)

    def _unfinished(self) -> str:
        if self._has_begun:
            return f"{self.provider} ended the answer before it was complete."
        return (
            f"{self.provider} closed the connection without an answer. A local server does this "
            "when the conversation does not fit its context: give it a larger one."
        )

    def _refuse(self, event: JsonObject, choices: list[JsonObject]) -> None:
        is_error = event.get("error") or "error" in (event.get("object"), event.get("type"))
        if is_error or ("detail" in event and not choices):
            raise classified(status=None, provider=self.provider, body=event)
        for choice in choices:
            if choice.get("error"):
                raise classified(status=None, provider=self.provider, body=choice)

    def _count(self, event: JsonObject, choices: list[JsonObject]) -> None:
        """The last report of usage counts; Groq and Moonshot keep theirs in other places."""
        places = (event, as_object(event.get("x_groq")), *choices[:1])
        for place in places:
            if usage := usage_of(as_object(place.get("usage"))):
                self._usage = usage
                return

    def _delta(self, delta: JsonObject) -> Iterator[Delta]:
        details = as_objects(delta.get("reasoning_details"))
        for detail in details:
            self._detail(detail)
        shown = ""
        for name in ("reasoning_content", "reasoning"):
            if piece := as_string(delta.get(name)):
                self._replayed.setdefault(name, []).append(piece)
                shown = shown or piece
        if not shown:
            shown = "".join(
                as_string(detail.get("text")) or as_string(detail.get("summary"))
                for detail in details
            )
        if shown:
            yield self._reasoned(shown)
        yield from self._content(delta.get("content"))
        if refusal := as_string(delta.get("refusal")):
            self._is_refusal = True
            yield self._said(refusal)
        for call in as_objects(delta.get("tool_calls")):
            self._call(call)

    def _content(self, content: Json) -> Iterator[Delta]:
        """A string, or Mistral's list of text and thinking parts."""
        if isinstance(content, str):
            if content:
                yield self._said(content)
            return
        for part in as_objects(content):
            if text := as_string(part.get("text")):
                yield self._said(text)
            thinking = part.get("thinking")
            thought = as_string(thinking) or "".join(
                as_string(piece.get("text")) for piece in as_objects(thinking)
            )
            if thought:
                yield self._reasoned(thought)

    def _said(self, text: str) -> TextDelta:
        self._segment("text").pieces.append(text)
        return TextDelta(text)

    def _reasoned(self, text: str) -> ReasoningDelta:
        self._segment("reasoning").pieces.append(text)
        return ReasoningDelta(text)

    def _segment(self, kind: _Kind) -> _Segment:
        if not self._segments or self._segments[-1].kind != kind:
            self._segments.append(_Segment(kind))
        return self._segments[-1]

    def _detail(self, detail: JsonObject) -> None:
        """Pieces of one entry are joined; an entry is known by its type and index."""
        last = self._details[-1] if self._details else {}
        key = ("type", "index")
        if not last or any(last.get(name) != detail.get(name) for name in key):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            before = last.get(name)
            if name in ("text", "summary", "data") and isinstance(before, str):
                last[name] = before + as_string(value)
            elif value is not None:
                last[name] = value

    def _call(self, piece: JsonObject) -> None:
        function = as_object(piece.get("function"))
        call = self._slot(piece, as_string(function.get("name")))
        call.id = call.id or as_string(piece.get("id"))
        call.name = call.name or as_string(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # whole, as Ollama's own form has it
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        if extra := as_object(piece.get("extra_content")):
            call.extra = extra

    def _slot(self, piece: JsonObject, name: str) -> _Call:
        """The call a piece belongs to. Some servers give no index, or 0 for each call."""
        index, call_id = piece.get("index"), as_string(piece.get("id"))
        is_numbered = isinstance(index, int) and not isinstance(index, bool)
        for call in reversed(self._calls):
            is_other = bool(call_id and call.id and call_id != call.id and name)
            if is_numbered and call.index != index:
                continue
            if is_other or (not is_numbered and not call_id and name and call.name):
                break
            return call
        self._segment("call")
        number = cast(int, index) if is_numbered else len(self._calls)
        self._calls.append(_Call(number))
        return self._calls[-1]

    def _whole_calls(self) -> list[tuple[ToolCall, _Call]]:
        """The calls by their index, each with an id of its own."""
        taken: set[str] = set()
        answer = secrets.token_hex(4)
        whole: list[tuple[ToolCall, _Call]] = []
        for number, call in enumerate(sorted(self._calls, key=lambda call: call.index), 1):
            if not call.id or call.id in taken:
                call.id = f"call-{answer}-{number}"
            taken.add(call.id)
            arguments, malformed = call_input("".join(call.arguments))
            whole.append((ToolCall(call.id, call.name, arguments, malformed), call))
        return whole

    def _parts(self, calls: Iterable[tuple[ToolCall, _Call]]) -> Iterator[Part]:
        for segment in self._segments:
            joined = "".join(segment.pieces)
            if segment.kind == "text":
                yield Text(joined)
            elif segment.kind == "reasoning":
                yield Reasoning(joined)
        for call, _ in calls:
            yield call

    def _native(self, calls: list[tuple[ToolCall, _Call]]) -> JsonObject:
        """The message as its server takes it back."""
        text = "".join(
            piece
            for segment in self._segments
            if segment.kind == "text"
            for piece in segment.pieces
        )
        item: JsonObject = {"role": "assistant", "content": text or None}
        item |= {name: "".join(pieces) for name, pieces in self._replayed.items()}
        if self._details:
            item["reasoning_details"] = list[Json](self._details)
        if calls:
            item["tool_calls"] = [_native_call(*call) for call in calls]
        return item


def native_call(call: ToolCall, arguments: str) -> JsonObject:
    """A call as a message holds it. What is no JSON object would be refused: it goes as `{}`."""
    if call.malformed or not arguments.strip():
        arguments = "{}"
    function: JsonObject = {"name": sendable_name(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _native_call(whole: ToolCall, call: _Call) -> JsonObject:
    native = native_call(whole, "".join(call.arguments))
    if call.extra:
        native["extra_content"] = call.extra
    return native


def usage_of(report: JsonObject) -> Usage | None:
    """Normalised usage, or None when nothing was counted. The prompt includes what was cached."""
    prompt = as_count(report.get("prompt_tokens"))
    completion = as_count(report.get("completion_tokens"))
    if not prompt and not completion:
        return None
    details = as_object(report.get("prompt_tokens_details"))
    cached = (
        as_count(details.get("cached_tokens"))
        or as_count(report.get("prompt_cache_hit_tokens"))  # DeepSeek
        or as_count(report.get("cached_tokens"))  # Moonshot
    )
    reasoning = as_count(as_object(report.get("completion_tokens_details")).get("reasoning_tokens"))
    if reasoning and as_count(report.get("total_tokens")) == prompt + completion + reasoning:
        completion += reasoning  # xAI counts it beside the completion
    return Usage(
        input_tokens=prompt,
        cached_tokens=min(cached, prompt),
        cache_write_tokens=min(
            as_count(details.get("cache_write_tokens")), prompt - min(cached, prompt)
        ),
        output_tokens=completion,
        reasoning_tokens=min(reasoning, completion),
    )

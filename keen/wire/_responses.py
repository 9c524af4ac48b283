"""The Responses API's stream as a state machine: events in, deltas out, a reply at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from keen.wire._json import as_count, as_object, as_string
from keen.wire._responses_items import KINDS, Item, Kind, replayed
from keen.wire.base import Delta, Reply

_KIND_OF_PIECE: Final[dict[str, Kind]] = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
    "response.function_call_arguments.done": "function_call",
}


@dataclass(slots=True)
class Decoder:
    """Events in, canonical deltas out; `reply` is whole only after a terminal event.

    `failure` makes the error of a `response.failed` or `error` event from its error object.
    `keeps_ids`: items are sent back under the ids they came with.
    """

    provider: str
    dialect: str
    model: str
    failure: Callable[[JsonObject], ProviderError]
    keeps_ids: bool = True
    items: list[Item] = field(default_factory=list[Item])
    by_index: dict[int, Item] = field(default_factory=dict[int, Item])
    by_id: dict[str, Item] = field(default_factory=dict[str, Item])
    usage: Usage | None = None
    finish: Finish | None = None

    @property
    def is_finished(self) -> bool:
        """True after a terminal event; what comes later is ignored."""
        return self.finish is not None

    def feed(self, event: JsonObject) -> Iterator[Delta]:
        """The deltas of one event; unknown events have none.

        Raises:
            ProviderError: the event tells of a failure.
        """
        if self.is_finished:
            return
        kind = as_string(event.get("type"))
        if kind in _KIND_OF_PIECE:
            yield from self._piece(kind, event)
            return
        match kind:
            case "response.output_item.added":
                self._named(event)
            case "response.output_item.done":
                if item := self._named(event):
                    yield from _ended(item, event.get("item"))
            case "response.completed" | "response.incomplete" | "response.done":
                yield from self._terminal(kind, as_object(event.get("response")))
            case "response.failed" | "response.cancelled":
                raise self.failure(as_object(as_object(event.get("response")).get("error")))
            case "error":
                raise self.failure(as_object(event.get("error")) or event)
            case "":
                yield from self._bare(event)
            case _:
                pass

    def reply(self) -> Reply:
        """The whole answer. Raises: Transient if no terminal event came."""
        if self.finish is None:
            raise Transient(
                f"{self.provider} ended the stream before the answer was complete; try again."
            )
        parts: list[Part] = []
        kept: list[tuple[Item, ToolCall | None]] = []
        for place, item in enumerate(sorted(self.items, key=lambda item: item.order)):
            call = item.call(place, is_cut=self.finish != "stop")
            if call is not None:
                parts.append(call)
            elif item.kind == "function_call":
                continue
            elif item.text:
                parts.append(Text(item.text) if item.kind == "message" else Reasoning(item.text))
            kept.append((item, call))
        items = replayed(kept, keeps_ids=self.keeps_ids)
        native = Native(self.provider, self.dialect, self.model, items) if items else None
        return Reply(Assistant(tuple(parts), native), self.usage, self.finish)

    def _piece(self, kind: str, event: JsonObject) -> Iterator[Delta]:
        """A piece of an item's text, reasoning or arguments, or the arguments in one."""
        item = self._item(_KIND_OF_PIECE[kind], event, {})
        if item.is_done:
            return
        if kind == "response.function_call_arguments.done":
            item.is_whole = True
            if whole := as_string(event.get("arguments")):
                item.arguments = [whole]
            return
        piece = as_string(event.get("delta"))
        if not piece:
            return
        match item.kind:
            case "function_call":
                item.arguments.append(piece)
            case "message":
                item.is_refusal = item.is_refusal or kind == "response.refusal.delta"
                item.shown.append(piece)
                yield TextDelta(piece)
            case "reasoning":
                section = (kind, event.get("summary_index", event.get("content_index")))
                if item.section not in (None, section):
                    piece = f"\n\n{piece}"
                item.section = section
                item.shown.append(piece)
                yield ReasoningDelta(piece)

    def _bare(self, event: JsonObject) -> Iterator[Delta]:
        """What stands in place of an event: a whole response, or a gateway's error."""
        if event.get("object") == "response":
            yield from self._terminal("response.completed", event)
        elif event.get("error") or event.get("detail"):
            raise self.failure(as_object(event.get("error")) or event)

    def _terminal(self, kind: str, response: JsonObject) -> Iterator[Delta]:
        """The end: usage, reason, and output that the stream itself did not bring."""
        if response.get("status") == "failed":
            raise self.failure(as_object(response.get("error")))
        self.usage = _usage(response.get("usage"))
        yield from self._unstreamed(response.get("output"))
        reason = as_string(as_object(response.get("incomplete_details")).get("reason"))
        is_cut = kind == "response.incomplete" or response.get("status") == "incomplete"
        is_refused = reason == "content_filter" or any(item.is_refusal for item in self.items)
        self.finish = "refused" if is_refused else "length" if is_cut else "stop"

    def _unstreamed(self, output: Json) -> Iterator[Delta]:
        """Most servers repeat the whole output at the end, some send it only there."""
        if not isinstance(output, list):
            return
        streamed = {item.kind for item in self.items}
        calls = {as_string(item.native.get("call_id")) for item in self.items}
        for index, value in enumerate(output):
            native = as_object(value)
            kind = KINDS.get(as_string(native.get("type")))
            if kind is None:
                continue
            place: JsonObject = {"output_index": index}
            item = self._known(kind, place, native)
            is_new_call = kind == "function_call" and native.get("call_id") not in calls
            if item is None and (is_new_call or kind not in streamed):
                item = self._item(kind, place, native)
            if item is not None:
                yield from _ended(item, native)

    def _named(self, event: JsonObject) -> Item | None:
        """The item an added or done event holds; None for kinds that keen does not ask for."""
        native = as_object(event.get("item"))
        kind = KINDS.get(as_string(native.get("type")))
        return None if kind is None else self._item(kind, event, native)

    def _item(self, kind: Kind, event: JsonObject, native: JsonObject) -> Item:
        """The item an event speaks of, begun if it is new."""
        item = self._known(kind, event, native)
        index = event.get("output_index")
        if item is None:
            item = Item(kind, index if isinstance(index, int) else len(self.items))
            self.items.append(item)
        if isinstance(index, int):
            self.by_index[index] = item
            item.is_named = True
        if item_id := as_string(event.get("item_id")) or as_string(native.get("id")):
            self.by_id[item_id] = item
            item.is_named = True
        if native:
            item.begin(native)
        return item

    def _known(self, kind: Kind, event: JsonObject, native: JsonObject) -> Item | None:
        """By place, then by id: GitHub Copilot gives one item another id in every event.

        An event with neither belongs to the newest item of its kind, and the first event with
        one of them names the item that began without.
        """
        index = event.get("output_index")
        item_id = as_string(event.get("item_id")) or as_string(native.get("id"))
        by_index = self.by_index.get(index) if isinstance(index, int) else None
        for found in (by_index, self.by_id.get(item_id)):
            if found is not None and found.may_be(kind, native):
                return found
        is_named = by_index is None and (isinstance(index, int) or item_id != "")
        for item in reversed(self.items):
            is_open = not item.is_done or not (native or is_named)
            if is_open and item.may_be(kind, native) and not (is_named and item.is_named):
                return item
        return None


def _ended(item: Item, native: Json) -> Iterator[Delta]:
    """The item at its end; what of it was not shown yet is shown now."""
    if item.is_done:
        return
    rest = item.end(as_object(native))
    if rest:
        yield TextDelta(rest) if item.kind == "message" else ReasoningDelta(rest)


def _usage(value: Json) -> Usage | None:
    """OpenAI's `input_tokens` already includes what was read from and written to its cache."""
    if not isinstance(value, dict):
        return None
    read = as_object(value.get("input_tokens_details"))
    written = as_object(value.get("output_tokens_details"))
    return Usage(
        input_tokens=as_count(value.get("input_tokens")),
        cached_tokens=as_count(read.get("cached_tokens")),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        output_tokens=as_count(value.get("output_tokens")),
        reasoning_tokens=as_count(written.get("reasoning_tokens")),
    )

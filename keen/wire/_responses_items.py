"""One output item of the Responses API: what it says, and how it goes back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from keen.core.estimate import Opaque
from keen.core.messages import Json, JsonObject, ToolCall
from keen.wire._json import as_string, call_input

Kind: TypeAlias = Literal["message", "reasoning", "function_call"]
KINDS: Final[dict[str, Kind]] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "function_call",
}
_REPLAYED: Final[dict[Kind, tuple[str, ...]]] = {
    # `phase` is to be sent back on every message of the models that set it.
    "message": ("type", "id", "role", "status", "content", "phase"),
    # A reasoning item's `status` comes back from the API but is refused on the way in.
    "reasoning": ("type", "id", "summary", "content", "encrypted_content"),
    "function_call": ("type", "id", "call_id", "name", "arguments", "status"),
}
_REPLAYED_CONTENT: Final = ("type", "text", "annotations", "refusal")


@dataclass(slots=True)
class Item:
    """One output item as far as it has come; `order` is its place in the answer.

    `is_named`: its place or id is known; `is_done`: it was seen at its end; `is_whole`: nothing of
    it was cut off.
    """

    kind: Kind
    order: int
    native: JsonObject = field(default_factory=dict[str, Json])
    shown: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])
    section: tuple[str, Json] | None = None
    is_named: bool = False
    is_done: bool = False
    is_whole: bool = False
    is_refusal: bool = False

    @property
    def text(self) -> str:
        """What was shown of it, a message's text or reasoning."""
        return "".join(self.shown)

    def begin(self, native: JsonObject) -> None:
        """Take over what a first look at the item tells."""
        if not self.is_done:
            self.native = _merged(self.native, native)

    def end(self, native: JsonObject) -> str:
        """Take over the item at its end; returns what of its text was not shown before."""
        self.native = _merged(self.native, native)
        self.is_done = True
        self.is_whole = self.native.get("status") != "incomplete"
        if self.kind == "function_call":
            return ""
        self.is_refusal = self.is_refusal or any(part.get("refusal") for part in self._content())
        whole = self._whole_text()
        if not whole.startswith(self.text):
            return ""
        rest = whole[len(self.text) :]
        self.shown.append(rest)
        return rest

    def may_be(self, kind: Kind, native: JsonObject) -> bool:
        """False when an event's item cannot be this one, whatever its place says."""
        if self.kind != kind or not native:
            return self.kind == kind
        call_ids = {as_string(native.get("call_id")), as_string(self.native.get("call_id"))}
        ids = {as_string(native.get("id")), as_string(self.native.get("id"))}
        return len(call_ids - {""}) < 2 and not (self.is_done and len(ids - {""}) == 2)

    def call(self, place: int, *, is_cut: bool) -> ToolCall | None:
        """The call, if it is one; None for one that was cut off, which must never run.

        `is_cut`: the answer ended before its time, so only what is known to be whole counts.
        """
        name = as_string(self.native.get("name"))
        if self.kind != "function_call" or not name:
            return None
        if not self.is_whole and (self.is_done or is_cut):
            return None
        given = as_string(self.native.get("call_id")) or as_string(self.native.get("id"))
        arguments, malformed = call_input(self.argument_text())
        return ToolCall(given or f"call_{place}", name, arguments, malformed)

    def argument_text(self) -> str:
        """The finished item's arguments, else what was streamed of them."""
        streamed = "".join(self.arguments)
        match self.native.get("arguments"):
            case str() as text:
                whole = text
            case dict() as fields:
                whole = json.dumps(fields, ensure_ascii=False)
            case _:
                whole = ""
        return (whole or streamed) if self.is_done else (streamed or whole)

    def replayed(self, call: ToolCall | None) -> JsonObject:
        """The item by the allow list, without nulls: they come out but are refused going in."""
        source: JsonObject = {"type": self.kind} | self.native
        native = {
            name: source[name] for name in _REPLAYED[self.kind] if source.get(name) is not None
        }
        if not self.is_done:
            native.pop("status", None)
        content: list[Json] = [
            {name: part[name] for name in _REPLAYED_CONTENT if part.get(name) is not None}
            for part in self._content()
        ]
        match self.kind:
            case "message":
                if not self._whole_text():
                    content = [{"type": "output_text", "text": self.text}]
                native.setdefault("role", "assistant")
                native["content"] = content
            case "reasoning":
                native.setdefault("summary", [])
                native.pop("content", None)
                if content:
                    native["content"] = content
            case "function_call":
                assert call is not None
                # Servers that read the arguments of earlier calls answer 500 to what is no JSON.
                native["arguments"] = "{}" if call.malformed else self.argument_text() or "{}"
                native["call_id"] = call.id
        return native

    def _content(self) -> list[JsonObject]:
        return [part for part in _list(self.native.get("content")) if isinstance(part, dict)]

    def _whole_text(self) -> str:
        texts = [
            as_string(part.get("text")) or as_string(part.get("refusal"))
            for part in self._content()
        ]
        if self.kind == "message":
            return "".join(texts)
        summary = _list(self.native.get("summary"))
        texts += [as_string(part.get("text")) for part in summary if isinstance(part, dict)]
        return "\n\n".join(text for text in texts if text)


def replayed(
    items: Iterable[tuple[Item, ToolCall | None]], *, keeps_ids: bool
) -> tuple[JsonObject, ...]:
    """The items of an answer as they go back.

    A reasoning item without encrypted content cannot be found again (`store` is false), and
    the ids of what follows it would ask for it; one that nothing follows is refused.
    """
    natives: list[JsonObject] = []
    for item, call in items:
        if item.kind != "reasoning" and call is None and not item.text:
            continue
        native = item.replayed(call)
        if item.kind == "reasoning":
            encrypted = as_string(native.get("encrypted_content"))
            if not encrypted:
                keeps_ids = False
                continue
            native["encrypted_content"] = Opaque(encrypted)
        natives.append(native if keeps_ids else _without(native, "id"))
    while natives and natives[-1].get("type") == "reasoning":
        natives.pop()
    return tuple(natives)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _merged(old: JsonObject, new: JsonObject) -> JsonObject:
    return old | {name: value for name, value in new.items() if value is not None}


def _without(native: JsonObject, name: str) -> JsonObject:
    return {key: value for key, value in native.items() if key != name}

"""OpenAI-compatible Chat Completions: one wire for every vendor and local server that speaks it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, cast

from keen.core.errors import ProviderError, Quirk, Rejected
from keen.core.estimate import Opaque, image_tokens
from keen.core.messages import (
    Assistant,
    Image,
    Json,
    JsonObject,
    Message,
    Native,
    Results,
    ToolSpec,
    User,
    tool_calls,
    visible_text,
)
from keen.core.models import ModelSpec
from keen.core.unicode import writable
from keen.wire._chat import DIALECT, REPLAYED, Decoder, native_call
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory, apart
from keen.wire._openai import Connection, asked_output, authorized
from keen.wire._quirks import allows, wants, without
from keen.wire._sse import json_events
from keen.wire._tail import tail
from keen.wire._transport import begun, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

_TAIL_SECONDS: Final = 5.0
"""How long a usage report is waited for behind a complete answer."""
_SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
_ALIASES: Final = (
    ("reasoning_effort", "reasoning", "thinking", "effort"),
    ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    ("stream_options", "include_usage"),
)
"""Names servers use for one and the same field when they refuse it."""
_FORMS: Final = frozenset({"consecutive_messages", "long_call_ids", *REPLAYED})
"""Quirks of the messages, not of a field beside them."""


@dataclass
class ChatWire:
    """One endpoint that speaks Chat Completions; an unknown server gets the smallest body."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: Connection = field(default_factory=Connection, repr=False, compare=False)
    _history: EncodedHistory = field(default_factory=EncodedHistory, repr=False, compare=False)

    def asked_output(self, model: ModelSpec) -> int:
        return asked_output(model)

    def encode(self, request: Request) -> Body:
        quirks, images = self.endpoint.quirks, request.model.images
        system = writable(request.system)
        messages: list[JsonObject] = [{"role": "system", "content": system}] if system else []
        messages += self._history.items(
            request,
            self.endpoint.provider,
            DIALECT,
            lambda m: tuple(_messages(m, quirks, images)),
            variant=images,
            join=apart if allows(quirks, "consecutive_messages") else _alternating,
        )
        body: JsonObject = {"model": request.model.id, "stream": True}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        body |= self._optional(request)
        body["messages"] = cast(Json, messages)
        return Body(body, "messages")

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        provider = self.endpoint.provider
        decoder = Decoder(provider, str(body.json.get("model", "")))
        try:
            with translated(provider):
                client = await self._connection.client(self.endpoint)
                headers = await authorized(self.endpoint, {})
                # The body goes as it was encoded; the SDK would walk and convert each message.
                request = client.chat.completions.with_streaming_response.create(
                    model="", messages=[], stream=True, extra_body=body.json, extra_headers=headers
                )
                async with (
                    begun(request, self.endpoint.idle_seconds) as response,
                    aclosing(json_events(response.iter_bytes(), on_done=decoder.done)) as events,
                ):
                    async for event in events:
                        for delta in decoder.feed(event):
                            yield delta
                        if decoder.is_finished:
                            for delta in await tail(
                                events, decoder.feed, provider=provider, seconds=_TAIL_SECONDS
                            ):
                                yield delta
        except Quirk as quirk:
            raise self._known(quirk, body) from quirk
        yield decoder.reply()

    def without(self, field: str) -> ChatWire:
        return ChatWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _optional(self, request: Request) -> JsonObject:
        """The fields a server may refuse by name; their order never changes."""
        quirks = self.endpoint.quirks
        fields: JsonObject = {}
        cap = "max_tokens"
        if "max_completion_tokens" in quirks or not allows(quirks, "max_tokens"):
            cap = "max_completion_tokens" if allows(quirks, "max_completion_tokens") else cap
        fields[cap] = request.output_tokens
        fields["stream_options"] = {"include_usage": True}
        if request.effort is not None and request.model.reasoning:
            fields |= _effort(request.effort, quirks)
        if request.cache_key and wants(quirks, "prompt_cache_key"):
            fields["prompt_cache_key"] = request.cache_key
        if wants(quirks, "transforms") or self.endpoint.provider == "openrouter":
            fields["transforms"] = []
        return {name: value for name, value in fields.items() if allows(quirks, name)}

    def _known(self, quirk: Quirk, body: Body) -> ProviderError:
        """The quirk under the name this wire sends the field by; nothing sent, nothing to drop."""
        names = next((group for group in _ALIASES if quirk.field in group), (quirk.field,))
        for name in (quirk.field, *names):
            if name in body.json or (name in _FORMS and allows(self.endpoint.quirks, name)):
                return Quirk(str(quirk), field=name, status=quirk.status)
        return Rejected(str(quirk), status=quirk.status)


def _effort(effort: str, quirks: frozenset[str]) -> JsonObject:
    if wants(quirks, "reasoning"):
        return {"reasoning": {"effort": effort}}
    if wants(quirks, "thinking"):
        return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    return {"reasoning_effort": effort}


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
        },
    }


def _messages(message: Message, quirks: frozenset[str], images: bool) -> Iterator[JsonObject]:
    """One canonical message as the protocol's messages; a message that says nothing is none."""
    match message:
        case User():
            if message.text or message.images:
                yield {"role": "user", "content": _content(message.text, message.images, images)}
        case Assistant(native=Native(items=items)):
            for item in cast(tuple[JsonObject, ...], items):
                yield _strict(item, quirks)
        case Assistant():
            yield _strict(_answer(message), quirks)
        case Results():
            yield from _results(message, quirks, images)


def _answer(message: Assistant) -> JsonObject:
    """An answer of another model's, or an older one, from its parts."""
    item: JsonObject = {"role": "assistant", "content": writable(visible_text(message)) or None}
    if calls := tool_calls(message):
        item["tool_calls"] = [
            native_call(call, writable(json.dumps(call.input, ensure_ascii=False)))
            for call in calls
        ]
    return item


def _strict(item: JsonObject, quirks: frozenset[str]) -> JsonObject:
    """The message without the fields, and with the ids, that this server insists on."""
    item = {n: v for n, v in item.items() if n not in REPLAYED or allows(quirks, n)}
    calls = item.get("tool_calls")
    if isinstance(calls, list) and not allows(quirks, "long_call_ids"):
        item["tool_calls"] = [
            call | {"id": _call_id(str(call.get("id")), quirks)}
            for call in calls
            if isinstance(call, dict)
        ]
    return item


def _results(message: Results, quirks: frozenset[str], images: bool) -> Iterator[JsonObject]:
    """One tool message a result. Images cannot stand in it: a user message behind brings them."""
    shown: list[Json] = []
    for result in message.results:
        yield {
            "role": "tool",
            "tool_call_id": _call_id(result.call_id, quirks),
            "content": writable(result.output),
        }
        if result.images:
            shown.append({"type": "text", "text": f"Images of the result of {result.name}:"})
            shown += (_image(image, images) for image in result.images)
    if shown:
        yield {"role": "user", "content": shown}


def _call_id(call_id: str, quirks: frozenset[str]) -> str:
    """The id itself, or the nine letters and digits that stand for it where no other is taken."""
    if allows(quirks, "long_call_ids") or _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _content(text: str, pictures: tuple[Image, ...], images: bool) -> Json:
    if not pictures:
        return writable(text)
    parts: list[Json] = [{"type": "text", "text": writable(text)}] if text else []
    parts += (_image(picture, images) for picture in pictures)
    return parts


def _image(image: Image, images: bool) -> Json:
    if not images:
        return {"type": "text", "text": NO_IMAGES}
    url = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"
    cost = image_tokens(image.width, image.height)
    return {"type": "image_url", "image_url": {"url": Opaque(url, cost)}}


def _alternating(before: JsonObject, message: JsonObject) -> JsonObject | None:
    """Neighbours that are both the user's become one, for templates that insist on turns."""
    if not before["role"] == message["role"] == "user":
        return None
    return {"role": "user", "content": _joined(before["content"], message["content"])}


def _joined(first: Json, second: Json) -> Json:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: Json) -> list[Json]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]

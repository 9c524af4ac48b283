"""OpenAI Responses: a conversation as input items, and the wire that sends them."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, cast

from keen.core.errors import ProviderError
from keen.core.estimate import Opaque, image_tokens
from keen.core.messages import (
    Assistant,
    Image,
    Json,
    JsonObject,
    Message,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)
from keen.core.models import ModelSpec
from keen.core.unicode import writable
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory
from keen.wire._json import as_string
from keen.wire._openai import Connection, asked_output, authorized
from keen.wire._overflow import classified
from keen.wire._quirks import allows, without
from keen.wire._responses import Decoder
from keen.wire._sse import DRAIN_SECONDS, json_events
from keen.wire._tail import tail
from keen.wire._transport import begun, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

DIALECT: Final = "responses"


@dataclass
class ResponsesWire:
    """One endpoint that speaks the Responses API."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: Connection = field(default_factory=Connection)
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return asked_output(model)

    def encode(self, request: Request) -> Body:
        return encode(request, self.endpoint, self._history, dialect=DIALECT)

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        provider = self.endpoint.provider
        decoder = Decoder(
            provider,
            DIALECT,
            as_string(body.json.get("model")),
            failure=lambda error: failure(error, provider),
        )
        replies = streamed(self._connection, self.endpoint, body, decoder, {})
        async with aclosing(replies):
            async for piece in replies:
                yield piece

    def without(self, field: str) -> ResponsesWire:
        return ResponsesWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


def encode(request: Request, endpoint: Endpoint, history: EncodedHistory, *, dialect: str) -> Body:
    """Canonical to native. The input stands last, so that the bytes before it never change."""
    images = request.model.images
    items = history.items(
        request,
        endpoint.provider,
        dialect,
        lambda message: tuple(_items(message, dialect, images)),
        variant=images,
    )
    body: JsonObject = {"model": request.model.id, "stream": True}
    if system := writable(request.system):
        body["instructions"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    optional = _optional(request, endpoint.quirks)
    body |= {name: value for name, value in optional.items() if allows(endpoint.quirks, name)}
    body["input"] = cast(Json, items)
    return Body(body, "input")


async def streamed(
    connection: Connection,
    endpoint: Endpoint,
    body: Body,
    decoder: Decoder,
    headers: Mapping[str, str],
) -> AsyncGenerator[Delta | Reply, None]:
    """Send once and decode the raw events: the SDK's objects cost seconds in a long answer.

    `headers` go beside the key.
    """
    provider = endpoint.provider
    with translated(provider):
        client = await connection.client(endpoint)
        request = client.responses.with_streaming_response.create(
            stream=True,
            extra_body=body.json,  # sent as encoded; nothing is walked or converted again
            extra_headers=await authorized(endpoint, headers),
        )
        async with (
            begun(request, endpoint.idle_seconds) as response,
            aclosing(json_events(response.iter_bytes())) as events,
        ):
            async for event in events:
                for delta in decoder.feed(event):
                    yield delta
                if decoder.is_finished:
                    await tail(events, decoder.feed, provider=provider, seconds=DRAIN_SECONDS)
                    break
    yield decoder.reply()


def failure(error: JsonObject, provider: str) -> ProviderError:
    """The error of a `response.failed` or `error` event. Its message may be empty."""
    return classified(status=None, provider=provider, body=error)


def _optional(request: Request, quirks: frozenset[str]) -> JsonObject:
    """The fields a server may refuse by name; their order never changes."""
    fields: JsonObject = {
        "max_output_tokens": request.output_tokens,
        "store": False,
        "truncation": "disabled",
    }
    if request.tools:
        fields["parallel_tool_calls"] = True
    if request.cache_key:
        fields["prompt_cache_key"] = request.cache_key
    if request.model.reasoning:
        fields["include"] = ["reasoning.encrypted_content"]
        reasoning: JsonObject = {}
        if request.effort is not None and allows(quirks, "reasoning_effort"):
            reasoning["effort"] = request.effort
        if allows(quirks, "reasoning.summary"):
            reasoning["summary"] = "auto"
        if reasoning:
            fields["reasoning"] = reasoning
    return fields


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }


def _items(message: Message, dialect: str, images: bool) -> Iterator[JsonObject]:
    match message:
        case User():
            yield {"role": "user", "content": _content(message.text, message.images, images)}
        case Results():
            for result in message.results:
                yield {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": _output(result, images),
                }
        case Assistant(native=Native(items=items)):
            yield from cast(tuple[JsonObject, ...], items)
        case Assistant():
            yield from _answer(message, dialect)


def _answer(message: Assistant, dialect: str) -> Iterator[JsonObject]:
    """An answer of another model's, or an older one, from its parts."""
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                texts.append(part.text)
            case ToolCall():
                yield from _said(texts, dialect)
                texts = []
                yield {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": part.name,
                    "arguments": writable(json.dumps(part.input, ensure_ascii=False)),
                }
            case Reasoning():
                continue
    yield from _said(texts, dialect)


def _said(texts: list[str], dialect: str) -> Iterator[JsonObject]:
    text = writable("".join(texts))
    if not text:
        return
    # A bare string passes every compatible server's schema; output_text wants an id in some.
    # Codex's backend is only ever sent the long form by its own client.
    content: Json = [{"type": "output_text", "text": text}] if dialect == "codex" else text
    yield {"type": "message", "role": "assistant", "content": content}


def _content(text: str, pictures: tuple[Image, ...], images: bool) -> Json:
    """Text and images as content parts."""
    parts: list[Json] = [{"type": "input_text", "text": writable(text)}] if text else []
    line: Json = {"type": "input_text", "text": NO_IMAGES}
    parts.extend(_image(picture) if images else line for picture in pictures)
    return parts or [{"type": "input_text", "text": ""}]


def _output(result: ToolResult, images: bool) -> Json:
    if not result.images:
        return writable(result.output)
    return _content(result.output, result.images, images)


def _image(image: Image) -> Json:
    data = base64.b64encode(image.data).decode("ascii")
    url = f"data:{image.media_type};base64,{data}"
    return {
        "type": "input_image",
        "detail": "auto",
        "image_url": Opaque(url, image_tokens(image.width, image.height)),
    }

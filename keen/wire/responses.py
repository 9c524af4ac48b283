"""OpenAI Responses: a conversation as input items, and the wire that sends them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from keen.core.budget import DEFAULT_OUTPUT
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
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory
from keen.wire._json import as_string, clean
from keen.wire._overflow import classified
from keen.wire._quirks import allows, without
from keen.wire._responses import Decoder
from keen.wire._sdk import import_connection, loaded
from keen.wire._sse import DRAIN_SECONDS, json_events
from keen.wire._tail import tail
from keen.wire._transport import CONNECT_SECONDS, begun, stop_refusal, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit

DIALECT: Final = "responses"


@dataclass
class ResponsesWire:
    """One endpoint that speaks the Responses API."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: Connection = field(default_factory=lambda: Connection())
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
        client = await self._connection.client(self.endpoint)
        headers = await authorized(self.endpoint, {})
        replies = streamed(client, body, decoder, headers, self.endpoint.idle_seconds)
        async with aclosing(replies):
            async for piece in replies:
                yield piece

    def without(self, field: str) -> ResponsesWire:
        return ResponsesWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


@dataclass
class Connection:
    """The SDK client, made on first use and shared by wires that differ in quirks only."""

    _client: AsyncOpenAI | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def client(self, endpoint: Endpoint) -> AsyncOpenAI:
        await loaded("openai")
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(_client, endpoint)
            return self._client

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def asked_output(model: ModelSpec) -> int:
    """What the settings ask for, else 8,192; never more than the model gives."""
    asked = model.asked_output or DEFAULT_OUTPUT
    return asked if model.max_output is None else min(asked, model.max_output)


def encode(request: Request, endpoint: Endpoint, history: EncodedHistory, *, dialect: str) -> Body:
    """Canonical to native. The input stands last, so that the bytes before it never change."""
    images = request.model.images
    items = history.items(
        request,
        endpoint.provider,
        dialect,
        lambda message: tuple(_items(message, dialect, images)),
        images,
    )
    body: JsonObject = {"model": request.model.id, "stream": True}
    if system := clean(request.system):
        body["instructions"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    optional = _optional(request, endpoint.quirks)
    body |= {name: value for name, value in optional.items() if allows(endpoint.quirks, name)}
    body["input"] = cast(Json, items)
    return Body(body, "input")


async def authorized(endpoint: Endpoint, others: Mapping[str, str]) -> dict[str, str | Omit]:
    """`others` and the key of this moment, which may have been renewed, as headers.

    A header that the settings give is left to them; without a key none is sent.
    """
    from openai import Omit

    secret = await endpoint.credential.secret()
    headers = {**others, "Authorization": f"Bearer {secret}" if secret else Omit()}
    given = {name.lower() for name in endpoint.headers}
    return {name: value for name, value in headers.items() if name.lower() not in given}


async def streamed(
    client: AsyncOpenAI,
    body: Body,
    decoder: Decoder,
    headers: Mapping[str, str | Omit],
    idle_seconds: float,
) -> AsyncGenerator[Delta | Reply, None]:
    """Send once and decode the raw events: the SDK's objects cost seconds in a long answer."""
    provider = decoder.provider
    with translated(provider):
        request = client.responses.with_streaming_response.create(
            stream=True,
            extra_body=body.json,  # sent as encoded; nothing is walked or converted again
            extra_headers=headers,
        )
        async with (
            begun(request, idle_seconds) as response,
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


def _client(endpoint: Endpoint) -> AsyncOpenAI:
    """Reads certificates and imports the SDK's resources: not for the event loop."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit, Timeout

    headers: dict[str, str | Omit] = dict(endpoint.headers)
    host = urlsplit(endpoint.base_url).hostname or "api.openai.com"
    if not f".{host}".endswith(".openai.com"):
        # OPENAI_ORG_ID and OPENAI_PROJECT_ID are OpenAI's business, not another server's.
        headers = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit(), **headers}
    connect = min(CONNECT_SECONDS, endpoint.idle_seconds)
    client = AsyncOpenAI(
        api_key="none",  # every request brings its own, see `authorized`
        base_url=endpoint.base_url or None,
        default_headers=cast(Mapping[str, str], headers),
        max_retries=0,
        timeout=Timeout(endpoint.idle_seconds, connect=connect),
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [stop_refusal]}),
    )
    _ = client.responses.with_streaming_response
    import_connection()
    return client


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
                    "arguments": clean(json.dumps(part.input, ensure_ascii=False)),
                }
            case Reasoning():
                continue
    yield from _said(texts, dialect)


def _said(texts: list[str], dialect: str) -> Iterator[JsonObject]:
    text = clean("".join(texts))
    if not text:
        return
    # A bare string passes every compatible server's schema; output_text wants an id in some.
    # Codex's backend is only ever sent the long form by its own client.
    content: Json = [{"type": "output_text", "text": text}] if dialect == "codex" else text
    yield {"type": "message", "role": "assistant", "content": content}


def _content(text: str, pictures: tuple[Image, ...], images: bool) -> Json:
    """Text and images as content parts."""
    parts: list[Json] = [{"type": "input_text", "text": clean(text)}] if text else []
    line: Json = {"type": "input_text", "text": NO_IMAGES}
    parts.extend(_image(picture) if images else line for picture in pictures)
    return parts or [{"type": "input_text", "text": ""}]


def _output(result: ToolResult, images: bool) -> Json:
    if not result.images:
        return clean(result.output)
    return _content(result.output, result.images, images)


def _image(image: Image) -> Json:
    data = base64.b64encode(image.data).decode("ascii")
    url = f"data:{image.media_type};base64,{data}"
    return {
        "type": "input_image",
        "detail": "auto",
        "image_url": Opaque(url, image_tokens(image.width, image.height)),
    }

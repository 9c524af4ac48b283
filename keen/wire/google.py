"""The Gemini API: contents and parts, thought signatures, calls that may have no id."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from keen.core.budget import DEFAULT_OUTPUT
from keen.core.estimate import Opaque, image_tokens
from keen.core.messages import (
    Assistant,
    Image,
    Json,
    JsonObject,
    Message,
    Native,
    Results,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)
from keen.core.models import ModelSpec
from keen.core.unicode import writable
from keen.wire import _gemini
from keen.wire._google import DIALECT, Decoder
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory
from keen.wire._json import cleaned
from keen.wire._quirks import allows, without
from keen.wire._sdk import import_connection, loaded
from keen.wire._sse import json_events
from keen.wire._tail import tail
from keen.wire._transport import begun, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client

_TAIL_SECONDS: Final = 2.0
"""Signature and usage may come in a chunk of their own behind the one with the finishReason."""
_UNSIGNED: Final = "skip_thought_signature_validator"
"""What the API documents for a call that this model did not make."""
_INVENTED: Final = re.compile(r"call-\d+-\d+(_\d+)?")
_turns: Final = itertools.count(1)


@dataclass
class GoogleWire:
    """One endpoint that speaks the Gemini API."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: _Connection = field(default_factory=lambda: _Connection())
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return model.asked_output or min(DEFAULT_OUTPUT, model.max_output or DEFAULT_OUTPUT)

    def encode(self, request: Request) -> Body:
        model_id = request.model.id
        signs = _gemini.version(model_id) >= (3, 0)
        traits = (signs, request.model.images)
        contents = self._history.items(
            request,
            self.endpoint.provider,
            DIALECT,
            lambda m: _message(m, *traits),
            variant=traits,
            join=_joined,
        )
        generation: JsonObject = {"maxOutputTokens": request.output_tokens}
        if allows(self.endpoint.quirks, "thinkingConfig") and (
            thinking := _gemini.thinking(request.model, request.effort, request.output_tokens)
        ):
            generation["thinkingConfig"] = thinking
        body: JsonObject = {"model": model_id, "generationConfig": generation}
        if system := writable(request.system).strip():
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        body["contents"] = cast(Json, contents)
        return Body(body, "contents")

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        provider = self.endpoint.provider
        decoder = Decoder(provider, str(body.json.get("model", "")), next(_turns))
        secret = await self.endpoint.credential.secret()
        with translated(provider):
            client = await self._connection.client(self.endpoint, secret or "none")
            async with (
                begun(_opened(client, body.json), self.endpoint.idle_seconds) as response,
                aclosing(json_events(response.aiter_bytes())) as events,
            ):
                async for event in events:
                    for delta in decoder.feed(event):
                        yield delta
                    if decoder.finished:
                        break
                for delta in await tail(
                    events, decoder.feed, provider=provider, seconds=_TAIL_SECONDS
                ):
                    yield delta
        yield decoder.reply()

    def without(self, field: str) -> GoogleWire:
        return GoogleWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


@dataclass
class _Connection:
    """The SDK client, made on first use; collected, it would close what is under way."""

    _client: Client | None = None
    _http: httpx2.AsyncClient | None = None
    _secret: str = ""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def client(self, endpoint: Endpoint, secret: str) -> Client:
        await loaded("google.genai")
        async with self._lock:
            if self._http is None:
                self._http = await asyncio.to_thread(_http, endpoint)
            if self._client is None or self._secret != secret:
                self._client = await asyncio.to_thread(_client, endpoint, secret, self._http)
                self._secret = secret
            return self._client

    async def aclose(self) -> None:
        http, self._client, self._http = self._http, None, None
        if http is not None:
            await http.aclose()


def _http(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Reads certificates: not for the event loop."""
    from keen.wire._google_http import HttpClient

    import_connection()
    return HttpClient(endpoint)


def _client(endpoint: Endpoint, secret: str, http: httpx2.AsyncClient) -> Client:
    """Imports the SDK's parts: not for the event loop."""
    from google.genai import Client
    from google.genai.types import HttpOptions

    options = HttpOptions(
        api_version="v1beta",
        base_url=endpoint.base_url or None,
        headers=dict(endpoint.headers),
        httpx_async_client=http,
    )
    return Client(vertexai=False, api_key=secret, http_options=options)


def _opened(client: Client, body: JsonObject) -> AbstractAsyncContextManager[httpx2.Response]:
    from keen.wire._google_http import opened

    return opened(client, body)


def _message(message: Message, signs: bool, images: bool) -> tuple[JsonObject, ...]:
    match message:
        case User():
            role, parts = "user", _user(message, images)
        case Results():
            role, parts = "user", _results(message, images)
        case Assistant(native=Native(items=items)):
            role, parts = "model", [_replayed(cast(JsonObject, item)) for item in items]
        case Assistant():
            role, parts = "model", list(_answer(message, signs))
    return ({"role": role, "parts": cast(Json, parts)},) if parts else ()


def _user(message: User, images: bool) -> list[JsonObject]:
    text = writable(message.text)
    parts: list[JsonObject] = [{"text": text}] if text.strip() else []
    return [*parts, *(_image(image, images) for image in message.images)]


def _results(message: Results, images: bool) -> list[JsonObject]:
    """All responses first; a response holds no image here, so pictures follow as the person's."""
    parts = [_response(result) for result in message.results]
    for result in message.results:
        if result.images:
            parts.append({"text": f"Images returned by {result.name}:"})
            parts += [_image(image, images) for image in result.images]
    return parts


def _response(result: ToolResult) -> JsonObject:
    key = "error" if result.is_error else "output"
    response: JsonObject = {"name": result.name, "response": {key: writable(result.output)}}
    if not _INVENTED.fullmatch(result.call_id):
        response["id"] = result.call_id
    return {"functionResponse": response}


def _image(image: Image, is_taken: bool) -> JsonObject:
    if not is_taken:
        return {"text": NO_IMAGES}
    data = base64.b64encode(image.data).decode()
    tokens = image_tokens(image.width, image.height)
    return {"inlineData": {"mimeType": image.media_type, "data": Opaque(data, tokens)}}


def _replayed(part: JsonObject) -> JsonObject:
    signature = part.get("thoughtSignature")
    return part | {"thoughtSignature": Opaque(signature)} if isinstance(signature, str) else part


def _answer(message: Assistant, signs: bool) -> Iterator[JsonObject]:
    """An answer that is not this model's own: its first call says that it bears no signature."""
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": writable(text)}
            case ToolCall():
                call: JsonObject = {"name": part.name, "args": cleaned(part.input)}
                if not _INVENTED.fullmatch(part.id):
                    call["id"] = part.id
                sent: JsonObject = {"functionCall": call}
                if signs:
                    sent["thoughtSignature"] = _UNSIGNED
                    signs = False
                yield sent
            case _:
                pass


def _joined(before: JsonObject, content: JsonObject) -> JsonObject | None:
    """Neighbours of one role as one content."""
    if before["role"] != content["role"]:
        return None
    parts = [*cast("list[Json]", before["parts"]), *cast("list[Json]", content["parts"])]
    return {"role": content["role"], "parts": parts}


def _tool(tool: ToolSpec) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": tool.schema,
    }

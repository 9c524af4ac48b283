"""The Anthropic Messages API: system blocks, cache breakpoints, thinking with signatures."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from keen.core.errors import ProviderError
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
from keen.wire import _claude
from keen.wire._anthropic import DIALECT, Decoder
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory
from keen.wire._json import cleaned
from keen.wire._overflow import classified, retry_after
from keen.wire._quirks import allows, without
from keen.wire._sdk import import_connection, loaded
from keen.wire._sse import DRAIN_SECONDS, json_events
from keen.wire._tail import tail
from keen.wire._transport import begun, stop_refusal, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_BREAKPOINT: Final[JsonObject] = {"cache_control": {"type": "ephemeral"}}


@dataclass
class AnthropicWire:
    """One endpoint that speaks the Messages API."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: _Connection = field(default_factory=lambda: _Connection())
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return _claude.output_asked(model)

    def encode(self, request: Request) -> Body:
        images = request.model.images
        messages = self._history.items(
            request,
            self.endpoint.provider,
            DIALECT,
            lambda m: _message(m, images),
            variant=images,
            join=lambda before, message: _claude.joined(before, message, _is_result),
        )
        thinking = _claude.thinking(
            request.model,
            request.effort,
            request.output_tokens,
            is_possible=lambda: _claude.thought_itself(messages, _is_result, _is_thought),
        )
        caches = allows(self.endpoint.quirks, "cache_control")
        body: JsonObject = {
            "model": request.model.id,
            "max_tokens": request.output_tokens,
            "stream": True,
        }
        body |= {k: v for k, v in thinking.items() if allows(self.endpoint.quirks, k)}
        if system := writable(request.system).strip():
            body["system"] = [_marked({"type": "text", "text": system}, caches)]
        if request.tools:
            tools = [_tool(tool) for tool in request.tools]
            body["tools"] = [*tools[:-1], _marked(tools[-1], caches)]
        body["messages"] = cast(Json, _with_breakpoints(messages) if caches else messages)
        return Body(body, "messages")

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        provider = self.endpoint.provider
        decoder = Decoder(provider, str(body.json.get("model", "")))
        secret = await self.endpoint.credential.secret()
        with translated(provider, lambda error: _refused(error, provider)):
            client = await self._connection.client(self.endpoint, secret or "none")
            # All of it stands in extra_body, sent as encoded: nothing is walked or converted again,
            # and the SDK does not print what it thinks of the model.
            request = client.messages.with_streaming_response.create(
                model="", max_tokens=0, messages=[], stream=True, extra_body=body.json
            )
            async with (
                begun(request, self.endpoint.idle_seconds) as response,
                aclosing(json_events(response.iter_bytes())) as events,
            ):
                async for event in events:
                    for delta in decoder.feed(event):
                        yield delta
                    if decoder.finished:
                        await tail(events, decoder.feed, provider=provider, seconds=DRAIN_SECONDS)
                        break
        yield decoder.reply()

    def without(self, field: str) -> AnthropicWire:
        return AnthropicWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


@dataclass
class _Connection:
    """The SDK client, made on first use and shared by wires that differ in quirks only."""

    _client: AsyncAnthropic | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def client(self, endpoint: Endpoint, secret: str) -> AsyncAnthropic:
        await loaded("anthropic")
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(_client, endpoint, secret)
        if self._client.api_key == secret:
            return self._client
        return self._client.with_options(api_key=secret)

    async def aclose(self) -> None:
        if (client := self._client) is not None:
            self._client = None
            await client.close()


def _client(endpoint: Endpoint, secret: str) -> AsyncAnthropic:
    """Reads certificates and imports the SDK's resources: not for the event loop."""
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Timeout

    client = AsyncAnthropic(
        api_key=secret,
        base_url=endpoint.base_url or None,
        default_headers=dict(endpoint.headers),
        max_retries=0,
        timeout=Timeout(endpoint.idle_seconds, connect=min(15.0, endpoint.idle_seconds)),
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [stop_refusal]}),
        open_telemetry=False,
    )
    _ = client.messages.with_streaming_response
    import_connection()
    return client


def _refused(error: Exception, provider: str) -> ProviderError | None:
    from anthropic import APIStatusError

    if not isinstance(error, APIStatusError):
        return None
    return classified(
        status=error.status_code,
        code=error.type or "",
        message=error.api_message or error.message,
        retry_after=retry_after(error.response.headers, cast(Json, error.body)),
        provider=provider,
        body=cast(Json, error.body),
    )


def _message(message: Message, images: bool) -> tuple[JsonObject, ...]:
    match message:
        case User():
            role, content = "user", _user(message, images)
        case Results():
            role = "user"
            content = [_result(result, images) for result in message.results]
        case Assistant(native=Native(items=items)):
            role, content = "assistant", [_replayed(cast(JsonObject, item)) for item in items]
        case Assistant():
            role, content = "assistant", list(_answer(message))
    return ({"role": role, "content": cast(Json, content)},) if content else ()


def _user(message: User, images: bool) -> list[JsonObject]:
    text = writable(message.text)
    blocks: list[JsonObject] = [{"type": "text", "text": text}] if text.strip() else []
    return [*blocks, *(_image(image, images) for image in message.images)]


def _result(result: ToolResult, images: bool) -> JsonObject:
    output = writable(result.output)
    if not output.strip():
        output = "(no output)"  # a blank text is refused, and an error without content
    content: list[Json] = [{"type": "text", "text": output}]
    content += [_image(image, images) for image in result.images]
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": content,
    }
    if result.is_error:
        block["is_error"] = True
    return block


def _image(image: Image, is_taken: bool) -> JsonObject:
    if not is_taken:
        return {"type": "text", "text": NO_IMAGES}
    data = base64.b64encode(image.data).decode()
    return {
        "type": "image",
        "source": {
            "type": "base64",
            "media_type": image.media_type,
            "data": Opaque(data, image_tokens(image.width, image.height)),
        },
    }


def _replayed(block: JsonObject) -> JsonObject:
    """A block of an answer as it came; what is encrypted in it costs no tokens as text."""
    return {
        name: Opaque(value) if name in {"signature", "data"} and isinstance(value, str) else value
        for name, value in block.items()
    }


def _answer(message: Assistant) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"type": "text", "text": writable(text)}
            case ToolCall():
                call_input = cleaned(part.input)
                yield {"type": "tool_use", "id": part.id, "name": part.name, "input": call_input}
            case _:
                pass


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _marked(block: JsonObject, caches: bool) -> JsonObject:
    return block | _BREAKPOINT if caches else block


def _with_breakpoints(messages: list[JsonObject]) -> list[JsonObject]:
    """The last two user messages end in a breakpoint: what the step before wrote, this one reads.

    With system and tools that is the four the API allows.
    """
    marked = list(messages)
    last = range(len(messages) - 1, -1, -1)
    for place in islice((n for n in last if messages[n]["role"] == "user"), 2):
        *blocks, last = _claude.content(messages[place])
        content = cast(Json, [*blocks, last | _BREAKPOINT])
        marked[place] = {"role": "user", "content": content}
    return marked


def _is_result(block: JsonObject) -> bool:
    return block["type"] == "tool_result"


def _is_thought(block: JsonObject) -> bool:
    return block["type"] in {"thinking", "redacted_thinking"}

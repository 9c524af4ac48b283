"""Amazon Bedrock's Converse API: blocks, cache points, reasoning in two forms."""

from __future__ import annotations

import base64
import importlib
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

from keen import secrets
from keen.core.errors import ProviderError, Rejected, Unauthorized
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
from keen.wire._bedrock import DIALECT, Decoder, with_bytes, without_bytes
from keen.wire._handoff import NO_IMAGES
from keen.wire._history import EncodedHistory
from keen.wire._json import cleaned
from keen.wire._overflow import MAX_MESSAGE, classified, retry_after
from keen.wire._pump import pump
from keen.wire._quirks import allows, wants, without
from keen.wire._sdk import preload
from keen.wire._tail import tail
from keen.wire._transport import CONNECT_SECONDS, redirected, translated
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

_CACHE_POINT: Final[JsonObject] = {"cachePoint": {"type": "default"}}
_TAIL_SECONDS: Final = 2.0
"""The usage comes in an event of its own behind messageStop."""
_CACHING_CLAUDE: Final = re.compile(
    r"claude-(?:[a-z]+-\d|[a-z]+-preview|3-7|3-5-haiku|3-5-sonnet-20241022)"
)


@dataclass
class BedrockWire:
    """One region and account of Amazon Bedrock."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: _Connection = field(default_factory=lambda: _Connection())
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return _claude.output_asked(model)

    def encode(self, request: Request) -> Body:
        family = _Family.of(request.model.id)
        traits = (family.says_status, request.model.images)
        messages = self._history.items(
            request,
            self.endpoint.provider,
            DIALECT,
            lambda m: _message(m, *traits),
            variant=traits,
            join=lambda before, message: _claude.joined(before, message, _is_result),
        )
        body: JsonObject = {
            "modelId": request.model.id,
            "inferenceConfig": {"maxTokens": request.output_tokens},
        }
        if family.is_claude and (fields := self._thinking(request, messages)):
            body["additionalModelRequestFields"] = fields
        caches = self._caches(family)
        if system := writable(request.system).strip():
            body["system"] = [{"text": system}, *([_CACHE_POINT] if caches else [])]
        if tools := _tools(request.tools, messages):
            caches_tools = caches and family.is_claude and bool(request.tools)
            body["toolConfig"] = {"tools": [*tools, *([_CACHE_POINT] if caches_tools else [])]}
        body["messages"] = cast(Json, _with_cache_points(messages) if caches else messages)
        return Body(body, "messages")

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        provider = self.endpoint.provider
        decoder = Decoder(provider, str(body.json.get("modelId", "")))
        secret = await self.endpoint.credential.secret()
        with translated(provider, lambda error: _refused(error, provider), client=DIALECT):
            events = pump(
                lambda: self._connection.client(self.endpoint, secret),
                lambda client: client.converse_stream(**with_bytes(body.json))["stream"],
                opens_within=self.endpoint.idle_seconds + CONNECT_SECONDS,
            )
            async with aclosing(events):
                async for event in events:
                    for delta in decoder.feed(without_bytes(event)):
                        yield delta
                    if decoder.finished:
                        break
                await tail(
                    events,
                    lambda event: decoder.feed(without_bytes(event)),
                    provider=provider,
                    seconds=_TAIL_SECONDS,
                )
        yield decoder.reply()

    def without(self, field: str) -> BedrockWire:
        return BedrockWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        self._connection.close()

    def _thinking(self, request: Request, messages: list[JsonObject]) -> JsonObject:
        fields = _claude.thinking(
            request.model,
            request.effort,
            request.output_tokens,
            is_possible=lambda: _claude.thought_itself(messages, _is_result, _is_thought),
        )
        return {k: v for k, v in fields.items() if allows(self.endpoint.quirks, k)}

    def _caches(self, family: _Family) -> bool:
        quirks = self.endpoint.quirks
        return wants(quirks, "cachePoint") or (family.caches and allows(quirks, "cachePoint"))


@dataclass(frozen=True, slots=True)
class _Family:
    """What the model's id tells. An inference profile's ARN tells nothing: the smallest body."""

    is_claude: bool
    caches: bool
    says_status: bool

    @classmethod
    def of(cls, model_id: str) -> _Family:
        name = model_id.lower()
        is_claude = "anthropic.claude" in name
        is_nova = "amazon.nova" in name
        caches = is_nova or (is_claude and _CACHING_CLAUDE.search(name) is not None)
        return cls(is_claude, caches, is_claude or is_nova)


@dataclass
class _Connection:
    """The boto3 client; made in the pump's thread, which may be more than one."""

    _client: Any = None
    _secret: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, endpoint: Endpoint, secret: str) -> Any:
        with self._lock:
            if self._client is None or self._secret != secret:
                self._client, self._secret = _client(endpoint, secret), secret
            return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _client(endpoint: Endpoint, secret: str) -> Any:
    boto3: Any = preload("boto3").result()
    config: Any = importlib.import_module("botocore.config")
    session = boto3.Session(
        profile_name=endpoint.profile or None,
        region_name=endpoint.region or None,
        **_access(secret),
    )
    client = session.client(
        "bedrock-runtime",
        endpoint_url=endpoint.base_url or None,
        config=config.Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=min(CONNECT_SECONDS, endpoint.idle_seconds),
            read_timeout=endpoint.idle_seconds,
            tcp_keepalive=True,
        ),
    )
    client.meta.events.register("before-sign.bedrock-runtime", _learning(session))
    if endpoint.headers:
        client.meta.events.register("before-sign.bedrock-runtime", _adding(endpoint.headers))
    return client


def _learning(session: Any) -> Callable[..., None]:
    """Keys that boto3 found by itself are masked like those that keen found."""

    def learn(**_: Any) -> None:
        if (found := session.get_credentials()) is not None:
            frozen = found.get_frozen_credentials()
            secrets.register(frozen.secret_key or "", frozen.token or "")

    return learn


def _adding(headers: Mapping[str, str]) -> Callable[..., None]:
    def add(request: Any, **_: Any) -> None:
        for name, value in headers.items():
            del request.headers[name]
            request.headers[name] = value

    return add


def _access(secret: str) -> dict[str, str]:
    """Session arguments of "ACCESS:SECRET[:SESSION]"; an empty secret leaves it to AWS."""
    if not secret:
        return {}
    access, _, rest = secret.partition(":")
    key, _, token = rest.partition(":")
    if not access or not key:
        raise Unauthorized(
            "A Bedrock key has the form ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]. "
            "A Bedrock API key goes into the environment variable AWS_BEARER_TOKEN_BEDROCK; "
            "leave the key empty to use it, or AWS profiles and roles."
        )
    keys = {"aws_access_key_id": access, "aws_secret_access_key": key}
    return keys | {"aws_session_token": token} if token else keys


def _refused(error: Exception, provider: str) -> ProviderError | None:
    aws: Any = importlib.import_module("botocore.exceptions")
    no_access = (
        aws.NoCredentialsError,
        aws.PartialCredentialsError,
        aws.CredentialRetrievalError,
        aws.TokenRetrievalError,
        aws.SSOError,
    )
    no_place = (aws.NoRegionError, aws.ProfileNotFound, aws.InvalidEndpointConfigurationError)
    if isinstance(error, aws.ClientError):
        return _client_error(error, provider)
    if isinstance(error, no_access):
        return Unauthorized(
            f"{provider}: {error} Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile "
            "(then `aws sso login`), or AWS_BEARER_TOKEN_BEDROCK."
        )
    if isinstance(error, no_place):
        return Unauthorized(
            f"{provider}: {error} Set region and profile of the provider in the settings, or "
            "AWS_REGION and AWS_PROFILE."
        )
    if isinstance(error, aws.ParamValidationError):
        return Rejected(f"{provider}: the request was not sent. {error}"[:MAX_MESSAGE])
    return None


def _client_error(error: Any, provider: str) -> ProviderError:
    """An error answer, or an exception inside the stream: `throttlingException`, no status."""
    answer = cast("dict[str, Any]", error.response)
    details: dict[str, Any] = answer.get("Error") or {}
    code = str(details.get("Code") or "")
    metadata: dict[str, Any] = answer.get("ResponseMetadata") or {}
    status = metadata.get("HTTPStatusCode")
    headers: dict[str, str] = metadata.get("HTTPHeaders") or {}
    if isinstance(status, int) and 300 <= status < 400:
        return redirected(status, headers, provider)
    return classified(
        status=status if isinstance(status, int) else None,
        code=code[:1].upper() + code[1:],
        message=str(details.get("Message") or error),
        provider=provider,
        body=cast(Json, details),
        retry_after=retry_after(headers),
    )


def _message(message: Message, says_status: bool, images: bool) -> tuple[JsonObject, ...]:
    match message:
        case User():
            role, content = "user", _user(message, images)
        case Results():
            role = "user"
            content = [_result(result, says_status, images) for result in message.results]
        case Assistant(native=Native(items=items)):
            role, content = "assistant", [_replayed(cast(JsonObject, item)) for item in items]
        case Assistant():
            role, content = "assistant", list(_answer(message))
    return ({"role": role, "content": cast(Json, content)},) if content else ()


def _user(message: User, images: bool) -> list[JsonObject]:
    text = writable(message.text)
    blocks: list[JsonObject] = [{"text": text}] if text.strip() else []
    return [*blocks, *(_image(image, images) for image in message.images)]


def _result(result: ToolResult, says_status: bool, images: bool) -> JsonObject:
    output = writable(result.output)
    if not output.strip():
        output = "(no output)"  # a blank text block is refused, and so is an empty list
    content: list[Json] = [{"text": output}, *(_image(image, images) for image in result.images)]
    block: JsonObject = {"toolUseId": result.call_id, "content": content}
    if result.is_error and says_status:
        block["status"] = "error"
    return {"toolResult": block}


def _image(image: Image, is_taken: bool) -> JsonObject:
    if not is_taken:
        return {"text": NO_IMAGES}
    data = base64.b64encode(image.data).decode()
    kind = image.media_type.removeprefix("image/").replace("jpg", "jpeg")
    tokens = image_tokens(image.width, image.height)
    return {"image": {"format": kind, "source": {"bytes": Opaque(data, tokens)}}}


def _replayed(block: JsonObject) -> JsonObject:
    """A block of an answer as it came; what is encrypted in it costs no tokens as text."""
    match block:
        case {"reasoningContent": {"redactedContent": str(data)}}:
            return {"reasoningContent": {"redactedContent": Opaque(data)}}
        case {"reasoningContent": {"reasoningText": {"text": text, "signature": str(signature)}}}:
            thought: JsonObject = {"text": text, "signature": Opaque(signature)}
            return {"reasoningContent": {"reasoningText": thought}}
        case _:
            return block


def _answer(message: Assistant) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": writable(text)}
            case ToolCall():
                use: JsonObject = {"toolUseId": part.id, "name": part.name}
                use["input"] = cleaned(part.input)
                yield {"toolUse": use}
            case _:
                pass


def _tools(tools: tuple[ToolSpec, ...], messages: list[JsonObject]) -> list[JsonObject]:
    """The tools, or bare stand-ins for those the history used: blocks of theirs need a toolConfig.

    Without it the API refuses the request, also when no tool is offered any more.
    """
    if tools:
        return [_spec(tool.name, tool.description, tool.schema) for tool in tools]
    used = {
        str(use["name"])
        for message in messages
        for block in _claude.content(message)
        if isinstance(use := block.get("toolUse"), dict)
    }
    return [_spec(name, "", {"type": "object", "properties": {}}) for name in sorted(used)]


def _spec(name: str, description: str, schema: JsonObject) -> JsonObject:
    spec: JsonObject = {
        "name": name,
        "description": description or name,
        "inputSchema": {"json": schema},
    }
    return {"toolSpec": spec}


def _with_cache_points(messages: list[JsonObject]) -> list[JsonObject]:
    """The last two user messages end in a cache point: what one step wrote, the next one reads."""
    marked = list(messages)
    last = range(len(messages) - 1, -1, -1)
    for place in islice((n for n in last if messages[n]["role"] == "user"), 2):
        content = cast(Json, [*_claude.content(messages[place]), _CACHE_POINT])
        marked[place] = {"role": "user", "content": content}
    return marked


def _is_result(block: JsonObject) -> bool:
    return "toolResult" in block


def _is_thought(block: JsonObject) -> bool:
    return "reasoningContent" in block

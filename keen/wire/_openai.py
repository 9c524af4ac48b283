"""The OpenAI SDK's client, which three protocols go through: chat, responses and codex."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from keen.core.budget import DEFAULT_OUTPUT
from keen.core.models import ModelSpec
from keen.wire._sdk import import_connection, loaded
from keen.wire._transport import CONNECT_SECONDS, stop_refusal
from keen.wire.base import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit


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


async def authorized(endpoint: Endpoint, others: Mapping[str, str]) -> dict[str, str | Omit]:
    """`others` and the key of this moment, which may have been renewed, as headers.

    A header that the settings give is left to them; without a key none is sent.
    """
    from openai import Omit

    secret = await endpoint.credential.secret()
    headers = {**others, "Authorization": f"Bearer {secret}" if secret else Omit()}
    given = {name.lower() for name in endpoint.headers}
    return {name: value for name, value in headers.items() if name.lower() not in given}


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

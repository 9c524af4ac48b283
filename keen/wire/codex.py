"""OpenAI Codex: the Responses protocol as ChatGPT's own backend speaks it to a signed-in person."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from keen.core.errors import ProviderError, Transient
from keen.core.messages import Json, JsonObject
from keen.core.models import ModelSpec
from keen.wire import responses
from keen.wire._history import EncodedHistory
from keen.wire._json import as_object, as_string, decoded
from keen.wire._openai import Connection, asked_output
from keen.wire._quirks import without
from keen.wire._responses import Decoder
from keen.wire._transport import HttpRefusal
from keen.wire._waits import come_back
from keen.wire.base import Body, Delta, Endpoint, Reply, Request

DIALECT: Final = "codex"
BASE_URL: Final = "https://chatgpt.com/backend-api/codex"
ORIGINATOR: Final = "keen"
_SPENT: Final = {
    "usage_limit_reached": "has no quota left for this account",
    "usage_not_included": "does not include Codex in this account's plan",
}
_LATEST: Final = 2**33
"""Seconds since 1970 in the year 2242: a later moment is no moment."""


@dataclass
class CodexWire:
    """The Codex backend with one account."""

    endpoint: Endpoint
    dialect: str = DIALECT
    _connection: Connection = field(default_factory=Connection)
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return asked_output(model)

    def encode(self, request: Request) -> Body:
        """The body of the Responses API without an output cap, which this backend refuses.

        It wants `instructions` in every request, also empty ones.
        """
        body = responses.encode(request, self.endpoint, self._history, dialect=DIALECT)
        fields = {name: value for name, value in body.json.items() if name != "max_output_tokens"}
        return Body({"instructions": "", **fields}, body.items)

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        endpoint = replace(self.endpoint, base_url=self.endpoint.base_url or BASE_URL)
        provider = endpoint.provider
        decoder = Decoder(
            provider,
            DIALECT,
            as_string(body.json.get("model")),
            failure=lambda error: failure(error, provider),
            keeps_ids=False,
        )
        headers = await _headers(endpoint, body)
        try:
            replies = responses.streamed(self._connection, endpoint, body, decoder, headers)
            async with aclosing(replies):
                async for piece in replies:
                    yield piece
        except ProviderError as error:
            if (named := _refused_as_spent(error, provider)) is not None:
                raise named from error
            raise

    def without(self, field: str) -> CodexWire:
        return CodexWire(without(self.endpoint, field), _connection=self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


def failure(error: JsonObject, provider: str) -> ProviderError:
    """The error of a `response.failed` or `error` event."""
    return spent(error, provider, None) or responses.failure(error, provider)


def spent(error: JsonObject, provider: str, status: int | None) -> Transient | None:
    """A plan's quota that is used up or absent, with the time to come back; None otherwise.

    The backend says when in `resets_in_seconds` or, as a Unix time, in `resets_at`.
    """
    names = (as_string(error.get("type")), as_string(error.get("code")))
    what = next((_SPENT[name] for name in names if name in _SPENT), "")
    if not what:
        return None
    wait = _seconds(error.get("resets_in_seconds"))
    if wait is None and (moment := _seconds(error.get("resets_at"))) is not None:
        wait = max(0.0, moment - time.time())
    words = as_string(error.get("message")).strip().rstrip(".")
    told = f": {words}" if words else ""
    todo = "Choose another provider or plan." if wait is None else come_back(wait)
    return Transient(
        f"{provider} {what}{told}. {todo}", status=status, retry_after=wait, is_spent=True
    )


def _refused_as_spent(error: ProviderError, provider: str) -> Transient | None:
    """The same for an HTTP refusal, whose body stands in what `error` was raised from."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HttpRefusal):
        cause = cause.__cause__
    if cause is None:
        return None
    try:
        body = as_object(decoded(cause.content.decode("utf-8", "replace")))
    except ValueError:
        return None
    return spent(as_object(body.get("error")) or body, provider, cause.status)


async def _headers(endpoint: Endpoint, body: Body) -> dict[str, str]:
    """What the backend wants beside the token.

    Names as in the public client: `chatgpt-account-id` (openai/codex,
    codex-rs/codex-api/src/auth.rs), `session_id` (codex-rs/codex-api/src/requests/headers.rs),
    `originator` (codex-rs/login/src/auth/default_client.rs), which is the program's own name.
    """
    headers = {"originator": ORIGINATOR}
    if account := await endpoint.credential.account():
        headers["chatgpt-account-id"] = account
    if session := as_string(body.json.get("prompt_cache_key")):
        headers["session_id"] = session
    return headers


def _seconds(value: Json) -> float | None:
    """A number of seconds that can be a date; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _LATEST else None

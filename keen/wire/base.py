"""What a wire is: one native protocol with four duties, and the values it takes and gives.

Encode, stream, name its errors, state its output. Retries, tools, compaction and sessions live
elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import Assistant, Finish, History, JsonObject, ToolSpec, Usage
from keen.core.models import Effort, ModelSpec

Delta: TypeAlias = TextDelta | ReasoningDelta


@dataclass(frozen=True, slots=True)
class Request:
    """One sampling request in canonical form.

    `output_tokens` is the output cap to ask for; the loop sets it to what the budget reserves.
    `cache_key` names the conversation to providers that cache by key.
    """

    model: ModelSpec
    system: str
    messages: History
    tools: tuple[ToolSpec, ...] = ()
    output_tokens: int = 8_192
    effort: Effort | None = None
    cache_key: str = ""


@dataclass(frozen=True, slots=True)
class Body:
    """A request in the provider's own form.

    `json[items]` is the list that holds the conversation, oldest first: the estimate counts what
    was appended to it. Base64, signatures and encrypted content stand in it as `estimate.Opaque`.
    """

    json: JsonObject
    items: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `usage` is None when the provider reported none."""

    message: Assistant
    usage: Usage | None
    finish: Finish


class Credential(Protocol):
    """Where a key comes from. A fixed key, a helper command, a sign-in."""

    async def secret(self) -> str:
        """The key or bearer token to send now. Raises: Unauthorized when there is none."""
        ...

    async def renew(self) -> bool:
        """Get a fresh one after a 401; False when that is impossible."""
        ...

    async def account(self) -> str:
        """The account id to send beside the key (Codex); "" when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FixedKey:
    """A key that is what it is."""

    key: str = field(repr=False)
    account_id: str = ""

    async def secret(self) -> str:
        return self.key

    async def renew(self) -> bool:
        return False

    async def account(self) -> str:
        return self.account_id


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and as whom a wire talks.

    `base_url` is what the protocol's own path is put behind: chat and responses end in /v1, codex
    in /backend-api/codex, anthropic, google and bedrock are bare origins; "" means the SDK's
    default. `quirks` names request fields this server refuses or wants (columns of providers.toml,
    and what a `Quirk` refusal taught). `idle_seconds`: longest silence in a stream, and before its
    first byte.
    """

    provider: str
    credential: Credential
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    quirks: frozenset[str] = frozenset()
    region: str = ""
    profile: str = ""
    idle_seconds: float = 300.0


class Wire(Protocol):
    """One native protocol. Stateless between calls: the history is the only state."""

    dialect: str
    endpoint: Endpoint

    def asked_output(self, model: ModelSpec) -> int:
        """Output tokens this client asks for, before the budget caps them (compaction.md, 1)."""
        ...

    def encode(self, request: Request) -> Body:
        """Canonical to native. Pure and deterministic: equal requests give equal bytes."""
        ...

    def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        """Send once, no retries. Yields deltas, then exactly one Reply.

        Raises:
            ContextOverflow: the provider refused the input for its size.
            OutputReserve, TooManyBytes, TooMany, BadImage, MalformedHistory, Quirk: one reaction
                each.
            Transient: worth another try.
            Unauthorized, Rejected: never retried.
            ConfigError: a variable of the environment with which no connection can be made.
        """
        ...

    def without(self, field: str) -> Wire:
        """The same wire that leaves an optional request field out from now on."""
        ...

    async def aclose(self) -> None:
        """Close pooled connections. Idempotent."""
        ...

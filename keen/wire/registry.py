"""Which wire speaks for which client; its module, and with it its SDK, loads when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Final, cast

from keen.core.errors import ConfigError
from keen.wire.base import Endpoint, Wire

WIRES: Final[Mapping[str, tuple[str, str, str | None]]] = {
    "chat": ("keen.wire.chat", "ChatWire", "openai"),
    "responses": ("keen.wire.responses", "ResponsesWire", "openai"),
    "codex": ("keen.wire.codex", "CodexWire", "openai"),
    "anthropic": ("keen.wire.anthropic", "AnthropicWire", "anthropic"),
    "google": ("keen.wire.google", "GoogleWire", "google.genai"),
    "bedrock": ("keen.wire.bedrock", "BedrockWire", "boto3"),
    "demo": ("keen.wire.demo", "DemoWire", None),
}
"""client: module, class, and the SDK that is worth loading early."""


def wire_for(client: str, endpoint: Endpoint) -> Wire:
    """A wire that talks to `endpoint`. Raises: ConfigError for a client that does not exist."""
    module, name, _ = _row(client)
    make = cast("Callable[[Endpoint], Wire]", getattr(importlib.import_module(module), name))
    return make(endpoint)


def sdk_of(client: str) -> str | None:
    """The module to preload in a worker thread; None when the client needs no SDK."""
    return _row(client)[2]


def _row(client: str) -> tuple[str, str, str | None]:
    row = WIRES.get(client)
    if row is None:
        known = ", ".join(WIRES)
        raise ConfigError(f'There is no client "{client}". The clients are {known}.')
    return row

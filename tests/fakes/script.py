"""What the fake provider is told to answer, and what it keeps of a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from keen.core.messages import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Scripted:
    """One scripted answer.

    Every frame is written by itself, `delay` seconds after the one before. After the last frame
    `hold` stays silent until the client leaves and `cut` ends the connection without the end of
    the body. `raw` replaces status line and headers; the frames then follow as they are.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "text/event-stream"
    frames: tuple[bytes, ...] = ()
    delay: float = 0.0
    hold: bool = False
    cut: Literal["fin", "rst"] | None = None
    hang_before_headers: bool = False
    raw: bytes | None = None

    @property
    def body(self) -> bytes:
        """All frames as one run of bytes."""
        return b"".join(self.frames)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came. `json` is {} where the body was no JSON object."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    text: str
    json: JsonObject

    @property
    def protocol(self) -> str:
        """Which of the six protocols the path belongs to; "" for none."""
        return protocol_of(self.path)


Script: TypeAlias = Scripted | Callable[[Recorded], Scripted]


def recorded(
    number: int, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> Recorded:
    """A request with its body read as text and as JSON."""
    text = body.decode("utf-8", "replace")
    try:
        value: Json = json.loads(text) if text else {}
    except ValueError:
        value = {}
    return Recorded(number, method, path, headers, text, value if isinstance(value, dict) else {})


def protocol_of(path: str) -> str:
    """The protocol a request path belongs to, "" for none."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "codex" if "/backend-api/codex/" in path else "responses"
    if path.endswith("/v1/messages"):
        return "anthropic"
    if path.endswith(":streamGenerateContent"):
        return "google"
    if path.endswith("/converse-stream"):
        return "bedrock"
    return ""


def json_reply(status: int, body: Json, headers: Mapping[str, str] | None = None) -> Scripted:
    """A plain JSON answer, as refusals are."""
    return Scripted(
        status=status,
        headers=dict(headers or {}),
        content_type="application/json",
        frames=(json.dumps(body).encode(),),
    )

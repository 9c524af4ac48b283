"""Canonical conversation values: what keen remembers, free of any provider's wire format."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

Finish: TypeAlias = Literal["stop", "length", "refused", "overflow"]
"""Why an answer ended. `length`: the output cap; `refused`: a content filter or refusal;
`overflow`: the answer itself filled the window, its text is valid."""


@dataclass(frozen=True, slots=True)
class Native:
    """A provider's answer in the form its API takes back. Only its own wire reads `items`."""

    provider: str
    """The settings' name of the provider: a signature belongs to an account, not to a format."""
    dialect: str
    model: str
    """As requested, not as echoed."""
    items: tuple[Json, ...]
    """Assembled from the stream, values unchanged, fields by the wire's allow list."""


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text of an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning the provider showed. Lossy: what must be replayed exactly is in `Native`."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as it will be sent; `width` and `height` in pixels, 0 when unknown."""

    media_type: str
    data: bytes = field(repr=False)
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for.

    `malformed` holds the raw argument text when it was no JSON object; `input` is then empty and
    the call is answered with an error, never run.
    """

    id: str
    name: str
    input: JsonObject
    malformed: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one call, already capped for the model."""

    call_id: str
    name: str
    output: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a compaction's replacement message is made of; `User.text` is its wrapped form."""

    summary: str
    user_messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class User:
    """A message of the person's, or (with `checkpoint`) the replacement a compaction left."""

    text: str
    images: tuple[Image, ...] = ()
    steering: bool = False
    checkpoint: Checkpoint | None = None


Part: TypeAlias = Text | Reasoning | ToolCall


@dataclass(frozen=True, slots=True)
class Assistant:
    """One answer of the model, its parts in the order they came."""

    parts: tuple[Part, ...]
    native: Native | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one answer's calls, in call order: one for each call, no other."""

    results: tuple[ToolResult, ...]


Message: TypeAlias = User | Assistant | Results
History: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told about it; `schema` is a JSON Schema object."""

    name: str
    description: str
    schema: JsonObject


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests, normalised over providers.

    `input_tokens` is the whole prompt, cached parts included; `output_tokens` includes reasoning.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Usage)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Usage)))

    def as_json(self) -> JsonObject:
        """The `usage` object of the contract, section 2."""
        counts: JsonObject = {f.name: getattr(self, f.name) for f in fields(Usage)}
        return counts | {"total_tokens": self.total_tokens}


def tool_calls(message: Assistant) -> tuple[ToolCall, ...]:
    """The calls of an answer, in order."""
    return tuple(part for part in message.parts if isinstance(part, ToolCall))


def told_apart(message: Assistant) -> Assistant:
    """The answer with one id a call; where calls shared one, without the native that repeats it."""
    ids = [call.id for call in tool_calls(message)]
    if len(set(ids)) == len(ids):
        return message
    parts: list[Part] = []
    seen: set[str] = set()
    for part in message.parts:
        if isinstance(part, ToolCall):
            names = (f"{part.id}_{number}" for number in range(2, len(ids) * 2 + 2))
            is_free = part.id not in seen
            new = part.id if is_free else next(n for n in names if n not in seen and n not in ids)
            seen.add(new)
            part = replace(part, id=new)
        parts.append(part)
    return replace(message, parts=tuple(parts), native=None)


def visible_text(message: Assistant) -> str:
    """The text of an answer, its text parts joined as they came."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def is_empty(message: Assistant) -> bool:
    """True for an answer without text and without calls."""
    return not visible_text(message) and not tool_calls(message)


def interrupted(call: ToolCall) -> ToolResult:
    """The result of a call that was never finished, so that no call stays open."""
    return ToolResult(call.id, call.name, "Interrupted before it finished.", is_error=True)

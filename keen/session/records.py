"""The lines of a session file, as pydantic models: the only persistent schema keen has.

A line is `{"v":1,"seq":N,"ts":"…Z","kind":"…","payload":{…}}`. Kinds and fields that this version
does not know are kept when a line is written again, and skipped by everything else.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, WithJsonSchema

from keen.core.messages import Checkpoint, Image, Usage, User
from keen.core.unicode import writable
from keen.session.bounds import clean

VERSION: Final = 1
MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of the longest line that is written or read."""

JsonFields: TypeAlias = dict[str, JsonValue]
Status: TypeAlias = Annotated[str, WithJsonSchema({"enum": ["success", "error", "interrupted"]})]
"""How a call ended, as turn memory tells it."""


def _is_empty(value: object) -> bool:
    return not value


class Payload(BaseModel):
    """Base of all payloads: unknown fields are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: ClassVar[str] = ""


class TextItem(Payload):
    """Visible text of an answer, as the screen showed it."""

    type: Literal["text"] = "text"
    content: str


class ReasoningItem(Payload):
    """Reasoning, as the screen showed it."""

    type: Literal["reasoning"] = "reasoning"
    content: str


class ToolItem(Payload):
    """One call as the screen showed it; `output` is 4 KiB at most."""

    type: Literal["tool"] = "tool"
    id: str
    name: str
    input: JsonFields = Field(default_factory=dict[str, JsonValue])
    output: str = ""
    is_error: bool = False
    seconds: float = 0.0


Item: TypeAlias = Annotated[TextItem | ReasoningItem | ToolItem, Field(discriminator="type")]


class Remembered(Payload):
    """One call as later turns know it. `text_offset` counts characters of the turn's message."""

    text_offset: int = 0
    tool: str
    input: JsonFields = Field(default_factory=dict[str, JsonValue])
    status: Status = "success"
    exit_code: int | None = None


class Spent(Payload):
    """Tokens, as contract 2 names them; `context_tokens` is the last reported prompt size."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    context_tokens: int = 0

    @classmethod
    def of(cls, usage: Usage, context_tokens: int = 0) -> Spent:
        return cls.model_validate({**usage.as_json(), "context_tokens": context_tokens})

    def usage(self) -> Usage:
        return Usage(
            self.input_tokens,
            self.cached_tokens,
            self.cache_write_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )


class Attachment(Payload):
    """A picture of a user message; `data` is base64."""

    media_type: str
    data: str
    width: int = 0
    height: int = 0

    @classmethod
    def of(cls, image: Image) -> Attachment:
        data = base64.b64encode(image.data).decode()
        return cls(media_type=image.media_type, data=data, width=image.width, height=image.height)

    def image(self) -> Image | None:
        """The picture, or None when the data is no base64 any more."""
        try:
            data = base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            return None
        return Image(self.media_type, data, self.width, self.height)


def images(attachments: Iterable[Attachment]) -> tuple[Image, ...]:
    """The pictures that can still be read."""
    found = (attachment.image() for attachment in attachments)
    return tuple(image for image in found if image is not None)


class SessionStarted(Payload):
    """The first line. `parent` is the id of the session this one was forked from."""

    kind: ClassVar[str] = "session_started"
    session_id: str
    cwd: str = ""
    model: str = ""
    keen_version: str = ""
    parent: str | None = None


class UserMessage(Payload):
    """What the person said. `turn`, `name` and `model` repeat the session's state, for lists."""

    kind: ClassVar[str] = "user_message"
    content: str
    attachments: tuple[Attachment, ...] = ()
    steering: bool = False
    turn: int = 0
    name: str = Field(default="", exclude_if=_is_empty)
    model: str = Field(default="", exclude_if=_is_empty)

    @classmethod
    def of(cls, user: User) -> UserMessage:
        return cls(
            content=clean(user.text),
            attachments=tuple(map(Attachment.of, user.images)),
            steering=user.steering,
        )

    def user(self) -> User:
        return User(self.content, images(self.attachments), self.steering)


class AssistantTurn(Payload):
    """What the model did between two messages of the person's, or up to a compaction.

    `message` is the visible text, answers joined by a blank line.
    """

    kind: ClassVar[str] = "assistant_turn"
    transcript: tuple[Item, ...] = ()
    message: str = ""
    turn_memory: tuple[Remembered, ...] = ()
    interrupted: bool = False
    error: str | None = None
    usage: Spent = Field(default_factory=Spent)


class TurnSegment(Payload):
    """What finished since the last record of a running turn; a later turn record supersedes it.

    `turn_memory` has one entry for each tool item, in order; its offsets mean nothing yet.
    `usage` is that of all answers since the last turn record.
    """

    kind: ClassVar[str] = "turn_segment"
    transcript: tuple[Item, ...] = ()
    turn_memory: tuple[Remembered, ...] = ()
    usage: Spent = Field(default_factory=Spent)


class KeptMessage(Payload):
    """A message of a replacement. Role "assistant" is a turn's `message` and `turn_memory`."""

    role: Literal["user", "assistant"]
    content: str
    attachments: tuple[Attachment, ...] = Field(default=(), exclude_if=_is_empty)
    steering: bool = Field(default=False, exclude_if=_is_empty)
    turn_memory: tuple[Remembered, ...] = Field(default=(), exclude_if=_is_empty)
    interrupted: bool = Field(default=False, exclude_if=_is_empty)

    def user(self, checkpoint: Checkpoint | None) -> User:
        return User(self.content, images(self.attachments), self.steering, checkpoint)


class Compaction(Payload):
    """`compaction_applied`: `messages` stand in the place of everything before.

    `status` and `transcript` are what the screen draws: nothing after an automatic one.
    `summary` is None where the first message is no checkpoint (strategy `window`).
    """

    kind: ClassVar[str] = "compaction_applied"
    status: str = ""
    transcript: tuple[Item, ...] = ()
    messages: tuple[KeptMessage, ...]
    summary: str | None = None
    user_messages: tuple[str, ...] = ()
    trigger: str = ""
    tokens_before: int = 0
    tokens_after: int | None = None
    seconds: float = 0.0
    usage: Spent | None = None
    model: str = ""

    def checkpoint(self) -> Checkpoint | None:
        return None if self.summary is None else Checkpoint(self.summary, self.user_messages)


class CompactionReverted(Payload):
    """The compaction of line `seq` counts no longer."""

    kind: ClassVar[str] = "compaction_reverted"
    seq: int


class SessionRenamed(Payload):
    """The session's name from here on."""

    kind: ClassVar[str] = "session_renamed"
    name: str


class ModelChanged(Payload):
    """The model from here on, as PROVIDER/MODEL."""

    kind: ClassVar[str] = "model_changed"
    model: str


class Recovered(Payload):
    """A torn tail of `bytes` bytes was cut off here and put aside into the file `aside`."""

    kind: ClassVar[str] = "recovered"
    bytes: int
    aside: str = ""


class Unknown(Payload):
    """A payload this version does not know, or one of a newer schema: kept, never read."""


KINDS: Final[dict[str, type[Payload]]] = {
    model.kind: model
    for model in (
        SessionStarted,
        UserMessage,
        AssistantTurn,
        TurnSegment,
        Compaction,
        CompactionReverted,
        SessionRenamed,
        ModelChanged,
        Recovered,
    )
}


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a session. `ts` is UTC, ISO 8601 with a Z; only `seq` orders."""

    seq: int
    ts: str
    kind: str
    payload: Payload
    v: int = VERSION


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="ignore")
    v: int = Field(ge=1)
    seq: int = Field(ge=1)
    ts: str
    kind: str
    payload: JsonFields


def _record(envelope: _Envelope) -> Record:
    known = KINDS.get(envelope.kind) if envelope.v == VERSION else None
    payload = (known or Unknown).model_validate(envelope.payload)
    return Record(envelope.seq, envelope.ts, envelope.kind, payload, envelope.v)


def parsed(line: bytes) -> Record | None:
    """The record of one line without its end, or None when the line cannot be read."""
    if not line or len(line) > MAX_LINE:
        return None
    try:
        return _record(_Envelope.model_validate_json(line))
    except ValidationError:
        return None


def encoded(record: Record) -> bytes:
    """A record as one line, its end included."""
    line = {
        "v": record.v,
        "seq": record.seq,
        "ts": record.ts,
        "kind": record.kind,
        "payload": record.payload.model_dump(mode="python"),
    }
    text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return writable(text).encode() + b"\n"

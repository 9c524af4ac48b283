"""What the screen is told of a turn, one message per thing it must know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textual.message import Message

from keen.app.coalesce import Channel
from keen.core.events import Choice, Decision, Question, SubagentProgress
from keen.core.messages import Json, ToolCall, ToolResult, Usage, User

Outcome: TypeAlias = Literal[
    "done", "length", "refused", "max_turns", "budget", "failed", "interrupted"
]


@dataclass
class Said(Message):
    """A piece of the answer or of the reasoning."""

    channel: Channel
    text: str


@dataclass
class ToolOpened(Message):
    """A call begins."""

    call: ToolCall


@dataclass
class ToolOutput(Message):
    """The newest of a running call's live output; it replaces what was shown before."""

    call_id: str
    text: str


@dataclass
class SubagentMoved(Message):
    """A subagent of a running call stands elsewhere now."""

    call_id: str
    told: SubagentProgress


@dataclass
class ToolClosed(Message):
    """A call has ended."""

    result: ToolResult
    seconds: float


@dataclass
class PermissionWanted(Message):
    """A call waits for a yes."""

    call: ToolCall
    preview: Json
    reason: str
    reply: Callable[[Decision], None]
    choices: tuple[Choice, ...] = ("once", "session", "project", "deny")
    rule: str = ""
    prefix: str = ""
    agent: str = ""
    """The subagent that asks; empty for the conversation's own model."""


@dataclass
class AnswerWanted(Message):
    """The model asks the person."""

    questions: tuple[Question, ...]
    reply: Callable[[tuple[str, ...] | None], None]
    agent: str = ""
    is_closed: bool = False
    """Only the options are answers."""


@dataclass
class Voided(Message):
    """The request is sent again; what was shown of its answer counts no longer."""

    is_overflow: bool
    attempt: int
    delay: float
    detail: str


@dataclass
class Measured(Message):
    """Tokens of one answer, and the budget its request was measured against."""

    usage: Usage
    budget: int


@dataclass
class CompactionBegan(Message):
    """A compaction runs, by itself or by hand."""

    is_automatic: bool


@dataclass
class CompactionEnded(Message):
    """A compaction is over. `reason` tells why it failed; empty otherwise."""

    is_automatic: bool
    outcome: Literal["applied", "cancelled", "failed"]
    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


@dataclass
class CompactionSuspended(Message):
    """Nothing is compacted by itself until the next message. Sizes in tokens."""

    measured: int
    trigger: int


@dataclass
class SteeringArrived(Message):
    """A steering message has entered the turn."""

    message: User


@dataclass
class TurnEnded(Message):
    """The turn is over and everything below it is done.

    `undelivered`: steering messages that found no further boundary, oldest first.
    """

    outcome: Outcome
    reason: str = ""
    undelivered: tuple[User, ...] = ()
    is_compaction: bool = False
    """It was a compaction by hand, not a turn."""

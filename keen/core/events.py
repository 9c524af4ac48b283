"""What happens in a turn, as values: the only thing a screen, a script or the recorder sees of it.

Deltas are void after `Rewound`, back to the last `ToolFinished`, `CompactionApplied` or the start.
Exactly one of `TurnFinished` and `TurnFailed` closes a turn; a cancelled turn closes with neither.
`CompactionStarted` is always followed by exactly one of Applied, Cancelled and Failed.
Callbacks are idempotent, safe to call late and from any callback of the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from keen.core.errors import KeenError
from keen.core.messages import History, Json, Message, ToolCall, ToolResult, Usage, User

Trigger: TypeAlias = Literal["proactive", "forced", "manual"]
SubagentState: TypeAlias = Literal["queued", "running", "done", "failed", "interrupted"]
Choice: TypeAlias = Literal["once", "session", "project", "deny"]
Stop: TypeAlias = Literal["done", "length", "refused", "max_turns", "budget"]
"""Why a turn ended that did not fail: the answer was whole, cut or refused, or a limit was met."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a permission question. `rule` goes with "project", `message` with "deny"."""

    choice: Choice
    rule: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one compaction did and cost. Sizes in tokens; `error` is the reason when it failed."""

    trigger: Trigger
    tokens_before: int
    tokens_after: int | None = None
    seconds: float = 0.0
    usage: Usage | None = None
    error: str | None = None
    model: str = ""
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """One question of `ask_user`; without options the answer is free text."""

    text: str
    options: tuple[str, ...] = ()
    several: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of visible reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class PermissionRequested:
    """A call needs the person's yes; the turn waits for `reply`. Comes before its ToolStarted."""

    call: ToolCall
    preview: Json
    reason: str
    reply: Callable[[Decision], None]
    choices: tuple[Choice, ...] = ("once", "session", "project", "deny")
    rule: str = ""
    """What "project" would save: exactly this call."""
    prefix: str = ""
    """A wider rule that may be offered in its place; empty where none is sensible."""
    agent: str = ""
    """The subagent that asks; empty for the conversation's own model."""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """`ask_user`: the turn waits for one answer a question, or None for "not answered"."""

    questions: tuple[Question, ...]
    reply: Callable[[tuple[str, ...] | None], None]
    agent: str = ""
    """The subagent that asks; empty for the conversation's own model."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call begins; also for one that is refused."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """The newest live output of a running call, in the place of what was told before."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """One for each ToolStarted, errors and refusals included."""

    result: ToolResult
    seconds: float


@dataclass(frozen=True, slots=True)
class SubagentProgress:
    """Where one subagent of the running `task` call stands; replaces what was said of it before.

    `task` calls run one at a time, so that the call that is open is meant. Nothing of a subagent's
    conversation is ever told in another event but its questions.
    """

    number: int
    """Its place in the call, from 1."""
    agent: str
    state: SubagentState
    doing: str = ""
    """A tool with its argument, or why it failed; one line, not yet harmless to a terminal."""
    tools: int = 0
    """Calls that are finished."""
    tokens: int = 0
    """Input and output of all its requests."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rewound:
    """The request is sent again as number `attempt` after `delay` seconds; its deltas are void."""

    reason: Literal["transient", "overflow"]
    attempt: int
    delay: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Tokens of one answer, and the input budget it was measured against."""

    usage: Usage
    budget: int


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """Before the private request; `cancel` ends only the compaction."""

    trigger: Trigger
    tokens_before: int
    cancel: Callable[[], None]


@dataclass(frozen=True, slots=True)
class CompactionApplied:
    """The history has been replaced, in memory and in the session."""

    replacement: History
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class CompactionCancelled:
    """The history is unchanged."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """The history is unchanged."""

    receipt: Receipt
    error: KeenError


@dataclass(frozen=True, slots=True)
class CompactionSuspended:
    """Proactive compaction is off until the next user message: it does not free enough."""

    measured: int
    trigger: int


@dataclass(frozen=True, slots=True)
class SteeringDelivered:
    """A steering message entered the history."""

    message: User


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn is done; `messages` is the whole history."""

    messages: tuple[Message, ...]
    stop: Stop = "done"


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The turn ended with an error; what finished is in the history."""

    error: KeenError


CompactionEvent: TypeAlias = (
    CompactionStarted
    | CompactionApplied
    | CompactionCancelled
    | CompactionFailed
    | CompactionSuspended
)
Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | PermissionRequested
    | QuestionAsked
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | SubagentProgress
    | Rewound
    | UsageReported
    | CompactionEvent
    | SteeringDelivered
    | TurnFinished
    | TurnFailed
)

Emit: TypeAlias = Callable[[Event], Awaitable[None]]

"""From the events of a turn to the updates of ACP.

ACP cannot take text back. What a retry voids stays where the client put it: a line says that the
answer above was cut off and starts again, and only where some of it had been shown; the waiting
itself is told as a thought. So the text is never doubled without a word, and never late.
A compaction is a line of its own, told like a tool call; its summary is told only when the person
asked for it.
Commands run in keen's own process, and the end of their output is told while they run. A terminal
of the client's is never used: it has no sandbox, no limits, and the editor's whole environment,
keys included, which the protocol can add to but not take away from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, assert_never

from acp.schema import (
    AgentPlanUpdate,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    UsageUpdate,
)

from keen import sanitize
from keen.acp.calls import (
    TODO,
    Content,
    changes_of,
    kind_of,
    locations_of,
    plan_of,
    spelled_out,
    title_of,
)
from keen.acp.updates import CallIds, Update, used
from keen.acp.words import content, fenced, said, thought
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionEvent,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Event,
    PermissionRequested,
    QuestionAsked,
    ReasoningDelta,
    Rewound,
    SteeringDelivered,
    SubagentProgress,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Trigger,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import ToolCall
from keen.secrets import Veil

_Tool: TypeAlias = (
    ToolStarted | PermissionRequested | ToolProgress | SubagentProgress | ToolFinished
)

COMPACTED: Final = "Context compacted."
_LIVE: Final = 16 * 1024
"""Characters of live output that are shown: each update carries all of them."""


@dataclass
class Translator:
    """Translates one turn. `window`, `cost` and `estimate` are asked when usage is told.

    `estimate`: tokens of the conversation, for a provider that reports none.
    """

    cwd: str
    ids: CallIds
    window: Callable[[], int]
    cost: Callable[[], float | None]
    estimate: Callable[[], int]
    before: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Contents of files that calls replace as a whole, by call id."""
    _open: dict[str, str] = field(default_factory=dict[str, str])
    _live: dict[str, str] = field(default_factory=dict[str, str])
    _changed: set[str] = field(default_factory=set[str])
    _compaction: str = ""
    _task: str = ""
    """The last call that subagents work for."""
    _agents: dict[int, str] = field(default_factory=dict[int, str])
    _channel: Literal["", "text", "reasoning"] = ""
    _veil: Veil = field(default_factory=Veil)
    _shown: int = 0
    """Characters of the running answer that the client has."""
    _has_usage: bool = False
    _has_spoken: bool = False
    _is_apart: bool = False
    """The next text belongs to another answer than the last one."""

    def updates(self, event: Event) -> Iterator[Update]:
        """What the client is told of an event, in order."""
        match event:
            case TextDelta(text=text):
                yield from self._delta("text", text)
                return
            case ReasoningDelta(text=text):
                yield from self._delta("reasoning", text)
                return
            case _:
                yield from self._end_of_deltas()
        match event:
            case Rewound():
                yield from self._rewound(event)
            case (
                ToolStarted()
                | PermissionRequested()
                | ToolProgress()
                | SubagentProgress()
                | ToolFinished()
            ):
                yield from self._tool(event)
            case UsageReported(usage=usage):
                self._answer_over()
                yield self._used(usage.total_tokens)
            case (
                CompactionStarted()
                | CompactionApplied()
                | CompactionCancelled()
                | CompactionFailed()
                | CompactionSuspended()
            ):
                yield from self._compacting(event)
            case TurnFinished() if not self._has_usage:
                yield self._used(0)
            case QuestionAsked() | SteeringDelivered() | TurnFinished() | TurnFailed():
                self._answer_over()
            case _:
                assert_never(event)

    def _tool(self, event: _Tool) -> Iterator[Update]:
        match event:
            case PermissionRequested(call=call):
                yield from self._called(call, is_running=False)
            case ToolStarted(call=call):
                yield from self._called(call, is_running=True)
            case ToolProgress(call_id=call_id, text=text):
                self._progress(call_id, text)
            case SubagentProgress():
                self._subagent(event)
            case ToolFinished():
                yield from self._finished(event)

    def live(self) -> Iterator[Update]:
        """The outputs that grew since they were told last."""
        for call_id in [*self._changed]:
            shown = fenced(self._live[call_id])
            yield ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=self._open[call_id],
                status="in_progress",
                content=[content(shown)] if shown else [],
            )
        self._changed.clear()

    def rest(self) -> Iterator[Update]:
        """The end of a turn, however it ended: nothing is left running in the client."""
        yield from self._end_of_deltas()
        self._changed.clear()
        for call_id in self._open.values():
            yield _status(call_id, "failed")
        self._open.clear()
        if self._compaction:
            yield self._compacted("Compaction cancelled.", "failed")

    def question(self, event: PermissionRequested) -> ToolCallUpdate:
        """The call of a permission request, its reason above what it would do or change."""
        call = event.call
        who = f" (agent {event.agent})" if event.agent else ""
        reason = sanitize.block(event.reason)
        changes = changes_of(call.name, call.input, self.cwd, self.before.get(call.id))
        details = spelled_out(call.name, call.input)
        return ToolCallUpdate(
            tool_call_id=self._open.get(call.id, call.id),
            title=title_of(call.name, call.input) + who,
            kind=kind_of(call.name),
            status="pending",
            content=[content(f"Permission is needed: {reason}"), *details, *changes],
            locations=locations_of(call.name, call.input, self.cwd),
            raw_input=call.input,
        )

    def _delta(self, channel: Literal["text", "reasoning"], text: str) -> Iterator[Update]:
        if channel != self._channel:
            yield from self._end_of_deltas()
            self._channel = channel
        yield from self._say(self._veil.feed(text))

    def _end_of_deltas(self) -> Iterator[Update]:
        if self._channel:
            yield from self._say(self._veil.rest())
            self._channel = ""

    def _say(self, text: str) -> Iterator[Update]:
        if not text:
            return
        if self._channel == "reasoning":
            yield thought(text)
            return
        gap = "\n\n" if self._is_apart and self._has_spoken else ""
        self._is_apart = False
        self._has_spoken = True
        self._shown += len(text)
        yield said(gap + text)

    def _answer_over(self) -> None:
        self._is_apart = True
        self._shown = 0

    def _rewound(self, event: Rewound) -> Iterator[Update]:
        detail = sanitize.line(event.detail).rstrip(".")
        if event.reason == "transient":
            why = f" {detail}, {event.delay:.0f} s" if detail else f" {event.delay:.0f} s"
            yield thought(f"Retrying (attempt {event.attempt})...{why}\n")
        if self._shown:
            yield said("\n\n[The answer above was cut off; it starts again.]")
        self._answer_over()

    def _called(self, call: ToolCall, *, is_running: bool) -> Iterator[Update]:
        self._answer_over()
        if call.name == TODO and (entries := plan_of(call.input)) is not None:
            if is_running:
                yield AgentPlanUpdate(session_update="plan", entries=entries)
            return
        status: ToolCallStatus = "in_progress" if is_running else "pending"
        changes = changes_of(call.name, call.input, self.cwd, self.before.get(call.id))
        if (known := self._open.get(call.id)) is not None:
            yield ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=known,
                status=status,
                content=changes,
            )
            return
        self._open[call.id] = self.ids.fresh(call.id)
        if call.name == "task":
            self._task = call.id
            self._agents.clear()
        yield ToolCallStart(
            session_update="tool_call",
            tool_call_id=self._open[call.id],
            title=title_of(call.name, call.input),
            kind=kind_of(call.name),
            status=status,
            content=changes or None,
            locations=locations_of(call.name, call.input, self.cwd) or None,
            raw_input=call.input,
        )

    def _progress(self, call_id: str, text: str) -> None:
        """The newest output of a call, in place of what was shown before."""
        if call_id in self._open:
            self._live[call_id] = text[-_LIVE:]
            self._changed.add(call_id)

    def _subagent(self, event: SubagentProgress) -> None:
        """All subagents of the running call, a line each, as its output."""
        words = f"{event.number}. {event.agent}: {event.state} {event.doing}".strip()
        self._agents[event.number] = sanitize.line(f"{words} ({event.tools} calls)")
        if self._task in self._open:
            lines = [self._agents[number] for number in sorted(self._agents)]
            self._live[self._task] = "\n".join(lines)
            self._changed.add(self._task)

    def _finished(self, event: ToolFinished) -> Iterator[Update]:
        self._answer_over()
        result = event.result
        known = self._open.pop(result.call_id, None)
        self._changed.discard(result.call_id)
        self._live.pop(result.call_id, None)
        self.before.pop(result.call_id, None)
        if known is None:
            return
        is_change = kind_of(result.name) == "edit" and not result.is_error
        code = result.exit_code
        yield ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=known,
            status="failed" if result.is_error else "completed",
            content=None if is_change else _shown_output(result.output),
            raw_output=None if code is None else {"exit_code": code},
        )

    def _compacting(self, event: CompactionEvent) -> Iterator[Update]:
        match event:
            case CompactionStarted():
                self._answer_over()
                self._compaction = self.ids.fresh("compaction")
                yield ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=self._compaction,
                    title="Compacting...",
                    kind="other",
                    status="in_progress",
                )
            case CompactionApplied(receipt=receipt):
                self._answer_over()
                is_manual = receipt.trigger == "manual"
                words = COMPACTED if is_manual else "Context compacted automatically."
                yield self._compacted(words, "completed")
                if is_manual:
                    yield said(f"\n\n{COMPACTED}")
                if receipt.tokens_after is not None:
                    yield self._used(receipt.tokens_after)
            case CompactionCancelled(receipt=receipt):
                yield from self._not_compacted("Compaction cancelled.", receipt.trigger)
            case CompactionFailed(receipt=receipt, error=error):
                words = f"Compaction failed: {sanitize.line(str(error))}"
                yield from self._not_compacted(words, receipt.trigger)
            case CompactionSuspended(measured=measured, trigger=trigger):
                yield thought(
                    "Automatic compaction is off until the next message: a request still measures "
                    f"{measured:,} of {trigger:,} tokens.\n"
                )

    def _not_compacted(self, words: str, trigger: Trigger) -> Iterator[Update]:
        yield self._compacted(words, "failed")
        if trigger == "manual":  # the summary above counts for nothing
            yield said(f"\n\n{words}")

    def _compacted(self, words: str, status: ToolCallStatus) -> ToolCallProgress:
        call_id, self._compaction = self._compaction, ""
        return ToolCallProgress(
            session_update="tool_call_update", tool_call_id=call_id, title=words, status=status
        )

    def _used(self, tokens: int) -> UsageUpdate:
        self._has_usage = True
        return used(tokens or self.estimate(), self.window(), self.cost())


def _status(call_id: str, status: ToolCallStatus) -> ToolCallProgress:
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status)


def _shown_output(output: str) -> list[Content]:
    shown = fenced(output)
    return [content(shown)] if shown else []

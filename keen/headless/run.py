"""One turn without a screen: events in, text or JSON out, and an exit code that tells."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from keen import sanitize
from keen.agent.stream import events
from keen.core.errors import (
    ConfigError,
    ContextOverflow,
    KeenError,
    Transient,
    Unauthorized,
    UsageError,
)
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionEvent,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Decision,
    Emit,
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
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import JsonObject, ToolCall, Usage, User
from keen.headless.output import (
    Format,
    Output,
    Result,
    StopReason,
    Transcript,
    compaction_json,
    error_json,
    json_line,
)
from keen.secrets import Veil, masked

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONTEXT: Final = 3
EXIT_CONFIG: Final = 4
EXIT_NO_SIGNAL: Final = 5
EXIT_LIMIT: Final = 6
EXIT_TRY_LATER: Final = 75

_GIST: Final = 80

_REFUSED: Final = (
    "Nobody can be asked in `keen run`. A rule (--allow) or --yolo would allow this call; "
    "otherwise do it another way or say what is missing."
)


class Engine(Protocol):
    """The conversation behind a run, as compose puts it together."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def cwd(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def requests(self) -> int: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def cost_usd(self) -> float | None: ...

    async def run(self, user: User, emit: Emit) -> None:
        """One turn, recorded; cancelling it leaves session and history whole."""
        ...


@dataclass
class Headless:
    """Consumes one turn's events and writes them in one of the three formats."""

    engine: Engine
    output: Output
    format: Format
    version: str
    result: Result = field(default_factory=Result)
    transcript: Transcript = field(default_factory=Transcript)
    _said: str = ""
    _veil: Veil = field(default_factory=Veil)

    async def run(self, user: User) -> None:
        """Drive the turn to its end; `result` is complete afterwards, whatever happened.

        Raises: CancelledError when interrupted; OSError when stdout is gone.
        """
        started = time.monotonic()
        try:
            async with aclosing(events(lambda emit: self._run(user, emit))) as seen:
                async for event in seen:
                    await self._consume(event)
        except asyncio.CancelledError:
            self.result.stop_reason = "interrupted"
            raise
        finally:
            self.transcript.end_answer()
            self.result.text = self.transcript.text
            self.result.duration_seconds = time.monotonic() - started
            self.result.session_id = self.engine.session_id
            self.result.model = self.engine.model
            self.result.requests = self.engine.requests
            self.result.usage = self.engine.usage
            self.result.cost_usd = self.engine.cost_usd

    async def _run(self, user: User, emit: Emit) -> None:
        """Counts compactions where they happen: one that was applied stands, though interrupted."""

        async def count(event: Event) -> None:
            match event:
                case CompactionApplied(receipt=receipt):
                    self.result.compactions.append(compaction_json("applied", receipt))
                case CompactionCancelled(receipt=receipt):
                    self.result.compactions.append(compaction_json("cancelled", receipt))
                case CompactionFailed(receipt=receipt):
                    self.result.compactions.append(compaction_json("failed", receipt))
                case _:
                    pass
            await emit(event)

        await self.engine.run(user, count)

    async def started(self) -> None:
        """The first line of a JSON stream."""
        await self._line(
            {
                "type": "session",
                "session_id": self.engine.session_id,
                "cwd": self.engine.cwd,
                "model": self.engine.model,
                "version": self.version,
            }
        )

    async def _delta(self, event: TextDelta | ReasoningDelta) -> None:
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        if kind == "text":
            self.transcript.add(event.text)
        if kind != self._said:
            await self._end_of_deltas()
            self._said = kind
        if shown := self._veil.feed(event.text):
            await self._line({"type": kind, "text": shown})

    async def _end_of_deltas(self) -> None:
        if rest := self._veil.rest():
            await self._line({"type": self._said, "text": rest})

    async def _consume(self, event: Event) -> None:
        if not isinstance(event, TextDelta | ReasoningDelta):
            await self._end_of_deltas()
        match event:
            case TextDelta() | ReasoningDelta():
                await self._delta(event)
            case ToolStarted() | ToolFinished() | ToolProgress():
                await self._tool(event)
            case PermissionRequested() | QuestionAsked():
                _answer(event)
            case Rewound():
                self.transcript.rewind()
                await self._retry(event)
            case UsageReported(usage=usage):
                self.transcript.end_answer()
                await self._line({"type": "usage", **usage.as_json()})
            case (
                CompactionStarted()
                | CompactionApplied()
                | CompactionCancelled()
                | CompactionFailed()
                | CompactionSuspended()
            ):
                await self._compaction(event)
            case SteeringDelivered() | SubagentProgress():
                self.transcript.end_answer()  # a script sees of a subagent the result of the call
            case TurnFinished() | TurnFailed():
                self._end(event)
            case _:
                assert_never(event)

    def _end(self, event: TurnFinished | TurnFailed) -> None:
        match event:
            case TurnFinished(stop=stop):
                self.result.stop_reason = stop
            case TurnFailed(error=error):
                self.result.error = error
                is_context = isinstance(error, ContextOverflow)
                self.result.stop_reason = "context_limit" if is_context else "error"

    async def _tool(self, event: ToolStarted | ToolFinished | ToolProgress) -> None:
        match event:
            case ToolStarted(call=call):
                self.transcript.end_answer()
                if sys.stderr.isatty():
                    say(f"· {call.name} {_gist(call)}")
                started: JsonObject = {"id": call.id, "name": call.name, "input": call.input}
                await self._line({"type": "tool_started"} | started)
            case ToolFinished(result=result, seconds=seconds):
                finished: JsonObject = {
                    "id": result.call_id,
                    "output": result.output,
                    "is_error": result.is_error,
                    "seconds": round(seconds, 3),
                }
                await self._line({"type": "tool_finished"} | finished)
            case ToolProgress():
                pass

    async def _retry(self, event: Rewound) -> None:
        await self._line(
            {
                "type": "retry",
                "reason": event.reason,
                "attempt": event.attempt,
                "delay_seconds": round(event.delay, 3),
            }
        )
        if event.reason == "transient":
            why = event.detail.rstrip(".")
            say(f"Retrying (attempt {event.attempt})... {why}, {event.delay:.0f} s")

    async def _compaction(self, event: CompactionEvent) -> None:
        match event:
            case CompactionStarted():
                self.transcript.end_answer()
                line: JsonObject = {"trigger": event.trigger, "tokens_before": event.tokens_before}
                await self._line({"type": "compaction_started"} | line)
            case CompactionApplied(receipt=receipt):
                entry = compaction_json("applied", receipt)
                shown = {k: entry[k] for k in ("tokens_before", "tokens_after", "usage")}
                await self._line({"type": "compaction_applied"} | shown)
            case CompactionCancelled():
                await self._line({"type": "compaction_cancelled"})
            case CompactionFailed(error=error):
                await self._line({"type": "compaction_failed", "error": error_json(error)})
                say(f"Compaction failed: {error}")
            case CompactionSuspended():
                say(
                    "Automatic compaction is off until the next message: after it a request still "
                    f"measures {event.measured:,} of {event.trigger:,} tokens."
                )

    async def _line(self, value: JsonObject) -> None:
        if self.format == "stream-json":
            await self.output.write(json_line(value))


def _answer(event: PermissionRequested | QuestionAsked) -> None:
    """Nobody is there: a question is refused at once."""
    match event:
        case PermissionRequested(reply=reply):
            reply(Decision("deny", message=_REFUSED))
        case QuestionAsked(reply=reply):
            reply(None)


def _gist(call: ToolCall) -> str:
    """The first argument of a call, short: what it is about."""
    first = next((value for value in call.input.values() if isinstance(value, str)), "")
    return first if len(first) <= _GIST else first[:_GIST] + "…"


def exit_code(result: Result, completion_signal: str = "") -> int:
    """The exit code of the contract, section 1, for a turn that was not interrupted."""
    if result.error is not None:
        return error_code(result.error)
    by_reason: dict[StopReason, int] = {
        "done": EXIT_DONE,
        "max_turns": EXIT_LIMIT,
        "budget": EXIT_LIMIT,
        "context_limit": EXIT_CONTEXT,
    }
    code = by_reason.get(result.stop_reason, EXIT_FAILED)
    if code == EXIT_DONE and completion_signal and completion_signal not in result.text:
        return EXIT_NO_SIGNAL
    return code


def error_code(error: KeenError) -> int:
    """The exit code an error asks for."""
    match error:
        case ContextOverflow():
            return EXIT_CONTEXT
        case Transient():
            return EXIT_TRY_LATER
        case Unauthorized() | ConfigError():
            return EXIT_CONFIG
        case UsageError():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def say(text: str) -> None:
    """One harmless line on stderr; a closed stderr is no reason to stop."""
    try:
        print(sanitize.line(text), file=sys.stderr, flush=True)
    except OSError:
        return


async def write_result(output: Output, form: Format, result: Result) -> None:
    """The end of the output in the chosen format, on success and on failure alike."""
    match form:
        case "text":
            text = sanitize.block(result.text) if os.isatty(1) else masked(result.text)
            if text:
                await output.write(text + "\n")
        case "json":
            await output.write(json_line(result.as_json()))
        case "stream-json":
            await output.write(json_line({"type": "result"} | result.as_json()))


class Interrupts:
    """A signal that ends programs cancels the run once; `code` says which it was, 0 for none."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.code = 0
        self._cancel = cancel
        self._numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            self._numbers.append(signal.SIGHUP)

    def __enter__(self) -> Interrupts:
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.add_signal_handler(number, self._interrupt, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # everything is written: only the way out is left

    def _interrupt(self, number: int) -> None:
        self.code = 128 + number
        self._cancel()

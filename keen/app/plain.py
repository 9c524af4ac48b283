"""The session in plain lines, for screen readers and terminals without a screen."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from keen import sanitize
from keen.agent.stream import events
from keen.app import subagent_line
from keen.app.desk import Desk, Wanted
from keen.app.driver import Run
from keen.app.modes import mode_named
from keen.core.errors import KeenError
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
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
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.engine import Engine

_EXIT: Final = frozenset({"/exit", "/quit", "exit", "quit", ":q"})
_HELP: Final = (
    "Write a message and press Enter. /new begins a fresh session, /compact shortens the "
    "conversation, /mode plan, build or yolo says what may happen unasked, /usage tells tokens, "
    "/exit leaves. Ctrl+C interrupts what runs."
)


async def converse(desk: Desk) -> int:
    """The whole session; returns the exit code."""
    try:
        engine = (await desk.open(Wanted())).engine
    except KeenError as error:
        print(f"keen: {sanitize.block(str(error))}", file=sys.stderr)
        return 4
    plain = Plain(desk, engine)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, plain.interrupt)
    try:
        await plain.run(desk.early.prompt)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await plain.engine.aclose()
    return 0


@dataclass
class Plain:
    """Reads lines and prints lines; each says what it is."""

    desk: Desk
    engine: Engine
    _is_in_answer: bool = False
    _turn: asyncio.Task[None] | None = field(default=None)

    async def run(self, first: str) -> None:
        """Until the end of input, or /exit."""
        say(f"keen, model {self.engine.model}. {_HELP}")
        for notice in self.engine.notices:
            say(notice)
        self.engine.gate.listen(say)
        line: str | None = first or await asked("You: ")
        while line is not None and await self.take(line):
            line = await asked("You: ")

    def interrupt(self) -> None:
        """Ctrl+C: stop the turn; without one, say how to leave."""
        if self._turn is not None:
            self._turn.cancel()
        else:
            say("\nType /exit or press Ctrl+D to leave.")

    async def take(self, line: str) -> bool:
        """Do what a line asks for; False when it asks to leave."""
        said = line.strip()
        word, _, rest = said.partition(" ")
        if said in _EXIT:
            return False
        talk = self.engine.conversation
        match word:
            case "":
                pass
            case "/help":
                say(_HELP)
            case "/new":
                await self._new()
            case "/mode":
                self._mode(rest.strip())
            case "/usage":
                used = self.engine.usage
                say(f"Input {used.input_tokens:,} tokens, output {used.output_tokens:,} tokens.")
            case "/compact":
                await self._drive(lambda emit: talk.compact(rest.strip(), emit))
            case _ if word.startswith("/") and "/" not in word[1:]:
                say(f"Unknown command: {sanitize.line(word)}. {_HELP}")
            case _:
                await self._drive(lambda emit: self.engine.run(User(line), emit))
        return True

    async def _new(self) -> None:
        model = self.engine.model
        await self.engine.aclose()
        self.engine = (await self.desk.open(Wanted("new", model=model))).engine
        say("A fresh session.")

    def _mode(self, wanted: str) -> None:
        policy = self.engine.conversation.toolbox.policy
        chosen = mode_named(wanted)
        if chosen is not None:
            policy.set_mode(chosen)
        say(f"Mode: {policy.mode}.")

    async def _drive(self, run: Run) -> None:
        """One turn; Ctrl+C cancels it and nothing else."""
        turn = self._turn = asyncio.ensure_future(self._consume(run))
        try:
            await asyncio.wait([turn])
        finally:
            turn.cancel()
            self._turn = None
        self._end_answer()
        if turn.cancelled():
            say("Interrupted. What should keen do instead?")
        elif isinstance(error := turn.exception(), KeenError):
            say(f"Failed: {error}")
        elif error is not None:
            raise error

    async def _consume(self, run: Run) -> None:
        async def driven(emit: Emit) -> None:
            await run(emit)

        async with aclosing(events(driven)) as seen:
            async for event in seen:
                await self._show(event)

    async def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._answer(text)
            case PermissionRequested() | QuestionAsked():
                self._end_answer()
                await self._ask(event)
            case ToolStarted() | ToolFinished() | Rewound() | SteeringDelivered():
                self._end_answer()
                self._tell(event)
            case (
                CompactionStarted()
                | CompactionApplied()
                | CompactionCancelled()
                | CompactionFailed()
                | CompactionSuspended()
            ):
                self._end_answer()
                self._compaction(event)
            case SubagentProgress() as told:
                if told.state in ("done", "failed", "interrupted"):
                    self._end_answer()
                    say(subagent_line.line(told))
            case TurnFailed(error=error):
                self._end_answer()
                say(f"Failed: {error}")
            case TurnFinished() | UsageReported() | ReasoningDelta() | ToolProgress():
                pass
            case _:
                assert_never(event)

    def _answer(self, text: str) -> None:
        if not self._is_in_answer:
            sys.stdout.write("keen: ")
            self._is_in_answer = True
        sys.stdout.write(sanitize.block(text))
        sys.stdout.flush()

    def _end_answer(self) -> None:
        if self._is_in_answer:
            say("")
            self._is_in_answer = False

    def _tell(self, event: ToolStarted | ToolFinished | Rewound | SteeringDelivered) -> None:
        from keen.app.tool_cards import subject

        match event:
            case ToolStarted(call=call):
                say(f"Tool {call.name}: {subject(call)}")
            case ToolFinished(result=result):
                lines = result.output.count("\n") + 1
                say(f"Tool failed: {result.output}" if result.is_error else f"Done, {lines} lines.")
            case Rewound(attempt=attempt, detail=detail):
                say(f"Retrying (attempt {attempt})... {detail} This answer starts again.")
            case SteeringDelivered():
                say("Your message was delivered.")

    def _compaction(
        self,
        event: CompactionStarted
        | CompactionApplied
        | CompactionCancelled
        | CompactionFailed
        | CompactionSuspended,
    ) -> None:
        match event:
            case CompactionStarted():
                say("Compacting...")
            case CompactionApplied(receipt=receipt):
                is_manual = receipt.trigger == "manual"
                say("Context compacted." if is_manual else "Context compacted automatically.")
            case CompactionCancelled():
                say("Compaction cancelled.")
            case CompactionFailed(error=error):
                say(f"Compaction failed: {error}")
            case CompactionSuspended():
                say("Automatic compaction is off until your next message.")

    async def _ask(self, event: PermissionRequested | QuestionAsked) -> None:
        match event:
            case PermissionRequested():
                event.reply(await _permission(event))
            case QuestionAsked(questions=questions, reply=reply):
                answers: list[str] = []
                for question in questions:
                    say(f"Question: {question.text}")
                    for number, option in enumerate(question.options, 1):
                        say(f"{number}: {option}")
                    answer = await asked("Answer: ")
                    if answer is None:
                        reply(None)
                        return
                    answers.append(_chosen(answer.strip(), question.options))
                reply(tuple(answers))


async def _permission(event: PermissionRequested) -> Decision:
    from keen.app.tool_cards import subject

    say(f"Permission needed for {event.call.name}: {subject(event.call)}")
    preview = event.preview
    if isinstance(preview, dict) and isinstance(diff := preview.get("diff"), str):
        say(diff)
    say(f"It asks because: {event.reason}")
    choices = "y once, n no, or say what to do instead"
    if "session" in event.choices:
        choices = "y once, a always in this session, n no, or say what to do instead"
    answer = (await asked(f"Allow? {choices}: ") or "n").strip()
    match answer.lower():
        case "y" | "yes":
            return Decision("once")
        case "a" if "session" in event.choices:
            return Decision("session")
        case "" | "n" | "no":
            return Decision("deny")
        case _:
            return Decision("deny", message=answer)


def _chosen(answer: str, options: tuple[str, ...]) -> str:
    if answer.isdigit() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    return answer


def say(text: str) -> None:
    """One or more harmless lines."""
    print(sanitize.block(text), flush=True)


async def asked(prompt: str) -> str | None:
    """A line of the person's, None at the end of input. Cancelling leaves the reader its line."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        line = await asyncio.to_thread(sys.stdin.readline)
        return line.rstrip("\n") if line else None
    return None

"""The session in plain lines, for screen readers and terminals without a screen."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, assert_never

from keen import sanitize
from keen.agent.stream import events
from keen.app import subagent_line
from keen.app.desk import Desk, Opened, Wanted
from keen.app.driver import Run
from keen.app.shell import Shell
from keen.app.units import several
from keen.core.errors import KeenError
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
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.engine import Engine

_EXIT: Final = frozenset({"/exit", "/quit", "exit", "quit", ":q"})
_WELCOME: Final = "Write a message and press Enter; /help lists commands, /exit leaves."
_MOST_OUTPUT: Final = 32_000
"""Characters of a shell command's output that go with the next message."""


async def converse(desk: Desk) -> int:
    """The whole session; returns the exit code."""
    try:
        opened = await desk.open(Wanted())
    except KeenError as error:
        print(f"keen: {sanitize.block(str(error))}", file=sys.stderr)
        return 4
    plain = Plain(desk, opened)
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
    _opened: Opened
    _is_in_answer: bool = False
    _turn: asyncio.Task[None] | None = field(default=None)
    _shell: Shell | None = field(default=None)
    _outputs: list[str] = field(default_factory=list[str])
    """What the person's own commands printed, for the next message."""

    @property
    def engine(self) -> Engine:
        return self._opened.engine

    async def run(self, first: str) -> None:
        """Until the end of input, or /exit."""
        say(f"keen, model {self.engine.model}. {_WELCOME}")
        self._begin()
        if self.desk.early.is_picking:
            await self._command("sessions", "")
        line: str | None = first or await asked("You: ")
        while line is not None and await self.take(line):
            line = await asked("You: ")

    def interrupt(self) -> None:
        """Ctrl+C: stop the turn; without one, say how to leave."""
        if self._turn is not None:
            self._turn.cancel()
        elif self._shell is not None:
            self._shell.stop()
        else:
            say("\nType /exit or press Ctrl+D to leave.")

    async def take(self, line: str) -> bool:
        """Do what a line asks for; False when it asks to leave."""
        said = line.strip()
        word, _, rest = said.partition(" ")
        if said in _EXIT:
            return False
        if not said:
            return True
        if said.startswith("!") and len(said) > 1:
            await self._run_shell(said.lstrip("!").strip(), is_private=said.startswith("!!"))
        elif word.startswith("/") and "/" not in word[1:] and not self._is_call(said):
            await self._command(word[1:], rest.strip())
        else:
            text = "\n\n".join([*self._outputs, line])
            self._outputs.clear()
            await self._drive(lambda emit: self.engine.run(User(text), emit))
        return True

    def _is_call(self, text: str) -> bool:
        """True for a skill, a command, or a prompt of an MCP server."""
        extensions = self.engine.extensions
        return extensions is not None and extensions.is_call(text)

    async def _command(self, name: str, argument: str) -> None:
        from keen.app import plain_commands

        if not await plain_commands.run(self, name, argument):
            say(f"Unknown command: /{sanitize.line(name)}. /help lists what there is.")

    async def open(self, wanted: Wanted) -> None:
        """Go on with another engine. Raises: KeenError; what was open before is open again."""
        before = self.engine
        mode = before.conversation.toolbox.policy.mode
        session = (before.session_id or "") if before.conversation.history else ""
        await before.aclose()
        try:
            self._opened = await self.desk.open(wanted)
        except KeenError:
            kind: Literal["resume", "new"] = "resume" if session else "new"
            self._opened = await self.desk.open(Wanted(kind, session, before.model))
            raise
        finally:
            self.engine.conversation.toolbox.policy.set_mode(mode)
        self._begin()

    def _begin(self) -> None:
        """What is to be known of the engine that is there now."""
        for notice in self.engine.notices:
            say(notice)
        self.engine.listen(say)
        if self._opened.asks_trust:
            say("Files of this folder that could take effect are ignored; /trust asks about them.")
        if self._opened.records:
            from keen.app.replay import replayed

            earlier = replayed(self._opened.records)
            count = len(earlier.prompts)
            say(f"Going on with {earlier.name or 'a session'} of {count} messages of yours.")
            if earlier.prompts:
                say(f"You said last: {earlier.prompts[-1]}")
            if earlier.last_answer:
                say(f"keen: {earlier.last_answer}")

    async def compact(self, focus: str) -> None:
        """Shorten the conversation by its summary."""
        talk = self.engine.conversation
        await self._drive(lambda emit: talk.compact(focus, emit))

    async def _run_shell(self, command: str, *, is_private: bool) -> None:
        output: list[str] = []

        def on_output(text: str) -> None:
            sys.stdout.write(sanitize.block(text))
            sys.stdout.flush()
            if sum(map(len, output)) < _MOST_OUTPUT:
                output.append(text[:_MOST_OUTPUT])

        self._shell = Shell(command, on_output)
        try:
            code = await self._shell.run()
        except OSError as error:
            say(f"Failed: {error}")
            return
        finally:
            self._shell = None
        say(f"Exit code {code}." + ("" if is_private else " It goes with your next message."))
        if not is_private:
            printed = "".join(output)[:_MOST_OUTPUT].rstrip()
            words = f"I ran `{command}`. Its output:\n\n```\n{printed}\n```\n[exit code {code}]"
            self._outputs.append(words)

    def say(self, text: str) -> None:
        """One or more lines."""
        say(text)

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """A line for each name and what it is."""
        for name, value in rows:
            say(f"{name.strip()}: {value}")

    async def ask(self, question: str) -> str | None:
        """The person's answer; None at the end of input."""
        return await asked(question)

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
                done = f"Done, {several(lines, 'line')}."
                say(f"Tool failed: {result.output}" if result.is_error else done)
            case Rewound(attempt=attempt, detail=detail):
                say(f"Retrying (attempt {attempt})... {detail} This answer starts again.")
            case SteeringDelivered():
                say("Your message was delivered.")

    def _compaction(self, event: CompactionEvent) -> None:
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
            case QuestionAsked(questions=questions, reply=reply, agent=agent):
                answers: list[str] = []
                for question in questions:
                    say(f"Question{_of(agent)}: {question.text}")
                    for number, option in enumerate(question.options, 1):
                        say(f"{number}: {option}")
                    answer = await asked("Answer: ")
                    if answer is None:
                        reply(None)
                        return
                    answers.append(_chosen(answer.strip(), question.options))
                reply(tuple(answers))


async def _permission(event: PermissionRequested) -> Decision:
    from keen.app import arguments
    from keen.app.tool_cards import subject

    preview = event.preview
    diff = preview.get("diff") if isinstance(preview, dict) else None
    words = subject(event.call) if isinstance(diff, str) else arguments.told(event.call)
    say(f"Permission needed for {event.call.name}{_of(event.agent)}: {words}")
    if isinstance(diff, str):
        say(diff)
    say(f"It asks because: {event.reason}")
    choices = ["y once"]
    if "session" in event.choices:
        choices.append("a always in this session")
    if "project" in event.choices and event.rule:
        choices.append(f"p always in this project, which saves the rule {event.rule}")
    choices += ["n no", "or say what to do instead"]
    answer = (await asked(f"Allow? {', '.join(choices)}: ") or "n").strip()
    match answer.lower():
        case "y" | "yes":
            return Decision("once")
        case "a" if "session" in event.choices:
            return Decision("session")
        case "p" if "project" in event.choices and event.rule:
            return Decision("project", rule=event.rule)
        case "" | "n" | "no":
            return Decision("deny")
        case _:
            return Decision("deny", message=answer)


def _of(agent: str) -> str:
    return f" of the subagent {agent}" if agent else ""


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

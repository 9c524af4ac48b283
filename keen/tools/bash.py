"""The tool that runs a shell command: with a time limit, or as a background job."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject, ToolSpec
from keen.sanitize import printed
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._launch import Appeal, Launch, Launcher, open_launch
from keen.tools._limits import Limits
from keen.tools._process import Ended, Process
from keen.tools._spool import Spool
from keen.tools.base import Access, Context, Effect, Outcome, PreparedCall
from keen.tools.jobs import Jobs
from keen.tools.shell.verdict import text_fault

DEFAULT_SECONDS: Final = 120
MOST_SECONDS: Final = 3_600

_LONG_SECONDS: Final = 10.0
"""A command that took longer says so."""

_DESCRIPTION: Final = (
    "Run a command with bash in the working directory and return its output (stdout and stderr "
    "together) and its exit code. Each call is a new shell: cd and variables do not last. There "
    "is no terminal and no input; a command that asks a question gets no answer. Prefer the tools "
    "read_file, grep and glob for reading and searching, edit_file and write_file for changes. "
    "Long-running programs such as servers need background: true; their output goes to a file "
    "whose path you are told."
)

_SANDBOXED: Final = (
    " Commands run in a sandbox: only the working directory and /tmp can be written, credentials "
    "and .env files are hidden, and the network is off. /tmp is private to commands; read_file "
    "does not see it. What that stopped is told in a line that begins with [sandbox]."
)


class BashArguments(Arguments):
    """What the model may ask of a shell."""

    example: ClassVar[JsonObject] = {"command": "pytest -q tests/test_parser.py"}

    command: str = Field(description="The command line, exactly as bash shall read it.")
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=MOST_SECONDS,
        description=(
            f"Seconds until it is ended: {DEFAULT_SECONDS} by default, {MOST_SECONDS} at most. "
            "A background command has no limit unless one is given."
        ),
    )
    background: bool = Field(
        default=False, description="Return at once and leave it running as a job."
    )
    needs: Literal["network", "outside"] | None = Field(
        default=None,
        description=(
            "Say so when it needs the network, or files outside the workspace; the person is asked."
        ),
    )
    reason: str | None = Field(
        default=None, description="Why it is needed, in one sentence for the person."
    )


@dataclass(frozen=True, slots=True)
class Bash:
    """The tool `bash`. `jobs` keeps its background commands; the owner closes it at exit.

    `launcher` decides what stands around a command, for example a sandbox.
    """

    jobs: Jobs
    launcher: Launcher = open_launch
    limits: Limits = field(default_factory=Limits)
    spec: ToolSpec = field(default_factory=lambda: tool_spec("bash", _DESCRIPTION, BashArguments))
    effect: Effect = "exec"

    @classmethod
    def sandboxed(cls, jobs: Jobs, launcher: Launcher) -> Bash:
        """The tool whose description speaks of the sandbox around its commands."""
        spec = tool_spec("bash", _DESCRIPTION + _SANDBOXED, BashArguments)
        return cls(jobs, launcher, spec=spec)

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        """A call whose command is exactly the text that is judged. Raises: ToolError."""
        arguments = parse(BashArguments, input, "bash")
        if not arguments.command.strip():
            raise ToolError("The command is empty. Send the command line to run.")
        fault = text_fault(arguments.command)
        if fault is not None:
            raise ToolError(f"This command was not run: {fault}.")
        access = Access("bash", arguments.command, arguments.needs or "")

        async def run() -> Outcome:
            if arguments.background:
                return await self._leave(arguments, context)
            return await self._run(arguments, context)

        async def preview() -> Json:
            return _preview(arguments, context)

        return PreparedCall((access,), run, preview)

    async def _leave(self, arguments: BashArguments, context: Context) -> Outcome:
        """Start a background job."""
        launch = await self._launch(arguments.command, arguments.needs or "", context)
        try:
            job = await self.jobs.start(
                launch.argv,
                arguments.command,
                context.cwd,
                launch.environment,
                context.scratch,
                seconds=arguments.timeout_seconds,
                is_wrapped=launch.is_wrapped,
                limits=self._limits(launch),
                release=launch.release,
            )
        except BaseException:
            launch.release()
            raise
        where = f"Its output goes to {job.spool.path}." if job.spool.path else job.spool.fault
        return Outcome(f"Still running in background as job {job.id}. {where}")

    async def _run(self, arguments: BashArguments, context: Context) -> Outcome:
        """Run it, and once more each time a person opens what stopped it."""
        needs, said = arguments.needs or "", ""
        while True:
            outcome, appeal = await self._once(arguments, needs, context)
            needs, said = appeal.needs or needs, appeal.said or said
            if not appeal.is_again:
                break
        return replace(outcome, output=f"{outcome.output}\n{said}") if said else outcome

    async def _once(
        self, arguments: BashArguments, needs: str, context: Context
    ) -> tuple[Outcome, Appeal]:
        seconds = arguments.timeout_seconds or DEFAULT_SECONDS
        launch = await self._launch(arguments.command, needs, context)
        spool = Spool(context.scratch)
        try:
            process = await Process.start(
                launch.argv,
                context.cwd,
                launch.environment,
                spool,
                is_wrapped=launch.is_wrapped,
                limits=self._limits(launch),
            )
            ended = await process.wait(seconds, context.progress)
            text = await asyncio.to_thread(lambda: printed(spool.text()))
            note = await asyncio.to_thread(launch.note, text, ended.code)
        finally:
            launch.release()
            await asyncio.to_thread(spool.close)
        outcome = _outcome(text, ended, seconds, note)
        if ended.how != "exited":
            return outcome, Appeal()
        return outcome, await launch.appeal(text, ended.code)

    def _limits(self, launch: Launch) -> Limits:
        return replace(self.limits, temporary=launch.temporary)

    async def _launch(self, command: str, needs: str, context: Context) -> Launch:
        """Look up how the command is started; what was prepared for it is never left behind."""
        if not context.cwd.is_dir():
            raise ToolError(
                f"The working directory {context.cwd} is gone. Ask the person about it."
            )
        work = asyncio.to_thread(self.launcher, command, needs, context)
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_released)
            raise


def _released(task: asyncio.Task[Launch]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().release()


def _outcome(text: str, ended: Ended, seconds: float, note: str) -> Outcome:
    lines = [text.rstrip("\n")] if text.strip("\n") else []
    if ended.how == "timed out":
        lines.append(
            f"[timed out after {seconds:g} s and was ended. Nothing can answer a question of a "
            "command; a program that keeps running needs background: true.]"
        )
    elif ended.how == "stopped":
        lines.append(f"[stopped: {ended.why}]")
    elif ended.code < 0:
        lines.append(f"[ended by {_signal_name(-ended.code)}]")
    elif ended.code:
        lines.append(f"[exit code {ended.code}]")
    if ended.leftovers and ended.how == "exited":
        lines.append(f"[{_processes(ended.leftovers)} left running had to be ended.]")
    if ended.seconds >= _LONG_SECONDS and ended.how == "exited":
        lines.append(f"[took {ended.seconds:.1f} s]")
    if note:
        lines.append(note)
    is_error = ended.how != "exited" or ended.code != 0
    return Outcome("\n".join(lines) or "(no output)", is_error, exit_code=ended.code)


def _processes(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _preview(arguments: BashArguments, context: Context) -> Json:
    return {
        "kind": "command",
        "command": arguments.command,
        "cwd": str(context.cwd),
        "lines": arguments.command.count("\n") + 1,
        "characters": len(arguments.command),
        "background": arguments.background,
        "needs": arguments.needs or "",
        "reason": arguments.reason or "",
    }

"""From the calls of an answer to their results: look-up, permission, execution, shaping.

Whatever a tool does, every call gets one result; a tool cannot end a turn.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final, TypeVar

from keen.agent.gate import OPEN, Gate
from keen.core.errors import ToolError
from keen.core.events import (
    Decision,
    Emit,
    PermissionRequested,
    Question,
    QuestionAsked,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from keen.core.messages import ToolCall, ToolResult, ToolSpec
from keen.tools.base import Context, Outcome, PreparedCall, Tool
from keen.tools.permission import Policy, Verdict
from keen.tools.spill import RESULT_BYTES, bounded

T = TypeVar("T")

_SHOWN_ARGUMENTS: Final = 300
_log: Final = logging.getLogger(__name__)


def _nothing(_name: str) -> Tool | None:
    return None


@dataclass
class Toolbox:
    """The tools of a conversation. Built once; `specs` stays the same object as long as they do."""

    tools: Mapping[str, Tool]
    policy: Policy
    context: Context
    undeclared: Callable[[str], Tool | None] = _nothing
    """Finds a tool that may be called although `specs`, and so every request, leaves it out."""
    gate: Gate = OPEN
    specs: tuple[ToolSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = tuple(tool.spec for tool in self.tools.values())

    async def run(
        self, calls: Sequence[ToolCall], emit: Emit, results: dict[str, ToolResult]
    ) -> None:
        """Run the calls and put each result into `results` the moment it is there.

        Neighbouring calls that only read run side by side, the others one after another.
        """
        for reads, group in itertools.groupby(calls, key=self._only_reads):
            if reads:
                async with asyncio.TaskGroup() as tasks:
                    for call in group:
                        tasks.create_task(self._one(call, emit, results))
            else:
                for call in group:
                    await self._one(call, emit, results)

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._tool(call.name)
        return tool is not None and tool.effect == "read"

    def _tool(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.undeclared(name)

    async def _one(self, call: ToolCall, emit: Emit, results: dict[str, ToolResult]) -> None:
        try:
            tool = self._named(call)
            prepared = tool.prepare(call.input, self._context(call, emit))
        except ToolError as error:
            await self._refuse(call, str(error), emit, results)
            return
        refusal = await self._permitted(call, tool, prepared, emit)
        if refusal is not None:
            await self._refuse(call, refusal, emit, results)
            return
        await emit(ToolStarted(call))
        started = time.monotonic()
        result = await self._result(call, await self._outcome(call, prepared))
        results[call.id] = result
        await emit(ToolFinished(result, time.monotonic() - started))
        # Told already: cancelled from here on, memory and session agree on what the call did.
        if added := await self.gate.after_tool(call, result):
            results[call.id] = replace(result, output=f"{result.output}\n\n{added}")

    async def _refuse(
        self, call: ToolCall, message: str, emit: Emit, results: dict[str, ToolResult]
    ) -> None:
        await emit(ToolStarted(call))
        result = await self._result(call, Outcome(message, is_error=True))
        results[call.id] = result
        await emit(ToolFinished(result, 0.0))

    def _named(self, call: ToolCall) -> Tool:
        tool = self._tool(call.name)
        if tool is None:
            close = get_close_matches(call.name, self.tools, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            names = ", ".join(self.tools)
            raise ToolError(f"There is no tool named {call.name!r}.{hint} Tools: {names}.")
        if call.malformed:
            shown = call.malformed[:_SHOWN_ARGUMENTS]
            raise ToolError(
                f"The arguments of {call.name} were no JSON object, so nothing was run: {shown}"
            )
        return tool

    def _context(self, call: ToolCall, emit: Emit) -> Context:
        async def progress(text: str) -> None:
            await emit(ToolProgress(call.id, text))

        async def ask(questions: tuple[Question, ...]) -> tuple[str, ...] | None:
            answer: asyncio.Future[tuple[str, ...] | None] = asyncio.Future()
            await emit(QuestionAsked(questions, _once(answer)))
            return await answer

        return replace(self.context, progress=progress, ask=ask, forward=emit)

    async def _permitted(
        self, call: ToolCall, tool: Tool, prepared: PreparedCall, emit: Emit
    ) -> str | None:
        """None when the call may run, else the sentence that tells the model why not."""
        verdict = await asyncio.to_thread(
            self.policy.decide, call.name, tool.effect, prepared.accesses
        )
        if verdict.kind == "refuse":
            return verdict.reason
        word = await self.gate.before_tool(call)
        if word.refusal:
            return word.refusal
        if verdict.kind == "allow":
            if not word.asks:
                return None
            verdict = Verdict("ask", word.asks, ("once", "deny"))
        elif word.asks:
            verdict = replace(verdict, reason=f"{verdict.reason}\n{word.asks}")
        answer: asyncio.Future[Decision] = asyncio.Future()
        try:
            preview = await prepared.preview()
        except ToolError as error:
            return str(error)
        await emit(
            PermissionRequested(
                call,
                preview,
                verdict.reason,
                _once(answer),
                verdict.choices,
                verdict.rule,
                verdict.prefix,
            )
        )
        decision = await answer
        if decision.choice == "deny":
            said = f" They said:\n{decision.message}\n" if decision.message else " "
            return f"The person refused this call.{said}Do not try to get around it."
        self.policy.grant(call.name, prepared.accesses, decision)
        return None

    async def _outcome(self, call: ToolCall, prepared: PreparedCall) -> Outcome:
        try:
            return await prepared.run()
        except ToolError as error:
            return Outcome(str(error), is_error=True)
        except OSError as error:
            return Outcome(f"{call.name} failed: {error}", is_error=True)
        except Exception as error:  # a tool must not kill a turn
            _log.exception("tool %s failed", call.name)
            return Outcome(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)

    async def _result(self, call: ToolCall, outcome: Outcome) -> ToolResult:
        """The one choke point: what the model sees is bounded here and nowhere else."""
        output = outcome.output
        if len(output) > RESULT_BYTES // 4:
            scratch = self.context.scratch
            output = await asyncio.to_thread(bounded, output, RESULT_BYTES, scratch, call.name)
        return ToolResult(
            call.id, call.name, output, outcome.is_error, outcome.images, outcome.exit_code
        )


def _once(answer: asyncio.Future[T]) -> Callable[[T], None]:
    """A reply that counts once; later ones do nothing."""

    def reply(value: T) -> None:
        if not answer.done():
            answer.set_result(value)

    return reply

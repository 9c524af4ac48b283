"""The tool `task`: parts of a job for subagents that work side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools.base import Context, Effect, Outcome, PreparedCall

GENERAL: Final = "general"
"""The agent that is meant where none is named."""
MOST_TASKS: Final = 8

_LIST_CHARACTERS: Final = 4_000
_LINE_CHARACTERS: Final = 240
_MOST_NAMED: Final = 40
_WORDS: Final = (
    "Hand independent parts of a job to subagents. The tasks of one call run side by side; the "
    "last answer of each comes back. A subagent knows nothing of this conversation: its prompt "
    "must say what to do, what is known, and what to report. Use it for broad searches and for "
    "separate changes, never for what one or two calls of your own would do. Agents:"
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task for one subagent."""

    agent: str
    prompt: str


Run: TypeAlias = Callable[[tuple[Assignment, ...], Context], Awaitable[Outcome]]


class TaskItem(BaseModel):
    """One task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str = Field(default=GENERAL, min_length=1, max_length=100)
    prompt: str = Field(min_length=1)


class TaskArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {
        "tasks": [
            {"agent": "explore", "prompt": "Find where sessions are written. Report path:line."},
            {"prompt": "Write tests for keen/core/budget.py and run them."},
        ]
    }

    tasks: tuple[TaskItem, ...] = Field(min_length=1, max_length=MOST_TASKS)


class Task:
    """`agents`: names and what each is for; `run` carries the tasks out.

    It touches nothing itself: what a subagent does is judged call by call.
    """

    effect: Effect = "exec"

    def __init__(self, agents: Mapping[str, str], run: Run) -> None:
        self._agents = agents
        self._run = run
        self.spec: ToolSpec = tool_spec("task", f"{_WORDS}\n{listed(agents)}", TaskArguments)

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        tasks = parse(TaskArguments, input, "task").tasks
        unknown = [task.agent for task in tasks if task.agent not in self._agents]
        if unknown:
            known = ", ".join(self._agents)
            raise ToolError(f"There is no agent named {unknown[0]!r}. Agents: {known}.")
        assignments = tuple(Assignment(task.agent, task.prompt) for task in tasks)

        async def run() -> Outcome:
            return await self._run(assignments, context)

        return PreparedCall((), run)


def listed(agents: Mapping[str, str]) -> str:
    """One line an agent, within a budget: what no longer fits is named without its description."""
    lines: list[str] = []
    rest: list[str] = []
    room = _LIST_CHARACTERS
    for name, description in agents.items():
        line = f"- {name}: {' '.join(description.split())}".removesuffix(": ")
        if len(line) > _LINE_CHARACTERS:
            line = f"{line[: _LINE_CHARACTERS - 1]}…"
        if rest or len(line) > room:
            rest.append(name)
        else:
            room -= len(line) + 1
            lines.append(line)
    if rest:
        more = f" and {len(rest) - _MOST_NAMED} more" if len(rest) > _MOST_NAMED else ""
        lines.append(f"- also: {', '.join(rest[:_MOST_NAMED])}{more}")
    return "\n".join(lines)

"""Subagents: the tasks of one `task` call, each a conversation of its own, side by side."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from keen.agent.stream import reaped
from keen.core.errors import KeenError
from keen.extend._subagents_child import Child, Parts
from keen.extend._subagents_ledger import Ledger
from keen.extend._subagents_result import Report, is_failure, told
from keen.extend.profiles import Profiles
from keen.tools.base import Context, Outcome
from keen.tools.task import Assignment, Task

__all__ = ["Ledger", "Parts", "Subagents"]

_AT_ONCE: Final = 4
_TICK_SECONDS: Final = 1.0
"""How often the screen is told how long each has run."""
_log: Final = logging.getLogger(__name__)


@dataclass
class Subagents:
    """Starts subagents of these profiles; none outlives the call that started it."""

    parts: Parts
    profiles: Profiles

    def tool(self) -> Task:
        """The tool `task`."""
        agents = {name: each.description for name, each in self.profiles.profiles.items()}
        return Task(agents, self.run)

    async def run(self, assignments: Sequence[Assignment], context: Context) -> Outcome:
        """Carry all tasks out, a few at once. One that fails leaves the others alone.

        Cancelled, it ends them all, their commands and connections included, before it raises.
        """
        labels = _labels([assignment.agent for assignment in assignments])
        children = [
            Child(self.parts, self.profiles.profiles[assignment.agent], number, label, context)
            for number, (assignment, label) in enumerate(zip(assignments, labels, strict=True), 1)
        ]
        for child in children:
            await child.tell()
        gate = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_ended(child, assignment.prompt, gate))
                for child, assignment in zip(children, assignments, strict=True)
            ]
            pending = set(tasks)
            while pending:
                _, pending = await asyncio.wait(pending, timeout=_TICK_SECONDS)
                for child in children:
                    if child.state == "running":
                        await child.tell()
        reports = [task.result() for task in tasks]
        output = await asyncio.to_thread(told, reports, context.scratch)
        return Outcome(output, is_error=is_failure(reports))


async def _ended(child: Child, prompt: str, gate: asyncio.Semaphore) -> Report:
    """How a subagent ended, whatever went wrong in it; its failure is nobody else's."""
    async with gate:
        running = asyncio.create_task(child.run(prompt))
        async with reaped(running):
            # Waiting raises our own cancellation only, never the subagent's outcome.
            await asyncio.wait([running])
        report = _outcome(child, running)
        await child.end(report)
        return report


def _outcome(child: Child, running: asyncio.Task[Report]) -> Report:
    if running.cancelled():
        return Report(child.label, "interrupted")
    error = running.exception()
    if error is None:
        return running.result()
    if isinstance(error, KeenError | OSError):
        return Report(child.label, "failed", reason=str(error))
    _log.error("the subagent %s failed", child.label, exc_info=error)
    return Report(child.label, "failed", reason=f"{type(error).__name__}: {error}")


def _labels(agents: Sequence[str]) -> list[str]:
    """The agents' names, numbered where one comes more than once."""
    counted, so_far = Counter(agents), Counter[str]()
    labels: list[str] = []
    for agent in agents:
        so_far[agent] += 1
        labels.append(f"{agent} {so_far[agent]}" if counted[agent] > 1 else agent)
    return labels

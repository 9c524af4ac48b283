"""Runs one command in a session of its own, within its limits, and leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.processes import HAS_PROC, Output, Program, drained, in_thread, pids
from keen.tools._limits import PROCESSES, Limits, limit, limited, system_tasks
from keen.tools._spool import Spool

_TICK: Final = 0.1
"""Seconds between two looks at new output: at most ten pieces of progress a second."""
_DRAIN: Final = 0.2
"""Seconds that output may still come after the process ended."""
_GRACE: Final = 1.0
"""Seconds between the request to end and the end."""
_LAST: Final = 1.5
"""Seconds after SIGKILL within which the system must have taken the processes away."""
_PROGRESS_BYTES: Final = 4_096
_LOOK_SECONDS: Final = 0.2
"""Least time between two looks at what a command uses; a look that took long waits longer."""
_LOOK_SHARE: Final = 20

Ending: TypeAlias = Literal["exited", "timed out", "stopped"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `code`: its exit status, or minus the number of a signal."""

    code: int
    how: Ending
    seconds: float
    leftovers: int
    """Processes it had left running, which were ended."""
    why: str = ""
    """What it was stopped for."""


class Process:
    """One running command; `start`, then exactly one `wait`."""

    def __init__(self, program: Program, output: Output, spool: Spool, limits: Limits) -> None:
        self._program = program
        self._output = output
        self._spool = spool
        self._limits = limits
        self._why = ""
        self._started = time.monotonic()
        self._tasks_before = system_tasks()

    @property
    def pid(self) -> int:
        return self._program.pid

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        spool: Spool,
        *,
        is_wrapped: bool = False,
        limits: Limits | None = None,
    ) -> Process:
        """Start `argv` without a terminal, its output into `spool`. Raises: OSError.

        `is_wrapped`: `argv` is a program that holds the command and dies with it.
        """
        limits = limits or Limits()
        await asyncio.to_thread(limits.begin)
        processes = await asyncio.to_thread(_own_threads) + PROCESSES
        output = Output(spool.write)
        try:
            program = await Program.start(
                limited(argv, processes) if is_wrapped else argv,
                cwd,
                environment,
                stdout=output.writing,
                stderr=output.writing,
                is_wrapped=is_wrapped,
            )
        except BaseException:
            output.close()
            raise
        limit(program.pid, processes)
        output.listen()
        return cls(program, output, spool, limits)

    async def wait(
        self, seconds: float | None, progress: Callable[[str], Awaitable[None]]
    ) -> Ended:
        """Wait for the end or `seconds`; whatever happens, every process of it is gone after."""
        leftovers = 0
        try:
            how = await self._watch(seconds, progress)
            if how == "exited":
                await drained([self._output], _DRAIN)
        finally:
            try:
                leftovers = await self._program.end(_GRACE, _LAST)
            finally:
                self._output.finish()
        seconds = time.monotonic() - self._started
        return Ended(self._program.code or 0, how, seconds, leftovers, self._why)

    async def _watch(
        self, seconds: float | None, progress: Callable[[str], Awaitable[None]]
    ) -> Ending:
        deadline = None if seconds is None else self._started + seconds
        exit_ = asyncio.ensure_future(self._program.exited())
        told = 0
        look_at = time.monotonic() + _LOOK_SECONDS
        try:
            while True:
                left = _TICK if deadline is None else min(_TICK, deadline - time.monotonic())
                await asyncio.wait({exit_}, timeout=max(0.0, left))
                if exit_.done():
                    return "exited"
                if deadline is not None and time.monotonic() >= deadline:
                    return "timed out"
                if (begun := time.monotonic()) >= look_at or self._swells():
                    self._why = await in_thread(self._exceeded)
                    if self._why:
                        # What grows does not wait for a polite end, and uses it to grow on.
                        self._program.kill()
                        return "stopped"
                    took = time.monotonic() - begun
                    look_at = begun + max(_LOOK_SECONDS, took * _LOOK_SHARE)
                if self._spool.total != told:
                    told = self._spool.total
                    await _within(progress(self._spool.tail(_PROGRESS_BYTES)), deadline)
        finally:
            exit_.cancel()
            await asyncio.wait({exit_})

    def _swells(self) -> bool:
        """True when the whole system has got more new processes than the command may start."""
        most = self._limits.processes
        return bool(most) and system_tasks() - self._tasks_before > most

    def _exceeded(self) -> str:
        return self._limits.exceeded(self._program.members()) if HAS_PROC else ""


async def _within(awaitable: Awaitable[None], deadline: float | None) -> None:
    """A slow reader of progress must not stretch the time limit."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(left):
            await awaitable


def _own_threads() -> int:
    """Threads that run under this user: the system counts them against the limit."""
    count = 0
    for pid in pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count

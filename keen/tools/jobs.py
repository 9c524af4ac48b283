"""Commands in the background: started by the model, stopped by anyone, ended with keen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keen.core.errors import ToolError
from keen.tools._limits import Limits
from keen.tools._process import Ended, Process
from keen.tools._spool import Spool

MOST_RUNNING: Final = 8
_MOST_KEPT: Final = 32
_OUTPUT_BYTES: Final = 65_536


@dataclass
class Job:
    """One command in the background. `ended` is None as long as it runs."""

    id: int
    command: str
    spool: Spool
    started: float = field(default_factory=time.monotonic)
    ended: Ended | None = None
    task: asyncio.Task[None] | None = None
    release: Callable[[], None] | None = None
    is_followed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the task has begun: cancelled earlier, it would leave the process alone."""

    @property
    def is_running(self) -> bool:
        return self.ended is None

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return time.monotonic() - self.started if self.ended is None else self.ended.seconds

    @property
    def state(self) -> str:
        """ "running", "exit code 0", "stopped by signal 15"."""
        if self.ended is None:
            return "running"
        if self.ended.why:
            return f"stopped: {self.ended.why}"
        code = self.ended.code
        return f"exit code {code}" if code >= 0 else f"stopped by signal {-code}"


class Jobs:
    """All background commands of a session. Owns their tasks; `aclose` ends every one."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._last = 0

    async def start(
        self,
        argv: Sequence[str],
        command: str,
        cwd: Path,
        environment: Mapping[str, str],
        scratch: Path,
        *,
        seconds: float | None = None,
        is_wrapped: bool = False,
        limits: Limits | None = None,
        release: Callable[[], None] | None = None,
    ) -> Job:
        """Start `argv`; `command` is how it is shown, `seconds` its time limit if it has one.

        `is_wrapped` and `limits` as in `Process.start`. `release` is called at the command's end.

        Raises:
            ToolError: too many run already.
            OSError: it cannot be started.
        """
        running = [job for job in self._jobs.values() if job.is_running]
        if len(running) >= MOST_RUNNING:
            numbers = ", ".join(str(job.id) for job in running)
            raise ToolError(
                f"{MOST_RUNNING} background commands run already (jobs {numbers}). "
                "Wait for one to end, or ask the person to stop one (/tasks)."
            )
        spool = Spool(scratch, is_eager=True)
        process = await Process.start(
            argv, cwd, environment, spool, is_wrapped=is_wrapped, limits=limits
        )
        self._last += 1
        job = Job(self._last, command, spool, release=release)
        job.task = asyncio.create_task(self._follow(job, process, seconds))
        self._jobs[job.id] = job
        self._forget()
        return job

    def all(self) -> tuple[Job, ...]:
        """Every job that is still known, oldest first."""
        return tuple(self._jobs.values())

    def output(self, id: int) -> str:
        """The newest output of a job. Raises: ToolError when there is no such job."""
        return self._job(id).spool.tail(_OUTPUT_BYTES)

    async def stop(self, id: int) -> None:
        """End a job with all its processes. Raises: ToolError when there is no such job."""
        await _ended(self._job(id))

    async def aclose(self) -> None:
        """End all jobs; to be called before keen exits."""
        await asyncio.gather(*(_ended(job) for job in self._jobs.values()))

    def _job(self, id: int) -> Job:
        if id not in self._jobs:
            known = ", ".join(map(str, self._jobs)) or "none"
            raise ToolError(f"There is no background job {id}. Known jobs: {known}.")
        return self._jobs[id]

    async def _follow(self, job: Job, process: Process, seconds: float | None) -> None:
        job.is_followed.set()
        try:
            job.ended = await process.wait(seconds, _silent)
        finally:
            await asyncio.to_thread(job.spool.close)
            if job.release is not None:
                job.release()
            if job.ended is None:
                job.ended = Ended(-15, "exited", job.seconds, 0)

    def _forget(self) -> None:
        ended = [job.id for job in self._jobs.values() if not job.is_running]
        for id in ended[: max(0, len(self._jobs) - _MOST_KEPT)]:
            del self._jobs[id]


async def _silent(_text: str) -> None:
    return


async def _ended(job: Job) -> None:
    if job.task is not None and not job.task.done():
        await job.is_followed.wait()
        job.task.cancel()
        await asyncio.wait({job.task})

"""Runs one command in a session of its own and leaves nothing of it behind.

The process is waited for, never the end of its pipe: a child that keeps that open holds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from keen.tools._limits import PROCESSES, Limits, limit, limited, system_tasks
from keen.tools._spool import Spool

MARKER: Final = "KEEN_COMMAND"
"""The variable by which processes of a command are found after they left its session."""

T = TypeVar("T")

_TICK: Final = 0.1
"""Seconds between two looks at new output: at most ten pieces of progress a second."""
_DRAIN: Final = 0.2
"""Seconds that output may still come after the process ended."""
_GRACE: Final = 1.0
"""Seconds between the request to end and the end."""
_LAST: Final = 1.5
"""Seconds after SIGKILL within which the system must have taken the processes away."""
_CHUNK: Final = 262_144
_PROGRESS_BYTES: Final = 4_096
_LOOK_SECONDS: Final = 0.2
"""Least time between two looks at what a command uses; a look that took long waits longer."""
_LOOK_SHARE: Final = 20

_HAS_PROC: Final = os.path.isdir("/proc/self")

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

    def __init__(
        self,
        child: asyncio.subprocess.Process,
        output: _Output,
        mark: str,
        *,
        is_wrapped: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._why = ""
        self._child = child
        self._is_wrapped = is_wrapped
        self._output = output
        self._mark = mark
        self._started = time.monotonic()
        self._tasks_before = system_tasks()

    @property
    def pid(self) -> int:
        return self._child.pid

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
        mark = secrets.token_hex(8)
        limits = limits or Limits()
        await asyncio.to_thread(limits.begin)
        processes = await asyncio.to_thread(_own_threads) + PROCESSES
        reading, writing = os.pipe()
        output = _Output(reading, spool)
        try:
            child = await asyncio.create_subprocess_exec(
                *(limited(argv, processes) if is_wrapped else argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=cwd,
                env={**environment, MARKER: mark},
                start_new_session=True,
            )
        except BaseException:
            output.close()
            await asyncio.to_thread(_end_marked, mark)
            raise
        finally:
            os.close(writing)
        limit(child.pid, processes)
        output.listen()
        return cls(child, output, mark, is_wrapped=is_wrapped, limits=limits)

    async def wait(
        self, seconds: float | None, progress: Callable[[str], Awaitable[None]]
    ) -> Ended:
        """Wait for the end or `seconds`; whatever happens, every process of it is gone after."""
        leftovers = 0
        try:
            how = await self._watch(seconds, progress)
            if how == "exited":
                await self._output.drained(_DRAIN)
        finally:
            leftovers = await _uncancelled(self._end())
        code = self._child.returncode
        seconds = time.monotonic() - self._started
        return Ended(0 if code is None else code, how, seconds, leftovers, self._why)

    async def _watch(
        self, seconds: float | None, progress: Callable[[str], Awaitable[None]]
    ) -> Ending:
        deadline = None if seconds is None else self._started + seconds
        exit_ = asyncio.ensure_future(self._child.wait())
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
                    self._why = await _in_thread(self._exceeded)
                    if self._why:
                        # What grows does not wait for a polite end, and uses it to grow on.
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.killpg(self.pid, signal.SIGKILL)
                        return "stopped"
                    took = time.monotonic() - begun
                    look_at = begun + max(_LOOK_SECONDS, took * _LOOK_SHARE)
                if self._output.take_news():
                    await _within(progress(self._output.spool.tail(_PROGRESS_BYTES)), deadline)
        finally:
            exit_.cancel()
            await asyncio.wait({exit_})

    def _swells(self) -> bool:
        """True when the whole system has got more new processes than the command may start."""
        most = self._limits.processes
        return bool(most) and system_tasks() - self._tasks_before > most

    def _exceeded(self) -> str:
        return self._limits.exceeded(_members(self.pid, self._mark)) if _HAS_PROC else ""

    async def _end(self) -> int:
        """End what is left of the command: politely, then by force. Returns how many were left."""
        first = await _in_thread(self._left)
        is_main_running = self._child.returncode is None
        if first or is_main_running:
            await self._terminate(is_main_running=is_main_running)
        self._output.finish()
        return len(first - {self.pid})

    async def _terminate(self, *, is_main_running: bool) -> None:
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _LAST)):
            deadline = time.monotonic() + patience
            self._signal(number, await _in_thread(self._left))
            while time.monotonic() < deadline:
                left = await _in_thread(self._left)
                if not left and self._child.returncode is not None:
                    return
                if number == signal.SIGKILL:
                    self._signal(number, left)
                await self._rest(deadline)

    async def _rest(self, deadline: float) -> None:
        """A short while, ended at once by the end of the main process."""
        left = min(0.05, max(0.0, deadline - time.monotonic()))
        if self._child.returncode is not None:
            await asyncio.sleep(left)  # children that are not ours cannot be waited for
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._child.wait()

    def _left(self) -> set[int]:
        if _HAS_PROC:
            return _members(self.pid, self._mark)
        return {self.pid} if _is_group(self.pid) else set()

    def _signal(self, number: signal.Signals, left: set[int]) -> None:
        """Send to the group as a whole, so that no fork slips through, then to who left it."""
        if self._is_wrapped and number == signal.SIGTERM and left - {self.pid}:
            # The end of what wraps the command would be the command's own, without any grace.
            for pid in left - {self.pid}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
                    os.kill(pid, signal.SIGCONT)
            return
        in_group = self.pid in left or any(_group(pid) == self.pid for pid in left)
        if self._child.returncode is None or in_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
                os.killpg(self.pid, signal.SIGCONT)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)


async def _in_thread(look: Callable[[], T]) -> T:
    """The result of `look`, which blocks; where the system has no thread left, at once."""
    try:
        return await asyncio.to_thread(look)
    except RuntimeError:  # "can't start new thread": a fork bomb is at work
        return look()


class _Output:
    """The reading end of a command's output."""

    def __init__(self, descriptor: int, spool: Spool) -> None:
        self.spool = spool
        self._descriptor: int | None = descriptor
        self._ended = asyncio.Event()
        self._has_news = False
        os.set_blocking(descriptor, False)
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)

    def listen(self) -> None:
        assert self._descriptor is not None
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def take_news(self) -> bool:
        """True once for what came since the last look."""
        news, self._has_news = self._has_news, False
        return news

    async def drained(self, seconds: float) -> None:
        """Until everything that holds the other end has closed it, `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def finish(self) -> None:
        """Read what is still in the pipe, no longer than that, and close."""
        for _ in range(16):
            if not self._read():
                break
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bool:
        """One piece; False when there was none."""
        if self._descriptor is None:
            return False
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._ended.set()
            self.close()
            return False
        self.spool.write(data)
        self._has_news = True
        return True


async def _within(awaitable: Awaitable[None], deadline: float | None) -> None:
    """A slow reader of progress must not stretch the time limit."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(left):
            await awaitable


async def _uncancelled(work: Awaitable[int]) -> int:
    """Finish `work` whatever is cancelled meanwhile; the cancellation goes on after."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


def _own_threads() -> int:
    """Threads that run under this user: the system counts them against the limit."""
    count = 0
    for pid in _pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def _pids() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _members(session: int, mark: str) -> set[int]:
    """Living processes of a session, those elsewhere that carry its mark, and their children."""
    wanted = f"{MARKER}={mark}".encode()
    members: set[int] = set()
    parents: dict[int, int] = {}
    for pid in _pids():
        fields = _status(pid)
        if fields is None or fields[0] in ("Z", "X"):
            continue
        parents[pid] = int(fields[1])
        if int(fields[3]) == session or _carries(pid, wanted):
            members.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _status(pid: int) -> list[str] | None:
    """State, parent, group, session of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _group(pid: int) -> int:
    fields = _status(pid)
    return int(fields[2]) if fields else 0


def _is_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_marked(mark: str) -> None:
    for pid in _members(-1, mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

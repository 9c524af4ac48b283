"""Programs in sessions of their own: what they start is found wherever it went, and ends with them.

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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar

MARKER: Final = "KEEN_COMMAND"
"""The variable by which processes are found after they left the session of what started them."""
HAS_PROC: Final = os.path.isdir("/proc/self")

_CHUNK: Final = 262_144
_MOST_LEFT: Final = 16
"""Pieces still read from a pipe after the end: who writes without end is not waited for."""
_LOOK: Final = 0.05
"""Most seconds between two looks at whether a program that is being ended is gone."""

T = TypeVar("T")


class Program:
    """A running program and everything that it started; `start`, then exactly one `end`."""

    def __init__(self, child: asyncio.subprocess.Process, mark: str, *, is_wrapped: bool) -> None:
        self._child = child
        self._mark = mark
        self._is_wrapped = is_wrapped

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        *,
        stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL,
        stdout: int,
        stderr: int,
        is_wrapped: bool = False,
    ) -> Program:
        """Start `argv` without a terminal. Raises: OSError.

        `is_wrapped`: `argv` is a program that holds another and takes it along when it ends.
        """
        mark = secrets.token_hex(8)
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env={**environment, MARKER: mark},
                start_new_session=True,
            )
        except BaseException:
            await uncancelled(lambda: in_thread(lambda: _kill_marked(mark)))
            raise
        return cls(child, mark, is_wrapped=is_wrapped)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int | None:
        """Its exit status, or minus the number of a signal; None while it runs."""
        return self._child.returncode

    async def exited(self) -> int:
        """Wait for the end of the program itself; its `code`."""
        return await self._child.wait()

    def members(self) -> set[int]:
        """Its living processes; only itself where the system does not list them. Blocking."""
        if HAS_PROC:
            return _members(self.pid, self._mark)
        return {self.pid} if _is_group(self.pid) else set()

    def kill(self) -> None:
        """End its group at once; `end` is still to be called."""
        _send(os.killpg, self.pid, signal.SIGKILL)

    async def end(self, grace: float, last: float) -> int:
        """End what is left of it, politely and `grace` seconds later for good.

        A cancellation meanwhile goes on after it. `last`: seconds that the system has to take
        away what was killed. Returns how many processes it had left running.
        """
        return await uncancelled(lambda: self._end(grace, last))

    async def _end(self, grace: float, last: float) -> int:
        first = left = await in_thread(self.members)
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, last)):
            deadline = time.monotonic() + patience
            self._signal(number, left)
            while (left or self.code is None) and time.monotonic() < deadline:
                await self._rest(deadline)
                left = await in_thread(self.members)
                if number == signal.SIGKILL:  # it may be forking
                    self._signal(number, left)
        return len(first - {self.pid})

    async def _rest(self, deadline: float) -> None:
        """A short while, ended at once by the end of the program itself."""
        seconds = min(_LOOK, max(0.0, deadline - time.monotonic()))
        if self.code is not None:
            await asyncio.sleep(seconds)  # processes that are not our children send no word
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child.wait()

    def _signal(self, number: signal.Signals, left: set[int]) -> None:
        """Send to the group as a whole, so that no fork slips through, then to who left it."""
        others = left - {self.pid}
        if self._is_wrapped and number == signal.SIGTERM and others:
            # The end of what wraps the program would be the program's own, without any grace.
            left = others
        elif self.code is None or self.pid in left or any(_group(pid) == self.pid for pid in left):
            _send(os.killpg, self.pid, number)
        for pid in left:
            _send(os.kill, pid, number)


class Output:
    """A pipe for a program to write into; `take` gets what comes, piece by piece.

    A context: it is closed on the way out.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._ended = asyncio.Event()
        self._reading, self.writing = os.pipe()
        self._open = {self._reading, self.writing}
        os.set_blocking(self._reading, False)
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):
                fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, _CHUNK)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self) -> None:
        """The program has its end of the pipe: read the other one."""
        self._close(self.writing)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    async def drained(self) -> None:
        """Until everything that holds the other end has closed it."""
        await self._ended.wait()

    def finish(self) -> None:
        """Read what still stands in the pipe, no longer than that, and close."""
        for _ in range(_MOST_LEFT):
            if not self._read():
                break
        self.close()

    def close(self) -> None:
        for descriptor in (self._reading, self.writing):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _read(self) -> bool:
        """One piece; False when there was none."""
        if self._reading not in self._open:
            return False
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._ended.set()
            self.close()
            return False
        self._take(data)
        return True


async def drained(outputs: Sequence[Output], seconds: float) -> None:
    """Until whatever holds their other ends has closed them, `seconds` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for output in outputs:
                await output.drained()


async def in_thread(look: Callable[[], T]) -> T:
    """The result of `look`, which blocks; where no thread can be started, at once."""
    try:
        looking = asyncio.get_running_loop().run_in_executor(None, look)
    except RuntimeError:  # the system has no thread left: a fork bomb is at work
        return look()
    return await looking


async def uncancelled(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Finish `work` whatever is cancelled meanwhile; the cancellation goes on after.

    A loop that closes cancels every task, the work's own too: then it begins again.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        task = asyncio.ensure_future(work())
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.cancelled():
            break
    if cancelled is not None:
        raise cancelled
    return task.result()


def pids() -> Iterator[int]:
    """The processes of the system, as far as it lists them."""
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
    for pid in pids():
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


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _send(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    """A signal, and one that wakes who was stopped and could not hear it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(target, number)
        send(target, signal.SIGCONT)


def _kill_marked(mark: str) -> None:
    """End what was started before its start was given up; more than once, since it may fork."""
    for _ in range(3):
        left = _members(-1, mark)
        for pid in left:
            _send(os.kill, pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.02)

"""A server's process: pipes without a transport behind them, and an end that takes all with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from keen.tools._process import MARKER

_CHUNK: Final = 65_536
_STEPS: Final = ((None, 0.3), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.7))
"""What is sent, after its input was closed, and how many seconds the process has then."""


class ServerProcess:
    """One running server in a session of its own; `start`, then exactly one `end`."""

    def __init__(
        self, child: asyncio.subprocess.Process, mark: str, pipes: tuple[int, int, int]
    ) -> None:
        self._child = child
        self._mark = mark
        self._input, self.output, self.errors = pipes
        self._open = {*pipes}

    @property
    def pid(self) -> int:
        return self._child.pid

    @classmethod
    async def start(
        cls, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> ServerProcess:
        """Start `argv` without a terminal. Raises: OSError."""
        mark = secrets.token_hex(8)
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_errors, theirs_errors = os.pipe()
        ours = (ours_in, ours_out, ours_errors)
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=theirs_errors,
                cwd=cwd,
                env={**environment, MARKER: mark},
                start_new_session=True,
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            await asyncio.to_thread(_kill_marked, mark)
            raise
        finally:
            for descriptor in (theirs_in, theirs_out, theirs_errors):
                os.close(descriptor)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        return cls(child, mark, ours)

    async def read(self, descriptor: int) -> bytes:
        """What `output` or `errors` has next, 64 KiB at most; empty at the end."""
        while descriptor in self._open:
            try:
                return os.read(descriptor, _CHUNK)
            except BlockingIOError:
                await _ready(descriptor, asyncio.get_running_loop().add_reader, _no_reader)
            except OSError:
                break
        return b""

    async def write(self, data: bytes) -> None:
        """Hand `data` over, however slowly it is read. Raises: OSError when nobody reads."""
        left = memoryview(data)
        while left:
            if self._input not in self._open:
                raise BrokenPipeError("the server's input is closed")
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                await _ready(self._input, asyncio.get_running_loop().add_writer, _no_writer)

    async def exited(self) -> int:
        """Wait for the end of the process itself; its exit status or minus a signal's number."""
        return await self._child.wait()

    async def end(self) -> None:
        """Close its input, then end it and all it started, within 1.5 seconds."""
        self._close(self._input)
        for number, seconds in _STEPS:
            if number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._child.wait()
                    break
        self._signal(signal.SIGKILL)
        await asyncio.to_thread(_kill_marked, self._mark)
        for descriptor in (self.output, self.errors):
            self._close(descriptor)

    def _signal(self, number: signal.Signals) -> None:
        # The group outlives its leader for as long as a child is in it, and its number with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)


async def _ready(
    descriptor: int, watch: Callable[..., object], unwatch: Callable[[int], object]
) -> None:
    """Until the descriptor can be used again."""
    usable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not usable.done():
            usable.set_result(None)

    watch(descriptor, wake)
    try:
        await usable
    finally:
        unwatch(descriptor)


def _no_reader(descriptor: int) -> None:
    asyncio.get_running_loop().remove_reader(descriptor)


def _no_writer(descriptor: int) -> None:
    asyncio.get_running_loop().remove_writer(descriptor)


def _kill_marked(mark: str) -> None:
    """End what left the session but kept its environment; twice, since it may be forking."""
    wanted = f"{MARKER}={mark}".encode()
    for _ in range(2):
        left = [pid for pid in _pids() if _carries(pid, wanted)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.02)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False

"""A server's process: pipes without a transport behind them, and an end that takes all with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from keen.processes import Program

_CHUNK: Final = 65_536
_PATIENCE: Final = 0.3
"""Seconds in which it may end by itself after its input was closed."""
_GRACE: Final = 0.5
"""Seconds between the request to end and the end."""
_LAST: Final = 0.7
"""Seconds after SIGKILL within which the system must have taken the processes away."""


class ServerProcess:
    """One running server in a session of its own; `start`, then exactly one `end`."""

    def __init__(self, program: Program, pipes: tuple[int, int, int]) -> None:
        self._program = program
        self._input, self.output, self.errors = pipes
        self._open = {*pipes}

    @property
    def pid(self) -> int:
        return self._program.pid

    @classmethod
    async def start(
        cls, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> ServerProcess:
        """Start `argv` without a terminal. Raises: OSError."""
        stdin, ours_in = os.pipe()
        ours_out, stdout = os.pipe()
        ours_errors, stderr = os.pipe()
        ours = (ours_in, ours_out, ours_errors)
        try:
            program = await Program.start(
                argv, cwd, environment, stdin=stdin, stdout=stdout, stderr=stderr
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        return cls(program, ours)

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
        return await self._program.exited()

    async def end(self) -> None:
        """Close its input, then end it and all it started, within 1.5 seconds."""
        self._close(self._input)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._program.exited()
        finally:
            await self._program.end(_GRACE, _LAST)
            for descriptor in (self.output, self.errors):
                self._close(descriptor)

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

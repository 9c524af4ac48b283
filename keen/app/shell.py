"""A shell command of the person's own: in their shell, unsandboxed, its output bounded."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_READ: Final = 8 * 1024
_DRAIN_SECONDS: Final = 0.2
"""After the command has ended, how long a child of it may go on holding the pipe."""
_END_SECONDS: Final = 2.0


class Shell:
    """One command. `stop` ends it with everything it started."""

    def __init__(self, command: str, on_output: Callable[[str], None]) -> None:
        self.command = command
        self._on_output = on_output
        self._process: asyncio.subprocess.Process | None = None
        self.is_stopped = False

    async def run(self) -> int:
        """Run it to its end; returns the exit code. Raises: OSError when it cannot be started."""
        shell = os.environ.get("SHELL") or "/bin/sh"
        process = await asyncio.create_subprocess_exec(
            shell,
            "-c",
            self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._process = process
        reading = asyncio.create_task(self._read(process))
        try:
            code = await process.wait()
            await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
            return code
        finally:
            self._signal(signal.SIGKILL)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            if process.returncode is None:
                await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await process.stdout.read(_READ):
            self._on_output(decoder.decode(data))

    def stop(self) -> None:
        """Ask it to end, and end it two seconds later."""
        self.is_stopped = True
        self._signal(signal.SIGINT)
        asyncio.get_running_loop().call_later(_END_SECONDS, self._signal, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

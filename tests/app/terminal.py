"""keen in a pseudo-terminal, and the screen a person would see."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pexpect
import pyte

ROOT = Path(__file__).resolve().parents[2]
KEYS: Mapping[str, bytes] = {
    "enter": b"\r",
    "escape": b"\x1b",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    "delete": b"\x1b[3~",
    "backspace": b"\x7f",
    "shift+enter": b"\x1b[13;2u",
    "alt+enter": b"\x1b\r",
    "ctrl+home": b"\x1b[1;5H",
    "ctrl+end": b"\x1b[1;5F",
    "ctrl+underscore": b"\x1f",
    "alt+b": b"\x1bb",
    "alt+f": b"\x1bf",
    "alt+d": b"\x1bd",
    **{f"ctrl+{letter}": bytes([ord(letter) - 96]) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
# What pyte does not know and would print: the kitty keyboard protocol, mode queries.
_UNKNOWN = re.compile(
    rb"\x1b\[[<>=][0-9;]*[a-z]|\x1b\[\?[0-9;]*\$p|\x1bP.*?\x1b\\|\x1b\][^\x07]*\x07"
)


class Terminal:
    """One keen in one terminal. Everything it wrote is in `raw`."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        home: Path,
        size: tuple[int, int] = (100, 30),
        environment: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("-m", "keen"),
    ) -> None:
        self.columns, self.rows = size
        self._screen = pyte.Screen(self.columns, self.rows)
        self._stream = pyte.ByteStream(self._screen)
        self._arguments = [*command, *arguments]
        self._cwd = cwd
        self._changed = asyncio.Event()
        self.raw = bytearray()
        self._pending = b""
        self._is_open = False
        self._is_hung_up = False
        self._child: Any = None
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KEEN_HOME": str(home / "keen"),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/sh",
            "TEXTUAL_ANIMATIONS": "none",
            "AWS_EC2_METADATA_DISABLED": "true",
            **(environment or {}),
        }

    async def __aenter__(self) -> Self:
        self._child = pexpect.spawn(
            sys.executable,
            self._arguments,
            cwd=str(self._cwd),
            env=self.environment,
            dimensions=(self.rows, self.columns),
            timeout=None,
        )
        self._is_open = True
        asyncio.get_running_loop().add_reader(self._child.child_fd, self._read)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(f"\n--- the screen ---\n{self.text}\n------------------")
        self._stop_reading()
        with suppress(OSError):
            self._child.kill(signal.SIGKILL)
        if self._is_hung_up:
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, self._child.pid, 0)
        else:
            await asyncio.to_thread(self._child.close, True)

    # What is seen.

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def prompt(self) -> str:
        """What stands in the prompt, its first line."""
        for line in reversed(self.lines):
            if line.lstrip().startswith(("❯", "!")):
                return line.lstrip()[1:].strip()
        return ""

    def colors_of(self, text: str) -> set[str]:
        """The foreground colours of the first place where a text stands."""
        for number, line in enumerate(self._screen.display):
            column = line.find(text)
            if column >= 0:
                row = self._screen.buffer[number]
                return {row[column + index].fg for index in range(len(text))}
        return set()

    async def until(self, wanted: str | Callable[[], bool]) -> None:
        """Wait until a text is on the screen, or a condition holds."""

        def holds() -> bool:
            return wanted in self.text if isinstance(wanted, str) else wanted()

        while not holds():
            self._changed.clear()
            if not self._is_open:
                raise AssertionError(f"keen ended while {wanted!r} was awaited:\n{self.text}")
            await self._changed.wait()

    async def gone(self, unwanted: str) -> None:
        """Wait until a text is no longer on the screen."""
        await self.until(lambda: unwanted not in self.text)

    async def ready(self) -> None:
        """Wait until there is a model and a prompt."""
        await self.until(
            lambda: (
                "Ask, or /" in self.text
                and bool(self.lines[-1].strip())
                and "no model yet" not in self.text
            )
        )

    async def ready_to_send(self) -> None:
        """Wait until the status line names a model again."""
        await self.until(lambda: "no model yet" not in self.text)

    async def quiet(self, seconds: float = 0.2) -> None:
        """Wait until nothing has been drawn for a while: for what must not happen."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return
            if not self._is_open:
                return

    # What is done.

    def press(self, *keys: str) -> None:
        """Press keys by name; several are sent in one write."""
        os.write(self._child.child_fd, b"".join(KEYS[key] for key in keys))

    def type(self, text: str | bytes) -> None:
        """Type text, in one write."""
        data = text.encode() if isinstance(text, str) else text
        os.write(self._child.child_fd, data)

    async def type_long(self, data: bytes) -> None:
        """Write more than a terminal takes at once."""
        await asyncio.to_thread(self._write_all, data)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._child.child_fd, view[:4096]) :]

    def paste(self, text: str) -> None:
        """Paste, as terminals mark it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    async def say(self, text: str) -> None:
        """Type a message, see it in the prompt, and send it."""
        self.type(text)
        await self.until(lambda: text.split()[-1][-20:] in self.text)
        self.press("enter")

    def resize(self, columns: int, rows: int) -> None:
        """Another size, as a window that is dragged."""
        self._child.setwinsize(rows, columns)
        self._screen.resize(rows, columns)

    def signal(self, number: int) -> None:
        self._child.kill(number)

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    async def stopped(self) -> None:
        """Wait until the process is suspended; a signal to go on before that would be lost."""
        _, status = await asyncio.to_thread(os.waitpid, self._child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"keen ended with {status} and did not stop"

    async def ended(self) -> int:
        """Wait for the end; returns the exit code, or minus the signal."""
        while self._is_open:
            self._changed.clear()
            await self._changed.wait()
        await asyncio.to_thread(self._child.wait)
        if self._child.exitstatus is None:
            return -int(self._child.signalstatus)
        return int(self._child.exitstatus)

    def hang_up(self) -> None:
        """The window is closed."""
        self._stop_reading()
        self._is_hung_up = True
        self._child.ptyproc.fileobj.close()
        self._child.closed = self._child.ptyproc.closed = True

    def _read(self) -> None:
        try:
            data = os.read(self._child.child_fd, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._stop_reading()
        else:
            self.raw += data
            self._feed(data)
        self._changed.set()

    def _feed(self, data: bytes) -> None:
        data = self._pending + data
        # A sequence may be cut by the read: keep its beginning for the next one.
        cut = data.rfind(b"\x1b", max(len(data) - 32, 0))
        whole = cut < 0 or re.match(rb"\x1b(\[[0-9;?<>=$]*[@-~]|[^\[\]P])", data[cut:])
        self._pending = b"" if whole else data[cut:]
        self._stream.feed(_UNKNOWN.sub(b"", data if whole else data[:cut]))

    @property
    def is_open(self) -> bool:
        """True as long as keen holds the terminal."""
        return self._is_open

    def _stop_reading(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._child.child_fd)

"""Rows about the screen: the first frame, the echo of a key, an answer of 20,000 chunks."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from bench_parts.machine import SCRIPTS, Failed, Place, memory_of
from bench_parts.rows import KEEN, Figure, Once, Row, Samples, at_most, times

_TEXTUAL: Final = "bare Textual"
_LOG: Final = "RichLog"
_BARE: Final = str(SCRIPTS / "bench_parts" / "bare_screen.py")
_GUIDE: Final = ("-m", "keen", "demo")
_SIZE: Final = (30, 100)
_LONGEST: Final = 60.0
_KEYS: Final = "abcdefghijklmnopqrstuvwxyz" * 2
_QUIET: Final = 0.5
"""Seconds without a byte, after which a screen counts as settled."""
_CHUNKS: Final = 20_000


class Screen:
    """A program in a pseudo-terminal of 100 by 30."""

    def __init__(self, place: Place, *words: str) -> None:
        variables = place.environment | {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/sh",
        }
        self.written = b""
        self.started = time.monotonic()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(place.work)
            os.execve(sys.executable, [sys.executable, *words], variables)
        size = struct.pack("HHHH", *_SIZE, 0, 0)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, is_so: Callable[[], object]) -> float:
        """Read until `is_so()`; returns when. Raises: Failed when nothing comes of it."""
        end = time.monotonic() + _LONGEST
        while not is_so():
            if time.monotonic() > end or not self.read(0.005):
                raise Failed(f"waited in vain; the screen ends with {self.written[-200:]!r}")
        return time.monotonic()

    def shows(self, text: str) -> float:
        """Wait until a text has been written since the last look; returns when."""
        wanted = text.encode()
        when = self.until(lambda: wanted in self.written)
        self.written = b""
        return when

    def settle(self) -> None:
        """Read until nothing more is written."""
        last = time.monotonic()
        while time.monotonic() - last < _QUIET:
            before = len(self.written)
            self.read(0.05)
            if len(self.written) > before:
                last = time.monotonic()
        self.written = b""

    def read(self, seconds: float) -> bool:
        """What has been written; False once the program has ended."""
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.descriptor, 1 << 16)
        except OSError:
            return False
        self.written += data
        return bool(data)

    def cpu(self) -> float:
        """Processor seconds so far."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            shown = subprocess.run(
                ["ps", "-o", "time=", "-p", str(self.pid)], capture_output=True, text=True
            ).stdout
            minutes, _, seconds = shown.strip().rpartition(":")
            return float(minutes or 0) * 60 + float(seconds)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)


@contextmanager
def screen(place: Place, *words: str) -> Generator[Screen]:
    shown = Screen(place, *words)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def start(place: Place) -> Generator[Once]:
    """A key typed as soon as the screen is there, and its echo; then the memory at rest."""

    def started(*words: str) -> tuple[float, float, float]:
        with screen(place, *words) as shown:
            frame = shown.shows("\x1b[?1049h")
            shown.type("~")
            echo = shown.shows("~")
            shown.settle()
            _, held = memory_of(shown.pid)
            return frame - shown.started, echo - shown.started, held

    def once() -> Samples:
        keen, bare = started(*_GUIDE), started(_BARE, "prompt")
        names = ("first bytes", "key echoed", "PSS")
        return {name: {KEEN: keen[n], _TEXTUAL: bare[n]} for n, name in enumerate(names)}

    yield once


@contextmanager
def keys(place: Place) -> Generator[Once]:
    """Single keys at rest, each until it is on the screen."""

    def echoes(*words: str) -> list[float]:
        with screen(place, *words) as shown:
            shown.shows("\x1b[?1049h")
            shown.type("~")
            shown.shows("~")
            shown.settle()
            spent: list[float] = []
            for key in _KEYS:
                typed = time.monotonic()
                shown.type(key)
                spent.append((shown.shows(key) - typed) * 1000)
                shown.read(0.02)
                shown.written = b""
            return sorted(spent)

    def once() -> Samples:
        keen, bare = echoes(*_GUIDE), echoes(_BARE, "prompt")
        return {
            "echo": {KEEN: statistics.median(keen), _TEXTUAL: statistics.median(bare)},
            "slowest": {KEEN: keen[-1], _TEXTUAL: bare[-1]},
        }

    yield once


@contextmanager
def chunks(place: Place, dialect: str) -> Generator[Once]:
    """From the request to the last line on the screen."""
    with place.server(dialect, f"chunks {_CHUNKS}") as server:

        def drawn(done: str, *words: str) -> tuple[float, float]:
            with screen(place, *words) as shown:
                seen = server.seen()

                def is_asked() -> bool:
                    seen.extend(server.seen())
                    return bool(seen)

                shown.until(is_asked)
                before = shown.cpu()
                end = shown.shows(done)
                return end - seen[0].at, shown.cpu() - before

        def once() -> Samples:
            keen = drawn("✔ ", "-m", "keen", "Say something.")
            bare = drawn("✔ drawn", _BARE, "log", dialect, server.url)
            return {
                "wall": {KEEN: keen[0], _LOG: bare[0]},
                "CPU": {KEEN: keen[1], _LOG: bare[1]},
            }

        yield once


ROWS: Final = (
    Row(
        "screen-start",
        "keen in a terminal: launch to the first key on the screen",
        {
            "first bytes": Figure("s"),
            "key echoed": Figure("s", times(_TEXTUAL, 1.5)),
            "PSS": Figure("MB", at_most(70)),
        },
        start,
    ),
    Row(
        "screen-keys",
        "keen in a terminal: a key until it is on the screen",
        {"echo": Figure("ms"), "slowest": Figure("ms", at_most(50))},
        keys,
    ),
    *(
        Row(
            f"screen-chunks-{dialect}",
            f"keen in a terminal: an answer of {_CHUNKS:,} chunks",
            {"wall": Figure("s", at_most(1)), "CPU": Figure("s", at_most(1))},
            partial(chunks, dialect=dialect),
        )
        for dialect in ("chat", "responses", "anthropic")
    ),
)

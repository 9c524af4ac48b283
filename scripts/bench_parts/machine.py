"""Processes and places of the benchmark: what a run cost, read from the operating system."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SCRIPTS: Final = Path(__file__).resolve().parent.parent
ROOT: Final = SCRIPTS.parent
_LONGEST: Final = 600.0
"""Seconds after which a process of a run is ended."""
_SHOWN: Final = 2_000


class Failed(Exception):
    """A run did not do what it was to be measured doing."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished process. `started` and `ended` are of time.monotonic, `peak` is in MB."""

    started: float
    ended: float
    cpu: float
    peak: float
    output: bytes

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def json(self) -> dict[str, Any]:
        """The last line of the output as an object."""
        return json.loads(self.output.splitlines()[-1])


def run(words: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> Ran:
    """A process to its end. Raises: Failed when it exits with another code than 0."""
    with tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        end = threading.Timer(_LONGEST, process.kill)
        end.start()
        try:
            assert process.stdout is not None
            with process.stdout as pipe:
                output = pipe.read()
            _, status, usage = os.wait4(process.pid, 0)
            ended = time.monotonic()
        finally:
            end.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            told = (output[-_SHOWN:] + errors.read()[-_SHOWN:]).decode("utf-8", "replace")
            raise Failed(f"{' '.join(words[-4:])} exited with {process.returncode}: {told}")
    unit = 1 if sys.platform == "darwin" else 1024
    peak = usage.ru_maxrss * unit / 2**20
    return Ran(started, ended, usage.ru_utime + usage.ru_stime, peak, output)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the server saw it: when it was whole (time.monotonic), and its body's bytes."""

    at: float
    bytes: int


@dataclass
class Server:
    """The tests' fake provider in a process of its own."""

    url: str
    log: Path
    _offset: int = 0

    def seen(self) -> list[Seen]:
        """The requests since the last look."""
        with self.log.open() as file:
            file.seek(self._offset)
            lines = file.readlines()
            self._offset = file.tell()
        return [Seen(**json.loads(line)) for line in lines]


@dataclass
class Place:
    """A home, a workspace and whatever else a row needs, in a directory of its own."""

    root: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.home.mkdir(mode=0o700)
        self.work.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KEEN_HOME": str(self.home),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{SCRIPTS}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "TMPDIR": str(self.root),
        }

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def keen(self, *words: str) -> Ran:
        """`keen WORDS` to its end."""
        return self.python("-m", "keen", *words)

    def bare(self, *words: str) -> Ran:
        """One of the baselines of bare.py to its end."""
        return self.python(str(SCRIPTS / "bench_parts" / "bare.py"), *words)

    def inside(self, *words: str) -> Ran:
        """One of the measurements inside of keen's modules, of inside.py."""
        return self.python("-m", "bench_parts.inside", *words)

    def python(self, *words: str) -> Ran:
        return run([sys.executable, *words], cwd=self.work, environment=self.environment)

    @contextmanager
    def server(self, dialect: str, *script: str, window: int = 200_000) -> Generator[Server]:
        """The fake provider, and settings that point keen at it."""
        name = f"{dialect}-{'-'.join(script)}".replace(" ", "-")
        log, ready = self.root / f"{name}.log", self.root / f"{name}.url"
        log.touch()
        module = [sys.executable, "-m", "bench_parts.server", dialect, " ".join(script)]
        files = [str(log), str(ready), str(self.home / "config.toml"), str(window)]
        process = subprocess.Popen(
            module + files, cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL
        )
        try:
            wait_for(ready.exists, process.pid)
            yield Server(ready.read_text().strip(), log)
        finally:
            process.terminate()
            process.wait()
            ready.unlink(missing_ok=True)

    @contextmanager
    def running(self, *words: str) -> Generator[int]:
        """`python WORDS` while it runs: its process id. It is ended on the way out."""
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process.pid
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait()


def wait_for(is_so: Callable[[], object], pid: int) -> None:
    """Until `is_so()`. Raises: Failed when the process ends first or nothing comes of it."""
    deadline = time.monotonic() + _LONGEST
    while not is_so():
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            raise Failed("the process ended before it got there")
        if time.monotonic() > deadline:
            raise Failed("waited in vain")
        time.sleep(0.01)


def memory_of(pid: int) -> tuple[float, float]:
    """RSS and PSS of a process in MB; where there is no /proc, RSS for both."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except FileNotFoundError:
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
        megabytes = int(shown.stdout) / 1024
        return megabytes, megabytes
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE))
    return int(found["Rss"]) / 1024, int(found["Pss"]) / 1024

"""Runs a program of the person's: text on its standard input, bounded output, nothing left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.agent.stream import finished
from keen.core.errors import ConfigError
from keen.tools._environment import command_path
from keen.tools._process import MARKER

OUTPUT_BYTES: Final = 65_536
"""Kept of each of the two outputs: their beginning."""

_FLOOD_BYTES: Final = 16 * 1024 * 1024
"""A program that writes more than this is ended: it would never stop by itself."""
_CHUNK: Final = 262_144
_DRAIN: Final = 0.2
"""Seconds that output may still come after the program ended."""
_GRACE: Final = 0.5
"""Seconds between the request to end and the end."""
_LAST: Final = 1.5
"""Seconds after SIGKILL within which the system must have taken the processes away."""
_HAS_PROC: Final = os.path.isdir("/proc/self")

Ending: TypeAlias = Literal["exited", "timed out", "flooded"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `code`: its exit status, or minus the number of a signal."""

    how: Ending
    code: int
    stdout: str
    stderr: str


def resolved(argv: Sequence[str], path: str, roots: tuple[Path, ...]) -> tuple[str, ...]:
    """`argv` with the absolute path of its program. A bare name is looked up in `path`, never in
    a folder of the workspace.

    Raises: ConfigError when there is no such program, or its path is relative.
    """
    program = os.path.expanduser(argv[0])
    if os.path.isabs(program):
        return (program, *argv[1:])
    if os.sep in program:
        raise ConfigError(f"{argv[0]} is a relative path: name the program by its full path")
    found = shutil.which(program, path=command_path(path, roots))
    if found is None:
        raise ConfigError(f"there is no program {argv[0]} on PATH outside the workspace")
    return (found, *argv[1:])


async def run(
    argv: Sequence[str], said: bytes, cwd: Path, environment: Mapping[str, str], seconds: float
) -> Ended:
    """Run `argv`, with `said` to read, for `seconds` at most. Raises: OSError.

    However it ends, and when cancelled, every process that it started is gone afterwards.
    """
    mark = secrets.token_hex(8)
    with contextlib.ExitStack() as stack:
        # A file in place of a pipe: a program that reads nothing cannot hold anything up.
        words = stack.enter_context(tempfile.TemporaryFile())
        words.write(said)
        words.seek(0)
        flood = asyncio.Event()
        outputs = [stack.enter_context(_Output(flood)) for _ in range(2)]
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=words,
                stdout=outputs[0].writing,
                stderr=outputs[1].writing,
                cwd=cwd,
                env={**environment, MARKER: mark},
                start_new_session=True,
            )
        except BaseException:
            await finished(asyncio.ensure_future(asyncio.to_thread(_end_marked, mark)))
            raise
        for output in outputs:
            output.listen()
        try:
            how = await _ending(child, flood, seconds)
            if how == "exited":
                await _drained(outputs)
        finally:
            ending = asyncio.ensure_future(_end(child, mark))
            await finished(ending)
        ending.result()
        stdout, stderr = (output.text() for output in outputs)
        return Ended(how, child.returncode or 0, stdout, stderr)


class _Output:
    """A pipe whose beginning is kept and the rest thrown away. `flood` is set by too much."""

    def __init__(self, flood: asyncio.Event) -> None:
        self._flood = flood
        self._kept = bytearray()
        self._total = 0
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._is_open = {self._reading, self.writing}
        self.ended = asyncio.Event()

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        for descriptor in self._is_open:
            os.close(descriptor)
        self._is_open.clear()

    def listen(self) -> None:
        """The program has its end of the pipe: read the other one."""
        os.close(self.writing)
        self._is_open.discard(self.writing)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def text(self) -> str:
        """What was written, up to the limit, with what still stands in the pipe."""
        for _ in range(16):
            if self.ended.is_set() or not self._read():
                break
        return bytes(self._kept).decode("utf-8", "replace")

    def _read(self) -> bool:
        """One piece; False when there was none."""
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.ended.set()
            asyncio.get_running_loop().remove_reader(self._reading)
            return False
        self._kept += data[: OUTPUT_BYTES - len(self._kept)]
        self._total += len(data)
        if self._total > _FLOOD_BYTES:
            self._flood.set()
        return True


async def _ending(
    child: asyncio.subprocess.Process, flood: asyncio.Event, seconds: float
) -> Ending:
    exit_ = asyncio.ensure_future(child.wait())
    flooded = asyncio.ensure_future(flood.wait())
    both = {exit_, flooded}
    try:
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return "flooded" if flooded.done() else "exited" if exit_.done() else "timed out"
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)


async def _drained(outputs: Sequence[_Output]) -> None:
    """Until whatever holds the other ends has closed them, a short while at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN):
            for output in outputs:
                await output.ended.wait()


async def _end(child: asyncio.subprocess.Process, mark: str) -> None:
    """End what is left of the program: politely, then by force."""
    for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _LAST)):
        deadline = time.monotonic() + patience
        has_asked = False
        while time.monotonic() < deadline:
            left = await asyncio.to_thread(_left, child.pid, mark)
            if not left and child.returncode is not None:
                return
            if not has_asked or number == signal.SIGKILL:
                _signal(number, child, left)
                has_asked = True
            await _rest(child)


async def _rest(child: asyncio.subprocess.Process) -> None:
    """A short while, ended at once by the end of the main process."""
    if child.returncode is not None:
        await asyncio.sleep(0.02)  # processes that are not our children cannot be waited for
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await child.wait()


def _signal(number: signal.Signals, child: asyncio.subprocess.Process, left: set[int]) -> None:
    """Send to the group as a whole, so that no fork slips through, then to who left it."""
    is_group = child.returncode is None or any(_group(pid) == child.pid for pid in left)
    sends = [(os.killpg, child.pid)] if is_group else []
    for send, target in (*sends, *((os.kill, pid) for pid in left)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(target, number)
            send(target, signal.SIGCONT)


def _left(session: int, mark: str) -> set[int]:
    """Living processes of a session, those elsewhere that carry its mark, and their children."""
    if not _HAS_PROC:
        return {session} if _is_group(session) else set()
    wanted = f"{MARKER}={mark}".encode()
    members: set[int] = set()
    parents: dict[int, int] = {}
    for pid in _processes():
        fields = _status(pid)
        if not fields or fields[0] in ("Z", "X"):
            continue
        parents[pid] = int(fields[1])
        if int(fields[3]) == session or wanted in _variables(pid):
            members.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def _end_marked(mark: str) -> None:
    for pid in _left(-1, mark) if _HAS_PROC else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _status(pid: int) -> list[str]:
    """State, parent, group, session of a process; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _group(pid: int) -> int:
    fields = _status(pid)
    return int(fields[2]) if fields else 0 if _HAS_PROC else pid


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True

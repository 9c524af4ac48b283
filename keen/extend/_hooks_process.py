"""Runs a program of the person's: text on its standard input, bounded output, nothing left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.errors import ConfigError
from keen.extend.project_text import is_inside
from keen.processes import Output, Program, drained
from keen.tools._environment import command_path

OUTPUT_BYTES: Final = 65_536
"""Kept of each of the two outputs: their beginning."""

_FLOOD_BYTES: Final = 16 * 1024 * 1024
"""A program that writes more than this is ended: it would never stop by itself."""
_DRAIN: Final = 0.2
"""Seconds that output may still come after the program ended."""
_GRACE: Final = 0.5
"""Seconds between the request to end and the end."""
_LAST: Final = 1.5
"""Seconds after SIGKILL within which the system must have taken the processes away."""

Ending: TypeAlias = Literal["exited", "timed out", "flooded"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `code`: its exit status, or minus the number of a signal."""

    how: Ending
    code: int
    stdout: str
    stderr: str


def resolved(
    argv: Sequence[str], path: str, roots: tuple[Path, ...], project: Path | None = None
) -> tuple[str, ...]:
    """`argv` with the absolute path of its program. A bare name is looked up in `path`, never in
    a folder of the workspace; a relative path counts from `project`, and stays inside of it.

    Raises: ConfigError when there is no such program, or its path leads nowhere it may.
    """
    program = os.path.expanduser(argv[0])
    if os.path.isabs(program):
        return (program, *argv[1:])
    if os.sep in program and project is None:
        raise ConfigError(f"{argv[0]} is a relative path: name the program by its full path")
    if os.sep in program and project is not None:
        if not is_inside(project / program, project):
            raise ConfigError(f"{argv[0]} leads out of the project")
        return (str(project / program), *argv[1:])
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
    flood = asyncio.Event()
    said_by = _Beginning(flood), _Beginning(flood)
    with contextlib.ExitStack() as stack:
        # A file in place of a pipe: a program that reads nothing cannot hold anything up.
        words = stack.enter_context(tempfile.TemporaryFile())
        words.write(said)
        words.seek(0)
        outputs = [stack.enter_context(Output(each.take)) for each in said_by]
        stdout, stderr = (output.writing for output in outputs)
        program = await Program.start(
            argv, cwd, environment, stdin=words, stdout=stdout, stderr=stderr
        )
        try:
            for output in outputs:
                output.listen()
            how = await _ending(program, flood, seconds)
            if how == "exited":
                await drained(outputs, _DRAIN)
        finally:
            await program.end(_GRACE, _LAST)
        for output in outputs:
            output.finish()
    return Ended(how, program.code or 0, *(each.text() for each in said_by))


class _Beginning:
    """What a program writes first; the rest is thrown away. `flood` is set by too much."""

    def __init__(self, flood: asyncio.Event) -> None:
        self._flood = flood
        self._kept = bytearray()
        self._total = 0

    def take(self, data: bytes) -> None:
        self._kept += data[: OUTPUT_BYTES - len(self._kept)]
        self._total += len(data)
        if self._total > _FLOOD_BYTES:
            self._flood.set()

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


async def _ending(program: Program, flood: asyncio.Event, seconds: float) -> Ending:
    exit_ = asyncio.ensure_future(program.exited())
    flooded = asyncio.ensure_future(flood.wait())
    both = {exit_, flooded}
    try:
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return "flooded" if flooded.done() else "exited" if exit_.done() else "timed out"
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)

"""Search processes, ripgrep and keen's own, and the one form in which both report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.errors import ToolError

_MOST_PENDING: Final = 1 << 20
"""Bytes of one record; both engines cut lines far below."""
_MOST_WIDTH: Final = 2_000
_HIT: Final = re.compile(rb"([^\0]+)\0(\d+):([^\n]*)\n")
_WORKER: Final = Path(__file__).with_name("_grep_worker.py")


@dataclass(frozen=True, slots=True)
class Hit:
    """One matching line."""

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Engine:
    """A command line, and what it reads on stdin."""

    command: tuple[str, ...]
    input: bytes = b""


class BadPattern(ToolError):
    """The engine cannot read the pattern."""


def ripgrep(roots: Sequence[Path]) -> str | None:
    """The path of `rg`, never one that the workspace brought along."""
    for directory in os.get_exec_path():
        candidate = Path(directory, "rg")
        if not os.path.isabs(directory) or not os.access(candidate, os.X_OK):
            continue
        real = Path(os.path.realpath(candidate))
        if real.is_file() and not any(real.is_relative_to(root) for root in roots):
            return str(real)
    return None


def ripgrep_engine(program: str, pattern: str, start: Path, most: int, only: str) -> Engine:
    """`most` lines of each file (0: all); `only` is a glob of plain names or empty."""
    command = [
        program, "--no-config", "--color=never", "--no-heading", "--with-filename", "--null",
        "--line-number", "--no-column", "--no-messages", "--sort=path", "--crlf", "--hidden",
        "--no-require-git", "--no-ignore-global", "--glob=!.git", "--no-follow", "--case-sensitive",
        f"--max-columns={_MOST_WIDTH}", "--max-columns-preview", "--max-filesize=25M",
    ]  # fmt: skip
    if most:
        command.append(f"--max-count={most}")
    if only:
        command += [f"--type-add=keen:{only}", "--type=keen"]
    return Engine((*command, f"--regexp={pattern}", "--", str(start)))


def python_engine(pattern: str, files: Sequence[str], most: int) -> Engine:
    """Python's own regular expressions, over the files named."""
    parts = [pattern.encode("utf-8", "replace"), b"%d" % most, *map(os.fsencode, files), b""]
    return Engine((sys.executable, "-I", "-S", str(_WORKER)), b"\0".join(parts))


async def hits(engine: Engine, start: Path) -> AsyncGenerator[Hit, None]:
    """The engine's hits as they come. However it is left, the process is gone afterwards.

    Raises:
        BadPattern: with the engine's own words.
    """
    process = await asyncio.create_subprocess_exec(
        *engine.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env={name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process.stdin, engine.input))
    complaint = asyncio.create_task(process.stderr.read(4_096))
    try:
        pending, marker = b"", b"\n" + os.fsencode(start)
        while chunk := await process.stdout.read(1 << 16):
            pending += chunk
            end = 0
            for match in _HIT.finditer(pending):
                end = match.end()
                yield _hit(match, marker)
            pending = pending[end:][-_MOST_PENDING:]
        if await process.wait() == 2:
            raise BadPattern((await complaint).decode("utf-8", "replace").strip())
    finally:
        await _reap(process, feeding, complaint)


def _hit(match: re.Match[bytes], marker: bytes) -> Hit:
    """ripgrep's remarks about binary files stand before the next path, on lines of their own."""
    path = match[1]
    remark = path.rfind(marker)
    if remark >= 0:
        path = path[remark + 1 :]
    text = match[3].removesuffix(b"\r").decode("utf-8", "replace")
    return Hit(os.fsdecode(path), int(match[2]), text)


async def _feed(stdin: asyncio.StreamWriter, content: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        stdin.write(content)
        await stdin.drain()
    stdin.close()


async def _reap(process: asyncio.subprocess.Process, *tasks: asyncio.Task[object]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, process.wait(), return_exceptions=True)

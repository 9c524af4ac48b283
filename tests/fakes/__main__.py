"""The fake provider as a program, for shell tests and benchmarks.

`python -m tests.fakes --dialect chat --port-file FILE --script "rounds 3 2000"`

Scripts: `answer TEXT`; `rounds N BYTES`, calls until N results have come back, every other one a
`read_file` of `file-BYTES-K.txt`, else a `glob`, then an answer; `chunks N`, an answer of N small
deltas. Every script starts again at its end, so that a later turn is answered too. FILE then holds
the origin, and `--settings` names a config.toml to write for this server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.fakes.dialects import DIALECTS, Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider


def script_named(dialect: Dialect, words: str) -> Callable[[Recorded], Scripted]:
    """The script that `words` name. Raises: ValueError, with the scripts there are."""
    name, _, rest = words.strip().partition(" ")
    match name, rest.split():
        case "answer", [_, *_]:
            return lambda _: dialect.says(rest)
        case "chunks", [count] if count.isdecimal():
            pieces = tuple(f"word{number} " for number in range(int(count)))
            return lambda _: dialect.says("", pieces=pieces)
        case "rounds", [count, size] if count.isdecimal() and size.isdecimal():
            return lambda request: _round(dialect, request, int(count), int(size))
        case _:
            raise ValueError(f"{words!r} is none of: answer TEXT, rounds N BYTES, chunks N")


def _round(dialect: Dialect, request: Recorded, count: int, size: int) -> Scripted:
    """A compaction (no tools) gets a summary; else a call until `count` results have come back."""
    transcript = dialect.read(request)
    if not transcript.tools:
        return dialect.says("The files were read; nothing else has been done yet.")
    done = 0
    for entry in reversed(transcript.messages):
        if entry.role == "user" and not entry.results:
            break
        done += len(entry.results)
    if done >= count:
        return dialect.says("All files are read.")
    if done % 2:
        return dialect.calls("glob", pattern=f"**/*{done}*")
    return dialect.calls("read_file", path=f"file-{size}-{done}.txt")


async def serve(
    dialect: Dialect, words: str, delay: float, announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is told the origin once it can be reached."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    script = script_named(dialect, words)
    async with FakeProvider(lambda request: replace(script(request), delay=delay)) as provider:
        announce(provider.url)
        await stopped.wait()
        for fault in provider.violations:
            print(fault, flush=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file that a reader sees whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes", description=__doc__)
    names = [dialect.name for dialect in DIALECTS]
    parser.add_argument("--dialect", choices=names, required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between two frames")
    parser.add_argument("--settings", type=Path)
    given = parser.parse_args()
    dialect = dialect_named(given.dialect)

    def announce(url: str) -> None:
        if given.settings is not None:
            write_whole(given.settings, dialect.settings(url))
        write_whole(given.port_file, url + "\n")

    try:
        script_named(dialect, given.script)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(serve(dialect, given.script, given.delay, announce))


if __name__ == "__main__":
    main()

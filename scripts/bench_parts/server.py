"""The tests' fake provider as a program that notes when it saw which request.

server.py DIALECT SCRIPT LOG READY SETTINGS WINDOW. Scripts: `answer`; `hold`, silent behind the
first words; `rounds N`, N calls of read_file, then an answer; `chunks N`, an answer of N deltas.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.fakes.__main__ import write_whole
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider

FILES: Final = 16
"""The files part-0.txt to part-15.txt are read in turn."""
_FRAMES_A_WRITE: Final = 16
"""Small events reach a client several at a time, as from a real server; it also keeps this one
from being what is measured."""
_SUMMARY: Final = "The files were read; the rest of them is still to be read."


def script_named(dialect: Dialect, words: str) -> Callable[[Recorded], Scripted]:
    """The answers that `words` name. Raises: ValueError."""
    match words.split():
        case ["answer"]:
            return lambda _: dialect.says("ok")
        case ["hold"]:
            return lambda _: dialect.hangs("ok")
        case ["rounds", count]:
            return Rounds(dialect, int(count)).answer
        case ["chunks", count]:
            pieces = tuple(
                f"word{n} " + ("\n" if n % 12 == 11 else "") + ("\n" if n % 240 == 239 else "")
                for n in range(int(count))
            )
            whole = dialect.says("", pieces=pieces)
            joined = replace(whole, frames=_joined(whole.frames))
            return lambda _: joined
        case _:
            raise ValueError(f"no script {words!r}")


def _joined(frames: tuple[bytes, ...]) -> tuple[bytes, ...]:
    starts = range(0, len(frames), _FRAMES_A_WRITE)
    return tuple(b"".join(frames[start : start + _FRAMES_A_WRITE]) for start in starts)


class Rounds:
    """N calls, then an answer, then again from the start; a compaction gets its summary."""

    def __init__(self, dialect: Dialect, count: int) -> None:
        self.dialect = dialect
        self.count = count
        self.done = 0

    def answer(self, request: Recorded) -> Scripted:
        if '"read_file"' not in request.text:
            return self.dialect.says(_SUMMARY, usage=None)
        if self.done == self.count:
            self.done = 0
            return self.dialect.says("All read.", usage=None)
        self.done += 1
        call = ("read_file", {"path": f"part-{self.done % FILES}.txt"})
        return self.dialect.calls_many(call, usage=None)


async def serve(dialect: Dialect, words: str, files: tuple[Path, Path, Path], window: int) -> None:
    """Serve until SIGTERM."""
    log, ready, settings = files
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    script = script_named(dialect, words)
    with log.open("a", buffering=1) as noted:

        def answer(request: Recorded) -> Scripted:
            noted.write(json.dumps({"at": time.monotonic(), "bytes": len(request.text)}) + "\n")
            provider.requests.clear()
            return script(request)

        async with FakeProvider(answer, is_strict=False) as provider:
            write_whole(settings, dialect.settings(provider.url, window=window))
            write_whole(ready, provider.url)
            await stopped.wait()


def main() -> None:
    name, words, log, ready, settings, window = sys.argv[1:]
    files = (Path(log), Path(ready), Path(settings))
    asyncio.run(serve(dialect_named(name), words, files, int(window)))


if __name__ == "__main__":
    main()

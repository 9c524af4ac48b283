"""keen as a real process against a fake provider."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keen.core.messages import JsonObject
from tests.fakes.dialects import Dialect

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Ran:
    """What a finished process left."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> JsonObject:
        """The one object of --format json, or the last of a stream."""
        return self.lines[-1]

    @property
    def lines(self) -> list[JsonObject]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def _hear_hangups() -> None:
    """Tests started under nohup would hand their deafness down, and keen keeps it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass
class Place:
    """A home and a workspace of a test's own."""

    home: Path
    work: Path

    def configure(
        self, dialect: Dialect, url: str, *, window: int = 200_000, extra: str = ""
    ) -> None:
        text = dialect.settings(url, window=window) + extra
        (self.home / "config.toml").write_text(text)

    async def start(
        self, *words: str, environment: Mapping[str, str] | None = None, stdin: int | None = None
    ) -> asyncio.subprocess.Process:
        """`keen WORDS` in the workspace, its output in pipes."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "keen",
            *words,
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "KEEN_HOME": str(self.home),
                "PYTHONPATH": str(ROOT),
                "AWS_EC2_METADATA_DISABLED": "true",
                **(environment or {}),
            },
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_hear_hangups,
        )

    async def run(
        self, *words: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Ran:
        """`keen WORDS` to its end."""
        pipe = asyncio.subprocess.PIPE if stdin is not None else None
        process = await self.start(*words, environment=environment, stdin=pipe)
        try:
            out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def sessions(self) -> list[Path]:
        return sorted((self.home / "sessions").glob("*/*.jsonl"))

    def records(self) -> list[JsonObject]:
        """The records of the only session."""
        (path,) = self.sessions()
        return [json.loads(line) for line in path.read_text().splitlines()]

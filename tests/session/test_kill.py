from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from keen.core.messages import Assistant, History, Results, User, tool_calls
from keen.session.log import SessionLog
from keen.session.projection import conversation

KILLS_OF_ONE_SESSION = 10


@dataclass
class Zygote:
    """The worker program, its imports done once."""

    process: subprocess.Popen[str]
    is_killed: bool = False

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker program has ended"
        assert line != "dead\n" or self.is_killed, "the child ended by itself"
        return line.rstrip("\n")

    def play_and_kill(self, path: Path, run: int, chance: random.Random) -> list[str]:
        """The steps the child acknowledged before it was killed at a random moment."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path} {run}\n")
        self.process.stdin.flush()
        self.is_killed = False
        pid = int(self.line().removeprefix("pid "))
        steps = [self.line() for _ in range(chance.randrange(0, 12))]
        until = time.perf_counter() + chance.random() * 0.006
        while time.perf_counter() < until:
            pass
        os.kill(pid, signal.SIGKILL)
        self.is_killed = True
        while (line := self.line()) != "dead":
            steps.append(line)
        return steps


def check(path: Path, acknowledged: list[str]) -> None:
    """Open the session as a resume does; every acknowledged step must be there."""
    if not acknowledged:
        return
    log, records = SessionLog.resume(path)
    log.close()
    assert log.unreadable == 0
    assert log.unsaved == 0
    raw = path.read_bytes()
    assert [step for step in acknowledged if step.encode() not in raw] == []
    assert b"void" not in raw
    numbers = [record.seq for record in records]
    assert numbers == sorted(set(numbers))
    history = conversation(records)
    is_valid(history)
    wrapped = [step for step in acknowledged if step.startswith("wrapped")]
    if wrapped:
        first = history[0]
        assert isinstance(first, User)
        assert first.checkpoint is not None
        newest = [first.text, wrapped[-1]]
        assert max(newest, key=order) == first.text, "the newest acknowledged replacement holds"


def order(step: str) -> tuple[int, ...]:
    return tuple(int(number) for number in step.split()[-1].split("."))


def is_valid(history: History) -> None:
    """Roles alternate, every call has its result and every result its call, ids are unique."""
    ids: list[str] = []
    for before, message in zip((None, *history), history, strict=False):
        match message:
            case User():
                assert not isinstance(before, User) or before.checkpoint
            case Assistant():
                assert not isinstance(before, Assistant)
                assert message.parts
                ids.extend(call.id for call in tool_calls(message))
            case Results():
                assert isinstance(before, Assistant)
                calls = [call.id for call in tool_calls(before)]
                assert [result.call_id for result in message.results] == calls
        if isinstance(before, Assistant) and tool_calls(before):
            assert isinstance(message, Results)
    assert not (history and isinstance(history[-1], Assistant) and tool_calls(history[-1]))
    assert len(ids) == len(set(ids))


def campaign(directory: Path, kills: int) -> None:
    chance = random.Random(20)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.session.worker"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    zygote = Zygote(process)
    try:
        acknowledged: list[str] = []
        path = directory / "0.jsonl"
        for run in range(kills):
            if run % KILLS_OF_ONE_SESSION == 0:
                path = directory / str(run) / f"{run}.jsonl"
                acknowledged = []
            acknowledged += zygote.play_and_kill(path, run, chance)
            check(path, acknowledged)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(180)
def test_five_hundred_kills_lose_no_acknowledged_record(memory_path: Path) -> None:
    campaign(memory_path, 500)


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
def test_ten_thousand_kills_lose_no_acknowledged_record(tmp_path: Path) -> None:
    campaign(tmp_path, 10_000)

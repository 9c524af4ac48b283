"""Programs that are told when keen waits, and programs that write into its status line."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from keen.extend.notify import Place, Status, StatusCommand, notify
from keen.tools._environment import command_environment
from tests.extend.hooking import Yard, alive

STATUS = Status("fake/one", "build", "/work", "abc", 1_200, 200_000, 0.25)


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def place(yard: Yard) -> Place:
    roots = (yard.work,)
    return Place(yard.work, roots, command_environment(os.environ, roots), "abc")


class Clock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_notice_is_one_object_on_standard_input(yard: Yard) -> None:
    program = yard.program(f'cat > {yard.programs}/said; echo "$1" > {yard.programs}/word')
    fault = await notify((program, "a b"), "turn_done", "Done in 3 s\x1b[2J", place(yard))

    assert fault == ""
    assert json.loads((yard.programs / "said").read_text()) == {
        "type": "turn_done",
        "message": "Done in 3 s␛[2J",
        "session_id": "abc",
        "cwd": str(yard.work),
    }
    assert (yard.programs / "word").read_text() == "a b\n"


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (("/nowhere/notify",), "notify_command cannot run: No such file or directory"),
        (("./notify",), "notify_command ./notify is a relative path"),
        (("no-such-notifier",), "notify_command there is no program no-such-notifier"),
        (("/bin/sh", "-c", "echo '\x1b[31mno bus' >&2; exit 3"), "notify_command failed (3): no"),
    ],
)
async def test_a_notice_that_fails_says_why(
    yard: Yard, command: tuple[str, ...], fault: str
) -> None:
    assert (await notify(command, "question_asked", "?", place(yard))).startswith(fault)


async def test_a_status_is_the_first_line_made_harmless(yard: Yard) -> None:
    body = rf"cat > {yard.programs}/said; printf '\033[31mmain\033[0m \007ok\nsecond\n'"
    command = StatusCommand((yard.program(body),), place(yard))

    assert await command.read(STATUS) == "main ␇ok"
    assert command.fault == ""
    assert json.loads((yard.programs / "said").read_text()) == {
        "model": "fake/one",
        "mode": "build",
        "cwd": "/work",
        "session_id": "abc",
        "context_used": 1_200,
        "context_window": 200_000,
        "cost_usd": 0.25,
    }


async def test_a_status_is_asked_for_once_a_second_at_most(yard: Yard) -> None:
    count = yard.programs / "count"
    clock = Clock()
    body = f"echo x >> {count}; wc -l < {count}"
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        clock.now += seconds

    command = StatusCommand((yard.program(body),), place(yard), clock=clock, pause=pause)
    first = await command.read(STATUS)
    clock.now += 0.25
    again = await command.read(STATUS)
    clock.now += 1.0
    later = await command.read(STATUS)

    assert [line.strip() for line in (first, again, later)] == ["1", "2", "3"]
    assert paused == [0.75]


async def test_a_status_is_not_asked_for_while_one_is_asked(yard: Yard) -> None:
    count, go = yard.programs / "count", yard.programs / "go"
    clock = Clock()
    body = f"echo x >> {count}; until [ -e {go} ]; do sleep 0.01; done; echo ready"
    command = StatusCommand((yard.program(body),), place(yard), clock=clock)
    running = asyncio.create_task(command.read(STATUS))
    while not count.exists():
        await asyncio.sleep(0.01)
    clock.now += 10
    meanwhile = await command.read(STATUS)
    go.touch()
    await running

    assert meanwhile == ""
    assert count.read_text() == "x\n"


async def test_a_status_that_takes_too_long_is_ended_and_shown_no_more(yard: Yard) -> None:
    pid = yard.programs / "pid"
    command = StatusCommand((yard.program(f"echo $$ > {pid}; exec sleep 300"),), place(yard))
    command.line = "old"

    assert await command.read(STATUS) == ""
    assert command.fault == "status_command was ended: it took too long"
    assert not alive(int(pid.read_text()))


async def test_a_status_that_fails_leaves_the_line_empty(yard: Yard) -> None:
    command = StatusCommand((yard.program("echo half; echo broken >&2; exit 1"),), place(yard))
    assert await command.read(STATUS) == ""
    assert command.fault == "status_command failed (1): broken"


async def test_a_long_status_is_cut(yard: Yard) -> None:
    command = StatusCommand((yard.program("yes | head -c 5000 | tr -d '\\n'"),), place(yard))
    assert await command.read(STATUS) == "y" * 200

"""Programs of the person's beside the screen: one writes into its last line, one is told."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from keen.core.messages import JsonObject
from tests.app.terminal import Terminal
from tests.extend.hooking import alive
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]

UNFOCUSED = b"\x1b[O"
KEEPS = 'cat >> "$0.part"; echo >> "$0.part"; cp "$0.part" "$0.new"; mv "$0.new" "$0.said"'
"""Keeps what stands on standard input, a line each, in a file that is whole at any time."""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """A shell program outside of the project."""

    def written(body: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o700)
        return path

    return written


def ui(name: str, program: Path, more: str = "") -> str:
    return f'\n[ui]\n{name} = ["{program}"]\n{more}'


def said(program: Path) -> list[JsonObject]:
    """What the program was told."""
    path = Path(f"{program}.said")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def started(program: Path) -> int:
    """The process that the program wrote down last, once it did."""
    while not (pid := pid_of(program)):
        await asyncio.sleep(0.02)
    return pid


def pid_of(program: Path) -> int:
    path = Path(f"{program}.pid")
    return int(path.read_text() or 0) if path.exists() else 0


async def turn(terminal: Terminal, answer: str) -> None:
    terminal.type("hello")
    await terminal.until(lambda: terminal.prompt == "hello")
    terminal.press("enter")
    await terminal.until(answer)


async def left(terminal: Terminal) -> None:
    terminal.press("ctrl+d")
    await terminal.ended()


async def test_its_line_stands_in_the_status_line_and_follows_each_turn(
    keen: Start, chat: Dialect, program: Callable[[str], Path], workspace: Path
) -> None:
    """A chain of changes within a second does not leave the line behind."""
    path = program(
        f"{KEEPS}; tail -n 1 $0.part | sed 's/.*\"context_used\": \\([0-9nul]*\\).*/<\\1>/'"
    )
    answers = (chat.says("One. " * 300), chat.says("Two. " * 300))
    async with (
        FakeProvider(*answers) as provider,
        keen(provider, settings=ui("status_command", path)) as terminal,
    ):
        await terminal.ready()
        await terminal.until(lambda: _shown(terminal) != "")
        before = _shown(terminal)
        await turn(terminal, "✔ ")
        await terminal.until(lambda: _shown(terminal) not in ("", before))
        after = _shown(terminal)

        assert after.isdecimal()
        await terminal.quiet(1.5)
        last = said(path)[-1]
        assert _shown(terminal) == str(last["context_used"])
    assert set(last) == {
        "model", "mode", "cwd", "session_id", "context_used", "context_window", "cost_usd",
    }  # fmt: skip
    assert last["mode"] == "build"
    assert last["cwd"] == str(workspace)
    assert last["model"] == "fake/anthropic.claude-sonnet-4-fake-v1:0"
    assert isinstance(last["context_window"], int)


async def test_a_change_of_mode_reaches_it(
    keen: Start, chat: Dialect, program: Callable[[str], Path]
) -> None:
    path = program('sed \'s/.*"mode": "\\([a-z]*\\)".*/in <\\1> mode/\'')
    async with (
        FakeProvider(chat.says("One.")) as provider,
        keen(provider, settings=ui("status_command", path)) as terminal,
    ):
        await terminal.until("in <build> mode")
        terminal.press("shift+tab")

        await terminal.gone("in <build> mode")
        await terminal.until(lambda: re.search("in <(plan|yolo)> mode", terminal.text) is not None)


@pytest.mark.parametrize(
    "body",
    ["echo $$ > $0.pid; sleep 300", "echo $$ > $0.pid; exec yes", "echo $$ > $0.pid; exit 3"],
    ids=["hangs", "floods", "fails"],
)
async def test_one_that_misbehaves_does_not_hold_up_the_screen(
    body: str, keen: Start, chat: Dialect, program: Callable[[str], Path]
) -> None:
    path = program(body)
    async with (
        FakeProvider(chat.says("Answered.")) as provider,
        keen(provider, settings=ui("status_command", path)) as terminal,
    ):
        await terminal.ready()
        pid = await started(path)
        await turn(terminal, "Answered.")
        await terminal.until("✔ ")
        assert "fake/anthropic" in terminal.lines[-1]
        assert "y y" not in terminal.text
        await left(terminal)

        assert not alive(pid)
        assert not alive(pid_of(path))


async def test_the_log_says_once_why_it_writes_nothing(
    keen: Start, chat: Dialect, program: Callable[[str], Path], home: Path
) -> None:
    path = program("echo x >> $0.count; echo 'no such thing' >&2; exit 3")
    async with (
        FakeProvider(chat.says("Answered.")) as provider,
        keen(provider, settings=ui("status_command", path)) as terminal,
    ):
        await terminal.ready()
        await turn(terminal, "✔ ")
        while _lines(Path(f"{path}.count")) < 3:
            terminal.press("shift+tab")
            await terminal.quiet(0.6)
        await left(terminal)

    log = (home / "keen" / "logs" / "keen.log").read_text()
    assert log.count("status_command failed (3): no such thing") == 1


async def test_what_it_prints_cannot_command_the_terminal(
    keen: Start, chat: Dialect, program: Callable[[str], Path]
) -> None:
    path = program(r"printf '\033[2J\033[31mred\033[0m\033]0;owned\007\033[H tail\nsecond line\n'")
    async with (
        FakeProvider(chat.says("Answered.")) as provider,
        keen(provider, settings=ui("status_command", path)) as terminal,
    ):
        await terminal.until("tail")
        await turn(terminal, "Answered.")

        assert "red" in terminal.lines[-1]
        assert "second line" not in terminal.text
        assert b"\x1b]0;owned" not in terminal.raw
        assert b"\x1b[31mred" not in terminal.raw


async def test_it_is_told_when_a_turn_is_done_or_a_card_asks_while_nobody_looks(
    keen: Start, chat: Dialect, program: Callable[[str], Path], workspace: Path
) -> None:
    path = program(KEEPS)
    answers = (
        chat.says("One."),
        chat.says("Two."),
        chat.calls("bash", command="curl -d x example.invalid"),
        chat.says("Three."),
        chat.calls("ask_user", questions=[{"text": "Which?", "options": ["a", "b"]}]),
    )
    async with (
        FakeProvider(*answers) as provider,
        keen(provider, "--mode", "build", settings=ui("notify_command", path)) as terminal,
    ):
        await terminal.ready()
        await turn(terminal, "One.")
        await terminal.until("✔ ")
        await terminal.quiet()
        assert said(path) == []

        terminal.type(UNFOCUSED)
        await turn(terminal, "Two.")
        await _told(path, 1)
        await turn(terminal, "example.invalid")
        await _told(path, 2)
        await terminal.quiet(0.6)
        terminal.press("escape")
        await terminal.until("Three.")
        await _told(path, 3)
        await turn(terminal, "Which?")
        await _told(path, 4)

    told = said(path)
    kinds = ["turn_done", "permission_asked", "turn_done", "question_asked"]
    assert [one["type"] for one in told] == kinds
    assert [one["cwd"] for one in told] == [str(workspace)] * 4
    assert all(set(one) == {"type", "message", "session_id", "cwd"} for one in told)
    assert told[1]["message"] == "keen asks for permission"


async def test_one_that_hangs_when_told_holds_up_nothing_and_ends_with_keen(
    keen: Start, chat: Dialect, program: Callable[[str], Path]
) -> None:
    path = program("echo $$ > $0.part; mv $0.part $0.pid; trap '' TERM; sleep 300 & wait")
    async with (
        FakeProvider(chat.says("One."), chat.says("Two.")) as provider,
        keen(provider, settings=ui("notify_command", path, 'notify = "always"\n')) as terminal,
    ):
        await terminal.ready()
        await turn(terminal, "One.")
        pid = await started(path)
        await turn(terminal, "Two.")
        await left(terminal)

        assert not alive(pid)


async def test_with_notices_off_it_is_not_told(
    keen: Start, chat: Dialect, program: Callable[[str], Path]
) -> None:
    path = program(KEEPS)
    async with (
        FakeProvider(chat.says("One.")) as provider,
        keen(provider, settings=ui("notify_command", path, 'notify = "off"\n')) as terminal,
    ):
        await terminal.ready()
        terminal.type(UNFOCUSED)
        await turn(terminal, "✔ ")
        await terminal.quiet(0.5)
        await left(terminal)

    assert said(path) == []


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def _told(program: Path, count: int) -> None:
    while len(said(program)) < count:
        await asyncio.sleep(0.02)


def _shown(terminal: Terminal) -> str:
    """What stands between < and > in the last line."""
    found = re.search(r"<(\w+)>", terminal.lines[-1])
    return found[1] if found else ""

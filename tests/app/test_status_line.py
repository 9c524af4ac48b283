"""The last line of the screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from keen import themes
from keen.app.look import Look, look_of
from keen.app.widgets.status import Status, StatusLine
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


@pytest.mark.parametrize(
    ("used", "bar"),
    [
        (0, "──────── 0 %"),
        (1, "╸─────── 0 %"),
        (12_000, "━─────── 12 %"),
        (50_000, "━━━━──── 50 %"),
        (100_000, "━━━━━━━━ 100 %"),
        (900_000, "━━━━━━━━ 900 %"),
    ],
)
def test_what_is_used_at_all_shows_in_the_status_line(look: Look, used: int, bar: str) -> None:
    line = StatusLine(look)
    line.status = Status(model="a/b", used=used, budget=100_000)

    assert bar in line.draw(80)[0].text


async def test_the_bar_fills_without_a_providers_report_and_falls_with_a_compaction(
    keen: Start, chat: Dialect
) -> None:
    script = (chat.says("A long answer. " * 2_000, usage=None), chat.says("## Goal\n\nShort."))
    async with FakeProvider(*script) as provider, keen(provider, window=40_000) as terminal:
        await terminal.ready()
        await terminal.say("tell me")
        await terminal.until("✔ ")
        await terminal.until("%")
        full = _percent(terminal)
        assert full > 20

        await terminal.say("/compact")
        await terminal.until("Context compacted.")

        await terminal.until(lambda: 0 < _percent(terminal) < full)
        await terminal.say("/compact undo")
        await terminal.until(lambda: _percent(terminal) >= full)


def _percent(terminal: Terminal) -> int:
    found = re.search(r"(\d+) %", terminal.lines[-1])
    return int(found[1]) if found else 0


async def test_the_branch_is_the_one_of_now(keen: Start, chat: Dialect, workspace: Path) -> None:
    (workspace / ".git").mkdir(exist_ok=True)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/first\n")
    async with FakeProvider(chat.says("Done.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.until("first")

        await terminal.say("!echo ref: refs/heads/second > .git/HEAD")

        await terminal.until(lambda: "second" in terminal.lines[-1])
        (workspace / ".git" / "HEAD").write_text("ref: refs/heads/third\n")
        await terminal.say("go on")
        await terminal.until(lambda: "third" in terminal.lines[-1])


@pytest.fixture
def look() -> Look:
    return look_of(themes.load("keen-dark"))

"""The picture of the window in /context, and its bar in the status line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from keen import themes
from keen.app.context_report import WindowPicture
from keen.app.look import Look, look_of
from keen.app.widgets.status import Status, StatusLine
from keen.core.budget import Budget
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
SHARES = {
    "system prompt": 500,
    "tools": 1_600,
    "your messages": 13,
    "summaries": 0,
    "answers": 300,
    "tool results": 6_000,
}


def test_every_share_that_is_there_has_a_cell_and_the_bar_is_as_wide_as_the_room(
    look: Look,
) -> None:
    for width in (10, 36, 72, 200):
        bar, *_ = WindowPicture(SHARES, Budget(32_768, 4_096)).lines(width, look)

        assert bar.cell_length == min(width, 72)
        for sign in "█▓▒▚▞" if width >= 36 else "█":
            assert sign in bar.text
        assert "░" not in bar.text  # no summaries, no cell


def test_the_signs_of_the_bar_are_the_tables_legend_and_its_numbers_stand_under_each_other(
    look: Look,
) -> None:
    picture = WindowPicture(SHARES, Budget(32_768, 4_096))

    lines = [strip.text.rstrip() for strip in picture.lines(80, look)[2:]]

    assert "".join(line[0] for line in lines) == "█▓▒░▚▞·── "
    assert len({cell_len(line) for line in lines}) == 1
    assert "<1 %" in lines[2]
    assert all(name in picture.text for name in SHARES)


def test_no_line_is_wider_than_the_room(look: Look) -> None:
    for width in (5, 20, 36):
        for strip in WindowPicture(SHARES, Budget(32_768, 4_096)).lines(width, look):
            assert strip.cell_length <= width


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


@pytest.fixture
def look() -> Look:
    return look_of(themes.load("keen-dark"))


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

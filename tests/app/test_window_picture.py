"""The picture of the window in /context."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from keen import themes
from keen.app.context_report import WindowPicture
from keen.app.look import Look, look_of
from keen.core.budget import Budget

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


@pytest.fixture
def look() -> Look:
    return look_of(themes.load("keen-dark"))


def test_the_shares_are_seen_in_the_smallest_terminal(look: Look) -> None:
    lines = [
        strip.text for strip in WindowPicture(SHARES, Budget(1_048_576, 65_536)).lines(34, look)
    ]

    assert lines[2].endswith("500 <1%")
    assert all(line.endswith("%") for line in lines[2:])

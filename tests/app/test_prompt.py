"""The prompt's own keys, by Textual's pilot: what the text and the cursor are afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from keen.app.keys import keymap
from keen.app.terminal import Pastes, respelled, told_background
from keen.app.widgets.prompt import Prompt


class Page(App[None]):
    """A prompt and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.prompt = Prompt(keymap({})[0], self.take, lambda: None)

    def compose(self) -> ComposeResult:
        yield self.prompt

    def take(self, command: str) -> bool:
        """Enter sends; everything else is the prompt's own."""
        if command == "send":
            self.sent.append(self.prompt.text)
            return True
        return False


@asynccontextmanager
async def page(text: str = "") -> AsyncGenerator[tuple[Page, Pilot[None]], None]:
    """A prompt with a text, the cursor behind it."""
    app = Page()
    async with app.run_test(size=(40, 10)) as pilot:
        app.prompt.focus()
        app.prompt.set_text(text)
        await pilot.pause()
        yield app, pilot


@pytest.mark.parametrize(
    ("keys", "text", "column"),
    [
        (["ctrl+a"], "alpha beta", 0),
        (["ctrl+a", "ctrl+e"], "alpha beta", 10),
        (["ctrl+a", "alt+f"], "alpha beta", 5),
        (["alt+b"], "alpha beta", 6),
        (["ctrl+w"], "alpha ", 6),
        (["ctrl+w", "ctrl+y"], "alpha beta", 10),
        (["ctrl+a", "alt+d"], " beta", 0),
        (["alt+b", "ctrl+k"], "alpha ", 6),
        (["alt+b", "ctrl+u"], "beta", 0),
        (["alt+b", "ctrl+u", "ctrl+e", "ctrl+y"], "betaalpha ", 10),
        (["ctrl+a", "ctrl+d"], "lpha beta", 0),
        (["x", "ctrl+underscore"], "alpha beta", 10),
        (["home"], "alpha beta", 0),
        (["home", "end"], "alpha beta", 10),
        (["backspace", "ctrl+h"], "alpha be", 8),
    ],
)
async def test_readline_keys_edit_as_everywhere(keys: list[str], text: str, column: int) -> None:
    async with page("alpha beta") as (app, pilot):
        await pilot.press(*keys)

        assert app.prompt.text == text
        assert app.prompt.cursor_location == (0, column)


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_new_lines_are_made_by_every_key_that_makes_them(key: str) -> None:
    async with page("one") as (app, pilot):
        await pilot.press(key, "t", "w", "o")

        assert app.prompt.text == "one\ntwo"
        assert app.sent == []


async def test_a_backslash_makes_enter_a_new_line_and_goes_away() -> None:
    async with page("one\\") as (app, pilot):
        await pilot.press("enter", "t")

        assert app.prompt.text == "one\nt"
        assert app.sent == []


async def test_backspace_behind_a_chip_takes_the_whole_chip() -> None:
    async with page("see ") as (app, pilot):
        app.prompt.paste("row\n" * 20)
        assert app.prompt.text == "see [Pasted 21 lines #1]"

        await pilot.press("backspace")

        assert app.prompt.text == "see "


async def test_what_is_typed_after_a_key_never_overtakes_it() -> None:
    async with page("ac") as (app, pilot):
        await pilot.press("left", "b", "ctrl+e", "d", "enter")

        assert app.sent == ["abcd"]


@pytest.mark.parametrize("sizes", [[4], [7], [4096]])
def test_a_paste_is_one_piece_however_it_arrives(sizes: list[int]) -> None:
    stream = "ab\x1b[200~first\x1b[A\nline\x1b[201~cd\x1b[200~\x1b[201~\x1b[B"
    pastes = Pastes()
    found: list[tuple[bool, str]] = []
    position = 0
    while position < len(stream):
        found += pastes.split(stream[position : position + sizes[0]])
        position += sizes[0]

    assert "".join(text for is_paste, text in found if not is_paste) == "abcd\x1b[B"
    assert [text for is_paste, text in found if is_paste] == ["first\x1b[A\nline", ""]


def test_half_a_marker_that_was_none_is_given_back() -> None:
    pastes = Pastes()

    assert pastes.split("a\x1b[20") == [(False, "a")]
    assert pastes.held() == "\x1b[20"
    assert pastes.split("x") == [(False, "x")]


def test_a_lone_esc_is_not_held_back() -> None:
    assert Pastes().split("a\x1b") == [(False, "a\x1b")]


@pytest.mark.parametrize(
    ("answer", "is_light"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\", True),
        ("\x1b]11;rgb:1a/1b/1e\x07", False),
        ("\x1b]11;rgba:00/00/00/ff\x07", False),
    ],
)
def test_a_terminals_background_is_taken_out_of_the_keys(answer: str, is_light: bool) -> None:
    assert told_background(f"a{answer}b") == ("ab", is_light)


def test_keys_without_the_kitty_protocol_are_told_apart_from_enter() -> None:
    assert respelled("\x1b\r") == "\x1b[13;3u"
    assert respelled("\x1b[27;2;13~x") == "\x1b[13;2ux"
    assert respelled("plain\r") == "plain\r"

"""The first start: no settings, no key, a wrong setting, no terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keen import themes
from tests.app.terminal import ROOT, Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def test_without_a_model_the_setup_screen_offers_keys_and_the_guide(keen: Start) -> None:
    async with keen(None) as terminal:
        await terminal.until("Which model shall keen use?")
        assert "anthropic" in terminal.text
        assert "Traceback" not in terminal.text

        terminal.press("end")
        await terminal.until("built-in guide")
        terminal.press("enter")

        await terminal.until("demo/guide")
        await terminal.ready()
        await terminal.say("hello")
        await terminal.until("a program, not a language model")


async def test_a_key_is_typed_hidden_and_kept_in_a_private_file(keen: Start, home: Path) -> None:
    async with keen(None) as terminal:
        await terminal.until("Which model shall keen use?")
        await terminal.until("anthropic")
        terminal.press("enter")
        await terminal.until("Key for anthropic")

        terminal.type("sk-ant-secret")
        await terminal.quiet()
        assert "sk-ant-secret" not in terminal.text
        terminal.press("enter")

        await terminal.until("A model of anthropic")
        kept = home / "keen" / "auth.json"
        assert "sk-ant-secret" in kept.read_text()
        assert kept.stat().st_mode & 0o777 == 0o600
        assert b"sk-ant-secret" not in terminal.raw


async def test_a_message_typed_before_the_model_is_there_is_sent_once_it_is(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Here I am.")) as provider, keen(provider) as terminal:
        await terminal.until(lambda: b"\x1b[?1049h" in terminal.raw)
        terminal.type("hello")
        terminal.press("enter")

        await terminal.until("Here I am.")
        assert len(provider.requests) == 1


async def test_a_prompt_on_the_command_line_is_sent_first(keen: Start, chat: Dialect) -> None:
    async with (
        FakeProvider(chat.says("Right away.")) as provider,
        keen(provider, "fix", "the", "parser") as terminal,
    ):
        await terminal.until("Right away.")
        assert "❯ fix the parser" in terminal.text


async def test_a_wrong_setting_is_told_with_its_place(
    keen: Start, chat: Dialect, home: Path
) -> None:
    async with FakeProvider() as provider, keen(provider, settings="\n[ui]\nthemee = 3\n") as it:
        await it.until("config.toml")
        await it.until("themee")
        assert "Traceback" not in it.text


async def test_a_wrong_setting_is_put_right_and_the_start_tried_again(
    keen: Start, chat: Dialect, home: Path
) -> None:
    async with FakeProvider() as it, keen(it, settings="\n[compaction]\nauto = 3\n") as terminal:
        await terminal.until("keen cannot start like this")
        await terminal.until("compaction.auto = 3")
        assert "Which model" not in terminal.text
        file = home / "keen" / "config.toml"
        file.write_text(file.read_text().replace("auto = 3", "auto = true"))

        terminal.press("enter")

        await terminal.ready()


async def test_leaving_a_start_that_is_hindered_says_why_on_the_normal_screen(
    keen: Start, home: Path
) -> None:
    (home / "keen" / "config.toml").write_text("model = ")
    async with keen(None) as terminal:
        await terminal.until("keen cannot start like this")

        terminal.press("escape")

        assert await terminal.ended() == 1
        assert f"keen: {home}" in terminal.raw.decode().replace("\x1b", "").split("[?1049l")[-1]


async def test_a_session_that_another_keen_has_open_is_copied_or_left(keen: Start) -> None:
    demo = ("-m", "demo/guide")
    async with keen(None, *demo) as first:
        await first.ready()
        await first.say("hello")
        await first.until("Ask me to list")
        await first.ready()
        async with keen(None, *demo, "--continue") as second:
            await second.until("This session cannot be opened")
            await second.until("Open a copy of it")

            second.press("enter")

            await second.until("Ask me to list")
            await second.ready()
        async with keen(None, *demo, "--continue", "--fork-session") as third:
            await third.until("Ask me to list")


async def test_a_session_that_is_not_there_leaves_a_new_one_or_the_way_out(keen: Start) -> None:
    async with keen(None, "-m", "demo/guide", "-r", "nothing") as terminal:
        await terminal.until("No session 'nothing'")
        await terminal.until("Start a new session")
        assert "Open a copy" not in terminal.text
        terminal.press("enter")
        await terminal.ready()
    async with keen(None, "-m", "demo/guide", "-r", "nothing") as terminal:
        await terminal.until("Start a new session")
        terminal.press("escape")
        assert await terminal.ended() == 1


async def test_a_misspelt_key_is_named_where_a_model_is_asked_for(keen: Start, home: Path) -> None:
    (home / "keen" / "config.toml").write_text('modle = "demo/guide"\n')
    async with keen(None) as terminal:
        await terminal.until("Which model shall keen use?")
        await terminal.until("did you mean model?")


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """keen without a terminal."""
    environment = {**os.environ, "KEEN_HOME": str(home / "keen"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "keen", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_without_a_terminal_it_names_keen_run(home: Path) -> None:
    done = run(home, "hello", "there")

    assert done.returncode == 2
    assert "keen run" in done.stderr


def test_a_word_close_to_a_command_is_answered_with_that_command(home: Path) -> None:
    done = run(home, "modles")

    assert done.returncode == 2
    assert "keen models" in done.stderr


async def test_settings_choose_theme_and_keys(keen: Start, chat: Dialect) -> None:
    settings = '\n[ui]\ntheme = "high-contrast"\n\n[keys]\ntodo = ["f9"]\n'
    async with FakeProvider() as provider, keen(provider, settings=settings) as terminal:
        await terminal.ready()
        assert "ffffff" in terminal.colors_of("build") | terminal.colors_of("fake/")

        terminal.type("\x1b[20~")

        await terminal.until("There is no todo list yet.")


@pytest.mark.parametrize("theme", themes.names())
async def test_every_theme_draws_the_conversation_and_the_sheets(theme: str, keen: Start) -> None:
    async with keen(None, "-m", "demo/guide", "--theme", theme) as terminal:
        await terminal.ready()
        await terminal.say("/theme")
        await terminal.until("Enter takes")
        terminal.press("escape")
        await terminal.gone("Enter takes")
        await terminal.say("/help")
        await terminal.until("Shift+Enter")


async def test_the_choice_of_a_theme_is_remembered(keen: Start, chat: Dialect, home: Path) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.say("/theme keen-light")

        await terminal.until(lambda: "24292f" in terminal.colors_of("fake/"))
        state = home / "keen" / "state.json"
        await terminal.until(lambda: state.exists())
        assert json.loads(state.read_text())["theme"] == "keen-light"


async def test_a_theme_of_ones_own_is_shown_as_soon_as_its_file_is_saved(
    keen: Start, home: Path
) -> None:
    file = home / "keen" / "themes" / "mine.toml"
    colours = await asyncio.to_thread((themes.packaged_directory() / "keen-dark.toml").read_text)
    file.parent.mkdir()
    file.write_text(colours)
    async with keen(None, "-m", "demo/guide", "--theme", "mine") as terminal:
        await terminal.ready()
        before = terminal.colors_of("❯")

        await asyncio.to_thread(file.write_text, repainted(colours, "accent", "#123456"))

        await terminal.until(lambda: terminal.colors_of("❯") == {"123456"})
        assert before != {"123456"}
        await asyncio.to_thread(file.write_text, repainted(colours, "accent", "no colour"))
        # The path before it may be broken anywhere, long as it is.
        await terminal.until("accent")
        assert terminal.colors_of("❯") == {"123456"}


def repainted(theme: str, name: str, colour: str) -> str:
    """The theme with another colour of that name."""
    changed, count = re.subn(rf'^{name} = ".*"$', f'{name} = "{colour}"', theme, flags=re.M)
    assert count == 1
    return changed

"""Sessions as a person handles them: resume, pick, rename, fork, rewind, export, new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
F2, F8 = "\x1bOQ", "\x1b[19~"


async def one_turn(terminal: Terminal, text: str, answer: str) -> None:
    await terminal.ready()
    await terminal.say(text)
    await terminal.until(answer)
    await terminal.until("✔ ")


async def test_the_picker_finds_previews_and_opens_a_session(keen: Start, chat: Dialect) -> None:
    answers = (chat.says("About parsing."), chat.says("About lexing."), chat.says("Still here."))
    async with FakeProvider(*answers) as provider, keen(provider) as terminal:
        await one_turn(terminal, "explain parsing", "About parsing.")
        await terminal.say("/new")
        await terminal.gone("About parsing.")
        await one_turn(terminal, "explain lexing", "About lexing.")
        await terminal.say("/sessions")
        await terminal.until("Enter opens")

        terminal.type("parsing")
        await terminal.until("About parsing.")
        terminal.press("enter")

        await terminal.gone("Enter opens")
        await terminal.until("❯ explain parsing")
        assert "About lexing." not in terminal.text
        await terminal.say("go on")
        await terminal.until("Still here.")
        assert "explain parsing" in provider.requests[-1].text


async def test_a_name_is_kept_and_found_again(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider:
        async with keen(provider) as terminal:
            await one_turn(terminal, "hello", "Fine.")
            await terminal.say("/rename the-blue-one")
            await terminal.until("Renamed")
            terminal.press("ctrl+d")
            await terminal.ended()
            assert "the-blue-one" in terminal.text
        async with keen(provider, "-r", "the-blue-one") as terminal:
            await terminal.until("Fine.")
            await terminal.until("the-blue-one")


async def test_rewind_goes_back_in_a_copy_and_gives_the_message_back(
    keen: Start, chat: Dialect
) -> None:
    answers = (chat.says("First."), chat.says("Second."), chat.says("Instead."))
    async with FakeProvider(*answers) as provider, keen(provider) as terminal:
        await one_turn(terminal, "message one", "First.")
        await terminal.say("message two")
        await terminal.until("Second.")
        await terminal.quiet()
        terminal.press("escape")
        await terminal.quiet(0.1)
        terminal.press("escape")
        await terminal.until("Rewind to before")
        await terminal.until("message two")

        terminal.press("enter")

        await terminal.gone("Second.")
        await terminal.until(lambda: terminal.prompt == "message two")
        assert "First." in terminal.text
        await terminal.ready_to_send()
        terminal.press("enter")
        await terminal.until("Instead.")
        assert "Second." not in provider.requests[-1].text


async def test_a_session_in_use_elsewhere_is_told_and_a_copy_offered(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider, keen(provider) as first:
        await one_turn(first, "hello", "Fine.")
        async with keen(provider) as second:
            await second.ready()
            await second.say("/sessions")
            await second.until("in use")

            second.press("enter")

            await second.until("Open a copy of it")
            second.press("enter")
            await second.until("❯ hello")
            await second.until("Fine.")


@pytest.mark.parametrize("form", ["md", "html", "json"])
async def test_export_writes_a_document(
    form: str, keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider, keen(provider) as terminal:
        await one_turn(terminal, "hello", "Fine.")

        await terminal.say(f"/export {form}")

        await terminal.until("Written:")
        (path,) = await asyncio.to_thread(lambda: [*workspace.glob(f"keen-session-*.{form}")])
        assert "Fine." in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600


async def test_another_model_goes_on_with_the_same_session(
    keen: Start, chat: Dialect, home: Path
) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider, keen(provider) as terminal:
        await one_turn(terminal, "hello", "Fine.")

        await terminal.say("/model demo/guide")

        await terminal.until("demo/guide · build")
        await terminal.say("what is here?")
        await terminal.until("a program, not a language model")
        (log,) = (home / "keen" / "sessions").rglob("*.jsonl")
        assert "model_changed" in log.read_text()
        assert "Fine." in terminal.text


async def test_the_picker_renames_the_open_session_and_will_not_delete_it(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("greet me")
        await terminal.until("✔ ")
        await terminal.say("/sessions")
        await terminal.until("this one")

        terminal.type(F2)
        await terminal.until("New name for “greet me”")
        terminal.type("greetings\r")
        await terminal.until("greetings")
        await terminal.until("this one")
        terminal.type(F8)

        await terminal.until("This session is open here")
        assert "Delete “" not in terminal.text


async def test_what_hinders_the_picker_is_told_where_it_is_seen(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider, keen(provider) as other:
        await other.ready()
        await other.say("greet me")
        await other.until("✔ ")
        async with keen(provider) as terminal:
            await terminal.ready()
            await terminal.say("/sessions")
            await terminal.until("in use")

            terminal.type(F2)
            await terminal.until("New name for")
            terminal.type("mine now\r")

            await terminal.gone("New name for")
            await terminal.until(lambda: "another" in terminal.text or "in use by" in terminal.text)
            assert "mine now" not in terminal.text

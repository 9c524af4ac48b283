"""A conversation as a person has it, in a real terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def test_an_answer_streams_in_and_the_turn_ends_with_a_receipt(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Hello **there**.")) as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.say("hi keen")

        await terminal.until("Hello there.")
        await terminal.until("✔ ")
        assert "❯ hi keen" in terminal.text
        assert provider.violations == []


async def test_a_tool_shows_as_one_line_and_its_command_with_output(
    keen: Start, chat: Dialect
) -> None:
    async with (
        FakeProvider(
            chat.calls("read_file", path="parser.py"),
            chat.says("It splits."),
        ) as provider,
        keen(provider) as terminal,
    ):
        await terminal.ready()

        await terminal.say("what does the parser do?")

        await terminal.until("It splits.")
        assert "✓ read_file parser.py" in terminal.text
        await terminal.until("✔ ")
        assert "1 tool" in terminal.text


async def test_a_change_is_shown_as_a_diff_and_made_only_after_a_yes(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with (
        FakeProvider(
            chat.calls("write_file", path="new.py", content="x = 1\n"),
            chat.says("Written."),
        ) as provider,
        keen(provider) as terminal,
    ):
        await terminal.ready()
        await terminal.say("make a file")
        await terminal.until("y yes, once")
        assert "+x = 1" in terminal.text
        assert not (workspace / "new.py").exists()

        await terminal.quiet(0.4)
        terminal.press()
        terminal.type("y")

        await terminal.until("Written.")
        assert (workspace / "new.py").read_text() == "x = 1\n"
        await terminal.until("1 file")


async def test_no_with_a_sentence_reaches_the_model(keen: Start, chat: Dialect) -> None:
    async with (
        FakeProvider(
            chat.calls("write_file", path="new.py", content="x = 1\n"),
            chat.says("As you wish."),
        ) as provider,
        keen(provider) as terminal,
    ):
        await terminal.ready()
        await terminal.say("make a file")
        await terminal.until("y yes, once")
        await terminal.quiet(0.4)
        terminal.type("e")
        await terminal.until("Say what to do instead")
        await terminal.say("call it old.py")

        await terminal.until("As you wish.")
        assert "call it old.py" in provider.requests[1].text

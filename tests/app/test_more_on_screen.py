"""Questions, retries, trust, completion, search, slash commands, plain lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from keen.app.commands import COMMANDS, find, unknown
from keen.core.messages import Json
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def test_a_question_of_the_model_is_answered_by_number_and_by_words(
    keen: Start, chat: Dialect
) -> None:
    questions: list[Json] = [
        {"text": "Which database?", "options": ["SQLite", "PostgreSQL"]},
        {"text": "What name?"},
    ]
    script = (chat.calls("ask_user", questions=questions), chat.says("Thanks."))
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("set it up")
        await terminal.until("Which database?")
        await terminal.quiet(0.4)

        terminal.type("2")
        await terminal.until("What name?")
        await terminal.quiet(0.4)
        terminal.press("enter")
        await terminal.until(lambda: "❯" in terminal.text.split("What name?")[1])
        await terminal.say("ledger")

        await terminal.until("Thanks.")
        sent = provider.requests[1].text
        assert "PostgreSQL" in sent
        assert "ledger" in sent


async def test_esc_leaves_a_question_unanswered_and_the_turn_goes_on(
    keen: Start, chat: Dialect
) -> None:
    asked = chat.calls("ask_user", questions=[{"text": "Which?", "options": ["a", "b"]}])
    async with FakeProvider(asked, chat.says("Then a.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("Which?")
        await terminal.quiet(0.4)

        terminal.press("escape")

        await terminal.until("Then a.")
        assert "Nobody answered" in provider.requests[1].text


async def test_a_retry_says_its_number_its_reason_and_takes_the_text_back(
    keen: Start, chat: Dialect
) -> None:
    script = (chat.cut("Half an ans"), chat.says("The whole answer."))
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")

        await terminal.until("Retrying (attempt 2)...")
        assert "Half an ans" not in terminal.text
        await terminal.until("The whole answer.")
        await terminal.until("✔ ")
        assert terminal.text.count("whole answer") == 1


async def test_a_failed_turn_says_why_and_holds_the_queue(keen: Start, chat: Dialect) -> None:
    slow = replace(chat.unauthorized(), delay=1.0)
    async with FakeProvider(slow) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("Thinking...")
        await terminal.say("later")

        await terminal.until("✗ ")
        await terminal.until("1 queued: Enter sends, Ctrl+C clears")


async def test_a_new_folder_is_asked_about_and_its_files_count_only_after_a_yes(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    await asyncio.to_thread((workspace / "AGENTS.md").write_text, "Say moo.\n")
    answers = (chat.says("One."), chat.says("Two."))
    async with FakeProvider(*answers) as provider:
        async with keen(provider) as terminal:
            await terminal.until("Do you trust this folder?")
            assert "AGENTS.md" in terminal.text
            await terminal.until("untrusted")
            await terminal.quiet(0.4)
            terminal.press("escape")
            await terminal.ready()
            await terminal.say("hello")
            await terminal.until("One.")
            assert "Say moo." not in provider.requests[0].text
        async with keen(provider) as terminal:
            await terminal.until("Do you trust this folder?")
            await terminal.quiet(0.4)
            terminal.type("2")
            await terminal.gone("untrusted")
            await terminal.ready()
            await terminal.say("hello")
            await terminal.until("Two.")
            assert "Say moo." in provider.requests[1].text


async def test_a_no_to_trust_is_remembered_and_asked_again_by_command(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    await asyncio.to_thread((workspace / "AGENTS.md").write_text, "Say moo.\n")
    async with FakeProvider(chat.says("One.")) as provider:
        async with keen(provider) as terminal:
            await terminal.until("Do you trust this folder?")
            await terminal.quiet(0.4)
            terminal.type("1")
            await terminal.gone("Do you trust this folder?")
            await terminal.ready()
            terminal.press("ctrl+d")
            await terminal.ended()
        async with keen(provider) as terminal:
            await terminal.ready()
            await terminal.until("untrusted")
            await terminal.say("hello")
            await terminal.until("One.")
            assert "Do you trust" not in terminal.text
            await terminal.say("/trust")
            await terminal.until("Yes, I trust this folder")


async def test_files_are_offered_behind_an_at_sign(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Ok.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("explain @lex")
        await terminal.until("src/lexer.py")

        terminal.press("tab")

        await terminal.until(lambda: terminal.prompt == "explain @src/lexer.py")
        terminal.press("enter")
        await terminal.until("Ok.")
        assert "@src/lexer.py" in provider.requests[0].text


async def test_history_is_walked_searched_and_kept_for_the_next_start(
    keen: Start, chat: Dialect
) -> None:
    answers = (chat.says("One."), chat.says("Two."))
    async with FakeProvider(*answers) as provider:
        async with keen(provider) as terminal:
            await terminal.ready()
            await terminal.say("fix the parser")
            await terminal.until("One.")
            await terminal.until("✔ ")
            await terminal.say("read the docs")
            await terminal.until("Two.")
            await terminal.until("✔ ")
            await terminal.say("/mode build")
            await terminal.quiet()
            terminal.type("draft")
            await terminal.until("draft")
            terminal.press("up")
            await terminal.until(lambda: terminal.prompt == "/mode build")
            terminal.press("up")
            await terminal.until(lambda: terminal.prompt == "read the docs")
            terminal.press("up")
            await terminal.until(lambda: terminal.prompt == "fix the parser")
            terminal.press("down", "down", "down")
            await terminal.until(lambda: terminal.prompt == "draft")
        async with keen(provider) as terminal:
            await terminal.ready()
            terminal.press("ctrl+r")
            await terminal.until("History:")
            terminal.type("pars")
            await terminal.until(lambda: "read the docs" not in terminal.text)
            terminal.press("enter")
            await terminal.until(lambda: terminal.prompt == "fix the parser")


async def test_the_conversation_can_be_searched(keen: Start, chat: Dialect) -> None:
    text = "\n\n".join(f"Paragraph number {number}." for number in range(80))
    async with FakeProvider(chat.says(text)) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("number 79.")
        await terminal.until("✔ ")

        terminal.press("ctrl+f")
        await terminal.until("Search:")
        terminal.type("number 12.")

        await terminal.until("Paragraph number 12.")
        terminal.press("escape")
        await terminal.gone("Search:")
        terminal.press("end")
        await terminal.until("number 79.")


async def test_plan_mode_offers_to_build_what_was_planned(keen: Start, chat: Dialect) -> None:
    answers = (chat.says("The plan."), chat.says("Built."))
    async with FakeProvider(*answers) as provider, keen(provider, "--mode", "plan") as terminal:
        await terminal.ready()
        await terminal.say("plan it")
        await terminal.until("Build this? y: build · Enter: keep planning")

        terminal.type("y")

        await terminal.until("Built.")
        await terminal.until("· build ·")


async def test_shift_tab_goes_between_build_and_plan_and_yolo_joins_by_name(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.until("Ask, or /")
        for mode in ("plan", "build"):
            terminal.press("shift+tab")
            await terminal.until(f"· {mode} ·")
        await terminal.say("/mode yolo")
        await terminal.until("· yolo ·")
        for mode in ("build", "plan", "yolo"):
            terminal.press("shift+tab")
            await terminal.until(f"· {mode} ·")


async def test_btw_is_answered_and_leaves_no_trace(keen: Start, chat: Dialect) -> None:
    answers = (chat.says("First."), chat.says("Aside answer."), chat.says("Second."))
    async with FakeProvider(*answers) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("one")
        await terminal.until("First.")
        await terminal.until("✔ ")
        await terminal.say("/btw what did you say?")
        await terminal.until("Aside answer.")
        assert "First." in provider.requests[1].text
        await terminal.quiet()

        await terminal.say("two")

        await terminal.until("Second.")
        assert "Aside answer." not in provider.requests[2].text


async def test_an_unknown_command_is_reported_and_never_sent(keen: Start, chat: Dialect) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.say("/frobnicate")

        await terminal.until("Unknown command: /frobnicate")
        assert provider.requests == []


async def test_a_bright_terminal_gets_the_light_theme(keen: Start, chat: Dialect) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.until(lambda: b"\x1b]11;?" in terminal.raw)

        terminal.type("\x1b]11;rgb:ffff/fafa/f0f0\x1b\\")

        await terminal.ready()
        await terminal.until(lambda: "24292f" in terminal.colors_of("fake/"))
        assert terminal.prompt.startswith("Ask, or /")


async def test_plain_lines_hold_the_same_conversation(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    script = (
        chat.calls("write_file", path="new.py", content="x = 1\n"),
        chat.says("Written."),
    )
    async with FakeProvider(*script) as provider, keen(provider, "--screen-reader") as terminal:
        await terminal.until("You:")
        terminal.type("make a file\r")
        await terminal.until("Permission needed for write_file: new.py")
        await terminal.until("Allow?")

        terminal.type("y\r")

        await terminal.until("keen: Written.")
        assert b"\x1b[?1049h" not in terminal.raw
        assert await asyncio.to_thread((workspace / "new.py").exists)
        terminal.type("/exit\r")
        assert await terminal.ended() == 0


def test_every_command_of_the_table_has_its_own_names_and_help() -> None:
    names = [name for one in COMMANDS for name in (one.name, *one.aliases)]

    assert len(names) == len(set(names))
    assert all(one.help for one in COMMANDS)
    assert find("EFFORT") is find("thinking")
    assert unknown("contxt") == "Unknown command: /contxt. Did you mean /context?"

"""Queue, steer, Esc and Ctrl+C, in every phase that they can meet."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.phases import reached
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
INTERRUPTED = "Interrupted. What should keen do instead?"
RUNNING = ("streaming", "tool running", "permission card", "automatic compaction")


@pytest.mark.parametrize("phase", RUNNING)
async def test_ctrl_c_cancels_the_whole_turn_and_the_next_message_is_sent_at_once(
    phase: str, keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached(phase, keen, chat, workspace) as at:
        at.terminal.press("ctrl+c")

        await at.terminal.until(INTERRUPTED)
        await at.terminal.say("go on then")
        # After the compaction phase the history is still tight: it is summarised first.
        is_tight = phase == "automatic compaction"
        await at.terminal.until("And again." if is_tight else "Afterwards.")
        assert not (workspace / "new.py").exists()
        assert at.provider.violations == []


@pytest.mark.parametrize("phase", ["streaming", "tool running"])
async def test_esc_interrupts_a_running_turn(
    phase: str, keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached(phase, keen, chat, workspace) as at:
        at.terminal.press("escape")

        await at.terminal.until(INTERRUPTED)


async def test_esc_on_a_card_says_no_and_the_turn_goes_on(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("permission card", keen, chat, workspace) as at:
        at.terminal.press("escape")

        await at.terminal.until("Afterwards.")
        assert "refused" in at.provider.requests[1].text
        assert not (workspace / "new.py").exists()


async def test_esc_stops_only_the_compaction_and_the_turn_goes_on_unchanged(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("automatic compaction", keen, chat, workspace) as at:
        at.terminal.type("typed meanwhile")
        await at.terminal.until("typed meanwhile")

        at.terminal.press("escape")

        await at.terminal.until("Compaction cancelled.")
        await at.terminal.until("Afterwards.")
        await at.terminal.until("✔ ")
        assert INTERRUPTED not in at.terminal.text
        assert at.terminal.prompt == "typed meanwhile"
        assert "return text.split()" in at.provider.requests[2].text


async def test_a_second_esc_right_after_a_compaction_ended_does_nothing(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("automatic compaction", keen, chat, workspace) as at:
        at.provider.script[0] = chat.hangs("Going on")
        at.terminal.press("escape")
        await at.terminal.until("Going on")

        at.terminal.press("escape")

        await at.terminal.quiet(0.3)
        assert INTERRUPTED not in at.terminal.text
        assert "Thinking..." in at.terminal.text


async def test_esc_cancels_a_manual_compaction(keen: Start, chat: Dialect, workspace: Path) -> None:
    async with reached("manual compaction", keen, chat, workspace) as at:
        at.terminal.press("escape")

        await at.terminal.until("Compaction cancelled.")
        await at.terminal.gone("Compacting...")
        assert "First answer." in at.terminal.text


async def test_queued_messages_go_one_by_one_after_a_turn_that_ended_by_itself(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("permission card", keen, chat, workspace) as at:
        at.terminal.type("e")
        await at.terminal.until("Say what to do instead")
        at.terminal.press("escape")
        await at.terminal.quiet(0.4)
        at.terminal.type("n")
        await at.terminal.until("Afterwards.")
        at.provider.script[:] = [
            chat.calls("write_file", path="b.py", content="y\n"),
            *(chat.says(f"Answer {number}.") for number in (1, 2, 3)),
        ]
        await at.terminal.say("begin again")
        # Keys that arrive while the card is new are still the prompt's: they are queued.
        await at.terminal.until("b.py?")
        at.terminal.type("second")
        at.terminal.press("enter")
        at.terminal.type("third")
        at.terminal.press("enter")
        await at.terminal.until("⋯ third")
        await at.terminal.quiet(0.4)
        at.terminal.type("n")

        await at.terminal.until("Answer 3.")
        said = [line for line in at.terminal.lines if line.lstrip().startswith("❯ ")]
        assert [line.strip() for line in said[-4:-1]] == ["❯ begin again", "❯ second", "❯ third"]


async def test_after_an_interrupt_the_queue_is_held_until_enter(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("queue non-empty", keen, chat, workspace) as at:
        at.terminal.press("escape")
        await at.terminal.until("1 queued: Enter sends, Ctrl+C clears")

        at.terminal.press("enter")

        await at.terminal.until("❯ later")
        await at.terminal.until("Afterwards.")
        assert "queued" not in at.terminal.text


async def test_ctrl_c_clears_a_held_queue(keen: Start, chat: Dialect, workspace: Path) -> None:
    async with reached("queue non-empty", keen, chat, workspace) as at:
        at.terminal.press("ctrl+c")
        await at.terminal.until("1 queued")

        at.terminal.press("ctrl+c")

        await at.terminal.until("Queue cleared")
        assert "⋯ later" not in at.terminal.text


async def test_up_on_an_empty_prompt_takes_the_newest_queued_message_back(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("queue non-empty", keen, chat, workspace) as at:
        at.terminal.press("up")

        await at.terminal.until(lambda: at.terminal.prompt == "later")
        assert "⋯ later" not in at.terminal.text


async def test_steering_is_delivered_at_the_next_tool_boundary(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("permission card", keen, chat, workspace) as at:
        at.terminal.type("n")
        await at.terminal.until("Afterwards.")
        at.provider.script[:] = [
            chat.calls("write_file", path="b.py", content="y\n"),
            chat.says("Steered."),
        ]
        await at.terminal.say("again")
        await at.terminal.until("b.py?")
        at.terminal.type("use tabs")
        at.terminal.press("ctrl+s")
        await at.terminal.until("↳ use tabs")
        await at.terminal.quiet(0.4)
        at.terminal.type("n")

        await at.terminal.until("Steered.")
        assert "use tabs" in at.provider.requests[-1].text


async def test_twice_ctrl_c_on_an_idle_empty_prompt_leaves_and_says_how_to_go_on(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("idle", keen, chat, workspace) as at:
        await at.terminal.say("hello")
        await at.terminal.until("Afterwards.")
        await at.terminal.until("✔ ")
        at.terminal.press("ctrl+c")
        await at.terminal.until("Press Ctrl+C again to exit")

        at.terminal.press("ctrl+c")

        assert await at.terminal.ended() == 0
        assert "keen -r " in at.terminal.text


async def test_steering_without_a_further_boundary_becomes_the_next_message(
    keen: Start, chat: Dialect
) -> None:
    words = tuple(f"word{number} " for number in range(40))
    slow = replace(chat.says("", pieces=words), delay=0.05)
    async with FakeProvider(slow, chat.says("Steered.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("word1 ")
        terminal.type("use tabs")
        terminal.press("ctrl+s")
        await terminal.until("↳ use tabs")

        await terminal.until("word39")
        await terminal.until("❯ use tabs")
        await terminal.until("Steered.")


async def test_enter_on_the_empty_prompt_turns_the_newest_queued_message_into_steering(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("queue non-empty", keen, chat, workspace) as at:
        at.terminal.press("enter")

        await at.terminal.until("↳ later")
        assert "⋯ later" not in at.terminal.text


async def test_always_in_this_project_opens_the_rule_and_saves_what_stands_there(
    keen: Start, chat: Dialect, workspace: Path, home: Path
) -> None:
    async with reached("permission card", keen, chat, workspace) as at:
        at.terminal.type("p")
        await at.terminal.until("Enter saves this rule")
        assert at.terminal.prompt == "edit(new.py)"

        at.terminal.press("enter")

        await at.terminal.until("Afterwards.")
        saved = home / "keen" / "permissions.toml"
        assert "edit(new.py)" in await asyncio.to_thread(saved.read_text)
        assert await asyncio.to_thread((workspace / "new.py").exists)


async def test_selecting_with_the_mouse_copies_and_says_so(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Copy me please.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("Copy me please.")
        await terminal.until("✔ ")
        row = 1 + next(n for n, line in enumerate(terminal.lines) if "Copy me" in line)

        terminal.type(f"\x1b[<0;2;{row}M\x1b[<32;6;{row}M\x1b[<32;9;{row}M\x1b[<0;9;{row}m")

        await terminal.until("Copied")
        await terminal.until(lambda: b"\x1b]52;c;" in terminal.raw)
        data = terminal.raw.split(b"\x1b]52;c;")[1].split(b"\x07")[0]
        assert base64.b64decode(data).decode() in "Copy me please."

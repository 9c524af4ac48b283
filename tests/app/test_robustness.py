"""What terminals, people and windows do: bursts, huge pastes, resizes, hang-ups, bad bytes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.phases import reached
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def test_yapn_typed_fast_while_a_card_appears_answers_nothing(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    script = [chat.calls("write_file", path="new.py", content="x = 1\n"), chat.says("No file.")]
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("make a file")
        terminal.press("enter")
        typed = ""
        while "yes, once" not in terminal.text or len(typed) < 12:
            letter = "yapn"[len(typed) % 4]
            terminal.type(letter)
            typed += letter
            await asyncio.sleep(0.05)

        await terminal.until("Your draft is kept")
        assert not (workspace / "new.py").exists()
        await terminal.quiet(0.4)
        terminal.type("n")
        await terminal.until("No file.")
        await terminal.until(lambda: terminal.prompt == typed)


async def test_what_stood_in_the_prompt_comes_back_after_a_card(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("permission card", keen, chat, workspace) as at:
        at.terminal.type("e")
        await at.terminal.until("Say what to do instead")
        at.terminal.type("half a sentence")
        at.terminal.press("escape")
        await at.terminal.gone("half a sentence")
        await at.terminal.quiet(0.4)
        at.terminal.type("n")

        await at.terminal.until("Afterwards.")
        assert at.terminal.prompt.startswith("Ask, or /")


async def test_a_paste_of_five_megabytes_is_a_chip_and_arrives_whole(
    keen: Start, chat: Dialect
) -> None:
    line = "0123456789" * 9 + "\n"
    text = line * (5 * 1024 * 1024 // len(line))
    async with FakeProvider(chat.says("Long.")) as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.type_long(b"\x1b[200~" + text.encode() + b"\x1b[201~")

        await terminal.until("[Pasted ")
        terminal.press("enter")
        await terminal.until("Long.")
        # More than a third of the window goes to a file whose path the model is told.
        assert "0123456789" in provider.requests[0].text


async def test_invalid_utf_8_and_strange_sequences_break_nothing(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider, keen(provider) as terminal:
        await terminal.ready()

        terminal.type(b"\xff\xfe\xc3(\xed\xa0\x80\x1b[999;999Z\x1b]0;x\x1b\\\x00")
        await terminal.quiet()
        terminal.press("ctrl+c")
        await terminal.quiet()
        await terminal.say("hello")

        await terminal.until("Fine.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_saves_the_session_and_gives_the_terminal_back(
    number: signal.Signals, keen: Start, chat: Dialect, workspace: Path, home: Path
) -> None:
    async with reached("streaming", keen, chat, workspace) as at:
        at.terminal.signal(number)

        code = await at.terminal.ended()

        assert code == 128 + number
        assert at.terminal.raw.rindex(b"\x1b[?1049l") > at.terminal.raw.rindex(b"\x1b[?1049h")
        (log,) = (home / "keen" / "sessions").rglob("*.jsonl")
        assert "Working on it" in log.read_text()


async def test_a_closed_window_ends_keen_and_keeps_the_session(
    keen: Start, chat: Dialect, workspace: Path, home: Path
) -> None:
    async with reached("streaming", keen, chat, workspace) as at:
        pid = at.terminal.pid

        at.terminal.hang_up()

        while await asyncio.to_thread(is_running, pid):
            await asyncio.sleep(0.05)
        (log,) = (home / "keen" / "sessions").rglob("*.jsonl")
        assert "Working on it" in log.read_text()


def is_running(pid: int) -> bool:
    """True as long as the process has not ended; an ended one that nobody reaped counts as over."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def test_a_storm_of_resizes_while_streaming_leaves_a_right_screen(
    keen: Start, chat: Dialect
) -> None:
    words = tuple(f"word{number} " for number in range(800))
    answer = replace(chat.says("", pieces=words), delay=0.002)
    async with FakeProvider(answer) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        for number in range(80):
            terminal.resize(*[(1, 1), (40, 10), (100, 30), (7, 3), (200, 60)][number % 5])
            await asyncio.sleep(0.01)
        terminal.resize(100, 30)

        await terminal.until("word799")
        await terminal.until("✔ ")
        assert terminal.lines[-1].lstrip().startswith("fake/")


@pytest.mark.timeout(60)
async def test_keys_typed_while_a_thousand_chunks_a_second_come_in_are_all_there(
    keen: Start, chat: Dialect
) -> None:
    words = tuple(f"word{number} " for number in range(1_200))
    answer = replace(chat.says("", pieces=words), delay=0.001)
    async with FakeProvider(answer) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("word9")
        text = "the quick brown fox jumps over the lazy dog"
        for letter in text:
            terminal.type(letter)
            await asyncio.sleep(0.01)

        await terminal.until(lambda: terminal.prompt == text)
        await terminal.until("word1199")


async def test_hostile_text_of_a_model_never_reaches_the_terminal(
    keen: Start, chat: Dialect
) -> None:
    hostile = "A\x1b]52;c;aGk=\x07B\x1b[2J\x9b31mC\u202eD [x](javascript:alert(1))"
    async with FakeProvider(chat.says(hostile)) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("hello")
        await terminal.until("✔ ")

        assert b"]52;" not in terminal.raw.replace(b"\xe2\x90\x9b]52;", b"")
        assert "\u202e".encode() not in terminal.raw
        assert "␛" in terminal.text


async def test_a_shell_command_of_ones_own_goes_with_the_next_message(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("I see.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("!echo from-my-shell")
        terminal.press("enter")
        await terminal.until("[Output of echo from-my-shell #1]")
        terminal.type("what is that?")
        await terminal.until("what is that?")

        terminal.press("enter")

        await terminal.until("I see.")
        assert "from-my-shell\\n" in provider.requests[0].text


async def test_the_editor_gets_the_prompt_and_gives_it_back(
    keen: Start, chat: Dialect, home: Path
) -> None:
    editor = home / "editor"
    editor.write_text('#!/bin/sh\necho "edited: $(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    async with (
        FakeProvider() as provider,
        keen(provider, environment={"EDITOR": str(editor)}) as terminal,
    ):
        await terminal.ready()
        terminal.type("my text")
        await terminal.until("my text")

        terminal.press("ctrl+g")

        await terminal.until(lambda: terminal.prompt == "edited: my text")


async def test_what_was_typed_before_the_start_is_sent(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Good morning.")) as provider, keen(provider) as terminal:
        terminal.type("hello early bird\r")

        await terminal.until("Good morning.")

        assert "hello early bird" in terminal.text
        assert terminal.prompt.startswith("Ask, or /")


async def test_suspend_and_resume(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Back.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.press("ctrl+z")
        await terminal.until(lambda: b"\x1b[?1049l" in terminal.raw)
        await terminal.stopped()

        os.kill(terminal.pid, signal.SIGCONT)

        await terminal.until(lambda: terminal.raw.count(b"\x1b[?1049h") >= 2)
        await terminal.say("hello")
        await terminal.until("Back.")

"""What a person sees of compactions: issue 78's lifecycle, its words, no word of the summary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keen.core.messages import Usage
from tests.app.phases import SMALL, reached
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.script import Script
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
SUMMARY = "## Goal\nsecret-summary-words"


def tight(chat: Dialect, *after: Script) -> list[Script]:
    """Visible text and a read whose report nearly fills the window; then what follows."""
    reading = ("read_file", {"path": "log.txt"})
    size = Usage(input_tokens=12_000, output_tokens=7)
    return [chat.calls_many(reading, text="Let me look first.", usage=size), *after]


def records(home: Path) -> list[dict[str, object]]:
    """Every line of the one session there is."""
    (path,) = (home / "keen" / "sessions").rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text().split("\n") if line]


async def test_a_compaction_in_a_turn_changes_the_spinner_and_then_one_notice(
    keen: Start, chat: Dialect, home: Path
) -> None:
    script = tight(chat, replace(chat.says(SUMMARY), delay=0.1), chat.says("All done."))
    async with FakeProvider(*script) as provider, keen(provider, window=SMALL) as terminal:
        await terminal.ready()
        await terminal.say("study the parser")

        await terminal.until("Compacting...")
        await terminal.until("Context compacted automatically.")
        await terminal.until("All done.")
        await terminal.gone("Context compacted automatically.")

        assert "secret-summary" not in terminal.text
        assert b"secret-summary" not in terminal.raw
        assert terminal.text.count("Let me look first.") == 1
        assert "1 compaction" in terminal.text
        assert "compacted 1×" in terminal.text
        assert "Context compacted." not in terminal.text
        kinds = [record["kind"] for record in records(home)]
        assert kinds.count("compaction_applied") == 1
        applied = next(r for r in records(home) if r["kind"] == "compaction_applied")["payload"]
        assert isinstance(applied, dict)
        assert (applied["status"], applied["transcript"]) == ("", [])
        turns = [json.dumps(r) for r in records(home) if r["kind"] == "assistant_turn"]
        assert ["Let me look first." in turn for turn in turns] == [True, False]
        assert kinds.index("assistant_turn") < kinds.index("compaction_applied")
        assert "All done." in turns[1]


@pytest.mark.parametrize("outcome", ["applied", "failed"])
async def test_when_a_compaction_is_over_the_same_turn_goes_on_under_its_old_spinner(
    outcome: str, keen: Start, chat: Dialect
) -> None:
    summary = chat.says(SUMMARY) if outcome == "applied" else chat.truncated("half a summ")
    script = tight(chat, replace(summary, delay=0.3), chat.hangs("Going on"))
    async with FakeProvider(*script) as provider, keen(provider, window=SMALL) as terminal:
        await terminal.ready()
        await terminal.say("study the parser")
        await terminal.until("Compacting...")
        assert "Thinking..." not in terminal.text
        seconds = spun(terminal)

        await terminal.until("Going on")

        await terminal.until("Thinking...")
        assert "Compacting..." not in terminal.text
        assert spun(terminal) >= seconds
        assert len(provider.requests) == 3


def spun(terminal: Terminal) -> int:
    """The seconds beside the spinner."""
    found = re.search(r"\.\.\. · (\d+)s", terminal.text)
    assert found is not None
    return int(found[1])


async def test_a_message_queued_while_it_compacts_is_sent_once_after_the_turn(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with reached("automatic compaction", keen, chat, workspace) as at:
        await at.terminal.say("and then this")
        await at.terminal.until("⋯ and then this")

        at.terminal.press("escape")

        await at.terminal.until("And again.")
        await at.terminal.quiet()
        assert at.terminal.text.count("❯ and then this") == 1
        assert "⋯ and then this" not in at.terminal.text
        asked = [request.text.count("and then this") for request in at.provider.requests]
        assert asked[:3] == [0, 0, 0]
        assert asked[3] > 0


async def test_a_manual_compaction_is_replayed_with_its_summary_and_its_line(
    keen: Start, chat: Dialect
) -> None:
    script = (chat.says("A long answer. " * 40), chat.says("## Goal\n\nShort."))
    async with FakeProvider(*script) as provider:
        async with keen(provider) as terminal:
            await terminal.ready()
            await terminal.say("tell me")
            await terminal.until("✔ ")
            await terminal.say("/compact")
            await terminal.until("Context compacted.")
            terminal.press("ctrl+d")
            await terminal.ended()
        async with keen(provider, "-c") as terminal:
            await terminal.until("Context compacted.")

            assert "Short." in terminal.text
            assert "A long answer." in terminal.text


async def test_a_failed_compaction_restores_the_spinner_and_names_the_reason(
    keen: Start, chat: Dialect, home: Path
) -> None:
    size = Usage(input_tokens=13_200, output_tokens=7)
    script = tight(chat, chat.truncated("half a summ"), chat.says("Went on.", usage=size))
    async with FakeProvider(*script) as provider, keen(provider, window=SMALL) as terminal:
        await terminal.ready()
        await terminal.say("study the parser")

        await terminal.until("Compaction failed: The summary was cut at the output limit.")
        await terminal.until("Went on.")
        await terminal.until("✔ ")

        assert "compaction_applied" not in [record["kind"] for record in records(home)]
        assert "half a summ" not in terminal.text


async def test_a_resumed_session_replays_what_was_seen_and_no_automatic_compaction(
    keen: Start, chat: Dialect
) -> None:
    script = tight(chat, chat.says(SUMMARY), chat.says("All done."), chat.says("Resumed."))
    async with FakeProvider(*script) as provider:
        async with keen(provider, window=SMALL) as terminal:
            await terminal.ready()
            await terminal.say("study the parser")
            await terminal.until("✔ ")
            terminal.press("ctrl+d")
            await terminal.ended()
        async with keen(provider, "-c", window=SMALL) as terminal:
            await terminal.until("All done.")

            assert terminal.text.count("Let me look first.") == 1
            assert "✓ read_file log.txt" in terminal.text
            assert "compacted" not in terminal.text.replace("compacted 1×", "")
            await terminal.say("and now?")
            await terminal.until("Resumed.")
            last = provider.requests[-1].text
            assert "compacted_context" in last
            assert "secret-summary-words" in last
            assert "Let me look first." not in last


async def test_compact_streams_its_summary_and_keeps_its_line(
    keen: Start, chat: Dialect, home: Path
) -> None:
    script = (chat.says("A long answer. " * 40), chat.says("## Goal\n\nShort."), chat.says("Ok."))
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("tell me")
        await terminal.until("✔ ")

        await terminal.say("/compact the parser")

        await terminal.until("Context compacted.")
        assert "Short." in terminal.text
        assert "the parser" in provider.requests[1].text
        await terminal.say("next")
        await terminal.until("Ok.")
        assert "A long answer." not in provider.requests[2].text
        applied = next(r for r in records(home) if r["kind"] == "compaction_applied")["payload"]
        assert isinstance(applied, dict)
        assert applied["status"] == "Context compacted."


async def test_compact_undo_brings_the_conversation_back(keen: Start, chat: Dialect) -> None:
    script = (chat.says("A long answer. " * 40), chat.says("## Goal\n\nShort."), chat.says("Ok."))
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("tell me")
        await terminal.until("✔ ")
        await terminal.say("/compact")
        await terminal.until("Context compacted.")

        await terminal.say("/compact undo")

        await terminal.until("The last compaction was taken back")
        await terminal.say("next")
        await terminal.until("Ok.")
        assert "A long answer." in provider.requests[2].text


async def test_compact_preview_applies_only_with_enter(keen: Start, chat: Dialect) -> None:
    script = (chat.says("A long answer. " * 40), *[chat.says("## Goal\n\nShort.")] * 2)
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("tell me")
        await terminal.until("✔ ")
        await terminal.say("/compact preview")
        await terminal.until("Enter applies")

        terminal.press("escape")

        await terminal.until("Compaction cancelled.")
        await terminal.say("/compact preview")
        await terminal.until("Enter applies")
        terminal.press("enter")
        await terminal.until("Context compacted.")


async def test_with_nothing_to_compact_it_says_so(keen: Start, chat: Dialect) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.say("/compact")

        await terminal.until("There is nothing to compact yet.")
        assert provider.requests == []


async def test_context_lists_the_compaction_and_shows_what_the_model_sees(
    keen: Start, chat: Dialect
) -> None:
    script = (chat.says("A long answer. " * 40), chat.says("## Goal\n\nShort."))
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("tell me")
        await terminal.until("✔ ")
        await terminal.say("/compact")
        await terminal.until("Context compacted.")
        await terminal.say("/context")
        await terminal.until("1 compaction")
        assert "system prompt" in terminal.text

        terminal.press("enter")

        await terminal.until("<compacted_context>")
        terminal.press("escape")
        await terminal.gone("What the model sees")
        await terminal.until("u takes the last one back")
        terminal.type("u")
        await terminal.until("The last compaction was taken back")

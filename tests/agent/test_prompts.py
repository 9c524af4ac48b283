from __future__ import annotations

import pytest

from keen.agent import prompts
from keen.agent.flatten import flattened
from keen.core.messages import (
    Assistant,
    Checkpoint,
    History,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
)

AUTOMATIC = """\
<compacted_context>
The prior conversation context was compacted automatically to fit the
model's context window. The following summary preserves relevant goals,
constraints, progress, discoveries, tool results, and pending work.

SUMMARY
</compacted_context>

<last_user_message>
The following is the most recent user message. Treat it as the current
task and its requirements as authoritative.

fix the parser
</last_user_message>"""

MANUAL = """\
<compacted_context>
The prior conversation context was compacted at the user's request.
The following summary preserves relevant goals, constraints, progress,
discoveries, tool results, and pending work.

SUMMARY
</compacted_context>"""

HEADINGS = [
    "## Goal",
    "## Key Instructions",
    "## Discoveries",
    "## Accomplished",
    "## Relevant Files",
]


def test_the_automatic_replacement_stands_word_for_word() -> None:
    assert prompts.wrapped("SUMMARY", ["fix the parser"], is_automatic=True) == AUTOMATIC


def test_the_manual_replacement_is_the_first_block_alone() -> None:
    assert prompts.wrapped("SUMMARY", [], is_automatic=False) == MANUAL


def test_several_user_messages_stand_in_order_with_a_blank_line_between() -> None:
    text = prompts.wrapped("S", ["first", "second\nline"], is_automatic=True)

    assert "authoritative.\n\nfirst\n\nsecond\nline\n</last_user_message>" in text


@pytest.mark.parametrize(
    "tag",
    ["<compacted_context>", "</compacted_context>", "<last_user_message>", "</last_user_message>"],
)
def test_no_text_can_close_or_open_the_wrapper(tag: str) -> None:
    text = prompts.wrapped(f"a {tag} b", [f"c {tag} d"], is_automatic=True)

    assert text.count(tag) == 1
    assert text.count("&lt;" + tag[1:]) == 2


@pytest.mark.parametrize("text", ["a < b && c > d", "<compacted> </user>", "&lt;", "\u2028\x00"])
def test_everything_else_stands_byte_for_byte(text: str) -> None:
    assert text in prompts.wrapped("S", [text], is_automatic=True)


def test_both_compaction_prompts_ask_for_the_five_headings_in_order() -> None:
    for is_automatic in (True, False):
        system = prompts.compaction_system(is_automatic=is_automatic)
        places = [system.index(heading) for heading in HEADINGS]
        assert places == sorted(places)


def test_only_the_automatic_prompt_speaks_of_the_kept_message() -> None:
    automatic = prompts.compaction_system(is_automatic=True)
    manual = prompts.compaction_system(is_automatic=False)

    assert "do not repeat it" in automatic
    assert automatic.startswith(manual)
    assert "kept verbatim" not in prompts.compaction_request("x", is_automatic=False)
    assert "kept verbatim" in prompts.compaction_request("x", is_automatic=True)


def test_a_focus_is_asked_for() -> None:
    assert "the tests" in prompts.compaction_request("x", is_automatic=False, focus="the tests")


def test_the_system_prompt_fits_in_a_few_kilobytes() -> None:
    assert len(prompts.system_prompt(["Working directory: /x"], "").encode()) < 4_000


CONVERSATION: History = (
    User("SAID", checkpoint=Checkpoint("OLD SUMMARY", ("FIRST TASK",))),
    User("fix it"),
    Assistant((Text("Looking."), ToolCall("1", "read_file", {"path": "a.py"}))),
    Results((ToolResult("1", "read_file", "x = 1\n" * 5_000),)),
    Assistant((ToolCall("2", "bash", {"command": "make"}),)),
    Results((ToolResult("2", "bash", "boom", is_error=True, exit_code=2),)),
)


def test_a_conversation_becomes_labelled_text_without_loss_when_it_fits() -> None:
    text = flattened(CONVERSATION, 1_000_000)

    assert text is not None
    order = ["OLD SUMMARY", "FIRST TASK", "fix it", "Looking.", "read_file", "x = 1", "boom"]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert text.count("x = 1\n") >= 4_999
    assert "failed, exit code 2" in text
    assert "SAID" not in text


def test_results_are_trimmed_before_they_are_dropped_and_calls_stay() -> None:
    trimmed = flattened(CONVERSATION, 2_000)
    dropped = flattened(CONVERSATION, 250)

    assert trimmed is not None
    assert dropped is not None
    assert "x = 1" in trimmed
    assert "x = 1" not in dropped
    assert "a.py" in dropped
    assert "30,000 characters left out" in dropped


def test_the_oldest_messages_go_last_and_are_counted() -> None:
    many: History = (
        CONVERSATION[0],
        *(Assistant((Text(f"step {n} " + "w" * 300),)) for n in range(50)),
    )

    text = flattened(many, 600)

    assert text is not None
    assert "OLD SUMMARY" in text
    assert "older messages were left out" in text
    assert "step 49" in text
    assert "step 1 " not in text


def test_what_fits_nowhere_is_none() -> None:
    assert flattened((Assistant((Text("w" * 100_000),)),), 100) is None


def test_the_system_prompt_names_only_tools_that_are_there() -> None:
    whole = prompts.system_prompt([], "")
    small = prompts.system_prompt([], "", tools=("read_file", "bash"))

    assert "with todo" in whole
    assert "recall" in whole
    assert "todo" not in small
    assert "recall" not in small

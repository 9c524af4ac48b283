"""What a running `task` call says of its subagents."""

from __future__ import annotations

from textual.message import Message

from keen.app import messages as ui
from keen.app.driver import Driver
from keen.app.look import look_of
from keen.app.tool_cards import Card
from keen.core.events import Emit, PermissionRequested, SubagentProgress, ToolStarted, TurnFinished
from keen.core.messages import ToolCall
from keen.themes import DEFAULT, load


async def told(*given: SubagentProgress | PermissionRequested) -> list[Message]:
    """What the screen is told of a `task` call with these events."""
    posted: list[Message] = []
    driver = Driver(posted.append)

    async def run(emit: Emit) -> None:
        await emit(ToolStarted(ToolCall("call-1", "task", {})))
        for event in given:
            await emit(event)
        await emit(TurnFinished(()))

    driver.begin()
    await driver.consume(run)
    return posted


async def test_a_subagent_has_one_harmless_line_that_says_where_it_stands_now() -> None:
    posted = await told(
        SubagentProgress(1, "explore", "running"),
        SubagentProgress(1, "explore", "running", doing="grep parse", tools=1),
        SubagentProgress(2, "explore", "failed", doing="\x1b[2Jno model"),
        SubagentProgress(1, "explore", "done", tools=5, tokens=12_000, seconds=3.2),
    )
    card = Card(ToolCall("call-1", "task", {}))

    for one in posted:
        if isinstance(one, ui.SubagentMoved):
            assert one.call_id == "call-1"
            card.show_subagent(one.told)

    rows = [strip.text.strip() for strip in card.lines(100, look_of(load(DEFAULT)))[1:]]
    assert len(rows) == 2
    assert rows[0].startswith("✓ 1 explore: done · 5 tools")
    assert rows[1].startswith("✗ 2 explore: failed")
    assert "\x1b" not in "".join(rows)


async def test_a_subagents_question_names_the_subagent() -> None:
    call = ToolCall("call-2", "bash", {"command": "make"})
    asked = PermissionRequested(
        call, None, "make is not known as a plain read", lambda _: None, agent="explore"
    )

    posted = await told(asked)

    assert [one.agent for one in posted if isinstance(one, ui.PermissionWanted)] == ["explore"]

"""What a running `task` call says of its subagents."""

from __future__ import annotations

from textual.message import Message

from keen.app import messages as ui
from keen.app.driver import Driver
from keen.core.events import Emit, SubagentProgress, ToolStarted, TurnFinished
from keen.core.messages import ToolCall


async def test_each_state_of_a_subagent_is_one_harmless_line_under_its_call() -> None:
    posted: list[Message] = []
    driver = Driver(posted.append)

    async def run(emit: Emit) -> None:
        await emit(ToolStarted(ToolCall("call-1", "task", {})))
        await emit(SubagentProgress(1, "explore", "running"))
        await emit(SubagentProgress(1, "explore", "running", doing="grep parse", tools=1))
        await emit(SubagentProgress(2, "explore", "failed", doing="\x1b[2Jno model"))
        await emit(SubagentProgress(1, "explore", "done", tools=5, tokens=12_000, seconds=3.2))
        await emit(TurnFinished(()))

    driver.begin()
    await driver.consume(run)

    lines = [one for one in posted if isinstance(one, ui.ToolOutput)]
    assert {one.call_id for one in lines} == {"call-1"}
    assert [one.text.split(" ·")[0].strip() for one in lines] == [
        "1 explore: running",
        "2 explore: failed",
        "1 explore: done",
    ]
    assert "5 tools" in lines[-1].text
    assert not any("\x1b" in one.text for one in lines)

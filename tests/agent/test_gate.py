"""What a gate may say to a turn, whoever stands there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from keen.agent.gate import OPEN, CompactionWord, OpenGate, PromptWord, Source, ToolWord
from keen.core.errors import CompactionError
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Decision,
    Event,
    PermissionRequested,
    SteeringDelivered,
    ToolFinished,
    Trigger,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import History, Results, ToolCall, ToolResult, User
from keen.tools.base import Access, Outcome
from keen.tools.permission import Policy
from tests.agent.engines import Kept, an_engine
from tests.agent.playing import FakeTool, a_conversation, a_toolbox, names, play, small, until
from tests.agent.test_compaction import LARGE, SUMMARY, TASK, calls_big, only
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider

CHAT = dialect_named("chat")


@dataclass
class Gate(OpenGate):
    """Says what a test wants said, and keeps what it was asked."""

    tool: ToolWord = field(default_factory=ToolWord)
    added: str = ""
    vetoes: list[str] = field(default_factory=list[str])
    focus: str = ""
    prompt: PromptWord = field(default_factory=PromptWord)
    stops: list[str] = field(default_factory=list[str])
    opening: str = ""
    asked: list[str] = field(default_factory=list[str])
    holds: asyncio.Event | None = None

    async def _seen(self, what: str) -> None:
        self.asked.append(what)
        if self.holds is not None:
            await self.holds.wait()

    async def before_tool(self, call: ToolCall) -> ToolWord:
        await self._seen(f"before {call.name}")
        return self.tool

    async def after_tool(self, call: ToolCall, result: ToolResult) -> str:
        await self._seen(f"after {call.name}: {result.output[:20]}")
        return self.added

    async def before_compaction(self, trigger: Trigger, focus: str) -> CompactionWord:
        await self._seen(f"{trigger} {focus}".strip())
        return CompactionWord(self.vetoes.pop(0) if self.vetoes else "", self.focus)

    async def after_compaction(self, trigger: Trigger, summary: str) -> None:
        await self._seen(f"compacted: {summary[-12:]}")

    async def before_prompt(self, text: str) -> PromptWord:
        await self._seen(f"prompt {text}")
        return self.prompt

    async def before_stop(self, *, is_again: bool) -> str:
        await self._seen("stop again" if is_again else "stop")
        return self.stops.pop(0) if self.stops else ""

    async def session_started(self, source: Source) -> str:
        await self._seen(f"session {source}")
        return self.opening

    async def session_ended(self) -> None:
        await self._seen("session ended")


def results(history: History) -> list[ToolResult]:
    return [one for message in history if isinstance(message, Results) for one in message.results]


async def test_a_refused_call_is_not_run_and_the_model_reads_why(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.calls("read_file", path="a"), CHAT.says("ok")) as provider:
        tool = FakeTool()
        talk = a_conversation(CHAT, provider, tmp_path, tool)
        talk.toolbox.gate = Gate(tool=ToolWord("Not this file."))
        turn = talk.turn(User("read"))
        await play(turn)
        told = CHAT.read(provider.requests[1]).results

    assert tool.ran == []
    assert [result.output for result in told] == ["Not this file."]
    assert results(turn.history)[0].is_error


async def test_what_the_policy_refuses_no_gate_is_asked_about(tmp_path: Path) -> None:
    tool = FakeTool("write_file", effect="write")
    async with FakeProvider(CHAT.calls("write_file", path="a"), CHAT.says("ok")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, tool)
        tool.accesses = (Access("edit", str(talk.toolbox.context.cwd / "a")),)
        talk.toolbox = a_toolbox(tmp_path, tool, policy=Policy(talk.toolbox.context, mode="plan"))
        gate = talk.toolbox.gate = Gate()
        await play(talk.turn(User("write")))

    assert gate.asked == []
    assert tool.ran == []


async def test_a_call_that_is_no_call_reaches_no_gate(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.calls("read_file", wrong="a"), CHAT.says("ok")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path)
        gate = talk.toolbox.gate = Gate()
        await play(talk.turn(User("read")))

    assert gate.asked == []


@pytest.mark.parametrize(("choice", "ran"), [("once", 1), ("deny", 0)])
async def test_a_gate_can_have_the_person_asked_where_the_policy_would_not(
    tmp_path: Path, choice: str, ran: int
) -> None:
    tool = FakeTool()
    asked: list[PermissionRequested] = []

    def answer(event: PermissionRequested) -> None:
        asked.append(event)
        event.reply(Decision("once" if choice == "once" else "deny"))

    async with FakeProvider(CHAT.calls("read_file", path="a"), CHAT.says("ok")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, tool)
        talk.toolbox.gate = Gate(tool=ToolWord(asks="Really?"))
        await play(talk.turn(User("read")), on={PermissionRequested: answer})

    assert [(event.reason, event.choices) for event in asked] == [("Really?", ("once", "deny"))]
    assert len(tool.ran) == ran


async def test_a_gate_adds_to_what_the_model_reads_of_a_result(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.calls("read_file", path="a"), CHAT.says("ok")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, FakeTool(output="contents"))
        gate = talk.toolbox.gate = Gate(added="Mind the style.")
        seen = await play(talk.turn(User("read")))
        told = CHAT.read(provider.requests[1]).results

    assert [result.output for result in told] == ["contents\n\nMind the style."]
    assert only(seen, ToolFinished).result.output == "contents"
    assert gate.asked == ["before read_file", "after read_file: contents"]


async def test_cancelled_behind_a_call_its_result_stands(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.calls("read_file", path="a"), CHAT.says("ok")) as provider:
        kept = an_engine(CHAT, provider, tmp_path, FakeTool(output="contents"))
        gate = Gate()
        kept.conversation.toolbox.gate = gate
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)
            if isinstance(event, ToolFinished):
                gate.holds = asyncio.Event()

        task = asyncio.create_task(kept.engine.run(User("read"), emit))
        await until(lambda: gate.holds is not None and len(gate.asked) == 2)
        task.cancel()
        await asyncio.wait([task])
        history = kept.conversation.history
        await kept.engine.aclose()

    assert [result.output for result in results(history)] == ["contents"]
    assert kept.in_memory == kept.on_disk


async def test_a_vetoed_automatic_compaction_leaves_the_turn_going_on(tmp_path: Path) -> None:
    async with FakeProvider(calls_big(CHAT), CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, FakeTool(output=LARGE), model=small(CHAT))
        gate = talk.gate = Gate(vetoes=["Not now."])
        seen = await play(talk.turn(User(TASK)))

    failed = only(seen, CompactionFailed)
    assert (str(failed.error), failed.receipt.requests) == ("Not now.", 0)
    assert names(seen).count("CompactionStarted") == 1
    assert isinstance(seen[-1], TurnFinished)
    assert len(provider.requests) == 2
    assert gate.asked[0] == "proactive"
    assert "compacted_context" not in provider.requests[1].text


async def test_two_vetoes_in_a_turn_switch_automatic_compaction_off(tmp_path: Path) -> None:
    more = CHAT.calls_many(("read_file", {"path": "small.log"}), usage=None)
    outputs = iter([LARGE, "a little", "a little"])

    async def act(_input: object) -> Outcome:
        return Outcome(next(outputs))

    tool = FakeTool(act=act)

    async with FakeProvider(calls_big(CHAT), more, more, CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, tool, model=small(CHAT))
        gate = talk.gate = Gate(vetoes=["no", "no", "no"])
        seen = await play(talk.turn(User(TASK)))

    assert names(seen).count("CompactionFailed") == 2
    assert only(seen, CompactionSuspended)
    assert isinstance(seen[-1], TurnFinished)
    assert gate.vetoes == ["no"]


async def test_a_forced_compaction_cannot_be_vetoed(tmp_path: Path) -> None:
    async with FakeProvider(
        CHAT.calls("read_file", path="a"),
        CHAT.overflow(),
        CHAT.says(SUMMARY),
        CHAT.says("done"),
    ) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, FakeTool(output="word " * 4_000))
        gate = talk.gate = Gate(vetoes=["Never."], focus="the parser")
        seen = await play(talk.turn(User(TASK)))

    applied = only(seen, CompactionApplied)
    assert applied.receipt.trigger == "forced"
    assert isinstance(seen[-1], TurnFinished)
    assert "give special attention to: the parser" in provider.requests[2].text
    assert gate.asked[:2] == ["forced", "compacted: read big.log"]


async def test_a_focus_goes_behind_the_persons_own(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.says("an answer " * 300), CHAT.says(SUMMARY)) as provider:
        talk = a_conversation(CHAT, provider, tmp_path)
        gate = talk.gate = Gate(focus="file names")
        await talk.run(talk.turn(User("talk")), _ignore)
        assert await talk.compact("numbers", _ignore)

    assert "attention to: numbers\\nfile names" in provider.requests[1].text
    assert gate.asked[1] == "manual numbers"
    assert gate.asked[2].startswith("compacted: ")


async def test_a_vetoed_compaction_by_hand_says_so_and_changes_nothing(tmp_path: Path) -> None:
    seen: list[Event] = []

    async def emit(event: Event) -> None:
        seen.append(event)

    async with FakeProvider(CHAT.says("an answer " * 300)) as provider:
        talk = a_conversation(CHAT, provider, tmp_path)
        talk.gate = Gate(vetoes=["Not today."])
        await talk.run(talk.turn(User("talk")), _ignore)
        before = talk.history
        assert not await talk.compact("", emit)

    failed = only(seen, CompactionFailed)
    assert isinstance(failed.error, CompactionError)
    assert failed.receipt.error == "Not today."
    assert talk.history is before


async def test_cancelling_a_compaction_ends_a_gate_that_takes_long(tmp_path: Path) -> None:
    async with FakeProvider(calls_big(CHAT), CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path, FakeTool(output=LARGE), model=small(CHAT))
        gate = talk.gate = Gate(holds=asyncio.Event())

        def cancel(event: CompactionStarted) -> None:
            event.cancel()
            gate.holds = None

        seen = await play(talk.turn(User(TASK)), on={CompactionStarted: cancel})

    assert only(seen, CompactionCancelled)
    assert isinstance(seen[-1], TurnFinished)


async def test_a_turn_that_was_done_goes_on_for_a_reason(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.says("done"), CHAT.says("really done")) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        gate = kept.conversation.gate = Gate(stops=["Run the tests."])
        seen = await _run(kept, "work")
        await kept.engine.aclose()
        last = CHAT.read(provider.requests[1])

    assert [entry.text for entry in last.messages if entry.role == "user"][-1] == "Run the tests."
    assert only(seen, SteeringDelivered).message.text == "Run the tests."
    assert isinstance(seen[-1], TurnFinished)
    assert gate.asked[2:] == ["stop", "stop again", "session ended"]
    assert kept.in_memory == kept.on_disk


async def test_a_turn_does_not_go_on_for_ever(tmp_path: Path) -> None:
    async with FakeProvider(lambda _request: CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, tmp_path)
        talk.gate = Gate(stops=["again"] * 100)
        seen = await play(talk.turn(User("work")))

    assert isinstance(seen[-1], TurnFinished)
    assert len(provider.requests) == 9


async def test_cancelled_while_asked_about_its_end_a_turn_is_interrupted(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.says("all done")) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        gate = kept.conversation.gate = Gate()
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)
            gate.holds = gate.holds or asyncio.Event()

        task = asyncio.create_task(kept.engine.run(User("work"), emit))
        await until(lambda: "stop" in gate.asked)
        task.cancel()
        await asyncio.wait([task])
        gate.holds = None
        await kept.engine.aclose()

    assert task.cancelled()
    assert kept.texts() == ["all done"]
    assert kept.in_memory == kept.on_disk


async def test_a_blocked_message_is_neither_sent_nor_kept(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.says("hello")) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        gate = kept.conversation.gate = Gate(
            prompt=PromptWord("No secrets, please."), opening="It is Monday."
        )
        seen = await _run(kept, "my key is 1234")
        is_untouched = kept.conversation.history == () and not kept.path.exists()
        requests = len(provider.requests)
        gate.prompt = PromptWord(context="The branch is main.")
        await _run(kept, "hi")
        await kept.engine.aclose()
        sent = CHAT.read(provider.requests[0]).messages[-1].text

    assert names(seen) == ["TurnFailed"]
    failed = only(seen, TurnFailed)
    assert str(failed.error) == "No secrets, please."
    assert is_untouched
    assert requests == 0
    assert sent == ("hi\n\n<hook_context>\nIt is Monday.\n\nThe branch is main.\n</hook_context>")
    assert kept.in_memory == kept.on_disk
    assert gate.asked == [
        "session startup",
        "prompt my key is 1234",
        "prompt hi",
        "stop",
        "session ended",
    ]


async def test_a_session_that_never_began_does_not_end(tmp_path: Path) -> None:
    async with FakeProvider() as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        gate = kept.conversation.gate = Gate()
        await kept.engine.aclose()

    assert gate.asked == []


async def test_an_open_gate_says_nothing(tmp_path: Path) -> None:
    async with FakeProvider() as provider:
        talk = a_conversation(CHAT, provider, tmp_path)
    assert talk.gate is OPEN
    assert talk.toolbox.gate is OPEN
    assert await OPEN.before_stop(is_again=False) == ""
    assert await OPEN.before_prompt("x") == PromptWord()


async def _run(kept: Kept, text: str) -> list[Event]:
    seen: list[Event] = []

    async def emit(event: Event) -> None:
        seen.append(event)

    await kept.engine.run(User(text), emit)
    return seen


async def _ignore(_event: Event) -> None:
    return

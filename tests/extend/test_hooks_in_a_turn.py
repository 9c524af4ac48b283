"""Hooks in whole turns against a provider: edits, compactions, messages, the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keen._settings import Hook
from keen.agent.conversation import Conversation
from keen.agent.toolbox import Toolbox
from keen.core.events import (
    CompactionApplied,
    CompactionFailed,
    CompactionStarted,
    Decision,
    Event,
    PermissionRequested,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import JsonObject, User
from keen.tools.base import Context
from keen.tools.edit_file import EditFile
from keen.tools.file_memory import FileMemory
from keen.tools.permission import Policy
from keen.tools.write_file import WriteFile
from tests.agent.engines import kept
from tests.agent.playing import FakeTool, a_conversation, names, play, small, until
from tests.agent.test_compaction import LARGE, SUMMARY, TASK, calls_big, only
from tests.extend.hooking import Yard, alive
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.server import FakeProvider

CHAT = dialect_named("chat")
EDITS: JsonObject = {"path": "a.py", "edits": [{"old": "one", "new": "two"}]}


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def editing(yard: Yard, provider: FakeProvider, table: dict[str, tuple[Hook, ...]]) -> Conversation:
    """A conversation in build mode that can really edit in the yard's workspace."""
    talk = a_conversation(CHAT, provider, yard.work)
    context = Context(cwd=yard.work, roots=(yard.work,), scratch=yard.root / "scratch")
    memory = FileMemory()
    tools = {tool.spec.name: tool for tool in (EditFile(memory), WriteFile(memory))}
    talk.gate = yard.gate({**table})
    talk.toolbox = Toolbox(tools, Policy(context, mode="build"), context, gate=talk.gate)
    return talk


async def test_a_vetoed_edit_leaves_the_file_and_asks_nobody(yard: Yard) -> None:
    (yard.work / "a.py").write_text("one\n")
    veto = yard.hook("grep -q a.py && echo 'a.py is generated.' >&2; exit 2", matcher="Edit|Write")
    async with FakeProvider(CHAT.calls("edit_file", **EDITS), CHAT.says("ok")) as provider:
        talk = editing(yard, provider, {"PreToolUse": (veto,)})
        seen = await play(talk.turn(User("edit")))
        told = CHAT.read(provider.requests[1]).results

    assert "a.py is generated." in told[0].output
    assert (yard.work / "a.py").read_text() == "one\n"
    assert not any(isinstance(event, PermissionRequested) for event in seen)
    assert isinstance(seen[-1], TurnFinished)


async def test_a_hook_that_allows_does_not_answer_for_the_person(yard: Yard) -> None:
    (yard.work / "a.py").write_text("one\n")
    allows = yard.hook("""echo '{"hookSpecificOutput":{"permissionDecision":"allow"}}'""")
    asked: list[PermissionRequested] = []

    def refuse(event: PermissionRequested) -> None:
        asked.append(event)
        event.reply(Decision("deny"))

    async with FakeProvider(CHAT.calls("edit_file", **EDITS), CHAT.says("ok")) as provider:
        talk = editing(yard, provider, {"PreToolUse": (allows,)})
        await play(talk.turn(User("edit")), on={PermissionRequested: refuse})

    assert len(asked) == 1
    assert (yard.work / "a.py").read_text() == "one\n"


async def test_a_hook_behind_an_edit_is_heard_by_the_model(yard: Yard) -> None:
    (yard.work / "a.py").write_text("one\n")
    checks = yard.hook("cat a.py >&2; exit 2", matcher="Write|Edit")
    async with FakeProvider(
        CHAT.calls("write_file", path="b.py", content="x\n"), CHAT.says("ok")
    ) as provider:
        talk = editing(yard, provider, {"PostToolUse": (checks,)})
        talk.toolbox.policy = Policy(talk.toolbox.context, mode="yolo")
        await play(talk.turn(User("write")))
        told = CHAT.read(provider.requests[1]).results

    assert told[0].output.endswith("\n\n[hook] one")
    assert (yard.work / "b.py").read_text() == "x\n"


async def test_a_hook_vetoes_automatic_compactions_but_not_a_forced_one(
    dialect: Dialect, yard: Yard
) -> None:
    veto = yard.hook("echo 'I need it all.' >&2; exit 2", matcher="auto")
    async with FakeProvider(
        calls_big(dialect), dialect.overflow(), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        talk = a_conversation(
            dialect, provider, yard.work, FakeTool(output=LARGE), model=small(dialect)
        )
        talk.gate = yard.hooks("PreCompact", veto)
        seen = await play(talk.turn(User(TASK)))

    failed = only(seen, CompactionFailed)
    assert (failed.receipt.trigger, failed.receipt.error) == (
        "proactive",
        "A hook vetoed it: I need it all.",
    )
    assert only(seen, CompactionApplied).receipt.trigger == "forced"
    assert isinstance(seen[-1], TurnFinished)
    assert len(provider.requests) == 4
    assert "counts for nothing" in yard.told[0]
    assert provider.violations == []


async def test_a_hook_adds_to_what_a_summary_attends_to(dialect: Dialect, yard: Yard) -> None:
    adding = yard.hook("echo 'Keep every port number.'", matcher="auto")
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        talk = a_conversation(
            dialect, provider, yard.work, FakeTool(output=LARGE), model=small(dialect)
        )
        talk.gate = yard.hooks("PreCompact", adding)
        seen = await play(talk.turn(User(TASK)))
        texts = [request.text for request in provider.requests]

    assert only(seen, CompactionApplied)
    assert ["Keep every port number." in text for text in texts] == [False, True, False]


async def test_a_slow_hook_before_a_compaction_is_cancelled_with_it(yard: Yard) -> None:
    pid = yard.programs / "pid"
    slow = yard.hook(f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 300")
    async with FakeProvider(calls_big(CHAT), CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, yard.work, FakeTool(output=LARGE), model=small(CHAT))
        talk.gate = yard.hooks("PreCompact", slow)
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)

        task = asyncio.create_task(talk.run(talk.turn(User(TASK)), emit))
        await until(pid.exists)
        only(seen, CompactionStarted).cancel()
        await task

    assert names(seen).count("CompactionCancelled") == 1
    assert isinstance(seen[-1], TurnFinished)
    assert not alive(int(pid.read_text()))


async def test_hooks_of_a_session_run_in_order_and_once(yard: Yard) -> None:
    log = yard.programs / "log"
    table = {
        event: (yard.hook(f"echo {event} >> {log}", name=event),)
        for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
    }
    table["SessionEnd"] = (yard.hook(f"echo SessionEnd >> {log}", name="SessionEnd"),)
    async with FakeProvider(
        CHAT.calls("read_file", path="a"), CHAT.says("done"), CHAT.says("done")
    ) as provider:
        talk = a_conversation(CHAT, provider, yard.work)
        talk.gate = talk.toolbox.gate = yard.gate({**table})
        engine = kept(talk, yard.root / "session.jsonl").engine
        await engine.run(User("first"), _ignore)
        await engine.run(User("second"), _ignore)
        await engine.aclose()
        await engine.aclose()

    assert log.read_text().split() == [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "UserPromptSubmit",
        "Stop",
        "SessionEnd",
    ]


async def test_a_blocked_message_ends_its_turn_with_the_reason(yard: Yard) -> None:
    seen: list[Event] = []

    async def emit(event: Event) -> None:
        seen.append(event)

    async with FakeProvider() as provider:
        talk = a_conversation(CHAT, provider, yard.work)
        talk.gate = yard.hooks("UserPromptSubmit", yard.hook("echo 'No keys.' >&2; exit 2"))
        engine = kept(talk, yard.root / "session.jsonl").engine
        await engine.run(User("my key"), emit)
        await engine.aclose()

    assert str(only(seen, TurnFailed).error) == "A hook blocked this message: No keys."
    assert provider.requests == []


async def test_a_cancelled_turn_leaves_no_hook_and_no_open_call(yard: Yard) -> None:
    pid = yard.programs / "pid"
    slow = yard.hook(f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 300")
    tool = FakeTool()
    seen: list[Event] = []

    async def emit(event: Event) -> None:
        seen.append(event)

    async with FakeProvider(CHAT.calls("read_file", path="a")) as provider:
        talk = a_conversation(CHAT, provider, yard.work, tool)
        talk.toolbox.gate = yard.hooks("PreToolUse", slow)
        held = kept(talk, yard.root / "session.jsonl")
        task = asyncio.create_task(held.engine.run(User("read"), emit))
        await until(pid.exists)
        task.cancel()
        await asyncio.wait([task])
        await held.engine.aclose()

    assert tool.ran == []
    assert not any(isinstance(event, ToolStarted) for event in seen)
    assert not alive(int(pid.read_text()))
    assert held.in_memory == held.on_disk


async def test_the_end_of_a_session_waits_for_no_hook_for_long(yard: Yard) -> None:
    pid = yard.programs / "pid"
    slow = yard.hook(f"echo $$ > {pid}; exec sleep 300", timeout=600)
    async with FakeProvider(CHAT.says("done")) as provider:
        talk = a_conversation(CHAT, provider, yard.work)
        talk.gate = yard.hooks("SessionEnd", slow)
        engine = kept(talk, yard.root / "session.jsonl").engine
        await engine.run(User("hi"), _ignore)
        await engine.aclose()

    assert not alive(int(pid.read_text()))


async def _ignore(_event: Event) -> None:
    return

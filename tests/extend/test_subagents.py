"""Subagents over real sockets: side by side, never wider than the conversation, nothing left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from keen.agent.sampling import Sampler
from keen.core.errors import ConfigError
from keen.core.events import (
    CompactionApplied,
    CompactionStarted,
    Decision,
    PermissionRequested,
    QuestionAsked,
    SubagentProgress,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import Json, Results, Usage
from keen.core.models import Price
from keen.engine import RunLimits
from keen.extend.profiles import Profile
from keen.tools.base import Tool
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.spill import RESULT_BYTES
from tests.agent.playing import a_sampler, small, until
from tests.extend.subagents_parent import (
    Cast,
    Played,
    a_parent,
    a_policy,
    played,
    tasks,
    tools_of,
)
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.server import FakeProvider


@pytest.fixture
def chat() -> Dialect:
    return dialect_named("chat")


async def test_three_at_once_and_their_answers_in_the_order_of_the_call(
    dialect: Dialect, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the password is swordfish\n")
    call = tasks(dialect, ("explore", "ALPHA: read"), ("", "BETA: say"), ("explore", "GAMMA: say"))
    cast = Cast(
        dialect,
        [call, dialect.says("All three are back.")],
        {
            "ALPHA": [
                dialect.calls_many(("read_file", {"path": "notes.txt"}), text="Inner words."),
                dialect.says("It is swordfish."),
            ],
            "BETA": [dialect.says("Beta is done.")],
            "GAMMA": [dialect.says("Gamma is done.")],
        },
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(dialect, provider, a_policy(tmp_path))
        seen = await played(parent.turn())

    assert provider.violations == []
    assert seen.result == (
        "## 1. explore 1 (done)\n\nIt is swordfish.\n\n"
        "## 2. general (done)\n\nBeta is done.\n\n"
        "## 3. explore 2 (done)\n\nGamma is done."
    )
    assert not seen.is_error
    assert "".join(event.text for event in seen.of(TextDelta)) == "All three are back."
    assert [event.call.name for event in seen.of(ToolStarted)] == ["task"]
    assert len(seen.of(ToolFinished)) == 1
    assert len(seen.of(UsageReported)) == 2
    rows = seen.last_rows
    assert [row.state for row in rows.values()] == ["done"] * 3
    assert (rows[1].agent, rows[1].tools) == ("explore 1", 1)
    assert any(row.doing == "read_file notes.txt" for row in seen.events_of_rows(1))
    # Each request is booked once on the conversation, whoever sent it.
    assert parent.sampler.requests == len(provider.requests) == 6
    assert parent.sampler.spent.output_tokens == 6 * 7
    # What a subagent may use, and what it knows.
    (first, _) = cast.seen["ALPHA"]
    assert first.tools == ("read_file", "glob", "grep", "bash", "web_fetch")
    assert "You search and read" in first.system
    assert [entry.text for entry in first.messages] == ["ALPHA: read"]
    (beta,) = cast.seen["BETA"]
    assert {"task", "recall", "todo"}.isdisjoint(beta.tools)
    assert {"edit_file", "bash", "ask_user"} <= set(beta.tools)


async def test_a_task_call_without_sense_is_refused_before_anything_runs(
    chat: Dialect, tmp_path: Path
) -> None:
    nobody = tasks(chat, ("wizard", "do magic"))
    too_many = tasks(chat, *[("", f"part {number}") for number in range(9)])
    nothing = chat.calls("task", tasks=[])
    for call, words in ((nobody, "wizard"), (too_many, "at most 8"), (nothing, "at least 1")):
        async with FakeProvider(call, chat.says("Oh.")) as provider:
            seen = await played(a_parent(chat, provider, a_policy(tmp_path)).turn())
        assert seen.is_error
        assert words in seen.result
        assert len(provider.requests) == 2


async def test_four_run_at_once_and_the_others_wait(chat: Dialect, tmp_path: Path) -> None:
    names = ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]
    cast = Cast(
        chat,
        [tasks(chat, *[("", name) for name in names])],
        {name: [chat.hangs()] for name in names},
    )
    async with FakeProvider(cast) as provider:
        turn = a_parent(chat, provider, a_policy(tmp_path)).turn()
        seen = Played([], turn)
        running = asyncio.create_task(played(turn, into=seen))
        await provider.asked(5)
        await until(lambda: len(seen.last_rows) == 6)
        states = [row.state for row in seen.last_rows.values()]
        running.cancel()
        await asyncio.wait([running])
        await provider.left(4)

    assert states == ["running"] * 4 + ["queued"] * 2
    assert len(provider.requests) == 5


async def test_a_cancelled_turn_ends_commands_connections_and_tasks(
    dialect: Dialect, tmp_path: Path
) -> None:
    command = "echo $$ > {0}.new && mv {0}.new {0} && sleep 300"
    cast = Cast(
        dialect,
        [tasks(dialect, ("", "ALPHA"), ("", "BETA"), ("", "GAMMA"))],
        {
            "ALPHA": [dialect.calls("bash", command=command.format("alpha"))],
            "BETA": [dialect.hangs("I am thinking of")],
            "GAMMA": [
                dialect.calls("bash", command=command.format("gamma"), background=True),
                dialect.hangs("It runs"),
            ],
        },
    )
    before = asyncio.all_tasks()
    async with FakeProvider(cast) as provider:
        parent = a_parent(dialect, provider, a_policy(tmp_path, mode="yolo"))
        turn = parent.turn()
        seen = Played([], turn)
        running = asyncio.create_task(played(turn, into=seen))
        await provider.asked(5)
        pids = [await _pid(tmp_path / name) for name in ("alpha", "gamma")]
        await until(lambda: [seen.last_rows[n].doing for n in (2, 3)] == ["writes"] * 2)

        running.cancel()
        await asyncio.wait([running])

        assert running.cancelled()
        assert [pid for pid in pids if _is_alive(pid)] == []
        await provider.left(2)
        ours = {task for task in asyncio.all_tasks() - before if "fakes" not in repr(task)}
        assert ours - {asyncio.current_task()} == set()

    assert isinstance(turn.history[-1], Results)
    assert turn.history[-1].results[0].output == "Interrupted before it finished."
    assert parent.sampler.requests == 5


async def _pid(path: Path) -> int:
    while not await asyncio.to_thread(path.exists):
        pass
    return int(await asyncio.to_thread(path.read_text))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_background_command_ends_with_the_subagent_that_started_it(
    chat: Dialect, tmp_path: Path
) -> None:
    command = "echo $$ > pid.new && mv pid.new pid && sleep 300"
    wait = "while [ ! -e pid ]; do sleep 0.01; done"
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("Good.")],
        {
            "ALPHA": [
                chat.calls("bash", command=command, background=True),
                chat.calls("bash", command=wait),
                chat.says("It runs."),
            ]
        },
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(chat, provider, a_policy(tmp_path, mode="yolo"))
        seen = await played(parent.turn())

    assert "It runs." in seen.result
    assert not _is_alive(int((tmp_path / "pid").read_text()))


async def test_one_that_fails_leaves_the_others_alone(dialect: Dialect, tmp_path: Path) -> None:
    cast = Cast(
        dialect,
        [tasks(dialect, ("", "ALPHA"), ("explore", "BETA")), dialect.says("I see.")],
        {"ALPHA": [dialect.unauthorized()], "BETA": [dialect.says("Beta is done.")]},
    )
    async with FakeProvider(cast) as provider:
        seen = await played(a_parent(dialect, provider, a_policy(tmp_path)).turn())

    assert seen.result.startswith("## 1. general (failed: ")
    assert seen.result.endswith("## 2. explore (done)\n\nBeta is done.")
    assert not seen.is_error
    assert [row.state for row in seen.last_rows.values()] == ["failed", "done"]
    assert isinstance(seen.events[-1], TurnFinished)


async def test_a_fault_of_keens_own_in_one_is_told_and_stays_there(
    chat: Dialect, tmp_path: Path
) -> None:
    made: list[Policy] = []

    def tools(policy: Policy, jobs: Jobs) -> Mapping[str, Tool]:
        made.append(policy)
        if len(made) == 1:
            raise RuntimeError("a bug")
        return tools_of(policy, jobs)

    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA"), ("", "BETA")), chat.says("I see.")],
        {"BETA": [chat.says("Beta is done.")]},
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(chat, provider, a_policy(tmp_path), make_tools=tools)
        seen = await played(parent.turn())

    assert "## 1. general 1 (failed: RuntimeError: a bug)" in seen.result
    assert "Beta is done." in seen.result


async def test_the_call_failed_when_all_failed(chat: Dialect, tmp_path: Path) -> None:
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA"), ("lost", "BETA")), chat.says("I see.")],
        {"ALPHA": [chat.cut("Half an"), *[chat.unauthorized()] * 9]},
    )
    lost = Profile("lost", "Has a model that is not set up.", model="nowhere/model")
    async with FakeProvider(cast) as provider:
        seen = await played(a_parent(chat, provider, a_policy(tmp_path), lost).turn())

    assert seen.is_error
    assert "## 2. lost (failed: its model nowhere/model cannot be used here)" in seen.result


@pytest.mark.parametrize("mode", ["build", "yolo", "plan"])
@pytest.mark.parametrize("agent", ["explore", "reader", "general"])
async def test_nobody_writes_but_who_may(
    chat: Dialect, tmp_path: Path, agent: str, mode: str
) -> None:
    """A profile narrows, the conversation's mode narrows, and neither gives what the other took."""
    reader = Profile("reader", "Has only reading tools.", tools=("read_file",))
    cast = Cast(
        chat,
        [tasks(chat, (agent, "ALPHA")), chat.says("I see.")],
        {
            "ALPHA": [
                chat.calls("write_file", path="new.txt", content="x"),
                chat.calls("bash", command="echo x > new2.txt"),
                chat.says("I tried."),
            ]
        },
    )
    policy = a_policy(tmp_path, is_interactive=False)
    policy.set_mode("plan" if mode == "plan" else "yolo" if mode == "yolo" else "build")
    async with FakeProvider(cast, is_strict=False) as provider:
        seen = await played(a_parent(chat, provider, policy, reader).turn())

    assert "I tried." in seen.result
    may = agent == "general"
    assert (tmp_path / "new.txt").exists() == (may and mode != "plan")
    assert (tmp_path / "new2.txt").exists() == (may and mode == "yolo")


async def test_a_rule_that_denies_binds_the_subagent_in_every_mode(
    chat: Dialect, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("swordfish")
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.calls("read_file", path="secret.txt"), chat.says("I tried.")]},
    )
    policy = a_policy(tmp_path, mode="yolo", rules=[("read(secret.txt)", "deny")])
    async with FakeProvider(cast) as provider:
        await played(a_parent(chat, provider, policy).turn())

    (result,) = cast.seen["ALPHA"][-1].results
    assert result.is_error or "denies this" in result.output
    assert "swordfish" not in result.output


async def test_a_switch_to_plan_holds_for_subagents_that_run(chat: Dialect, tmp_path: Path) -> None:
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {
            "ALPHA": [
                chat.calls("write_file", path="first.txt", content="x"),
                chat.calls("write_file", path="second.txt", content="x"),
                chat.says("I tried."),
            ]
        },
    )
    policy = a_policy(tmp_path, mode="yolo")

    def switch(row: object) -> None:
        if (tmp_path / "first.txt").exists():
            policy.set_mode("plan")

    async with FakeProvider(cast) as provider:
        await played(a_parent(chat, provider, policy).turn(), {SubagentProgress: switch})

    assert (tmp_path / "first.txt").exists()
    assert not (tmp_path / "second.txt").exists()


async def test_each_question_goes_to_the_person_and_its_answer_to_who_asked(
    chat: Dialect, tmp_path: Path
) -> None:
    names = ["ALPHA", "BETA", "GAMMA"]
    cast = Cast(
        chat,
        [tasks(chat, *[("", name) for name in names]), chat.says("I see.")],
        {
            name: [
                chat.calls("write_file", path=f"{name}.txt", content="x"),
                chat.says(f"{name} ends."),
            ]
            for name in names
        },
    )
    asked: list[PermissionRequested] = []

    def collect(event: PermissionRequested) -> None:
        asked.append(event)
        if len(asked) < 3:
            return
        for each in reversed(asked):  # all three wait at once; the last is answered first
            path = str(each.call.input["path"])
            if path.startswith("BETA"):
                each.reply(Decision("once"))
            else:
                each.reply(Decision("deny", message=f"not {path}, please"))

    async with FakeProvider(cast) as provider:
        seen = await played(
            a_parent(chat, provider, a_policy(tmp_path)).turn(), {PermissionRequested: collect}
        )

    by_agent = {each.agent: str(each.call.input["path"]) for each in asked}
    assert by_agent == {
        "general 1": "ALPHA.txt",
        "general 2": "BETA.txt",
        "general 3": "GAMMA.txt",
    }
    assert sorted(os.listdir(tmp_path)) == ["BETA.txt"]
    for name in ("ALPHA", "GAMMA"):
        assert f"not {name}.txt, please" in cast.seen[name][-1].results[0].output
    assert "please" not in cast.seen["BETA"][-1].results[0].output
    assert seen.result.count("(done)") == 3


async def test_a_yes_for_the_session_counts_for_all(chat: Dialect, tmp_path: Path) -> None:
    writes: list[tuple[str, dict[str, Json]]] = [
        ("write_file", {"path": "one.txt", "content": "x"}),
        ("write_file", {"path": "two.txt", "content": "x"}),
    ]
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.calls_many(*writes), chat.says("Done.")]},
    )
    policy = a_policy(tmp_path)
    async with FakeProvider(cast) as provider:
        seen = await played(
            a_parent(chat, provider, policy).turn(),
            {PermissionRequested: lambda event: event.reply(Decision("session"))},
        )

    assert len(seen.of(PermissionRequested)) == 1
    assert (tmp_path / "two.txt").exists()
    assert policy.granted == ("edit(**)",)


async def test_a_subagents_question_carries_its_name(chat: Dialect, tmp_path: Path) -> None:
    question: Json = {"text": "Which database?", "options": ["SQLite", "PostgreSQL"]}
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.calls("ask_user", questions=[question]), chat.says("Then SQLite.")]},
    )
    async with FakeProvider(cast) as provider:
        seen = await played(
            a_parent(chat, provider, a_policy(tmp_path)).turn(),
            {QuestionAsked: lambda event: event.reply(("SQLite",))},
        )

    (asked,) = seen.of(QuestionAsked)
    assert asked.agent == "general"
    assert "> SQLite" in cast.seen["ALPHA"][-1].results[0].output


async def test_where_nobody_can_be_asked_a_subagent_is_refused_and_goes_on(
    chat: Dialect, tmp_path: Path
) -> None:
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.calls("bash", command="rm -r src"), chat.says("I could not.")]},
    )
    async with FakeProvider(cast) as provider:
        policy = a_policy(tmp_path, is_interactive=False)
        seen = await played(a_parent(chat, provider, policy).turn())

    assert seen.of(PermissionRequested) == []
    assert "nobody can be asked" in cast.seen["ALPHA"][-1].results[0].output
    assert "I could not." in seen.result
    assert "ask_user" not in cast.seen["ALPHA"][0].tools


async def test_a_subagent_compacts_by_itself_and_nobody_sees_it(
    dialect: Dialect, tmp_path: Path
) -> None:
    (tmp_path / "big.txt").write_text("a line of a big file\n" * 600)
    full = Usage(input_tokens=16_500, output_tokens=7)
    reading: tuple[str, dict[str, Json]] = ("read_file", {"path": "big.txt"})
    cast = Cast(
        dialect,
        [tasks(dialect, ("explore", "ALPHA")), dialect.says("I see.")],
        {"ALPHA": [dialect.calls_many(reading, usage=full), dialect.says("Found it.")]},
        summaries=[dialect.says("## Goal\nthe private summary")],
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(dialect, provider, a_policy(tmp_path), model=small(dialect))
        seen = await played(parent.turn())

    assert provider.violations == []
    assert "Found it." in seen.result
    assert seen.of(CompactionStarted) == seen.of(CompactionApplied) == []
    assert "private summary" not in "".join(event.text for event in seen.of(TextDelta))
    assert "private summary" not in seen.result
    assert any(row.doing == "compacts its conversation" for row in seen.events_of_rows(1))
    assert "ALPHA" in cast.seen["ALPHA"][-1].messages[0].text
    assert parent.sampler.requests == len(provider.requests) == 5


async def test_what_another_model_costs_is_told_apart(chat: Dialect, tmp_path: Path) -> None:
    cast = Cast(
        chat,
        [tasks(chat, ("cheap", "ALPHA"), ("", "BETA")), chat.says("I see.")],
        {"ALPHA": [chat.says("A.")], "BETA": [chat.says("B.")]},
    )
    cheap = Profile("cheap", "Uses another model.", model="fake/cheap-1:low")
    asked: list[str] = []
    async with FakeProvider(cast) as provider:

        async def make(name: str) -> Sampler:
            asked.append(name)
            return a_sampler(chat, provider, replace(chat.model(id="cheap-1"), price=Price(1, 2)))

        parent = a_parent(
            chat,
            provider,
            a_policy(tmp_path),
            cheap,
            make_sampler=make,
        )
        await played(parent.turn())

    assert asked == ["fake/cheap-1:low"]
    assert {seen.model for seen in cast.seen["ALPHA"]} == {"cheap-1"}
    assert parent.sampler.requests == 4
    assert parent.sampler.spent.input_tokens == 4 * 120
    (bill,) = parent.subagents.parts.ledger.bills
    assert (bill.model.name, bill.spent.input_tokens) == ("fake/cheap-1", 120)
    assert bill.spent == parent.subagents.parts.ledger.spent


async def test_summaries_of_another_model_are_on_that_models_bill(
    chat: Dialect, tmp_path: Path
) -> None:
    (tmp_path / "big.txt").write_text("a line of a big file\n" * 600)
    full = Usage(input_tokens=16_500, output_tokens=7)
    reading: tuple[str, dict[str, Json]] = ("read_file", {"path": "big.txt"})
    summary = Usage(input_tokens=5_000, output_tokens=50)
    cast = Cast(
        chat,
        [tasks(chat, ("explore", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.calls_many(reading, usage=full), chat.says("Found it.")]},
        summaries=[chat.says("## Goal\nthe summary", usage=summary)],
    )
    async with FakeProvider(cast) as provider:
        other = a_sampler(chat, provider, chat.model(id="summariser-1"))
        parent = a_parent(chat, provider, a_policy(tmp_path), model=small(chat), summariser=other)
        await played(parent.turn())

    (bill,) = parent.subagents.parts.ledger.bills
    assert (bill.model.id, bill.spent) == ("summariser-1", summary)
    assert other.spent == Usage()
    assert parent.sampler.spent.input_tokens == 16_500 + 5_000 + 3 * 120


async def test_the_budget_of_the_run_holds_for_subagents_too(chat: Dialect, tmp_path: Path) -> None:
    big = Usage(input_tokens=900, output_tokens=100)
    glob: tuple[str, dict[str, Json]] = ("glob", {"pattern": "*"})
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA"))],
        {"ALPHA": [chat.calls_many(glob, text="Half way.", usage=big)]},
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(chat, provider, a_policy(tmp_path))
        seen = await played(parent.turn(RunLimits(tokens=1_000)))

    assert seen.result == (
        "## 1. general (interrupted: the budget of this run was reached)\n\nHalf way."
    )
    assert len(provider.requests) == 2
    assert [event.stop for event in seen.of(TurnFinished)] == ["budget"]


async def test_big_answers_share_the_room_fairly(chat: Dialect, tmp_path: Path) -> None:
    answers = {"ALPHA": "a" * 100_000, "BETA": "short and whole", "GAMMA": "g" * 100_000}
    cast = Cast(
        chat,
        [tasks(chat, *[("", name) for name in answers]), chat.says("I see.")],
        {name: [chat.says(text)] for name, text in answers.items()},
    )
    async with FakeProvider(cast) as provider:
        seen = await played(a_parent(chat, provider, a_policy(tmp_path)).turn())

    assert len(seen.result.encode()) <= RESULT_BYTES
    assert "short and whole" in seen.result
    assert 30_000 < seen.result.count("a") < 33_000
    assert abs(seen.result.count("a") - seen.result.count("g")) < 1_000
    kept = {path.read_text() for path in (tmp_path / "scratch").glob("task-*.txt")}
    assert kept == {answers["ALPHA"], answers["GAMMA"]}


async def test_what_a_refusal_taught_is_known_to_the_conversation_afterwards(
    chat: Dialect, tmp_path: Path
) -> None:
    cast = Cast(
        chat,
        [tasks(chat, ("", "ALPHA")), chat.says("I see.")],
        {"ALPHA": [chat.quirk(), chat.says("Done.")]},
    )
    async with FakeProvider(cast) as provider:
        parent = a_parent(chat, provider, a_policy(tmp_path))
        await played(parent.turn())

    assert chat.optional_field not in provider.requests[-1].json


async def test_a_model_that_is_not_set_up_fails_its_own_task_only(
    chat: Dialect, tmp_path: Path
) -> None:
    async def make(name: str) -> Sampler:
        raise ConfigError(f"There is no provider for {name}.")

    cast = Cast(
        chat,
        [tasks(chat, ("other", "ALPHA"), ("", "BETA")), chat.says("I see.")],
        {"BETA": [chat.says("Beta is done.")]},
    )
    other = Profile("other", "Elsewhere.", model="nowhere/model")
    async with FakeProvider(cast) as provider:
        parent = a_parent(
            chat,
            provider,
            a_policy(tmp_path),
            other,
            make_sampler=make,
        )
        seen = await played(parent.turn())

    assert "failed: There is no provider for nowhere/model." in seen.result
    assert "Beta is done." in seen.result

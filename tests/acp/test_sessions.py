"""Sessions of an editor's: begun, listed, loaded again, compacted, configured."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.schema import (
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    McpServerStdio,
)

from keen.core.messages import Json
from tests.acp.editor import Editor, Running, editing, refusal
from tests.acp.test_prompts import EDIT, changing, pid_told, records, turns
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
MARKER = "PRIVATE-SUMMARY-51c0"
WINDOW = 34_000
SERVER = Path(__file__).parents[1] / "extend/mcp_server.py"
pytestmark = pytest.mark.timeout(90)


async def load(running: Running, session_id: str, cwd: Path) -> Any:
    return await running.agent.load_session(cwd=str(cwd), session_id=session_id, mcp_servers=[])


async def test_a_session_is_loaded_in_a_new_process_with_all_that_was_had(
    dialect: Dialect, place: Place
) -> None:
    changing(place)
    edit = ("edit_file", {"path": "a.py", "edits": EDIT})
    plan: list[Json] = [{"text": "Test", "status": "active"}]
    async with FakeProvider(
        dialect.calls_many(edit, text="I change it."),
        dialect.calls("todo", items=plan),
        dialect.says("Done."),
        dialect.says("x is 2."),
    ) as provider:
        place.configure(dialect, provider.url)
        async with editing(place) as first:
            session = await first.new()
            await first.prompt(session.session_id, "change x")
        async with editing(place) as second:
            state = await load(second, session.session_id, place.work)
            told = second.editor
            await told.until(lambda: bool(told.calls()) and "Done." in told.said())
            replayed, answer, calls = told.replayed(), told.said(), told.calls()
            ended = await second.prompt(session.session_id, "what is x?")
        request = dialect.read(provider.requests[3])

    assert state.modes.current_mode_id == "build"
    assert (replayed, answer) == ("change x", "I change it.\n\nDone.")
    assert [(call["kind"], call["status"]) for call in calls] == [("edit", "completed")]
    assert calls[0]["content"][0]["new_text"] == "x = 2"
    assert ended.stop_reason == "end_turn"
    assert [call.name for call in request.calls] == ["edit_file", "todo"]
    assert [one["kind"] for one in records(place)].count("session_started") == 1
    assert len(turns(place)) == 2
    assert provider.violations == []


async def test_sessions_are_listed_for_the_editor_and_for_keen(place: Place) -> None:
    other = place.home / "elsewhere"
    other.mkdir()
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            here = await running.new()
            there = await running.agent.new_session(cwd=str(other), mcp_servers=[])
            await running.prompt(here.session_id, "first words")
            await running.prompt(there.session_id, "other words")
            everywhere = await running.agent.list_sessions()
            found = await running.agent.list_sessions(cwd=str(place.work))
            wrong = await refusal(running.agent.list_sessions(cursor="soon"))
        shown = await place.run("sessions", "list")

    (info,) = found.sessions
    assert (info.session_id, info.cwd) == (here.session_id, str(place.work))
    assert info.title == "first words"
    assert info.updated_at is not None
    assert {one.session_id for one in everywhere.sessions} == {here.session_id, there.session_id}
    assert found.next_cursor is None
    assert wrong.code == -32602
    assert here.session_id[:8] in shown.stdout
    assert "first words" in shown.stdout


async def test_a_session_is_deleted_for_good_unless_somebody_has_it(place: Place) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two"), CHAT.hangs("half")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as first, editing(place) as second:
            mine, theirs = await first.new(), await second.new()
            await first.prompt(mine.session_id, "first words")
            await second.prompt(theirs.session_id, "other words")

            async def delete(session_id: str) -> Any:
                return await first.request("session/delete", {"sessionId": session_id})

            held = await refusal(delete(theirs.session_id))
            prompt = asyncio.create_task(first.prompt(mine.session_id, "more"))
            await first.editor.until(lambda: "half" in first.editor.said())
            busy = await refusal(delete(mine.session_id))
            await first.agent.cancel(session_id=mine.session_id)
            await prompt
            done = await delete(mine.session_id)
            errors = [
                await refusal(delete(mine.session_id)),
                await refusal(first.prompt(mine.session_id, "still there?")),
                await refusal(first.request("session/delete", {})),
            ]

    assert "in use" in str(held)
    assert busy.code == -32600
    assert done == {}
    assert [error.code for error in errors] == [-32002, -32002, -32602]
    assert [path.stem for path in place.sessions()] == [theirs.session_id]


async def test_keen_run_goes_on_with_a_session_of_the_editor(place: Place) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "first words")
            locked = await place.run("run", "next", "--resume", session.session_id)
        ran = await place.run("run", "next", "--resume", session.session_id)

    assert locked.code == 1, "one process writes to a session"
    assert (ran.code, ran.stdout) == (0, "two\n")


async def test_a_session_that_another_process_has_is_not_opened_but_can_be_forked(
    place: Place,
) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as first, editing(place) as second:
            session = await first.new()
            await first.prompt(session.session_id, "first words")
            error = await refusal(load(second, session.session_id, place.work))
            copy = await second.agent.fork_session(
                session_id=session.session_id, cwd=str(place.work)
            )
            ended = await second.prompt(copy.session_id, "in the copy")

    assert "in use" in str(error)
    assert ended.stop_reason == "end_turn"
    assert "first words" in provider.requests[1].text
    assert len(place.sessions()) == 2


async def test_a_session_is_forked_resumed_and_closed(place: Place) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two"), CHAT.says("three")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            agent, cwd = running.agent, str(place.work)
            session = await running.new()
            await running.prompt(session.session_id, "first words")
            copy = await agent.fork_session(session_id=session.session_id, cwd=cwd)
            await running.prompt(copy.session_id, "in the copy")
            await agent.close_session(session_id=session.session_id)
            gone = await refusal(running.prompt(session.session_id, "still there?"))
            before = running.editor.replayed()
            await agent.resume_session(session_id=session.session_id, cwd=cwd)
            await running.prompt(session.session_id, "back again")

    assert copy.session_id != session.session_id
    assert gone.code == -32002
    assert before == running.editor.replayed() == ""
    assert "in the copy" not in provider.requests[2].text
    assert "first words" in provider.requests[2].text


async def test_what_cannot_be_opened_is_refused_with_words(place: Place) -> None:
    async with FakeProvider(CHAT.says("one")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "first words")
            agent, missing = running.agent, place.work / "missing"
            errors = [
                await refusal(agent.new_session(cwd="relative", mcp_servers=[])),
                await refusal(agent.new_session(cwd=str(missing), mcp_servers=[])),
                await refusal(load(running, "no-such-session", place.work)),
                await refusal(load(running, session.session_id[:8], place.work)),
                await refusal(running.prompt("never-opened", "hello")),
                await refusal(running.prompt(session.session_id, "  ")),
                await refusal(agent.set_session_mode(session_id=session.session_id, mode_id="x")),
                await refusal(agent.authenticate(method_id="x")),
            ]

    assert [error.code for error in errors] == [
        -32602, -32602, -32002, -32002, -32002, -32602, -32602, -32602,
    ]  # fmt: skip
    assert all(str(error) for error in errors)


async def test_without_a_model_a_session_asks_for_a_sign_in(place: Place) -> None:
    async with editing(place) as running:
        error = await refusal(running.new())
        still = await refusal(running.agent.authenticate(method_id="keen-set-up"))
        async with FakeProvider(CHAT.says("Hello.")) as provider:
            place.configure(CHAT, provider.url)
            await running.agent.authenticate(method_id="keen-set-up")
            session = await running.new()
            ended = await running.prompt(session.session_id, "hello")

    assert (error.code, still.code) == (-32000, -32000)
    assert "keen auth login" in str(error)
    assert ended.stop_reason == "end_turn"


async def test_a_wrong_setting_is_named(place: Place) -> None:
    (place.home / "config.toml").write_text('[permissions]\nmode = "brave"\n')
    async with editing(place) as running:
        error = await refusal(running.new())

    assert "config.toml" in str(error)
    assert "brave" in str(error)


async def test_plan_mode_changes_nothing_and_yolo_has_to_be_started_with(place: Place) -> None:
    file = changing(place)
    edit = CHAT.calls("edit_file", path="a.py", edits=EDIT)
    async with FakeProvider(edit, CHAT.says("A plan.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            agent, session = running.agent, await running.new()
            await agent.set_session_mode(session_id=session.session_id, mode_id="plan")
            wild = await refusal(
                agent.set_session_mode(session_id=session.session_id, mode_id="yolo")
            )
            await running.prompt(session.session_id, "change x")

    assert file.read_text() == "x = 1\n"
    assert running.editor.questions == []
    assert "--yolo" in str(wild)
    told = [one.current_mode_id for one in running.editor.of(CurrentModeUpdate)]
    assert told[-1] == "plan"
    assert session.modes is not None
    assert [mode.id for mode in session.modes.available_modes] == ["plan", "build"]


async def test_started_with_yolo_nothing_is_asked_and_the_mode_is_offered(place: Place) -> None:
    file = changing(place)
    edit = CHAT.calls("edit_file", path="a.py", edits=EDIT)
    async with FakeProvider(edit, CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, "--yolo") as running:
            session = await running.new()
            await running.prompt(session.session_id, "change x")

    assert session.modes is not None
    assert session.modes.current_mode_id == "yolo"
    assert file.read_text() == "x = 2\n"
    assert running.editor.questions == []


async def test_another_model_goes_on_with_the_same_session(place: Place) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        more = f'\n[providers.fake.models."{CHAT.model_id}-mini"]\ncontext_window = 100000\n'
        place.configure(CHAT, provider.url, extra=more)
        async with editing(place) as running:
            agent, session = running.agent, await running.new()
            await running.prompt(session.session_id, "first words")
            name = f"fake/{CHAT.model_id}-mini"
            set_to = await agent.set_config_option(
                config_id="model", session_id=session.session_id, value=name
            )
            await agent.set_config_option(
                config_id="thinking", session_id=session.session_id, value="high"
            )
            wrong = await refusal(
                agent.set_config_option(
                    config_id="model", session_id=session.session_id, value="nobody/nothing"
                )
            )
            await running.prompt(session.session_id, "more words")
        first, second = provider.requests

    assert set_to is not None
    assert [one.current_value for one in set_to.config_options] == ["build", name, "auto"]
    assert running.editor.of(ConfigOptionUpdate)
    assert "nobody" in str(wrong)
    assert (first.json["model"], second.json["model"]) == (CHAT.model_id, f"{CHAT.model_id}-mini")
    assert "first words" in second.text
    assert "high" in second.text
    kinds = [one["kind"] for one in records(place)]
    assert kinds.count("model_changed") == 1
    assert len(place.sessions()) == 1


async def test_a_prompt_right_behind_the_choice_of_a_model_goes_to_that_model(
    place: Place,
) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        more = f'\n[providers.fake.models."{CHAT.model_id}-mini"]\ncontext_window = 100000\n'
        place.configure(CHAT, provider.url, extra=more)
        async with editing(place) as running:
            agent, session = running.agent, await running.new()
            await running.prompt(session.session_id, "first words")
            chosen = agent.set_config_option(
                config_id="model",
                session_id=session.session_id,
                value=f"fake/{CHAT.model_id}-mini",
            )
            _, ended = await asyncio.gather(
                chosen, running.prompt(session.session_id, "more words")
            )
        first, second = provider.requests

    assert ended.stop_reason == "end_turn"
    assert (first.json["model"], second.json["model"]) == (CHAT.model_id, f"{CHAT.model_id}-mini")
    assert "first words" in second.text
    assert [one["message"] for one in turns(place)] == ["one", "two"]


async def test_an_untrusted_folder_is_told_of_and_its_files_are_not_read(place: Place) -> None:
    (place.work / "AGENTS.md").write_text("Always say BANANA.\n")
    async with FakeProvider(CHAT.says("Hello."), CHAT.says("Hi.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "hello")
            first = running.editor.said()
            await running.prompt(session.session_id, "hello again")

    assert "not trusted" in first
    assert running.editor.said().count("not trusted") == 1
    assert "BANANA" not in provider.requests[0].text


@pytest.mark.parametrize("answer", ["trust", "ignore", ""])
async def test_trust_is_asked_for_and_takes_effect_at_once(place: Place, answer: str) -> None:
    (place.work / "AGENTS.md").write_text("Always say BANANA.\n")
    (place.work / ".keen/commands").mkdir(parents=True)
    (place.work / ".keen/commands/greet.md").write_text("Greet $1.")
    async with FakeProvider(CHAT.says("Hello."), CHAT.says("Hi.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=Editor(answer)) as running:
            session = await running.new()
            await running.prompt(session.session_id, "first words")
            ended = await running.prompt(session.session_id, "/trust")
            await running.prompt(session.session_id, "more words")
        editor = running.editor

    is_trusted = answer == "trust"
    ((question, _),) = editor.questions
    assert ended.stop_reason == "end_turn"
    assert "AGENTS.md" in str(question.content)
    assert ".keen/commands" in str(question.content)
    assert "BANANA" not in provider.requests[0].text
    assert ("BANANA" in provider.requests[1].text) is is_trusted
    assert "first words" in provider.requests[1].text
    offered = editor.of(AvailableCommandsUpdate)[-1].available_commands
    assert ("greet" in [one.name for one in offered]) is is_trusted
    assert [one["kind"] for one in records(place)].count("model_changed") == 0


async def test_servers_of_the_editor_and_the_persons_commands_are_used(place: Place) -> None:
    (place.home / "commands").mkdir()
    (place.home / "commands/greet.md").write_text("Greet $1 by the tool.")
    argv = ["-I", str(SERVER), "plain", str(place.home / "record")]
    server = McpServerStdio(name="notes", command=sys.executable, args=argv, env=[])
    async with FakeProvider(
        CHAT.calls("mcp__notes__echo", text="over there"), CHAT.says("Heard.")
    ) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.agent.new_session(cwd=str(place.work), mcp_servers=[server])
            answer = await running.prompt(session.session_id, "/greet Ada")

    offered = running.editor.of(AvailableCommandsUpdate)[0].available_commands
    told = CHAT.read(provider.requests[1])
    assert answer.stop_reason == "end_turn"
    assert "greet" in [one.name for one in offered]
    assert "Greet Ada by the tool." in told.messages[0].text
    assert "over there" in told.results[0].output


class Reader:
    """Reads the big file `rounds` times; its summaries hold the marker."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.summaries = rounds, 0

    def __call__(self, request: Recorded) -> Scripted:
        if not CHAT.read(request).tools:
            self.summaries += 1
            return CHAT.says(f"## Goal\n{MARKER}")
        self.rounds -= 1
        if self.rounds < 0:
            return CHAT.says("All read.", usage=None)
        return CHAT.calls_many(("read_file", {"path": "big.txt"}), text="More.", usage=None)


async def test_a_compaction_on_the_way_is_told_without_its_summary(place: Place) -> None:
    (place.work / "big.txt").write_text("a line of the big text\n" * 900)
    model = Reader(5)
    async with FakeProvider(model) as provider:
        place.configure(CHAT, provider.url, window=WINDOW)
        async with editing(place) as running:
            session = await running.new()
            ended = await running.prompt(session.session_id, "read it all")
        async with editing(place) as second:
            await load(second, session.session_id, place.work)
            again = second.editor
            await again.until(lambda: "All read." in again.said())

    assert ended.stop_reason == "end_turn"
    assert model.summaries > 0
    told = [
        (call["title"], call["seen"])
        for call in running.editor.calls()
        if call["tool_call_id"].startswith("compaction")
    ]
    assert (
        told
        == [("Context compacted automatically.", ["in_progress", "completed"])] * model.summaries
    )
    assert MARKER not in str(running.editor.updates)
    assert MARKER not in str(again.updates)
    assert "ompact" not in again.said()
    kinds = [one["kind"] for one in records(place)]
    assert kinds.count("compaction_applied") == model.summaries
    assert provider.violations == []


async def test_a_compaction_by_hand_shows_its_summary_and_can_be_taken_back(place: Place) -> None:
    def answer(request: Recorded) -> Scripted:
        if not CHAT.read(request).tools:
            return CHAT.says(f"## Goal\n{MARKER}")
        return CHAT.says("An answer.")

    async with FakeProvider(answer) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            editor, session = running.editor, await running.new()
            await running.prompt(session.session_id, "/compact")
            nothing = editor.said()
            await running.prompt(session.session_id, "first words")
            await running.prompt(session.session_id, "/compact")
            too_small = editor.said()
            await running.prompt(session.session_id, "many words " * 2_000)
            ended = await running.prompt(session.session_id, "/compact the words")
            compacted = editor.said()
            await running.prompt(session.session_id, "what now?")
            await running.prompt(session.session_id, "/context")
            await running.prompt(session.session_id, "/status")
            await running.prompt(session.session_id, "/compact undo")
            await running.prompt(session.session_id, "/frobnicate it")
            await running.prompt(session.session_id, "and now?")
        requests = provider.requests

    assert "nothing to compact" in nothing
    assert ended.stop_reason == "end_turn"
    assert MARKER in compacted
    assert compacted.endswith("\n\nContext compacted.")
    assert "\n\nCompaction failed: The summary is no smaller" in too_small
    assert "the words" in requests[3].text
    assert MARKER in requests[4].text
    assert MARKER not in requests[5].text
    assert "many words" in requests[5].text
    said = editor.said()
    assert "compaction," in said
    assert f"fake/{CHAT.model_id}" in said
    assert "was taken back" in said
    assert "Unknown command: /frobnicate" in said
    assert len(requests) == 6


async def test_the_end_of_stdin_in_mid_answer_saves_what_was_said(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("half an answer")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            editor, session = running.editor, await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "tell me"))
            await editor.until(lambda: "half an answer" in editor.said())
            code = await running.leave()
            await asyncio.wait([prompt])
            prompt.exception()

    assert code == 0
    assert [(one["message"], one["interrupted"]) for one in turns(place)] == [
        ("half an answer", True)
    ]


async def test_the_end_of_stdin_ends_a_running_command(place: Place) -> None:
    call = CHAT.calls("bash", command="echo pid-$$; exec sleep 600")
    async with FakeProvider(call) as provider:
        place.configure(CHAT, provider.url, extra='\n[permissions]\nsandbox = "off"\n')
        async with editing(place, "--yolo") as running:
            editor, session = running.editor, await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "run it"))
            await editor.until(lambda: pid_told(editor) > 0)
            code = await running.leave()
            await asyncio.wait([prompt])
            prompt.exception()

    assert code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid_told(editor), 0)
    assert turns(place)[0]["interrupted"] is True


async def test_sigterm_saves_what_was_said(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("half an answer")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=Editor()) as running:
            editor, session = running.editor, await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "tell me"))
            await editor.until(lambda: "half an answer" in editor.said())
            running.process.terminate()
            code = await running.process.wait()
            await asyncio.wait([prompt])
            prompt.exception()

    assert code == 0
    assert turns(place)[0]["interrupted"] is True

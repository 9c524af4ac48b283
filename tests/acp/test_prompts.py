"""Prompts of an editor's: what it is told, what it is asked, how turns end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from acp.schema import (
    AgentPlanUpdate,
    AvailableCommandsUpdate,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextResourceContents,
    ToolCallProgress,
    UsageUpdate,
)

from keen.core.messages import Json
from tests.acp.editor import Editor, editing, refusal, text
from tests.fakes.dialects import dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
EDIT: list[Json] = [{"old": "x = 1", "new": "x = 2"}]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
pytestmark = pytest.mark.timeout(90)


def changing(place: Place) -> Path:
    file = place.work / "a.py"
    file.write_text("x = 1\n")
    return file


def records(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in place.sessions():
        lines = path.read_text().splitlines()
        parsed = [json.loads(line) for line in lines]
        assert [one["seq"] for one in parsed] == [*range(1, len(parsed) + 1)]
        found += parsed
    return found


def pid_told(editor: Editor) -> int:
    """The number of the process that a command printed, 0 as long as it has not."""
    shown = str([call.get("content") for call in editor.calls()])
    found = re.search(r"pid-(\d+)\D", shown)
    return int(found[1]) if found else 0


def turns(place: Place) -> list[dict[str, Any]]:
    return [one["payload"] for one in records(place) if one["kind"] == "assistant_turn"]


async def test_an_answer_comes_in_pieces_and_ends_the_turn(place: Place) -> None:
    async with FakeProvider(CHAT.says("Hello there.", reasoning="They greet me.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            answer = await running.prompt(session.session_id, "say hello")

    editor = running.editor
    assert answer.stop_reason == "end_turn"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 127
    assert editor.said(session.session_id) == "Hello there."
    assert editor.thought() == "They greet me."
    assert [(one.used, one.size) for one in editor.of(UsageUpdate)] == [(127, 200_000)]
    names = [one.name for one in editor.of(AvailableCommandsUpdate)[0].available_commands]
    assert names == ["compact", "context", "status", "permissions", "trust"]
    assert place.sessions()[0].stem == session.session_id
    assert provider.violations == []


async def test_an_edit_is_shown_asked_for_and_made(place: Place) -> None:
    file = changing(place)
    calls = CHAT.calls_many(("edit_file", {"path": "a.py", "edits": EDIT}), text="I change it.")
    async with FakeProvider(calls, CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            answer = await running.prompt(session.session_id, "change x")

    editor = running.editor
    ((question, options),) = editor.questions
    (call,) = editor.calls()
    assert answer.stop_reason == "end_turn"
    assert file.read_text() == "x = 2\n"
    assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
    assert question.tool_call_id == call["tool_call_id"]
    assert "changes a file" in str(question.content)
    assert call["seen"] == ["pending", "in_progress", "completed"]
    assert (call["kind"], call["title"]) == ("edit", "Edit a.py")
    assert call["locations"] == [{"path": str(file)}]
    (diff,) = call["content"]
    assert (diff["path"], diff["old_text"], diff["new_text"]) == (str(file), "x = 1", "x = 2")
    assert editor.said() == "I change it.\n\nDone."


async def test_always_asks_once(place: Place) -> None:
    changing(place)
    back: list[Json] = [{"old": "x = 2", "new": "x = 1"}]
    async with FakeProvider(
        CHAT.calls("edit_file", path="a.py", edits=EDIT),
        CHAT.calls("edit_file", path="a.py", edits=back),
        CHAT.says("Done."),
    ) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=Editor("allow_session")) as running:
            session = await running.new()
            await running.prompt(session.session_id, "change x twice")

    assert len(running.editor.questions) == 1
    assert (place.work / "a.py").read_text() == "x = 1\n"


async def test_a_file_that_is_replaced_is_shown_as_it_was(place: Place) -> None:
    changing(place)
    call = CHAT.calls("write_file", path="a.py", content="x = 3\n")
    async with FakeProvider(call, CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "write")

    (diff,) = running.editor.calls()[0]["content"]
    assert (diff["old_text"], diff["new_text"]) == ("x = 1\n", "x = 3\n")


@pytest.mark.parametrize("answer", ["reject", "something else"])
async def test_a_rejected_call_is_not_made_and_the_turn_goes_on(place: Place, answer: str) -> None:
    file = changing(place)
    calls = CHAT.calls("edit_file", path="a.py", edits=EDIT)
    async with FakeProvider(calls, CHAT.says("Then not.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=Editor(answer)) as running:
            session = await running.new()
            ended = await running.prompt(session.session_id, "change x")
        told = provider.requests[1].text

    assert ended.stop_reason == "end_turn"
    assert file.read_text() == "x = 1\n"
    assert running.editor.calls()[0]["status"] == "failed"
    assert "The person refused this call" in told
    assert running.editor.said() == "Then not."


async def test_a_cancelled_question_ends_the_turn(place: Place) -> None:
    file = changing(place)
    async with FakeProvider(CHAT.calls("edit_file", path="a.py", edits=EDIT)) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=Editor("")) as running:
            session = await running.new()
            ended = await running.prompt(session.session_id, "change x")

    assert ended.stop_reason == "cancelled"
    assert file.read_text() == "x = 1\n"
    assert running.editor.calls()[0]["status"] == "failed"
    assert turns(place)[-1]["interrupted"] is True


async def test_cancel_in_mid_answer_keeps_what_was_said(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("half an answer"), CHAT.says("Whole.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            editor, (session, _) = running.editor, (await running.new(), None)
            prompt = asyncio.create_task(running.prompt(session.session_id, "tell me"))
            await editor.until(lambda: "half an answer" in editor.said())
            await running.agent.cancel(session_id=session.session_id)
            ended = await prompt
            again = await running.prompt(session.session_id, "and now?")
        told = CHAT.read(provider.requests[1])

    assert (ended.stop_reason, again.stop_reason) == ("cancelled", "end_turn")
    assert "half an answer" in provider.requests[1].text
    assert told.messages[-1].text.endswith("and now?")
    assert [(one["message"], one["interrupted"]) for one in turns(place)] == [
        ("half an answer", True),
        ("Whole.", False),
    ]
    assert provider.violations == []


async def test_cancel_before_the_first_word(place: Place) -> None:
    async with FakeProvider(CHAT.hangs_before_headers(), CHAT.says("Now.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "tell me"))
            await provider.asked()
            await running.agent.cancel(session_id=session.session_id)
            await running.agent.cancel(session_id=session.session_id)
            ended = await prompt
            await running.agent.cancel(session_id=session.session_id)
            again = await running.prompt(session.session_id, "once more")

    assert (ended.stop_reason, again.stop_reason) == ("cancelled", "end_turn")
    assert running.editor.said() == "Now."


async def test_cancel_in_mid_command_ends_the_command(place: Place) -> None:
    command = "echo pid-$$; exec sleep 600"
    async with FakeProvider(CHAT.calls("bash", command=command)) as provider:
        place.configure(CHAT, provider.url, extra='\n[permissions]\nsandbox = "off"\n')
        async with editing(place, "--yolo") as running:
            editor, session = running.editor, await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "run it"))
            await editor.until(lambda: pid_told(editor) > 0)
            await running.agent.cancel(session_id=session.session_id)
            ended = await prompt

    (call,) = running.editor.calls()
    with pytest.raises(ProcessLookupError):
        os.kill(pid_told(editor), 0)
    assert ended.stop_reason == "cancelled"
    assert (call["kind"], call["status"]) == ("execute", "failed")
    assert "in_progress" in call["seen"]
    (turn,) = turns(place)
    assert turn["interrupted"] is True
    assert [item["type"] for item in turn["transcript"]] == ["tool"]


async def test_live_output_is_told_once_and_its_end_only(place: Place) -> None:
    command = "seq 1 3000; for i in a b c; do sleep 0.3; echo late-$i; done; sleep 0.3"
    async with FakeProvider(CHAT.calls("bash", command=command), CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, "--yolo") as running:
            session = await running.new()
            await running.prompt(session.session_id, "run it")

    told = [one for one in running.editor.of(ToolCallProgress) if one.status == "in_progress"]
    shown = [one.content[0].content.text for one in told if one.content]
    assert len(shown) > 1
    assert "late-a" in shown[-1]
    for text_ in shown:
        lines = text_.splitlines()
        assert len(lines) == len({*lines} - {"```"}) + 2, "no line twice, but the fences"
        assert len(text_) < 17_000
    (call,) = running.editor.calls()
    assert call["content"][0]["content"]["text"].endswith("late-c\n```")


async def test_a_question_about_a_command_shows_all_of_it(place: Place) -> None:
    command = "echo one &&\necho '" + "x" * 300 + "' &&\ncurl https://example.org/"
    call = CHAT.calls("bash", command=command, needs="network", reason="To look.")
    async with FakeProvider(call, CHAT.says("Then not.")) as provider:
        place.configure(CHAT, provider.url, extra='\n[permissions]\nsandbox = "off"\n')
        async with editing(place, editor=Editor("reject")) as running:
            session = await running.new()
            await running.prompt(session.session_id, "run it")

    ((question, _),) = running.editor.questions
    shown = "\n".join(one["content"]["text"] for one in question.model_dump()["content"])
    assert "echo one &&\necho '" + "x" * 300 + "' &&\ncurl https://example.org/" in shown
    assert '"needs": "network"' in shown


async def test_cancel_while_a_question_is_open(place: Place) -> None:
    changing(place)
    async with FakeProvider(CHAT.calls("edit_file", path="a.py", edits=EDIT)) as provider:
        place.configure(CHAT, provider.url)
        editor = Editor()
        editor.may_answer.clear()
        async with editing(place, editor=editor) as running:
            session = await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "change x"))
            await editor.asked.wait()
            await running.agent.cancel(session_id=session.session_id)
            ended = await prompt
            editor.may_answer.set()
            await running.agent.list_sessions()  # behind the late answer, which nobody waits for

    assert ended.stop_reason == "cancelled"
    assert (place.work / "a.py").read_text() == "x = 1\n"


async def test_a_second_prompt_of_a_session_is_refused_and_the_first_goes_on(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("first")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            editor, session = running.editor, await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "one"))
            await editor.until(lambda: "first" in editor.said())
            error = await refusal(running.prompt(session.session_id, "two"))
            await running.agent.cancel(session_id=session.session_id)
            assert (await prompt).stop_reason == "cancelled"

    assert error.code == -32600
    assert "running" in str(error)
    assert len(provider.requests) == 1


async def test_two_sessions_side_by_side_do_not_mix(place: Place) -> None:
    def answer(request: Recorded) -> Scripted:
        word = "apple" if "apple" in request.text else "pear"
        return CHAT.says(f"You said {word}.")

    async with FakeProvider(answer) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            one, two = await running.new(), await running.new()
            await asyncio.gather(
                running.prompt(one.session_id, "apple"), running.prompt(two.session_id, "pear")
            )

    assert running.editor.said(one.session_id) == "You said apple."
    assert running.editor.said(two.session_id) == "You said pear."
    assert {path.stem for path in place.sessions()} == {one.session_id, two.session_id}


async def test_a_plan_is_a_plan_and_no_call(place: Place) -> None:
    items: list[Json] = [
        {"text": "Look", "status": "done"},
        {"text": "Mend", "status": "active"},
        {"text": "Test"},
    ]
    async with FakeProvider(CHAT.calls("todo", items=items), CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "plan it")

    (plan,) = running.editor.of(AgentPlanUpdate)
    shown = [(entry.content, entry.status) for entry in plan.entries]
    assert shown == [("Look", "completed"), ("Mend", "in_progress"), ("Test", "pending")]
    assert running.editor.calls() == []


async def test_blocks_of_a_prompt_reach_the_model(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.agent.prompt(
                session_id=session.session_id,
                prompt=[
                    text("Compare "),
                    ResourceContentBlock(
                        type="resource_link", name="a b.py", uri=f"file://{place.work}/a%20b.py"
                    ),
                    text(" with this."),
                    EmbeddedResourceContentBlock(
                        type="resource",
                        resource=TextResourceContents(uri="zed:///buffer", text="unsaved = True"),
                    ),
                    ImageContentBlock(
                        type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png"
                    ),
                ],
            )
        request = provider.requests[0]

    said = CHAT.read(request).messages[-1].text
    assert f"Compare @{place.work}/a b.py with this." in said
    assert '<resource uri="zed:///buffer">\nunsaved = True\n</resource>' in said
    assert base64.b64encode(PIXEL).decode() in request.text


async def test_a_command_is_a_command_with_a_link_in_it_too(place: Place) -> None:
    link = ResourceContentBlock(type="resource_link", name="a", uri=f"file://{place.work}/a.py")
    (place.home / "commands").mkdir()
    (place.home / "commands/explain.md").write_text("Explain this: $1")
    async with FakeProvider(CHAT.says("It is code.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            for words in ("/frobnicate ", "/explain "):
                await running.agent.prompt(
                    session_id=session.session_id, prompt=[text(words), link]
                )

    assert "Unknown command: /frobnicate" in running.editor.said()
    (request,) = provider.requests
    assert f"Explain this: @{place.work}/a.py" in request.text


async def test_the_window_is_told_as_estimated_where_the_provider_reports_nothing(
    place: Place,
) -> None:
    async with FakeProvider(CHAT.says("Hello.", usage=None)) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "hello")
        async with editing(place) as again:
            await again.agent.load_session(
                cwd=str(place.work), session_id=session.session_id, mcp_servers=[]
            )
            await again.editor.until(lambda: bool(again.editor.of(UsageUpdate)))

    for editor in (running.editor, again.editor):
        told = editor.of(UsageUpdate)[-1]
        assert 100 < told.used < told.size == 200_000


async def test_a_retry_says_that_the_answer_starts_again(place: Place) -> None:
    async with FakeProvider(CHAT.cut("half an"), CHAT.says("A whole answer.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            ended = await running.prompt(session.session_id, "tell me")

    assert ended.stop_reason == "end_turn"
    assert running.editor.said() == (
        "half an\n\n[The answer above was cut off; it starts again.]\n\nA whole answer."
    )
    assert "Retrying (attempt 2)..." in running.editor.thought()
    assert turns(place)[0]["message"] == "A whole answer."


async def test_a_retry_before_the_first_word_leaves_the_answer_clean(place: Place) -> None:
    async with FakeProvider(CHAT.overloaded(), CHAT.says("An answer.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "tell me")

    assert running.editor.said() == "An answer."
    assert "Retrying (attempt 2)..." in running.editor.thought()


@pytest.mark.parametrize(
    ("scripted", "reason"),
    [(CHAT.truncated("half an"), "max_tokens"), (CHAT.refused("I will not"), "refusal")],
    ids=["length", "refused"],
)
async def test_other_ends_of_an_answer_are_named(
    place: Place, scripted: Scripted, reason: str
) -> None:
    async with FakeProvider(scripted) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            ended = await running.prompt(session.session_id, "tell me")

    assert ended.stop_reason == reason


async def test_a_refused_key_asks_for_a_sign_in(place: Place) -> None:
    async with FakeProvider(CHAT.unauthorized(), CHAT.says("Better.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as running:
            session = await running.new()
            error = await refusal(running.prompt(session.session_id, "hello"))
            again = await running.prompt(session.session_id, "again")

    assert error.code == -32000
    assert CHAT.key not in str(error)
    assert again.stop_reason == "end_turn"


async def test_a_key_in_an_answer_is_masked_even_when_it_comes_in_pieces(place: Place) -> None:
    secret = "sk-fake-secret-0123456789"
    pieces = ("the key is ", secret[:9], secret[9:], " and done")
    async with FakeProvider(CHAT.says("", pieces=pieces)) as provider:
        place.configure(
            CHAT,
            provider.url,
            extra=f'\n[providers.other]\nclient = "chat"\n'
            f'base_url = "{provider.url}"\napi_key = "{secret}"\n',
        )
        async with editing(place) as running:
            session = await running.new()
            await running.prompt(session.session_id, "which key?")

    assert running.editor.said() == "the key is *** and done"

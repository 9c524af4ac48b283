"""Files through the editor: its unsaved text is read, and it writes what the tools change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError

from keen.acp.files import EditorFiles, Folder
from keen.core.errors import ToolError
from keen.core.messages import Json
from tests.acp.editor import Editor, editing
from tests.acp.test_prompts import CHAT, EDIT, PIXEL, changing, turns
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

READ = CHAT.calls("read_file", path="a.py")
CHANGE = CHAT.calls("edit_file", path="a.py", edits=EDIT)
pytestmark = pytest.mark.timeout(90)


async def played(
    place: Place,
    editor: Editor,
    *answers: Scripted,
    files: str = "read write",
    words: tuple[str, ...] = (),
    cwd: Path | None = None,
) -> list[str]:
    """One prompt, answered with calls; what the model was told of each."""
    async with FakeProvider(*answers, CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, *words, editor=editor, files=files) as running:
            session = await running.agent.new_session(cwd=str(cwd or place.work), mcp_servers=[])
            ended = await running.prompt(session.session_id, "do it")
        assert ended.stop_reason == "end_turn"
        assert provider.violations == []
        return [one.output for one in CHAT.read(provider.requests[-1]).results]


async def test_the_unsaved_text_is_read(place: Place) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 'unsaved'\n"})

    (told,) = await played(place, editor, READ)

    assert "x = 'unsaved'" in told
    assert editor.reads == [str(file)]
    assert file.read_text() == "x = 1\n"


async def test_an_edit_of_the_unsaved_text_is_written_by_the_editor(place: Place) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 1\ny = 'unsaved'\n"})

    (told,) = await played(place, editor, CHANGE)

    assert "+1 -1 lines" in told
    assert editor.writes == [(str(file), "x = 2\ny = 'unsaved'\n")]
    assert file.read_text() == "x = 2\ny = 'unsaved'\n"


async def test_a_file_that_is_replaced_is_shown_and_judged_as_the_editor_has_it(
    place: Place,
) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 'unsaved'\n"})
    call = CHAT.calls("write_file", path="a.py", content="x = 3\n")

    await played(place, editor, call)

    ((question, _),) = editor.questions
    assert "unsaved" in str(question.content)
    assert editor.writes == [(str(file), "x = 3\n")]


@pytest.mark.parametrize("missing", [-32002, -32603])
async def test_a_new_file_is_made_by_the_editor_with_its_folders(
    place: Place, missing: int
) -> None:
    editor = Editor(missing=missing)
    call = CHAT.calls("write_file", path="deep/er/new.py", content="x = 1\n")

    (told,) = await played(place, editor, call)

    file = place.work / "deep/er/new.py"
    assert told.startswith("Created deep/er/new.py")
    assert editor.writes == [(str(file), "x = 1\n")]
    assert file.read_text() == "x = 1\n"


async def test_a_text_that_changed_in_the_editor_since_it_was_read_is_not_replaced(
    place: Place,
) -> None:
    file = changing(place)
    editor = Editor()
    editor.on_update = lambda update: (
        editor.buffers.update({str(file): "x = 'typed meanwhile'\n"})
        if getattr(update, "status", None) == "completed"
        else None
    )
    write = CHAT.calls("write_file", path="a.py", content="x = 3\n")

    _, told = await played(place, editor, READ, write)

    assert "changed since you last read it" in told
    assert editor.writes == []
    assert file.read_text() == "x = 1\n"


async def test_a_text_that_changes_while_a_person_is_asked_is_not_replaced(place: Place) -> None:
    file = changing(place)
    editor = Editor()
    editor.may_answer.clear()

    async def type_meanwhile() -> None:
        await editor.asked.wait()
        editor.buffers[str(file)] = "x = 1\nz = 1\n"
        editor.may_answer.set()

    typing = asyncio.create_task(type_meanwhile())
    (told,) = await played(place, editor, CHANGE)
    await typing

    assert "changed while the change was being approved" in told
    assert editor.writes == []


async def test_line_ends_stay_as_they_are_on_disk(place: Place) -> None:
    file = place.work / "a.py"
    file.write_bytes(b"x = 1\r\ny = 1\r\n")
    editor = Editor(buffers={str(file): "x = 1\ny = 2\n"})

    await played(place, editor, CHANGE)

    assert file.read_bytes() == b"x = 2\r\ny = 2\r\n"


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1"),
        ("x = 1 # ä\n".encode("cp1252"), "x = 1 # ä"),
        ("x = 1\n".encode("utf-16"), "x = 1"),
        (b"\x7fELF\x00\x01", "binary"),
        (PIXEL, "image/png"),
    ],
    ids=["mark", "latin", "utf-16", "binary", "picture"],
)
async def test_what_is_no_plain_text_is_the_disks(place: Place, content: bytes, seen: str) -> None:
    (place.work / "a.py").write_bytes(content)
    editor = Editor()

    told = await played(place, editor, READ, CHANGE)

    assert seen in told[0]
    assert (editor.reads, editor.writes) == ([], [])
    if seen.startswith("x"):
        assert "Edited a.py" in told[1]


async def test_without_an_offer_to_write_the_disk_is_written(place: Place) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 1\ny = 'unsaved'\n"})

    await played(place, editor, CHANGE, files="read")

    assert editor.writes == []
    assert file.read_text() == "x = 2\ny = 'unsaved'\n"


@pytest.mark.parametrize("files", ["", "write"])
async def test_without_an_offer_to_read_the_editor_is_asked_nothing(
    place: Place, files: str
) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "never seen"})

    await played(place, editor, READ, CHANGE, files=files)

    assert (editor.reads, editor.writes) == ([], [])
    assert file.read_text() == "x = 2\n"


async def test_an_error_of_the_editor_is_an_error_of_the_call(place: Place) -> None:
    file = changing(place)
    editor = Editor(fault=RequestError(-32603, "the buffer is on fire\x1b[2J"))
    write = CHAT.calls("write_file", path="a.py", content="x = 3\n")

    told = await played(place, editor, READ, CHANGE, write)

    for one in told:
        assert f"The editor cannot read {file}: the buffer is on fire" in one
        assert "\x1b" not in one
    assert {call["status"] for call in editor.calls()} == {"failed"}
    assert file.read_text() == "x = 1\n"


async def test_a_file_that_is_nowhere_is_told_as_ever(place: Place) -> None:
    (place.work / "b.py").write_text("")

    (told,) = await played(place, Editor(), READ)

    assert "a.py does not exist" in told


@pytest.mark.parametrize("files", ["read", "read write"])
async def test_a_file_that_only_the_editor_has_can_be_read_and_saved(
    place: Place, files: str
) -> None:
    file = place.work / "a.py"
    editor = Editor(buffers={str(file): "x = 1\n"})

    told = await played(place, editor, READ, CHANGE, files=files)

    assert "x = 1" in told[0]
    assert file.read_text() == "x = 2\n"


async def test_an_editor_that_never_answers_is_left_by_cancelling(place: Place) -> None:
    changing(place)
    editor = Editor()
    editor.may_read.clear()
    async with FakeProvider(READ, CHAT.says("Now.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=editor, files="read write") as running:
            session = await running.new()
            prompt = asyncio.create_task(running.prompt(session.session_id, "read it"))
            await editor.is_read.wait()
            await running.agent.cancel(session_id=session.session_id)
            ended = await prompt
            editor.may_read.set()
            again = await running.prompt(session.session_id, "and now?")

    assert (ended.stop_reason, again.stop_reason) == ("cancelled", "end_turn")
    assert [one["interrupted"] for one in turns(place)] == [True, False]


async def test_an_answer_that_is_lost_is_not_waited_for_without_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keen.acp.files._SECONDS", 0.05)
    editor = Editor()
    editor.may_read.clear()
    client: Any = editor
    files = EditorFiles(client, "id", [Folder(place.work, place.work)], can_write=True)

    with pytest.raises(ToolError, match="no answer within"):
        await files.read(place.work / "a.py", b"x = 1\n")


async def test_many_files_are_read_at_once_and_a_long_one_does_not_block(place: Place) -> None:
    names = [f"file{number}.txt" for number in range(12)]
    for name in names:
        (place.work / name).write_text("old\n")
    editor = Editor(buffers={str(place.work / name): f"{name} " * 150_000 for name in names})
    many = CHAT.calls_many(*(("read_file", {"path": name}) for name in names))

    told = await played(place, editor, many)

    assert len(editor.reads) == len(names)
    for name, one in zip(names, told, strict=True):
        assert name in one


async def test_what_may_not_be_touched_never_reaches_the_editor(place: Place) -> None:
    (place.work / ".git/hooks").mkdir(parents=True)
    hook = place.work / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\n")
    (place.work / "link").symlink_to(place.home / ".ssh")
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/config").write_text("Host secret\n")
    editor = Editor(answer="reject")
    calls: list[tuple[str, dict[str, Json]]] = [
        ("write_file", {"path": ".git/hooks/pre-commit", "content": "evil"}),
        ("edit_file", {"path": ".git/hooks/pre-commit", "edits": [{"old": "sh", "new": "x"}]}),
        ("read_file", {"path": "link/config"}),
        ("write_file", {"path": "link/config", "content": "evil"}),
    ]

    await played(place, editor, *(CHAT.calls(name, **given) for name, given in calls))

    assert (editor.reads, editor.writes) == ([], [])
    assert hook.read_text() == "#!/bin/sh\n"


async def test_a_folder_that_becomes_a_link_after_it_was_judged_is_not_written_into(
    place: Place,
) -> None:
    inside, outside = place.work / "src", place.work.parent / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    editor = Editor()
    editor.may_read.clear()

    async def swap() -> None:
        await editor.is_read.wait()
        inside.rename(place.work / "moved")
        inside.symlink_to(outside)
        editor.may_read.set()

    swapping = asyncio.create_task(swap())
    edit = CHAT.calls("edit_file", path="src/a.py", edits=EDIT)
    (told,) = await played(place, editor, edit, words=("--yolo",))
    await swapping

    assert "replaced by a link" in told
    assert editor.writes == []
    assert (outside / "a.py").read_text() == "x = 1\n"


async def test_files_outside_of_what_the_client_named_are_the_disks(place: Place) -> None:
    outside = place.work.parent / "notes.txt"
    outside.write_text("on disk\n")
    editor = Editor(buffers={str(outside): "in the editor\n"})

    (told,) = await played(place, editor, CHAT.calls("read_file", path=str(outside)))

    assert "on disk" in told
    assert editor.reads == []


async def test_paths_are_spelled_as_the_client_spelled_the_folder(place: Place) -> None:
    file = changing(place)
    spelled = place.home / "project"
    spelled.symlink_to(place.work)
    editor = Editor(buffers={str(spelled / "a.py"): "x = 1\ny = 'unsaved'\n"})

    await played(place, editor, READ, CHANGE, cwd=spelled)

    assert {*editor.reads} == {str(spelled / "a.py")}
    assert editor.writes == [(str(spelled / "a.py"), "x = 2\ny = 'unsaved'\n")]
    assert file.read_text() == "x = 2\ny = 'unsaved'\n"


async def test_a_read_only_file_is_not_written_through_the_editor(place: Place) -> None:
    file = changing(place)
    file.chmod(0o444)
    editor = Editor()

    (told,) = await played(place, editor, CHANGE)

    assert "read-only" in told
    assert editor.writes == []


async def test_a_key_in_a_file_is_written_as_it_is(place: Place) -> None:
    secret = "sk-fake-secret-0123456789"
    file = place.work / "a.py"
    file.write_text(f"x = 1\nkey = '{secret}'\n")
    editor = Editor()
    async with FakeProvider(CHANGE, CHAT.says("Done.")) as provider:
        place.configure(
            CHAT,
            provider.url,
            extra=f'\n[providers.other]\nclient = "chat"\n'
            f'base_url = "{provider.url}"\napi_key = "{secret}"\n',
        )
        async with editing(place, editor=editor, files="read write") as running:
            session = await running.new()
            await running.prompt(session.session_id, "change x")

    assert file.read_text() == f"x = 2\nkey = '{secret}'\n"
    assert secret not in str(editor.updates)


async def test_another_model_still_reads_what_is_open_and_an_edit_can_be_taken_back(
    place: Place,
) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 1\ny = 'unsaved'\n"})
    more = f'\n[providers.fake.models."{CHAT.model_id}-mini"]\ncontext_window = 100000\n'
    async with FakeProvider(CHAT.says("one"), CHANGE, CHAT.says("Done.")) as provider:
        place.configure(CHAT, provider.url, extra=more)
        async with editing(place, editor=editor, files="read write") as running:
            session = await running.new()
            await running.prompt(session.session_id, "hello")
            await running.agent.set_config_option(
                config_id="model",
                session_id=session.session_id,
                value=f"fake/{CHAT.model_id}-mini",
            )
            await running.prompt(session.session_id, "change x")

    assert file.read_text() == "x = 2\ny = 'unsaved'\n"
    (log,) = place.sessions()
    assert log.with_suffix(".files").read_bytes()


async def test_a_subagent_reads_what_is_open(place: Place) -> None:
    file = changing(place)
    editor = Editor(buffers={str(file): "x = 'unsaved'\n"})
    tasks: list[Json] = [{"agent": "explore", "prompt": "Read a.py"}]

    def answer(request: Recorded) -> Scripted:
        read = CHAT.read(request)
        if any("unsaved" in one.output for one in read.results):
            return CHAT.says("It is unsaved.")
        return READ if "Read a.py" in read.messages[0].text else CHAT.calls("task", tasks=tasks)

    async with FakeProvider(answer) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place, editor=editor, files="read write") as running:
            session = await running.new()
            await running.prompt(session.session_id, "let somebody look")

    assert editor.reads == [str(file)]
    assert editor.said() == "It is unsaved."

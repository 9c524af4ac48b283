"""What a first hour of use stumbled over."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

from keen.app import arguments
from keen.app.app import KeenApp
from keen.app.blocks import Words
from keen.app.desk import Opened, Wanted
from keen.app.tally import Tally
from keen.commands._early import early
from keen.commands.desk import AppDesk
from keen.core.messages import Json, ToolCall
from keen.options import Options
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def test_enter_in_a_search_goes_to_the_next_hit_and_sends_nothing(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("The needle is here.")) as provider, keen(provider) as it:
        await it.ready()
        await it.say("go")
        await it.until("✔ ")
        it.press("ctrl+f")
        await it.until("Search:")

        it.type("needle")
        await it.until(lambda: it.prompt == "needle")
        await it.quiet()
        assert "Nothing above" not in it.text
        it.press("enter")
        await it.until("No more above.")
        await it.quiet()

        assert "No more above." in it.text
        it.press("escape")
        await it.gone("No more above.")
        await it.quiet()
        assert len(provider.requests) == 1


async def test_live_output_of_a_command_is_shown_once(keen: Start, chat: Dialect) -> None:
    call = chat.calls("bash", command="echo first; sleep 0.5; echo second; sleep 60")
    async with FakeProvider(call) as provider, keen(provider, "--yolo") as it:
        await it.ready()
        await it.say("go")

        await it.until(lambda: "second" in map(str.strip, it.lines))

        assert [line.strip() for line in it.lines].count("first") == 1


async def test_the_first_letter_of_a_written_answer_is_a_part_of_it(
    keen: Start, chat: Dialect
) -> None:
    asked = chat.calls("ask_user", questions=[{"text": "Why?"}])
    async with FakeProvider(asked, chat.says("Thanks.")) as provider, keen(provider) as it:
        await it.ready()
        await it.say("go")
        await it.until("Write your answer")
        await it.quiet(0.4)

        await it.say("42 reasons")

        await it.until("Thanks.")
        assert "42 reasons" in provider.requests[1].text


async def test_a_message_written_into_a_question_takes_none_of_its_options(
    keen: Start, chat: Dialect
) -> None:
    asked = chat.calls("ask_user", questions=[{"text": "Delete it?", "options": ["Yes", "No"]}])
    async with FakeProvider(asked, chat.says("I see.")) as provider, keen(provider) as it:
        await it.ready()
        await it.say("go")
        await it.until("Delete it?")
        await it.quiet(0.4)

        await it.say("look at the parser")

        await it.until("I see.")
        assert "> look at the parser" in provider.requests[1].text
        assert "> Yes" not in provider.requests[1].text


async def test_whether_a_folder_is_trusted_has_two_answers_and_names_no_flag(
    keen: Start, workspace: Path
) -> None:
    await asyncio.to_thread((workspace / "AGENTS.md").write_text, "Use tabs.\n")
    async with keen(None, "-m", "demo/guide") as it:
        await it.until("Do you trust this folder?")

        assert "something else" not in it.text
        assert "--trust" not in it.text


async def test_an_untrusted_folder_says_so_where_nothing_is_asked(
    keen: Start, workspace: Path
) -> None:
    await asyncio.to_thread((workspace / "AGENTS.md").write_text, "Use tabs.\n")
    async with keen(None, "-m", "demo/guide") as it:
        await it.until("Do you trust this folder?")
        await it.quiet(0.4)
        it.type("1")
        await it.gone("Do you trust this folder?")
        await it.say("/new")

        await it.until("AGENTS.md ignored. /trust asks again.")


async def test_doctor_tells_what_it_found_on_the_screen(keen: Start) -> None:
    async with keen(None, "-m", "demo/guide") as it:
        await it.ready()
        await it.say("/doctor")

        await it.until("terminal: xterm-256color")


async def test_a_whole_command_is_run_though_a_longer_one_begins_so(keen: Start) -> None:
    async with keen(None, "-m", "demo/guide") as it:
        await it.ready()
        await it.say("/mode")

        await it.until(" plan ")
        assert it.prompt.startswith("Ask, or /")


async def test_diff_names_files_that_git_does_not_know_yet(keen: Start, workspace: Path) -> None:
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first"),
    ):
        await asyncio.to_thread(
            subprocess.run, ["git", *words], cwd=workspace, check=True, capture_output=True
        )
    await asyncio.to_thread((workspace / "brand_new.py").write_text, "x = 1\n")
    async with keen(None, "-m", "demo/guide") as it:
        await it.ready()
        await it.say("/trust")
        await it.until("Yes, I trust this folder")
        it.press("down", "enter")
        await it.gone("Yes, I trust this folder")
        await it.ready()
        await it.say("/diff")

        await it.until("New files")
        assert "brand_new.py" in it.text


async def test_the_todo_list_marks_what_is_worked_on_and_comes_back_with_the_session(
    keen: Start, chat: Dialect
) -> None:
    items: list[Json] = [
        {"text": "read", "status": "done"},
        {"text": "write", "status": "active"},
    ]
    async with FakeProvider(chat.calls("todo", items=items), chat.says("Noted.")) as provider:
        async with keen(provider) as it:
            await it.ready()
            await it.say("plan")
            await it.until("Noted.")
            it.press("ctrl+t")
            await it.until("▸ write")
            it.press("ctrl+d")
            await it.ended()
        async with keen(provider, "-c") as it:
            await it.until("Noted.")
            await it.ready()

            it.press("ctrl+t")

            await it.until("▸ write")


async def test_a_list_that_failed_is_not_shown(keen: Start, chat: Dialect) -> None:
    wrong: list[Json] = [{"text": "write", "status": "started"}]
    script = (chat.calls("todo", items=wrong), chat.says("Never mind."))
    async with FakeProvider(*script) as provider, keen(provider) as it:
        await it.ready()
        await it.say("plan")
        await it.until("Never mind.")
        it.press("ctrl+t")

        await it.until("There is no todo list yet.")


async def test_login_to_a_provider_that_does_not_exist_asks_for_no_key(keen: Start) -> None:
    async with keen(None, "-m", "demo/guide") as it:
        await it.ready()
        await it.say("/login nowhere")

        await it.until("nowhere is no provider with a key: anthropic")


async def test_how_hard_the_model_thinks_survives_a_session_that_is_not_there(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider() as provider, keen(provider) as it:
        await it.ready()
        await it.say("/thinking high")
        await it.until(":high")

        await it.say("/sessions nowhere")

        await it.until("No session 'nowhere'")
        await it.ready()
        assert ":high" in it.lines[-1]


async def test_always_on_a_file_outside_promises_no_more_than_it_gives(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    outside = str(workspace.parent / "outside.txt")
    call = chat.calls("write_file", path=outside, content="x\n")
    async with FakeProvider(call) as provider, keen(provider) as it:
        await it.ready()
        await it.say("go")

        await it.until("a always: this file")


async def test_a_session_that_was_only_looked_at_says_how_to_come_back(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider:
        async with keen(provider) as it:
            await it.ready()
            await it.say("hi")
            await it.until("✔ ")
            it.press("ctrl+d")
            await it.ended()
        async with keen(provider, "-c") as it:
            await it.until("Hello.")
            await it.ready()

            it.press("ctrl+d")

            await it.ended()
            assert "Go on with: keen -r" in it.text


class MistakenDesk(AppDesk):
    """A desk with a mistake of keen's own in it."""

    async def open(self, wanted: Wanted) -> Opened:
        raise ValueError("a mistake")

    async def themes_of_nobody(self) -> None:
        """Another one."""
        raise ValueError("another mistake")


async def test_a_mistake_in_the_screens_own_work_is_told_and_the_screen_goes_on(
    home: Path, workspace: Path
) -> None:
    environment = {"KEEN_HOME": str(home / "keen"), "HOME": str(home)}
    options = Options(workspace)
    desk = MistakenDesk(options, environment, early(options, environment))
    app = KeenApp(desk)
    async with app.run_test(size=(80, 24)) as pilot:
        chat = app.chat
        while not chat.transcript.blocks:
            await pilot.pause()
        said = [block.text for block in chat.transcript.blocks if isinstance(block, Words)]
        assert said == ["keen failed: ValueError: a mistake"]

        chat.run_quietly(desk.themes_of_nobody(), "themes")
        while not chat.notices.shown:
            await pilot.pause()

        assert chat.notices.shown[0].text == "keen failed: ValueError: another mistake"
        assert app.is_running


async def test_a_fork_says_that_it_is_a_copy(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider, keen(provider) as it:
        await it.ready()
        await it.say("hi")
        await it.until("✔ ")

        await it.say("/fork")

        await it.until("This is a copy.")


def test_before_a_yes_every_argument_of_a_call_is_told() -> None:
    given: dict[str, Json] = {"to": "all@example.org", "body": "one\ntwo\x1b[2J", "copies": 3}

    told = arguments.told(ToolCall("1", "mcp__mail__send", given))

    assert told.startswith("to: all@example.org\nbody: \n  one\n  two")
    assert told.endswith("copies: 3")
    assert "\x1b" not in told


def test_what_runs_beside_the_conversation_is_no_turn_of_it() -> None:
    tally = Tally()

    tally.begin(None)
    tally.begin(None, is_aside=True)

    assert tally.turns == 1

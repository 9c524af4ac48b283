"""The plain line mode of --screen-reader: the same engine, no screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from keen.app import commands, plain_commands
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


def say(terminal: Terminal, line: str) -> None:
    terminal.type(line + "\r")


async def test_every_line_command_of_the_app_has_the_apps_name() -> None:
    for one in plain_commands.COMMANDS:
        found = commands.find(one.name)
        assert found is not None
        assert set(one.aliases) <= set(found.aliases)


async def test_reports_are_lines_of_a_name_and_what_it_is(keen: Start, chat: Dialect) -> None:
    async with (
        FakeProvider(chat.says("Hello.")) as provider,
        keen(provider, "--screen-reader", size=(100, 60)) as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "hi")
        await terminal.until("keen: Hello.")
        say(terminal, "/status")
        await terminal.until("model: fake/")
        await terminal.until("sandbox: ")
        say(terminal, "/usage")
        await terminal.until("requests: 1")
        say(terminal, "/context")
        await terminal.until("system prompt: ")
        say(terminal, "/permissions")
        await terminal.until("mode: build")
        say(terminal, "/nothing")
        await terminal.until("Unknown command: /nothing.")
        assert b"\x1b[?1049h" not in terminal.raw


async def test_a_compaction_is_made_listed_and_taken_back(keen: Start, chat: Dialect) -> None:
    script = (chat.says("A long answer. " * 60), chat.says("## Goal\n\nShort."))
    async with (
        FakeProvider(*script) as provider,
        keen(provider, "--screen-reader", size=(100, 60)) as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "tell me")
        await terminal.until("A long answer.")
        say(terminal, "/compact the goal")
        await terminal.until("Context compacted.")
        say(terminal, "/context")
        await terminal.until("Compaction: ")

        say(terminal, "/compact undo")

        await terminal.until("The last compaction was taken back")
        assert "the goal" in json.dumps(provider.requests[1].json)


async def test_a_session_is_named_left_found_and_gone_on_with(keen: Start, chat: Dialect) -> None:
    script = (chat.says("First answer."), chat.says("Second answer."), chat.says("Third answer."))
    async with (
        FakeProvider(*script) as provider,
        keen(provider, "--screen-reader", size=(100, 60)) as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "the first message")
        await terminal.until("keen: First answer.")
        say(terminal, "/rename parser work")
        await terminal.until("Renamed.")
        say(terminal, "/new")
        await terminal.until("A fresh session.")
        say(terminal, "another one")
        await terminal.until("keen: Second answer.")
        say(terminal, "/sessions")
        await terminal.until("parser work")

        say(terminal, "/sessions parser work")

        await terminal.until("Going on with parser work of 1 messages of yours.")
        await terminal.until("You said last: the first message")
        say(terminal, "go on")
        await terminal.until("keen: Third answer.")
        sent = json.dumps(provider.requests[2].json)
        assert "the first message" in sent
        assert "another one" not in sent


async def test_resume_without_a_name_lists_what_there_is(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("One."), chat.says("Two.")) as provider:
        async with keen(provider, "--screen-reader") as terminal:
            await terminal.until("You:")
            say(terminal, "remember this")
            await terminal.until("keen: One.")
            say(terminal, "/exit")
            await terminal.ended()
        async with keen(provider, "--screen-reader", "--resume") as terminal:
            await terminal.until("/sessions ID opens one.")
            assert "remember this" in terminal.text


async def test_a_session_that_is_not_there_leaves_the_present_one_open(
    keen: Start, chat: Dialect
) -> None:
    async with (
        FakeProvider(chat.says("One."), chat.says("Two.")) as provider,
        keen(provider, "--screen-reader") as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "remember this")
        await terminal.until("keen: One.")
        say(terminal, "/sessions nowhere")
        await terminal.until("Failed: ")

        say(terminal, "and now")

        await terminal.until("keen: Two.")
        assert "remember this" in json.dumps(provider.requests[1].json)


async def test_an_own_command_goes_with_the_next_message_unless_it_is_private(
    keen: Start, chat: Dialect
) -> None:
    async with (
        FakeProvider(chat.says("Seen.")) as provider,
        keen(provider, "--screen-reader") as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "!!echo hidden-$((1+1))")
        await terminal.until("hidden-2")
        say(terminal, "!echo shown-$((1+2)); exit 3")
        await terminal.until("Exit code 3. It goes with your next message.")

        say(terminal, "what was that?")

        await terminal.until("keen: Seen.")
        sent = json.dumps(provider.requests[0].json)
        assert "shown-3" in sent
        assert "hidden-2" not in sent


async def test_a_skill_of_ones_own_is_called_by_its_name(
    keen: Start, chat: Dialect, home: Path
) -> None:
    folder = home / "keen" / "skills" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: greet\ndescription: Says hello.\n---\nGreet $ARGUMENTS warmly.\n"
    )
    async with (
        FakeProvider(chat.says("Hello!")) as provider,
        keen(provider, "--screen-reader") as terminal,
    ):
        await terminal.until("You:")
        say(terminal, "/skills")
        await terminal.until("/greet: Says hello.")

        say(terminal, "/greet Ada")

        await terminal.until("keen: Hello!")
        assert "Greet Ada warmly." in json.dumps(provider.requests[0].json)


async def test_a_rule_is_saved_for_the_project(
    keen: Start, chat: Dialect, home: Path, workspace: Path
) -> None:
    script = (chat.calls("write_file", path="a.py", content="x\n"), chat.says("Written."))
    async with FakeProvider(*script) as provider, keen(provider, "--screen-reader") as terminal:
        await terminal.until("You:")
        say(terminal, "make a file")
        await terminal.until("p always in this project")

        say(terminal, "p")

        await terminal.until("keen: Written.")
        assert "a.py" in (home / "keen" / "permissions.toml").read_text()

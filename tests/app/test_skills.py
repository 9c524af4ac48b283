"""Skills and custom commands as a person meets them: menu, sheet, sending, steering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keen.app.commands import COMMANDS
from keen.extend.slash import BUILT_IN
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def with_head(text: str, **fields: str) -> str:
    head = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in fields.items())
    return f"---\n{head}---\n{text}\n"


@pytest.fixture
def fix(home: Path) -> Path:
    text = with_head("Fix issue $1 at once.", description="Fix one issue", argument_hint="[issue]")
    return written(home / ".claude/commands/team/fix.md", text)


def test_every_name_of_keens_own_is_kept_from_skills_and_commands() -> None:
    names = {name for one in COMMANDS for name in (one.name, *one.aliases)}

    assert names <= BUILT_IN


@pytest.mark.usefixtures("fix")
async def test_a_command_stands_in_the_menu_and_is_sent_as_what_it_says(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Fixed.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("/fi")
        await terminal.until("/team:fix [issue]")
        await terminal.until("Fix one issue (user)")
        terminal.press("tab")
        await terminal.until(lambda: terminal.prompt == "/team:fix")
        assert provider.requests == []

        terminal.type("42")
        terminal.press("enter")

        await terminal.until("Fixed.")
        assert "❯ /team:fix 42" in terminal.text
        assert "Fix issue 42 at once." in chat.read(provider.requests[0]).messages[-1].text


async def test_a_skill_is_called_by_its_name_and_files_are_still_offered_behind_it(
    keen: Start, chat: Dialect, home: Path
) -> None:
    written(home / "keen/skills/tidy/SKILL.md", with_head("Tidy up.", description="Tidies"))
    async with FakeProvider(chat.says("Tidied.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("/tidy @pars")
        await terminal.until("parser.py")
        terminal.press("tab")
        await terminal.until(lambda: terminal.prompt == "/tidy @parser.py")
        terminal.press("enter")

        await terminal.until("Tidied.")
        asked = chat.read(provider.requests[0])
        assert "Tidy up.\n\nARGUMENTS: @parser.py" in asked.messages[-1].text
        assert "- tidy: Tidies" in asked.system


@pytest.mark.usefixtures("fix")
async def test_an_unknown_command_is_reported_and_never_sent(keen: Start, chat: Dialect) -> None:
    async with FakeProvider(chat.says("No.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("/team:fox 1")

        await terminal.until("Unknown command: /team:fox. Did you mean /team:fix?")
        assert provider.requests == []


@pytest.mark.usefixtures("fix")
async def test_the_sheet_lists_and_a_skill_is_switched_off_on_and_read_again(
    keen: Start, chat: Dialect, home: Path
) -> None:
    written(home / "keen/skills/tidy/SKILL.md", with_head("x", description="Tidies"))
    written(home / "keen/skills/broken/SKILL.md", "---\n")
    answers = (chat.says("One."), chat.says("Two."), chat.says("Three."))
    async with FakeProvider(*answers) as provider, keen(provider, size=(200, 40)) as terminal:
        await terminal.ready()
        await terminal.until("Skill or command left out: ")
        await terminal.say("/skills")
        await terminal.until("Tidies · user · ")
        await terminal.until("Fix one issue · user · ")
        terminal.press("escape")
        await terminal.gone("Skills and commands;")

        await terminal.say("/skills off tidy")
        await terminal.until("The skill tidy is off.")
        await terminal.say("hello")
        await terminal.until("One.")
        await terminal.until("✔ ")
        written(home / "keen/skills/later/SKILL.md", with_head("x", description="Came later"))
        await terminal.say("/skills reload")
        await terminal.until("Read again: 3 skills and commands.")
        await terminal.say("/skills on tidy")
        await terminal.until("The skill tidy is on.")
        await terminal.say("go on")
        await terminal.until("Two.")

        systems = [chat.read(request).system for request in provider.requests]
        assert "tidy" not in systems[0]
        assert "- later: Came later" in systems[1]
        assert "- tidy: Tidies" in systems[1]


async def test_the_first_skill_of_a_session_brings_its_tool_with_it(
    keen: Start, chat: Dialect, home: Path
) -> None:
    answers = (
        chat.says("One."),
        chat.calls_many(("skill", {"name": "tidy"})),
        chat.says("Tidied."),
    )
    async with FakeProvider(*answers) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("hello")
        await terminal.until("One.")
        await terminal.until("✔ ")
        written(home / "keen/skills/tidy/SKILL.md", with_head("Do this.", description="Tidies"))
        await terminal.say("/skills reload")
        await terminal.until("Read again: 1 skill or command.")
        await terminal.say("tidy up")
        await terminal.until("Tidied.")

    assert "skill" not in chat.read(provider.requests[0]).tools
    assert "skill" in chat.read(provider.requests[1]).tools
    assert "Do this." in provider.requests[2].text


@pytest.mark.usefixtures("fix")
async def test_a_queued_command_stays_what_was_typed_until_it_is_sent(
    keen: Start, chat: Dialect
) -> None:
    slow = replace(chat.says("", pieces=("begun ", "over")), delay=2.0)
    async with FakeProvider(slow, chat.says("Fixed.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("begun")
        await terminal.say("/team:fix 7")
        await terminal.until("⋯ /team:fix 7")
        terminal.press("up")
        await terminal.until(lambda: terminal.prompt == "/team:fix 7")
        terminal.press("enter")

        await terminal.until("Fixed.")
        assert "Fix issue 7 at once." in chat.read(provider.requests[1]).messages[-1].text


@pytest.mark.usefixtures("fix")
async def test_a_command_can_steer_the_running_turn(keen: Start, chat: Dialect) -> None:
    answers = (
        chat.calls("write_file", path="b.py", content="y\n"),
        chat.says("Steered."),
    )
    async with FakeProvider(*answers) as provider, keen(provider) as terminal:
        await terminal.ready()
        await terminal.say("go")
        await terminal.until("b.py?")
        terminal.type("/team:fix 7")
        terminal.press("ctrl+s")
        await terminal.until("↳ ")
        await terminal.quiet(0.4)
        terminal.type("n")

        await terminal.until("Steered.")
        assert "Fix issue 7 at once." in provider.requests[-1].text


async def test_a_projects_commands_are_there_once_it_is_trusted(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    written(workspace / ".claude/commands/ours.md", "Do it our way.")
    async with FakeProvider(chat.says("Done.")) as provider, keen(provider, "--trust") as terminal:
        await terminal.ready()
        await terminal.say("/ours")

        await terminal.until("Done.")
        assert "Do it our way." in provider.requests[0].text


async def test_hostile_heads_draw_nothing_of_their_own(
    keen: Start, chat: Dialect, home: Path
) -> None:
    sly = '"a\\e]0;owned\\a\\e[2Jb\\u202ec"'
    written(home / ".claude/commands/sly.md", with_head("x", description=sly, argument_hint=sly))
    async with FakeProvider(chat.says("x")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("/sl")
        await terminal.until("/sly")
        await terminal.say("y")
        terminal.type("/skills")
        await terminal.until("/skills [reload")
        assert b"\x1b]0;owned" not in terminal.raw
        assert "\u202e".encode() not in terminal.raw

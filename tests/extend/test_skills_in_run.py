"""Skills and commands in `keen run`, from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    return Place(home, work)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


async def test_a_command_as_the_prompt_is_sent_as_what_it_says(place: Place) -> None:
    written(place.work / ".claude/commands/fix.md", "Fix $1 first, then the rest: $ARGUMENTS")
    async with FakeProvider(CHAT.says("Fixed.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "--trust", "/fix", "a b", stdin="c\n")
        asked = CHAT.read(provider.requests[0])

    assert (ran.code, ran.stdout) == (0, "Fixed.\n")
    assert asked.messages[-1].text.endswith("Fix a first, then the rest: a b\nc")


async def test_an_untrusted_folder_adds_nothing_and_its_command_stays_text(place: Place) -> None:
    written(place.work / ".claude/commands/fix.md", "Fix it.")
    written(place.work / ".claude/skills/theirs/SKILL.md", "Theirs.")
    async with FakeProvider(CHAT.says("Hm.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "/fix")
        asked = CHAT.read(provider.requests[0])

    assert ran.code == 0
    assert asked.messages[-1].text == "/fix"
    assert "theirs" not in asked.system
    assert "skill" not in asked.tools


async def test_the_model_uses_a_skill_and_reads_the_files_beside_it(place: Place) -> None:
    path = written(place.home / ".claude/skills/forms/SKILL.md", "Fills forms. See rules.md.")
    beside = written(path.parent / "rules.md", "The third rule.")
    async with FakeProvider(
        CHAT.calls_many(("skill", {"name": "forms"})),
        CHAT.calls("read_file", path=str(beside)),
        CHAT.says("Done."),
    ) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "fill it")
        first, second, third = (CHAT.read(request) for request in provider.requests)

    assert ran.code == 0, ran.stderr
    assert "- forms: Fills forms. See rules.md." in first.system
    assert f"Skill forms, in {path.parent.resolve()}" in second.results[-1].output
    assert "The third rule." in third.results[-1].output

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.extend import _skills_found
from keen.extend.skills import Skills, user_folders
from keen.paths import Paths
from keen.tools.base import Context

PDF = """\
---
name: pdf-processing
description: Extracts text from PDF files and fills forms: use it when PDFs are mentioned.
license: Apache-2.0
compatibility: Requires python 3.12
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(python:*) Read
model: sonnet
---

# PDF processing

Run `python ${CLAUDE_SKILL_DIR}/scripts/fill.py` and see [forms](references/forms.md).
Columns: awk '{print $1}'
"""


@dataclass
class Desk:
    """A person's folders and a project in a repository."""

    home: Path
    root: Path

    @property
    def own(self) -> tuple[Path, ...]:
        return (self.home / "keen", self.home / ".agents", self.home / ".claude")

    @property
    def state(self) -> Path:
        return self.home / "keen" / "state.json"

    def skills(self, cwd: Path | None = None, *, is_trusted: bool = True) -> Skills:
        root = self.root if is_trusted else None
        return Skills.read(self.own, root, cwd or self.root, state_file=self.state)

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def skill(self, home: Path, folder: str, text: str = "Do it.", **fields: str) -> Path:
        head = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
        place = home / "skills" / folder / "SKILL.md"
        return self.write(place, f"---\n{head}---\n{text}\n")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "home", tmp_path / "project")
    for place in (made.home, made.root / ".git", made.root / "src"):
        place.mkdir(parents=True)
    return made


def names(skills: Skills) -> list[str]:
    return [one.name for one in skills.entries]


def test_without_skills_nothing_is_said_and_there_is_no_tool(desk: Desk) -> None:
    skills = desk.skills()

    assert (skills.words, skills.tool(), skills.commands, skills.notices) == ("", None, (), ())


def test_a_skill_of_another_agent_is_used_unchanged(desk: Desk) -> None:
    path = desk.write(desk.root / ".claude/skills/pdf/SKILL.md", PDF)
    for name in ("scripts/fill.py", "references/forms.md", ".hidden", "node_modules/x/a.js"):
        desk.write(path.parent / name, "x")

    skills = desk.skills()
    text = skills.load("pdf-processing", "")

    assert "- pdf-processing: Extracts text from PDF files and fills forms: use it" in skills.words
    folder = os.path.realpath(path.parent)
    assert text.startswith(
        f"Skill pdf-processing, in {folder}\n"
        "Its files, relative to that folder: references/forms.md, scripts/fill.py\n\n"
        f"# PDF processing\n\nRun `python {folder}/scripts/fill.py`"
    )
    assert "{print $1}" in text
    assert "allowed-tools" not in text
    assert skills.entries[0].notes == (
        "allowed-tools is not honoured",
        "model is not honoured",
    )
    assert skills.notices == ()


def test_skills_come_from_all_places_and_the_nearest_wins(desk: Desk) -> None:
    deep = desk.root / "src"
    desk.skill(desk.home / "keen", "same", description="user")
    desk.skill(desk.home / ".agents", "agents-user", description="x")
    desk.skill(desk.home / ".claude", "claude-user", description="x")
    desk.skill(desk.root / ".claude", "same", description="root")
    desk.skill(desk.root / ".agents", "agents-root", description="x")
    desk.skill(desk.root / ".keen", "keen-root", description="x")
    desk.skill(deep / ".agents", "same", description="nearest agents")
    desk.skill(deep / ".keen", "same", description="nearest keen")

    above, below = desk.skills(), desk.skills(deep)

    assert names(above) == ["agents-root", "keen-root", "same", "agents-user", "claude-user"]
    assert "- same: root" in above.words
    assert "- same: nearest keen" in below.words
    assert [one.description for one in below.shadowed] == ["nearest agents", "root", "user"]


def test_nothing_of_an_untrusted_folder_is_looked_at(desk: Desk) -> None:
    desk.skill(desk.root / ".claude", "theirs", description="x")
    desk.write(desk.root / ".claude/commands/theirs.md", "x")
    desk.write(desk.root / ".claude/skills/broken/SKILL.md", "---\n")
    desk.skill(desk.home / ".claude", "mine", description="x")

    skills = desk.skills(is_trusted=False)

    assert names(skills) == ["mine"]
    assert skills.notices == ()


def test_folders_above_the_root_are_not_looked_at(desk: Desk) -> None:
    desk.skill(desk.root.parent / ".claude", "above", description="x")

    assert names(desk.skills(desk.root / "src")) == []


def test_the_home_directory_as_a_project_does_not_take_its_own_skills_twice(desk: Desk) -> None:
    desk.skill(desk.home / ".claude", "mine", description="x")

    skills = Skills.read(desk.own, desk.home, desk.home)

    assert [(one.name, one.scope) for one in skills.entries] == [("mine", "user")]
    assert skills.shadowed == ()


def test_broken_skills_are_notices_with_file_and_reason(desk: Desk) -> None:
    at = desk.root / ".agents/skills"
    desk.write(at / "a/SKILL.md", "---\nname: a\n")
    desk.write(at / "b/SKILL.md", "---\n---\n")
    desk.write(at / "c/SKILL.md", "---\n- list\n---\nx")
    desk.write(at / "spaced name/SKILL.md", "---\ndescription: x\n---\nx")
    desk.write(at / "good/SKILL.md", "Says what it does.\n")
    (at / "empty").mkdir()

    skills = desk.skills()

    assert names(skills) == ["good"]
    assert skills.entries[0].description == "Says what it does."
    assert [fault.removeprefix(str(at)) for fault in skills.faults] == [
        "/a/SKILL.md: no line --- ends its head",
        "/b/SKILL.md: it says nothing: neither a description nor a text",
        "/c/SKILL.md: its head is no list of `name: value` lines",
        "/spaced name/SKILL.md: its name must be letters, digits and hyphens, 64 at most",
    ]
    assert skills.notices[0] == f"Skill or command left out: {skills.faults[0]}"


def test_many_faults_are_counted_and_not_all_told(desk: Desk) -> None:
    for number in range(9):
        desk.write(desk.root / f".agents/skills/b{number}/SKILL.md", "---\n")

    notices = desk.skills().notices

    assert len(notices) == 6
    assert notices[-1] == "4 more about skills and commands: see /skills."


@pytest.mark.parametrize("name", ["../../etc", "a/b", "PDF Things", "\x1b[31mred", "", "a" * 65])
def test_a_name_that_cannot_be_called_gives_way_to_the_folders(desk: Desk, name: str) -> None:
    desk.skill(desk.root / ".keen", "folder", description="x", name=json.dumps(name))

    assert names(desk.skills()) == ["folder"]


# The prompt.


def test_a_long_description_is_cut_and_hidden_characters_are_left_out(desk: Desk) -> None:
    text = json.dumps("one\u202e\u200b\U000e0041\x1b[31m\n\ntwo " + "long " * 100)
    desk.skill(desk.root / ".keen", "long", description=text)

    line = desk.skills().words.splitlines()[-1]

    assert line.startswith("- long: one[31m two long long")
    assert line.endswith("…")
    assert len(line) <= len("- long: ") + 301


def test_the_section_keeps_its_budget_and_its_order(desk: Desk) -> None:
    for number in range(200):
        desk.skill(desk.home / "keen", f"skill-{number:03}", description="word " * 60)
    desk.skill(desk.root / ".keen", "ours", description="of the project")

    skills = desk.skills()
    words = skills.words

    assert len(words) <= 6_000
    lines = words.splitlines()
    assert lines[2] == "- ours: of the project"
    assert lines[3].startswith("- skill-000: word word")
    told = len(lines) - 3
    assert lines[-1] == f"- and {201 - told} more: call skill without a name to list all."
    assert told > 40
    assert words == desk.skills().words
    assert "- skill-199: " + "word " * 59 + "word" in skills.load("", "")


def test_descriptions_shrink_before_skills_are_left_out(desk: Desk) -> None:
    for number in range(30):
        desk.skill(desk.home / "keen", f"skill-{number:03}", description="word " * 60)

    words = desk.skills().words

    assert words.count("- skill-") == 30
    assert len(words) <= 6_000


# The tool.


async def run(skills: Skills, place: Path, **arguments: str) -> str:
    tool = skills.tool()
    assert tool is not None
    assert tool.effect == "read"
    prepared = tool.prepare({**arguments}, Context(place, (place,), place))
    return (await prepared.run()).output


async def test_the_tool_reads_the_text_when_it_is_called(desk: Desk) -> None:
    path = desk.skill(desk.root / ".keen", "ship", "Old.", description="x")
    skills = desk.skills()
    path.write_text("---\nname: ship\n---\nShip $ARGUMENTS[1] and $0.\n")

    text = await run(skills, desk.root, name="ship", arguments="a 'b c'")

    assert text.endswith("Ship b c and a.")


def test_what_is_not_the_models_is_neither_told_nor_given(desk: Desk) -> None:
    desk.skill(desk.root / ".keen", "deploy", description="x", disable_model_invocation="true")
    desk.skill(desk.root / ".keen", "style", description="x", user_invocable="no")
    desk.write(desk.root / ".keen/commands/fix.md", "Fix.")
    skills = desk.skills()

    assert "deploy" not in skills.words
    assert "- style: x" in skills.words
    with pytest.raises(ToolError, match="Only the person starts the skill deploy"):
        skills.load("deploy", "")
    with pytest.raises(ToolError, match="There is no skill 'fix'"):
        skills.load("fix", "")
    with pytest.raises(ToolError, match="Did you mean style"):
        skills.load("styl", "")
    assert [one.name for one in skills.commands] == ["deploy", "fix"]
    assert skills.expand("/style") is None
    assert "Do it." in (skills.expand("/deploy") or "")


def test_only_skills_that_a_model_may_use_make_a_tool(desk: Desk) -> None:
    desk.skill(desk.root / ".keen", "deploy", description="x", disable_model_invocation="true")

    skills = desk.skills()

    assert (skills.words, skills.tool()) == ("", None)


def test_a_skill_that_is_gone_is_an_error_with_its_path(desk: Desk) -> None:
    path = desk.skill(desk.root / ".keen", "ship", description="x")
    skills = desk.skills()
    path.unlink()

    with pytest.raises(ToolError, match=r"SKILL\.md cannot be read: No such file"):
        skills.load("ship", "")
    assert "cannot be read" in (skills.expand("/ship now") or "")


# On, off, again.


def test_a_skill_that_is_off_stays_off(desk: Desk) -> None:
    desk.skill(desk.root / ".keen", "ship", description="x")
    desk.skill(desk.root / ".keen", "test", description="x")
    desk.write(desk.state, '{"theme": "keen-dark"}')
    skills = desk.skills()
    before = skills.words
    system = f"You are keen.\n\n{before}\n\nMore."

    entry = skills.switch("ship", is_on=False)

    assert entry is not None
    assert "ship" not in skills.words
    assert skills.expand("/ship") is None
    with pytest.raises(ToolError, match="switched the skill ship off"):
        skills.load("ship", "")
    assert desk.skills().off == {"ship"}
    assert json.loads(desk.state.read_text()) == {"theme": "keen-dark", "skills_off": ["ship"]}
    assert skills.renewed(system, before) == f"You are keen.\n\n{skills.words}\n\nMore."
    skills.switch("ship", is_on=True)
    assert desk.skills().words == before
    assert skills.switch("nothing", is_on=True) is None


def test_the_prompt_loses_and_gains_the_whole_section(desk: Desk) -> None:
    skills = desk.skills()
    path = desk.skill(desk.root / ".keen", "ship", description="x")
    skills.reload()
    words = skills.words

    gained = skills.renewed("You are keen.", "")
    path.unlink()
    skills.reload()

    assert gained == f"You are keen.\n\n{words}"
    assert skills.renewed(f"{gained}\n\nMore.", words) == "You are keen.\n\nMore."


def test_a_broken_state_file_switches_nothing_off(desk: Desk) -> None:
    desk.skill(desk.root / ".keen", "ship", description="x")
    for text in ("no json", '{"skills_off": 5}', '{"skills_off": [1, null]}'):
        desk.write(desk.state, text)

        assert "ship" in desk.skills().words


def test_folders_whose_files_a_skill_speaks_of_are_known(desk: Desk) -> None:
    elsewhere = desk.home / "sources/linked"
    desk.write(elsewhere / "SKILL.md", "Linked by the person.")
    (desk.home / ".claude/skills").mkdir(parents=True)
    (desk.home / ".claude/skills/linked").symlink_to(elsewhere)

    skills = desk.skills()

    assert names(skills) == ["linked"]
    assert skills.readable == (Path(os.path.realpath(elsewhere)),)


def test_the_persons_folders_are_keens_and_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = Paths.in_one_directory(tmp_path / "keen")

    folders = user_folders(paths)

    assert folders == (tmp_path / "keen", tmp_path / ".agents", tmp_path / ".claude")
    assert folders[0] / "skills" == paths.skills
    monkeypatch.setenv("HOME", "relative")
    assert user_folders(paths) == (tmp_path / "keen",)


# Hostile ones.


def test_links_that_leave_the_project_are_not_followed(desk: Desk) -> None:
    secret = desk.write(desk.home / "secret/SKILL.md", "A secret.")
    desk.write(desk.home / "secret/notes.md", "A secret.")
    at = desk.root / ".claude/skills"
    (at / "file").mkdir(parents=True)
    (at / "file/SKILL.md").symlink_to(secret)
    (at / "folder").symlink_to(secret.parent)
    (desk.root / ".claude/commands").symlink_to(secret.parent)
    (desk.root / ".keen").symlink_to(desk.home)
    (desk.root / "kept").mkdir()
    desk.write(desk.root / "kept/SKILL.md", "Inside.")
    (at / "inside").symlink_to(desk.root / "kept")

    skills = desk.skills()

    assert names(skills) == ["inside"]
    assert len(skills.faults) == 3
    assert all("it leads out of the project" in fault for fault in skills.faults)


def test_a_file_that_becomes_a_link_out_of_the_project_is_not_read(desk: Desk) -> None:
    secret = desk.write(desk.home / "secret.md", "A secret.")
    path = desk.skill(desk.root / ".keen", "ship", description="x")
    skills = desk.skills()
    path.unlink()
    path.symlink_to(secret)

    with pytest.raises(ToolError, match="leads out of the project"):
        skills.load("ship", "")


def test_circles_of_links_pipes_and_devices_do_not_hold_keen_up(desk: Desk) -> None:
    at = desk.root / ".claude"
    (at / "skills/loop").mkdir(parents=True)
    (at / "skills/loop/SKILL.md").symlink_to(at / "skills/loop/SKILL.md")
    (at / "skills/pipe").mkdir()
    os.mkfifo(at / "skills/pipe/SKILL.md")
    (at / "skills/folder/SKILL.md").mkdir(parents=True)
    (at / "skills/self").symlink_to(at / "skills")
    (at / "commands/deep").mkdir(parents=True)
    (at / "commands/deep/again").symlink_to(at / "commands")
    os.mkfifo(at / "commands/pipe.md")
    desk.write(at / "commands/ok.md", "Fine.")
    (desk.home / ".claude").mkdir()
    (desk.home / ".claude/skills").symlink_to(desk.home / ".claude/skills")

    skills = desk.skills()

    assert names(skills) == ["ok"]
    reasons = sorted(fault.partition(": ")[2] for fault in skills.faults)
    assert reasons.count("it is no regular file") == 3
    assert any("symbolic link" in reason for reason in reasons)


def test_a_huge_text_costs_only_its_beginning(desk: Desk) -> None:
    text = "first line\n" + "x" * 10_000_000
    path = desk.skill(desk.root / ".keen", "huge", text, description="x")
    desk.write(desk.root / ".keen/skills/headless/SKILL.md", text)
    desk.write(desk.root / ".keen/skills/endless/SKILL.md", "---\nname: " + "x" * 10_000_000)

    skills = desk.skills()
    loaded = skills.load("huge", "")

    assert names(skills) == ["headless", "huge"]
    assert len(loaded) < 52_000
    assert f"read the rest of {path} with read_file" in loaded
    assert "its head is longer than" in skills.faults[0]


def test_hidden_text_is_taken_out_of_what_the_model_reads_and_counted(desk: Desk) -> None:
    desk.skill(desk.root / ".keen", "sly", "Do \u202eit\U000e0041\u200b.\x1b[2J", description="x")

    text = desk.skills().load("sly", "")

    assert "Do it.[2J" in text
    assert "[4 invisible characters in" in text


def test_file_names_beside_a_skill_are_shown_harmlessly_and_not_without_end(desk: Desk) -> None:
    path = desk.skill(desk.root / ".keen", "many", description="x")
    for number in range(60):
        desk.write(path.parent / f"file-{number:02}", "")
    desk.write(path.parent / "a\x1b[31m\nb", "")
    (path.parent / "out").symlink_to(desk.home)

    text = desk.skills().load("many", "")

    assert "\x1b" not in text
    assert r"'a\x1b[31m\nb'" in text
    assert "and 11 more" in text
    assert "out" not in text.partition("Do it.")[0]


def test_a_folder_with_too_many_entries_is_looked_at_in_part(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_skills_found, "MOST_ENTRIES", 3)
    for number in range(5):
        desk.skill(desk.root / ".keen", f"skill-{number}", description="x")
        desk.write(desk.root / f".keen/commands/{number}/a.md", "x")

    skills = desk.skills()

    assert sum(one.kind == "skill" for one in skills.entries) == 3
    assert sum(one.kind == "command" for one in skills.entries) <= 3
    assert any("only the first 3 entries are looked at" in fault for fault in skills.faults)


def test_a_hundred_skills_are_read_by_their_heads_alone(desk: Desk) -> None:
    for number in range(100):
        desk.skill(desk.root / ".keen", f"skill-{number}", "x" * 100_000, description="Use it.")
    started = time.process_time()

    skills = desk.skills()

    assert len(skills.entries) == 100
    print(f"100 skills in {(time.process_time() - started) * 1000:.1f} ms")

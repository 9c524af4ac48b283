"""Hooks of a project: read within bounds, run only as the person saw them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from keen.core.messages import ToolCall
from keen.extend.hooks import Hooks, Surroundings
from keen.extend.project_hooks import SCRIPT_BYTES, ProjectHooks, shell_hooks
from keen.paths import Paths
from keen.tools._environment import command_environment

EDIT = ToolCall("c1", "edit_file", {"path": "a.py"})


class Project:
    """A trusted project, keen's own home beside it, and what the person was told."""

    def __init__(self, folder: Path) -> None:
        self.root = Path(os.path.realpath(folder)) / "work"
        self.paths = Paths.in_one_directory(folder / "home")
        self.told: list[str] = []
        (self.root / ".keen").mkdir(parents=True)

    def write(self, text: str) -> ProjectHooks:
        (self.root / ".keen" / "hooks.toml").write_text(text)
        return self.read()

    def read(self) -> ProjectHooks:
        return ProjectHooks.of(self.root, self.paths)

    def script(self, body: str, name: str = "check.sh") -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o700)

    def gate(self, project: ProjectHooks, cwd: Path | None = None) -> Hooks:
        environment = command_environment(os.environ, (self.root,), is_trusted=True)
        place = Surroundings(cwd or self.root, (self.root,), environment)
        gate = Hooks({}, place, project)
        gate.listen(self.told.append)
        return gate


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


CHECK = '[[hooks.PreToolUse]]\nmatcher = "Edit"\ncommand = ["./check.sh"]\n'
VETO = "echo no >&2; exit 2"


async def refusal(gate: Hooks) -> str:
    return (await gate.before_tool(EDIT)).refusal


async def test_a_projects_hook_runs_once_it_is_approved(project: Project) -> None:
    project.script(VETO)
    found = project.write(CHECK)
    gate = project.gate(found)

    assert await refusal(gate) == ""
    found.approve(found.hooks[0])
    assert "no" in await refusal(gate)
    assert project.told == []
    assert found.notices == ()


async def test_an_approval_holds_in_the_next_session(project: Project) -> None:
    project.script(VETO)
    found = project.write(CHECK)
    found.approve(found.hooks[0])

    assert "no" in await refusal(project.gate(project.read()))


async def test_a_revoked_hook_runs_no_more_in_the_session_that_is_open(project: Project) -> None:
    project.script(VETO)
    found = project.write(CHECK)
    gate = project.gate(found)
    found.approve(found.hooks[0])
    other = project.read()
    other.revoke(other.hooks[0])

    assert await refusal(gate) == ""


@pytest.mark.parametrize(
    "changed",
    [
        CHECK.replace("PreToolUse", "PostToolUse"),
        CHECK.replace('"Edit"', '"Write"'),
        CHECK.replace('"./check.sh"', '"./check.sh", "--fix"'),
        CHECK + "timeout = 5\n",
    ],
    ids=["event", "matcher", "words", "timeout"],
)
def test_an_entry_that_changed_is_not_approved(project: Project, changed: str) -> None:
    project.script(VETO)
    found = project.write(CHECK)
    found.approve(found.hooks[0])
    later = project.write(changed)

    assert later.state(later.hooks[0]) != "approved"
    assert "not approved, so not run" in later.notices[0]


async def test_a_script_that_changed_is_not_run_and_the_person_hears_of_it(
    project: Project,
) -> None:
    project.script(VETO)
    found = project.write(CHECK)
    found.approve(found.hooks[0])
    gate = project.gate(found)
    ran = project.root / "ran"
    project.script(f"touch {ran}")

    assert await refusal(gate) == ""
    assert await refusal(gate) == ""
    assert not ran.exists()
    assert found.state(found.hooks[0]) == "changed"
    (told,) = project.told
    assert "PreToolUse for Edit: ./check.sh changed since you approved it" in told


async def test_what_is_approved_is_what_was_read_not_what_stands_there_now(
    project: Project,
) -> None:
    project.script("exit 0")
    found = project.write(CHECK)
    project.script(VETO)
    found.approve(found.hooks[0])

    assert await refusal(project.gate(found)) == ""
    assert found.state(found.hooks[0]) == "changed"


@pytest.mark.parametrize("word", ["tools/run.py", "{root}/tools/run.py", "./tools/../tools/run.py"])
def test_each_script_of_the_project_in_the_words_is_covered(project: Project, word: str) -> None:
    project.script("one", "tools/run.py")
    named = word.format(root=project.root)
    found = project.write(f'[[hooks.Stop]]\ncommand = ["python3", "{named}"]\n')
    found.approve(found.hooks[0])
    project.script("two", "tools/run.py")

    assert found.state(found.hooks[0]) == "changed"


def test_a_link_that_leads_elsewhere_now_is_a_change(project: Project, tmp_path: Path) -> None:
    (project.root / "run").symlink_to("/bin/true")
    found = project.write('[[hooks.Stop]]\ncommand = ["sh", "run"]\n')
    found.approve(found.hooks[0])
    assert found.state(found.hooks[0]) == "approved"
    (project.root / "run").unlink()
    (project.root / "run").symlink_to(tmp_path / "elsewhere")

    assert found.state(found.hooks[0]) == "changed"


async def test_a_projects_hook_runs_in_the_root_of_the_project(project: Project) -> None:
    project.script('pwd > seen; echo "$KEEN_PROJECT_DIR" >> seen')
    found = project.write(CHECK)
    found.approve(found.hooks[0])
    below = project.root / "below"
    below.mkdir()
    await project.gate(found, cwd=below).before_tool(EDIT)

    assert (project.root / "seen").read_text().split() == [str(project.root)] * 2


@pytest.mark.parametrize("word", ["../evil", "./out"])
async def test_a_program_outside_of_the_project_needs_its_full_path(
    project: Project, word: str
) -> None:
    project.script(VETO, "../evil")
    (project.root / "out").symlink_to(project.root.parent / "evil")
    found = project.write(CHECK.replace("./check.sh", word))
    found.approve(found.hooks[0])

    assert await refusal(project.gate(found)) == ""
    assert "leads out of the project" in project.told[0]


async def test_two_hooks_that_differ_in_their_matcher_are_approved_one_by_one(
    project: Project,
) -> None:
    project.script(VETO)
    found = project.write(CHECK + CHECK.replace("Edit", "Write"))
    first, second = found.hooks
    found.approve(first)
    assert [found.state(one) for one in found.hooks] == ["approved", "not approved"]
    found.approve(second)
    assert [found.state(one) for one in found.hooks] == ["approved", "approved"]
    found.revoke(first)
    assert [found.state(one) for one in found.hooks] == ["not approved", "approved"]


def test_the_same_hook_of_another_project_is_not_approved(tmp_path: Path) -> None:
    one, other = Project(tmp_path / "one"), Project(tmp_path / "other")
    other.paths = one.paths
    entry = '[[hooks.Stop]]\ncommand = ["true"]\n'
    found = one.write(entry)
    found.approve(found.hooks[0])
    elsewhere = other.write(entry)

    assert elsewhere.state(elsewhere.hooks[0]) == "not approved"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[hooks.PreToolUse", "expected TOML"),
        ('model = "a/b"', ".keen/hooks.toml:1: model is ignored"),
        ("hooks = 3", "hooks should be tables"),
        ('[hooks.Stop]\ncommand = ["a"]', "expected [[hooks.Stop]]"),
        ('\n[[hooks.Stopp]]\ncommand = ["a"]', ":2: hooks.Stopp: there is no such event (did you"),
        ('[[hooks.Stop]]\ncommand = "make lint"', ":2: hooks.Stop[0].command: expected a list"),
        ("[[hooks.Stop]]\ncommand = []", "hooks.Stop[0].command: expected"),
        ('[[hooks.Stop]]\nmatcher = "("\ncommand = ["a"]', ":2: hooks.Stop[0].matcher: expected"),
        ('[[hooks.Stop]]\ncommand = ["a"]\ncwd = "/"', ":3: hooks.Stop[0].cwd: expected only"),
        ('[[hooks.Stop]]\ncommand = ["a"]\ntimeout = 0', "hooks.Stop[0].timeout: expected a num"),
        ('[[hooks.Stop]]\ncommand = ["a"]\n#' + "x" * 262_144, "it is over 256 KiB"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_wrong_is_left_out_and_said(project: Project, text: str, fault: str) -> None:
    found = project.write(text)

    assert found.hooks == ()
    assert fault in found.faults[0]


def test_one_wrong_hook_does_not_take_the_others_along(project: Project) -> None:
    found = project.write('[[hooks.Stop]]\ncommand = []\n[[hooks.Stop]]\ncommand = ["true"]\n')

    assert [one.shown for one in found.hooks] == ["Stop: true"]
    assert len(found.faults) == 1


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(project: Project) -> None:
    os.mkfifo(project.root / ".keen" / "hooks.toml")

    assert "no regular file" in project.read().faults[0]


def test_a_file_that_leads_out_of_the_project_is_not_read(project: Project, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key = abc")
    (project.root / ".keen" / "hooks.toml").symlink_to(tmp_path / "secret")

    (fault,) = project.read().faults
    assert "leads out of the project" in fault
    assert "abc" not in fault


def test_a_huge_script_is_not_hashed(project: Project) -> None:
    with (project.root / "check.sh").open("wb") as file:
        file.truncate(SCRIPT_BYTES + 1)
    found = project.write(CHECK)

    assert found.hooks == ()
    assert "larger than 16 MB" in found.faults[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"approved": 3}', '{"approved": {"k": 1}}'])
def test_a_broken_store_approves_nothing(project: Project, text: str) -> None:
    found = project.write('[[hooks.Stop]]\ncommand = ["true"]\n')
    found.approvals.parent.mkdir(exist_ok=True)
    found.approvals.write_text(text)

    assert found.state(found.hooks[0]) == "not approved"


def test_hooks_that_are_texts_for_a_shell_are_counted_and_never_run(project: Project) -> None:
    assert shell_hooks(project.root) == ""
    entry = {"matcher": "Bash", "hooks": [{"type": "command", "command": "touch ran"}] * 2}
    (project.root / ".claude").mkdir()
    (project.root / ".claude" / "settings.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [entry], "Stop": [entry]}})
    )

    assert ".claude/settings.json has hooks (4)" in shell_hooks(project.root)
    assert project.read().hooks == ()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": 1}', '{"hooks": {"a": [1, {"hooks": 2}]}}'])
def test_any_settings_of_another_agent_can_be_looked_at(project: Project, text: str) -> None:
    (project.root / ".claude").mkdir()
    (project.root / ".claude" / "settings.json").write_text(text)

    assert shell_hooks(project.root) == ""

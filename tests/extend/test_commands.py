from __future__ import annotations

from pathlib import Path

import pytest

from keen.extend.skills import Skills
from keen.extend.slash import filled, typed

FIX_ISSUE = """\
---
allowed-tools: Bash(gh issue view:*), Edit
argument-hint: [issue-number] [priority]
description: Fix a numbered issue
model: claude-3-5-haiku-20241022
---

## Context

- Status: !`git status --short`
- Rules: @CONTRIBUTING.md

Fix issue #$1 with priority $2, following our standards.
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def read(root: Path, home: Path, *, cwd: Path | None = None) -> Skills:
    return Skills.read((home / "keen", home / ".claude"), root, cwd or root)


def test_a_command_of_another_agent_is_used_unchanged(root: Path, home: Path) -> None:
    written(root / ".claude/commands/fix-issue.md", FIX_ISSUE)

    skills = read(root, home)
    text = skills.expand("/fix-issue 123 high")

    assert text == (
        "[Command: /fix-issue 123 high]\n\n"
        "## Context\n\n- Status: !`git status --short`\n- Rules: @CONTRIBUTING.md\n\n"
        "Fix issue #123 with priority high, following our standards.\n\n"
        "[The !`command` parts above were not run. Where you need their output, run them with "
        "bash.]"
    )
    (row,) = skills.commands
    assert (row.name, row.description, row.argument_hint, row.scope) == (
        "fix-issue",
        "Fix a numbered issue",
        "[issue-number] [priority]",
        "project",
    )
    assert skills.words == ""


def test_folders_are_part_of_a_commands_name(root: Path, home: Path) -> None:
    written(root / ".claude/commands/frontend/new/component.md", "Make a component.")
    written(root / ".claude/commands/frontend/notes.txt", "No command.")
    written(root / ".claude/commands/.hidden/secret.md", "No command.")

    skills = read(root, home)

    assert [row.name for row in skills.commands] == ["frontend:new:component"]
    assert "Make a component." in (skills.expand("/frontend:new:component") or "")
    assert skills.expand("/component") is None


def test_the_nearest_command_wins_and_the_persons_own_come_last(root: Path, home: Path) -> None:
    written(home / "keen/commands/a.md", "User a.")
    written(home / "keen/commands/b.md", "User b.")
    written(home / ".claude/commands/b.md", "Other b.")
    written(root / ".agents/commands/a.md", "Root a.")
    written(root / "src/.keen/commands/a.md", "Near a.")

    assert "Near a." in (read(root, home, cwd=root / "src").expand("/a") or "")
    assert "Root a." in (read(root, home).expand("/a") or "")
    assert "User b." in (read(root, home).expand("/b") or "")


def test_a_name_of_keens_own_is_told_and_reached_by_its_long_name(root: Path, home: Path) -> None:
    path = written(root / ".claude/commands/review.md", "Review it.")
    written(root / ".claude/skills/model/SKILL.md", "Model it.")

    skills = read(root, home)

    assert skills.expand("/review src") is None
    assert "Review it.\n\nARGUMENTS: src" in (skills.expand("/command:review src") or "")
    assert "Model it." in (skills.expand("/skill:model") or "")
    assert [row.name for row in skills.commands] == ["command:review", "skill:model"]
    assert f"/review is keen's own; {path} is called by /command:review." in skills.notices


def test_a_skill_comes_before_a_command_of_its_name(root: Path, home: Path) -> None:
    written(root / ".claude/commands/ship.md", "The command.")
    written(home / "keen/skills/ship/SKILL.md", "The skill.")

    skills = read(root, home)

    assert "The skill." in (skills.expand("/ship") or "")
    assert "The command." in (skills.expand("/command:ship") or "")
    assert [row.name for row in skills.commands] == ["command:ship", "ship"]


@pytest.mark.parametrize(
    "text", ["", "fix", "/", "/ fix", "/unknown x", "/etc/passwd", "see /fix", "/fixes", "//fix"]
)
def test_other_texts_stay_as_they_are(root: Path, home: Path, text: str) -> None:
    written(root / ".claude/commands/fix.md", "Fix it.")

    assert read(root, home).expand(text) is None


def test_arguments_may_be_lines_and_the_name_in_capitals(root: Path, home: Path) -> None:
    written(root / ".claude/commands/fix.md", "Fix it.")

    text = read(root, home).expand("/FIX\nfirst\nsecond\n")

    assert text == "[Command: /FIX…]\n\nFix it.\n\nARGUMENTS: first\nsecond"


def test_what_was_expanded_is_not_expanded_again(root: Path, home: Path) -> None:
    written(root / ".claude/commands/fix.md", "/fix $ARGUMENTS")
    skills = read(root, home)

    assert skills.expand(skills.expand("/fix me") or "") is None


def test_a_skill_is_called_with_its_folder_and_arguments(root: Path, home: Path) -> None:
    path = written(
        root / ".agents/skills/migrate/SKILL.md",
        "---\nname: migrate\ndescription: x\narguments: [source, target]\n---\n"
        "Move $source to $target, see {baseDir}/how.md; costs \\$1, not $other.\n",
    )
    written(path.parent / "how.md", "How.")

    text = read(root, home).expand("/migrate mysql postgres")

    assert text == (
        f"[Command: /migrate mysql postgres]\n\nSkill migrate, in {path.parent.resolve()}\n"
        "Its files, relative to that folder: how.md\n\n"
        f"Move mysql to postgres, see {path.parent.resolve()}/how.md; costs $1, not $other."
    )


@pytest.mark.parametrize(
    ("body", "arguments", "wanted"),
    [
        ("Do $ARGUMENTS.", "a b", "Do a b."),
        ("Do $ARGUMENTS.", "", "Do ."),
        ("Do $1 and $2 and $3.", "a 'b c'", "Do a and b c and ."),
        ("Do $0 and $1.", "a b", "Do a and b."),
        ("Do $ARGUMENTS[0] and $ARGUMENTS[1].", "a b", "Do a and b."),
        ("Do $ARGUMENTS[7].", "a", "Do ."),
        ("Do it.", "a b", "Do it.\n\nARGUMENTS: a b"),
        ("Do it.", "", "Do it."),
        (r"Costs \$1 for $ARGUMENTS.", "a", "Costs $1 for a."),
        ("Costs $1,000 or $12 or $1.50.", "a", "Costs $1,000 or $12 or $1.50.\n\nARGUMENTS: a"),
        ("Ends with $1.", "a", "Ends with a."),
        ("$ARGUMENTS_X and $HOME", "a", "$ARGUMENTS_X and $HOME\n\nARGUMENTS: a"),
        ("Do $ARGUMENTS.", r"$1 \1 $ARGUMENTS", r"Do $1 \1 $ARGUMENTS."),
        ("Do $1 $2.", "it's a", "Do it's a."),
    ],
)
def test_arguments_take_the_place_of_their_placeholders(
    body: str, arguments: str, wanted: str
) -> None:
    assert filled(body, arguments) == wanted


def test_without_arguments_a_skill_keeps_the_scripts_it_shows() -> None:
    body = "awk '{print $1}' of $ARGUMENTS"

    assert filled(body, "", keeps_positions=True) == "awk '{print $1}' of "


def test_a_call_is_a_slash_a_name_and_the_rest() -> None:
    assert typed("/a:b  c d\ne ") == ("a:b", "c d\ne")
    assert typed(" /a") is None
    assert typed("a /b") is None


def test_commands_that_other_agents_run_are_left_as_text(root: Path, home: Path) -> None:
    mark = root / "ran"
    for number, body in enumerate((f"!`touch {mark}`", f"```!\ntouch {mark}\n```")):
        written(root / f".claude/commands/c{number}.md", body)

    skills = read(root, home)

    for number in range(2):
        text = skills.expand(f"/c{number}") or ""
        assert f"touch {mark}" in text
        assert "were not run" in text
    assert not mark.exists()
    assert "were not run" not in (skills.expand("/none") or "")


@pytest.mark.parametrize("name", ["a b", "a\x1b[31m", "-dash", "a" * 70, "\u202egnp"])
def test_a_file_whose_name_cannot_be_called_is_a_notice(root: Path, home: Path, name: str) -> None:
    written(root / f".claude/commands/{name}.md", "x")

    skills = read(root, home)

    assert skills.commands == ()
    assert "its name must be letters" in skills.faults[0]


def test_a_huge_command_is_sent_in_part(root: Path, home: Path) -> None:
    written(root / ".claude/commands/huge.md", "x" * 10_000_000)

    assert len(read(root, home).expand("/huge") or "") < 52_000

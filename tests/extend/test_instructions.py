"""AGENTS.md and its kin: which files count, in which order, within which bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.extend.instructions import BUDGET, instructions


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "project"
    (root / "src/deep").mkdir(parents=True)
    return root


def test_the_nearest_file_comes_last_and_the_persons_own_first(project: Path) -> None:
    personal = project.parent / "AGENTS.md"
    files = (personal, project / "AGENTS.md", project / "src/deep/AGENTS.md")
    for number, path in enumerate(files):
        path.write_text(f"word {number}\n")

    found = instructions(project / "src/deep", project, personal)

    assert found.files == files
    parts = [f"Instructions from {path}\n\nword {n}" for n, path in enumerate(files)]
    assert found.text == "\n\n".join(parts)
    assert (found.is_cut, found.hidden) == (False, 0)


def test_the_first_name_of_a_directory_counts(project: Path) -> None:
    for name in ("GEMINI.md", "CLAUDE.md", "AGENTS.md"):
        (project / name).write_text(name)
        assert instructions(project, project).files == (project / name,)


def test_a_folder_that_is_not_trusted_says_nothing(project: Path) -> None:
    (project / "AGENTS.md").write_text("evil")
    personal = project.parent / "own.md"
    personal.write_text("mine")

    assert instructions(project, None, personal).files == (personal,)
    assert instructions(project, None).text == ""


def test_over_the_budget_the_outermost_is_cut(project: Path) -> None:
    (project / "AGENTS.md").write_text("zebra " * BUDGET)
    (project / "src/AGENTS.md").write_text("i" * (BUDGET - 100))

    found = instructions(project / "src", project)

    assert found.is_cut
    assert "i" * (BUDGET - 100) in found.text
    assert 0 < found.text.count("zebra") <= 17
    assert found.text.endswith("[Instructions over 32 KiB were cut.]")


def test_a_link_out_of_the_project_and_a_pipe_are_passed_over(project: Path) -> None:
    (project.parent / "secret").write_text("elsewhere")
    (project / "AGENTS.md").symlink_to(project.parent / "secret")
    os.mkfifo(project / "CLAUDE.md")
    (project / "GEMINI.md").write_text("inside")

    found = instructions(project, project)

    assert found.files == (project / "GEMINI.md",)
    assert "elsewhere" not in found.text


def test_bytes_that_are_no_utf_8_stop_nobody(project: Path) -> None:
    (project / "AGENTS.md").write_bytes(b"\xff\xfe" + "é".encode() * BUDGET)

    found = instructions(project, project)

    assert found.is_cut
    assert found.text.count("é") > 16_000

"""Empty folders that stand for protected names do not outlive keen, however it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keen.tools.sandbox.confinement import Placeholders

KILLED = """
import os, signal, sys
from pathlib import Path
from keen.tools.sandbox.confinement import Placeholders
root, register = map(Path, sys.argv[1:])
Placeholders(register).hold((root / ".keen", root / ".github", root / ".github/workflows"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


def test_a_killed_keen_leaves_nothing_after_the_next_start(root: Path, tmp_path: Path) -> None:
    register = tmp_path / "cache/placeholders"
    done = subprocess.run([sys.executable, "-c", KILLED, str(root), str(register)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(os.listdir(root)) == [".github", ".keen"]
    (root / ".keen/note").write_text("a person put this here")

    Placeholders(register).sweep()

    assert os.listdir(root) == [".keen"]
    assert os.listdir(register) == []


def test_those_of_a_keen_that_runs_stay(root: Path, tmp_path: Path) -> None:
    register = tmp_path / "cache/placeholders"
    running = Placeholders(register)
    running.hold((root / ".keen",))

    Placeholders(register).sweep()
    assert (root / ".keen").is_dir()

    running.let_go((root / ".keen",))
    assert os.listdir(root) == []
    assert os.listdir(register) == []


def test_a_folder_that_was_there_is_never_noted(root: Path, tmp_path: Path) -> None:
    register = tmp_path / "cache/placeholders"
    (root / ".keen").mkdir()

    Placeholders(register).hold((root / ".keen", root / ".vscode"))

    [file] = register.iterdir()
    assert json.loads(file.read_text()) == [str(root / ".vscode")]


@pytest.mark.parametrize("text", ["", "{}", '["relative"]', "[1]", "[" * 100_000, '["/"]'])
def test_a_broken_register_is_removed_and_harms_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "relative").mkdir()
    (tmp_path / "999999999.json").write_text(text)

    Placeholders(tmp_path).sweep()

    assert os.listdir(tmp_path) == ["relative"]

"""Command lines that write, delete, reach out, run something or show secrets: none is unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.tools._environment import command_environment
from keen.tools.base import Access, Context
from keen.tools.guard import Guard
from keen.tools.permission import Policy

LINES = (Path(__file__).parent / "data/hostile_commands.txt").read_text().splitlines()
HERE_DOCUMENTS = (
    "cat <<E\n$(rm b)\nE",
    "cat <<E >x\nE",
    "cat <<-E\n\t`rm b`\n\tE",
    "ls \\\n; rm b",
)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    root = (tmp_path / "work").resolve()
    for name in ("src/app.py", ".env", ".env.local", "a", "b", "f", "in", "x", "list", "bin/ls"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    environment = command_environment(os.environ, (root,))
    context = Context(root, (root,), tmp_path / "scratch", environment=environment)
    return Policy(context, guard=Guard())


def test_no_hostile_line_runs_unasked_without_a_sandbox(policy: Policy) -> None:
    lines = (*LINES, *HERE_DOCUMENTS)

    unasked = [line for line in lines if policy.check(line)[0] == "auto"]
    allowed = [
        line
        for line in lines
        if policy.decide("bash", "exec", (Access("bash", line),)).kind == "allow"
    ]

    assert len(lines) > 750
    assert (unasked, allowed) == ([], [])


@pytest.mark.parametrize("line", ["echo *", "echo src/*", "cat a", "ls *", "grep x a", "echo a #b"])
def test_harmless_neighbours_still_run(line: str, policy: Policy) -> None:
    assert policy.check(line)[0] == "auto"

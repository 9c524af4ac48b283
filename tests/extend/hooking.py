"""Hooks for tests: small shell programs, and a gate that runs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keen._settings import Hook
from keen.extend.hooks import Hooks, Surroundings
from keen.tools._environment import command_environment


@dataclass
class Yard:
    """A workspace, a folder of programs beside it, and what the person was told."""

    root: Path
    told: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        self.programs.mkdir(exist_ok=True)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def programs(self) -> Path:
        return self.root / "programs"

    def program(self, body: str, name: str = "hook") -> str:
        """A shell program outside the workspace; its path."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o700)
        return str(path)

    def hook(self, body: str, *, name: str = "hook", **more: Any) -> Hook:
        return Hook(command=(self.program(body, name),), **more)

    def hooks(self, event: str, *hooks: Hook, **more: Any) -> Hooks:
        """A gate with these hooks at one event."""
        return self.gate({event: hooks}, **more)

    def gate(self, table: dict[str, Sequence[Hook]], **more: Any) -> Hooks:
        """A gate in a trusted folder, whose virtual environment commands may use."""
        roots = (self.work,)
        environment = command_environment(os.environ, roots, is_trusted=True)
        gate = Hooks(table, Surroundings(self.work, roots, environment, **more))
        gate.listen(self.told.append)
        return gate


def alive(pid: int) -> bool:
    """True while a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")

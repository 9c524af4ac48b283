"""The commands by name, and a parser that raises instead of leaving."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, NoReturn

from keen.core.errors import UsageError

COMMANDS: Final = (
    ("run", "one turn without a screen"),
    ("demo", "the interactive session with the embedded provider"),
    ("sessions", "saved sessions: list, show, export, rename, delete, undo-compaction"),
    ("models", "models known and found, with window, output cap and price"),
    ("auth", "keys and sign-in: login, logout, status"),
    ("config", "settings: path, show, check"),
    ("doctor", "checks the installation and says what to do"),
    ("permissions", "the verdict on a command, and the rules in force"),
    ("mcp", "MCP servers: list, add, remove, test, approve, login, logout"),
    ("hooks", "hooks: list, approve, revoke"),
    ("acp", "Agent Client Protocol on stdio, for editors"),
    ("completion", "shell completion for bash, zsh or fish"),
)
NAMES: Final = tuple(name for name, _ in COMMANDS)

USUAL_ACTIONS: Final = {
    "sessions": "list",
    "auth": "status",
    "config": "show",
    "permissions": "list",
    "mcp": "list",
    "hooks": "list",
}
"""What a command that has actions does when none is named: it looks, and changes nothing."""


def overview() -> str:
    """The commands, a line each, for the end of `keen --help`."""
    lines = [f"  keen {name:<12} {text}" for name, text in COMMANDS]
    return "commands (each has its own --help):\n" + "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving, so that JSON output can tell of wrong use too."""

    def known(self) -> tuple[argparse.Action, ...]:
        """Every option and positional, in order; argparse itself gives no list of them."""
        return tuple(self._actions)

    def error(self, message: str) -> NoReturn:
        error = UsageError(message)
        error.add_note(f"{self.format_usage().strip()}\nSee {self.prog} --help.")
        raise error


def filled(text: str) -> str:
    """A value that says something; an empty one is mostly a variable that was never set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def filled_path(text: str) -> Path:
    """A path that is not empty."""
    return Path(filled(text))

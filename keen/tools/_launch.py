"""How a command is started, and what is said of it afterwards: the seam a sandbox fits into."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keen.core.errors import ToolError
from keen.tools._environment import command_environment
from keen.tools.base import Context


def _nothing() -> None:
    return


def _no_note(_text: str, _code: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Appeal:
    """What a person said of a command that was stopped. `said`: a line for the model."""

    is_again: bool = False
    """Run the same command once more."""
    needs: str = ""
    """What that run is given, as `needs` of a Launcher."""
    said: str = ""


async def _no_appeal(_text: str, _code: int) -> Appeal:
    return Appeal()


@dataclass(frozen=True, slots=True)
class Launch:
    """One command, ready to be started."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    is_wrapped: bool = False
    """Another program holds the command: polite signals go past it."""
    temporary: Path | None = None
    """Where its temporary files are, if that is a place of its own."""
    note: Callable[[str, int], str] = _no_note
    """What the model should know, from the output and the exit code; "" for nothing."""
    appeal: Callable[[str, int], Awaitable[Appeal]] = _no_appeal
    """Asks a person, after a command was stopped, whether it may do what it tried."""
    release: Callable[[], None] = _nothing
    """To be called once, when the command has ended. Quick."""


class Launcher(Protocol):
    """Decides how a command is started."""

    def __call__(self, command: str, needs: str, context: Context) -> Launch:
        """Blocking. Raises: ToolError when it must not be started at all."""
        ...


def open_launch(command: str, needs: str, context: Context) -> Launch:
    """Start a command with nothing around it, whatever it needs."""
    del needs
    return Launch(shell_argv(command), environment_of(context))


def environment_of(context: Context) -> dict[str, str]:
    """What a command sees of the environment."""
    return context.environment or command_environment(os.environ, context.roots)


def shell_argv(command: str) -> tuple[str, ...]:
    """bash without anybody's start-up files. Raises: ToolError when there is no bash."""
    if sys.platform == "win32":
        raise ToolError("Commands need a POSIX system. On Windows, run keen inside WSL.")
    bash = "/bin/bash" if os.access("/bin/bash", os.X_OK) else shutil.which("bash")
    if bash is None:
        raise ToolError("There is no bash on this machine. Install it to run commands.")
    return (bash, "--noprofile", "--norc", "-c", command)

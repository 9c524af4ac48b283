"""What becomes of a skill's or command's text when it is called with arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

BUILT_IN: Final = frozenset((
    "add-dir", "adversary", "agents", "btw", "clear", "compact", "config", "context", "copy",
    "cost", "diff", "doctor", "effort", "exit", "export", "fork", "help", "hooks", "init", "login",
    "logout", "mcp", "memory", "mode", "model", "new", "permissions", "queue", "quit", "rename",
    "resume", "review", "rewind", "sessions", "show-thinking", "skills", "status", "tasks", "theme",
    "thinking", "tool-history", "trust", "undo", "usage",
))  # fmt: skip
"""Names that mean something of keen's own behind a slash; nothing else is called by them."""

_PLACEHOLDER: Final = re.compile(
    r"(?P<escape>\\)?\$(?:ARGUMENTS(?:\[(?P<index>\d{1,3})\]|(?!\w))"
    r"|(?P<position>\d)(?!\d|[.,]\d)"
    r"|(?P<name>[A-Za-z_]\w*))"
)
_FIRST_IS_NAUGHT: Final = re.compile(r"(?<!\\)\$0(?!\d|[.,]\d)")
_SHELL: Final = re.compile(r"(?:^|[\s(])!`[^`\n]+`|^[ \t]*```!", re.MULTILINE)
_SHELL_NOTE: Final = (
    "[The !`command` parts above were not run. Where you need their output, run them with bash.]"
)
_TYPED: Final = re.compile(r"/(\S+)\s*(.*)", re.DOTALL)


def typed(text: str) -> tuple[str, str] | None:
    """Name and arguments of a text that calls something by `/name`; None for any other text.

    A blank before the slash makes it an ordinary text.
    """
    match = _TYPED.fullmatch(text.rstrip())
    return (match[1], match[2]) if match is not None else None


def filled(
    body: str, arguments: str, *, names: Sequence[str] = (), keeps_positions: bool = False
) -> str:
    """`body` with `arguments` in the place of its placeholders, or behind it where it has none.

    $ARGUMENTS is all of them, $ARGUMENTS[0] and $1 the first one (where $0 is used, that is the
    first), `names` those of positions; a backslash before a placeholder keeps it. What arguments
    hold is not looked at again. `keeps_positions`: without arguments $1 stays as it stands, since
    a text that is not written for arguments may show a script.
    """
    values = _words(arguments)
    first = 0 if _FIRST_IS_NAUGHT.search(body) else 1
    is_placed = False

    def value(match: re.Match[str]) -> str:
        nonlocal is_placed
        name, position, index = match["name"], match["position"], match["index"]
        if name is not None and name not in names:
            return match[0]
        if match["escape"]:
            return match[0][1:]
        if position is not None and keeps_positions and not values:
            return match[0]
        is_placed = True
        if name is not None:
            number = list(names).index(name)
        elif position is not None:
            number = int(position) - first
        elif index is not None:
            number = int(index)
        else:
            return arguments
        return values[number] if 0 <= number < len(values) else ""

    text = _PLACEHOLDER.sub(value, body)
    if arguments and not is_placed:
        text = f"{text.rstrip()}\n\nARGUMENTS: {arguments}"
    return text


def with_shell_note(body: str) -> str:
    """`body`, and what to do about the commands in it that other agents would run unasked."""
    return f"{body.rstrip()}\n\n{_SHELL_NOTE}" if _SHELL.search(body) else body


def _words(arguments: str) -> list[str]:
    """Arguments parted as a shell parts words; an open quote is a letter like others."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()

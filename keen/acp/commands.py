"""The slash commands that make sense in an editor."""

from __future__ import annotations

from typing import Final

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    UnstructuredCommandInput,
)

from keen import sanitize
from keen.acp import reports
from keen.core.errors import CompactionError
from keen.engine import Engine

COMPACT: Final = "compact"
TRUST: Final = "trust"
_ROWS: Final = (
    (COMPACT, "shorten the conversation by its summary; `undo` takes the last one back", "[focus]"),
    ("context", "where the window goes, and every compaction", ""),
    ("status", "session, model, folder, safety, tokens and cost", ""),
    ("permissions", "the mode and the rules in force", ""),
    (TRUST, "whether this folder's files take effect", ""),
)


def available(engine: Engine) -> AvailableCommandsUpdate:
    """keen's own, and the skills and commands of the person and the project."""
    rows = [*_ROWS]
    if engine.extensions is not None:
        rows += [
            (one.name, sanitize.line(one.description), sanitize.line(one.argument_hint))
            for one in engine.extensions.commands
        ]
    return AvailableCommandsUpdate(
        session_update="available_commands_update",
        available_commands=[
            AvailableCommand(name=name, description=words, input=_input(hint))
            for name, words, hint in rows
        ],
    )


def is_custom(engine: Engine, text: str) -> bool:
    """True for a call of a skill, a command or an MCP prompt; the engine spells it out."""
    return engine.extensions is not None and engine.extensions.is_call(text)


def _input(hint: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None


def command_of(text: str) -> tuple[str, str] | None:
    """Name and argument when a prompt is a slash command, known or not; a path is none."""
    if not text.startswith("/") or len(text.strip()) < 2:
        return None
    name, _, argument = text.strip()[1:].partition(" ")
    first = text[1:].split(maxsplit=1)
    is_path = not first or "/" in first[0]
    return None if is_path else (name.casefold(), argument.strip())


async def answer(engine: Engine, name: str, argument: str) -> str:
    """What a command says that only tells, and the end of a compaction that is taken back."""
    match name:
        case "context":
            return await reports.context(engine)
        case "status":
            return reports.status(engine)
        case "permissions":
            return reports.permissions(engine)
        case "compact" if argument == "undo":
            return await _undo(engine)
        case _:
            known = ", ".join(f"/{known}" for known, _, _ in _ROWS)
            return f"Unknown command: /{sanitize.line(name)}. Here there are {known}."


async def _undo(engine: Engine) -> str:
    try:
        undone = await engine.undo_compaction()
    except CompactionError as error:
        return str(error)
    raw = "" if undone.is_raw else " Raw tool outputs from before it are gone."
    return f"The last compaction was taken back: about {undone.tokens:,} tokens.{raw}"

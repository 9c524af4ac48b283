"""How a tool call looks in an editor: its kind, title, places, and what it changes."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Final, TypeAlias

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PlanEntry,
    PlanEntryStatus,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolKind,
)

from keen.acp.words import content, title, verbatim
from keen.agent.toolbox import Toolbox
from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject
from keen.tools._files import current
from keen.tools._text import decode
from keen.tools.guard import locate

Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

TODO: Final = "todo"
WRITE: Final = "write_file"
_EDIT: Final = "edit_file"
_KINDS: Final[dict[str, ToolKind]] = {
    "read_file": "read",
    WRITE: "edit",
    _EDIT: "edit",
    "glob": "search",
    "grep": "search",
    "recall": "search",
    "bash": "execute",
    "web_fetch": "fetch",
    TODO: "think",
    "task": "think",
}
_TITLES: Final = {
    "read_file": ("Read", "path"),
    WRITE: ("Write", "path"),
    _EDIT: ("Edit", "path"),
    "glob": ("Find", "pattern"),
    "grep": ("Search for", "pattern"),
    "recall": ("Recall", "query"),
    "bash": ("", "command"),
    "web_fetch": ("Fetch", "url"),
}
_STATUSES: Final[dict[str, PlanEntryStatus]] = {"active": "in_progress", "done": "completed"}
_IN_TITLE: Final = 120
"""Characters of an argument that a title surely shows whole."""
_MOST_BEFORE: Final = 1024 * 1024
"""Bytes of an old file that is shown beside the new one."""


def kind_of(name: str) -> ToolKind:
    return _KINDS.get(name, "other")


def title_of(name: str, arguments: JsonObject) -> str:
    """What the call does, in a line."""
    verb, _field = _TITLES.get(name, (name, ""))
    subject = _subject(name, arguments)
    if name == "grep" and (place := _text(arguments, "path")):
        subject += f" in {place}"
    return title(f"{verb} {subject}") or name


def locations_of(name: str, arguments: JsonObject, cwd: str) -> list[ToolCallLocation]:
    """The file that a call reads or changes, if it is about one."""
    path = _text(arguments, "path")
    if name not in _KINDS or not path:
        return []
    line = arguments.get("offset") if name == "read_file" else None
    first = line if isinstance(line, int) and line > 1 else None
    return [ToolCallLocation(path=absolute(path, cwd), line=first)]


def changes_of(
    name: str, arguments: JsonObject, cwd: str, before: str | None = None
) -> list[Content]:
    """What a call would change, as pairs of texts: a whole file, or each piece of it.

    `before` is the old content of a file that is written as a whole, None for a new one.
    """
    path = absolute(_text(arguments, "path"), cwd)
    if name == WRITE and isinstance(text := arguments.get("content"), str):
        return [FileEditToolCallContent(type="diff", path=path, old_text=before, new_text=text)]
    edits = arguments.get("edits")
    if name != _EDIT or not isinstance(edits, list):
        return []
    return [
        FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)
        for edit in edits
        if isinstance(edit, dict)
        and isinstance(old := edit.get("old"), str)
        and isinstance(new := edit.get("new"), str)
    ]


def spelled_out(name: str, arguments: JsonObject) -> list[Content]:
    """All that a call asks for, where its title and its changes do not say it."""
    if kind_of(name) == "edit":
        return []
    rest, subject = dict(arguments), _subject(name, arguments)
    shown: list[str] = []
    if name == "bash":
        shown.append(verbatim(_text(rest, "command")))
        rest.pop("command", None)
    elif [*rest.values()] == [subject] and len(subject) <= _IN_TITLE:
        return []
    if rest:
        shown.append(verbatim(json.dumps(rest, ensure_ascii=False, indent=2)))
    return [content(text) for text in shown if text]


def plan_of(arguments: JsonObject) -> list[PlanEntry] | None:
    """The entries of a todo list; None where it is malformed."""
    items = arguments.get("items")
    if not isinstance(items, list):
        return None
    return [
        PlanEntry(
            content=_text(item, "text"),
            priority="medium",
            status=_STATUSES.get(_text(item, "status"), "pending"),
        )
        for item in items
        if isinstance(item, dict)
    ]


async def content_before(arguments: JsonObject, toolbox: Toolbox) -> str | None:
    """The text of the file that `write_file` will replace, None where there is none to show.

    Only of a file of the workspace, and none that may not be written: nothing else is looked at.
    """
    context, policy = toolbox.context, toolbox.policy
    try:
        place = await asyncio.to_thread(locate, _text(arguments, "path"), context)
        if not place.real.is_relative_to(context.cwd):
            return None
        verdict = await asyncio.to_thread(policy.decide, WRITE, "write", place.accesses("edit"))
        found = await current(place.real, context) if verdict.kind != "refuse" else None
    except ToolError:
        return None
    if found is None or len(found.content) > _MOST_BEFORE:
        return None
    text = await asyncio.to_thread(decode, found.content)
    return None if text is None else text.text


def absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def _subject(name: str, arguments: JsonObject) -> str:
    """The argument that a title speaks of."""
    _verb, field = _TITLES.get(name, (name, ""))
    return _text(arguments, field) or next(
        (value for value in arguments.values() if isinstance(value, str)), ""
    )


def _text(values: JsonObject, name: str) -> str:
    value: Json = values.get(name)
    return value if isinstance(value, str) else ""

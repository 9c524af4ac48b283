"""Asking in an editor whether a folder's own files may take effect."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from keen import sanitize, trust
from keen.acp.words import content, title
from keen.paths import Paths

_YES = "trust"
_NO = "ignore"


async def ask_trust(
    client: Client, session_id: str, call_id: str, folder: Path, paths: Paths
) -> bool | None:
    """What the person says, remembered; None when they do not say.

    Raises: ConfigError when it cannot be stored.
    """
    found = await asyncio.to_thread(trust.what_would_take_effect, folder)
    shown = ", ".join(map(sanitize.line, found)) or "nothing yet"
    begun = ToolCallStart(
        session_update="tool_call",
        tool_call_id=call_id,
        title=title(f"May the files of {os.path.basename(folder)} take effect?"),
        kind="other",
        status="pending",
        content=[content(f"{sanitize.line(str(folder))} has: {shown}.")],
    )
    await client.session_update(session_id=session_id, update=begun)
    question = ToolCallUpdate(
        tool_call_id=call_id, title=begun.title, status="pending", content=begun.content
    )
    answer = await _answer(client, session_id, question)
    if answer == _YES:
        await asyncio.to_thread(trust.trust, folder, paths)
    elif answer == _NO:
        await asyncio.to_thread(trust.refuse, folder, paths)
    ended = ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=call_id,
        status="completed" if answer == _YES else "failed",
    )
    await client.session_update(session_id=session_id, update=ended)
    return {_YES: True, _NO: False}.get(answer)


async def _answer(client: Client, session_id: str, question: ToolCallUpdate) -> str:
    """The option that was chosen, empty for none."""
    options = [
        PermissionOption(option_id=_YES, name="Yes, I trust this folder", kind="allow_once"),
        PermissionOption(option_id=_NO, name="No, ignore them", kind="reject_once"),
    ]
    try:
        response = await client.request_permission(
            session_id=session_id, tool_call=question, options=options
        )
    except (RequestError, ValueError):
        return ""
    chosen = response.outcome
    return chosen.option_id if isinstance(chosen, AllowedOutcome) else ""

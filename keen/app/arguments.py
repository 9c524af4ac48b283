"""A call's arguments as a person reads them before saying yes: all of them, whatever the tool."""

from __future__ import annotations

import json
from typing import Final

from keen import sanitize
from keen.app.tool_cards import subject
from keen.core.messages import Json, ToolCall

TITLES: Final = {
    "read_file": "Read this file?",
    "glob": "Look for these files?",
    "grep": "Search for this?",
    "web_fetch": "Fetch this page?",
}
"""Questions about the tools whose subject says everything."""


def question(call: ToolCall) -> str:
    """What the person is asked."""
    return TITLES.get(call.name, f"Allow {sanitize.line(call.name)}?")


def told(call: ToolCall) -> str:
    """What would be done, harmless to a terminal."""
    if call.name in TITLES:
        return subject(call)
    lines = (f"{name}: {_spoken(value)}" for name, value in call.input.items())
    return sanitize.block("\n".join(lines)) or "It takes nothing."


def _spoken(value: Json) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return "\n  " + value.replace("\n", "\n  ") if "\n" in value else value

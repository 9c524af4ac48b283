"""One line about a subagent, for the card of its call and for plain lines."""

from __future__ import annotations

from keen import sanitize
from keen.app.units import duration, several, tokens
from keen.core.events import SubagentProgress


def line(told: SubagentProgress) -> str:
    """`2 explore: done · 5 tools · 12k tokens · 3s`, harmless to a terminal."""
    parts = [f"{told.number} {told.agent}: {told.state}"]
    if told.doing:
        parts.append(told.doing)
    if told.tools:
        parts.append(several(told.tools, "tool"))
    if told.tokens:
        parts.append(f"{tokens(told.tokens)} tokens")
    if told.seconds:
        parts.append(duration(told.seconds))
    return sanitize.line(" · ".join(parts))

"""What a client is told of a session: the kinds of updates, and the ids of its calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)


@dataclass
class CallIds:
    """Ids of a session's calls: a provider's may come again, the client's must not."""

    _taken: set[str] = field(default_factory=set[str])

    def fresh(self, wanted: str) -> str:
        """`wanted`, or something like it that was not given out yet."""
        name, number = wanted or "call", 1
        while name in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._taken.add(name)
        return name


def used(tokens: int, window: int, cost: float | None) -> UsageUpdate:
    """How full the window is, and what the session has cost in dollars."""
    return UsageUpdate(
        session_update="usage_update",
        used=tokens,
        size=window,
        cost=None if cost is None else Cost(amount=cost, currency="USD"),
    )

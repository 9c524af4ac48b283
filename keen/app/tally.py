"""What a turn and a session have come to: for the receipt, the status line and the farewell."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from keen.app.units import dollars, duration, several
from keen.core.messages import ToolCall, ToolResult, Usage

_CHANGING: Final = frozenset({"write_file", "edit_file"})


@dataclass
class Tally:
    """Counts of the running turn and of the session. Sizes in tokens."""

    context: int | None = None
    """The last reported prompt size; None after a compaction, and before the first report."""
    estimated: int | None = None
    """What it comes to as far as keen can tell, where nothing is reported."""
    budget: int = 0
    compactions: int = 0
    changed: set[str] = field(default_factory=set[str])
    """Files changed in this session."""
    started: float = field(default_factory=time.monotonic)
    turns: int = 0
    sent: int = 0
    received: int = 0
    turn_tools: int = 0
    turn_compactions: int = 0
    _turn_files: set[str] = field(default_factory=set[str])
    _turn_started: float = 0.0
    _cost_before: float | None = None

    def begin(self, cost: float | None, *, is_aside: bool = False) -> None:
        """A turn begins; `cost` is the session's so far. `is_aside`: it is none of the session."""
        self.turns += not is_aside
        self.turn_tools = self.turn_compactions = self.sent = self.received = 0
        self._turn_files = set()
        self._turn_started = time.monotonic()
        self._cost_before = cost

    def measured(self, usage: Usage, budget: int) -> None:
        """An answer was reported."""
        self.context, self.budget = usage.input_tokens, budget
        self.sent += usage.input_tokens
        self.received += usage.output_tokens

    @property
    def known(self) -> int | None:
        """The size to show: reported, or else estimated."""
        return self.context if self.context is not None else self.estimated

    def compacted(self, estimated: int) -> None:
        """The history was replaced: what was reported says nothing any more."""
        self.context, self.estimated = None, estimated or None
        self.compactions += 1
        self.turn_compactions += 1

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """A call has ended."""
        self.turn_tools += 1
        path = call.input.get("path")
        if call.name in _CHANGING and not result.is_error and isinstance(path, str):
            self._turn_files.add(path)
            self.changed.add(path)

    def receipt(self, cost: float | None, mark: str = "✔") -> str:
        """The turn in one line."""
        parts = [f"{mark} {duration(time.monotonic() - self._turn_started)}"]
        if self.turn_tools:
            parts.append(several(self.turn_tools, "tool"))
        if self._turn_files:
            parts.append(several(len(self._turn_files), "file"))
        if cost is not None:
            parts.append(dollars(max(cost - (self._cost_before or 0.0), 0.0)))
        if self.turn_compactions:
            parts.append(several(self.turn_compactions, "compaction"))
        return " · ".join(parts)

"""What other models than the conversation's own were paid for, so that costs can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from keen.core.messages import Usage
from keen.core.models import ModelSpec


@dataclass(frozen=True, slots=True)
class Bill:
    """One model and everything it was sent."""

    model: ModelSpec
    spent: Usage


@dataclass
class Ledger:
    """Bills of the models that subagents used beside the conversation's own."""

    _bills: dict[str, Bill] = field(default_factory=dict[str, Bill])

    @property
    def bills(self) -> tuple[Bill, ...]:
        """One for each model, in the order they were first asked."""
        return tuple(self._bills.values())

    @property
    def spent(self) -> Usage:
        """All of them together."""
        return sum((bill.spent for bill in self._bills.values()), Usage())

    def add(self, model: ModelSpec, spent: Usage) -> None:
        """`model` was asked for so much more."""
        before = self._bills.get(model.name)
        so_far = before.spent if before is not None else Usage()
        self._bills[model.name] = Bill(model, so_far + spent)

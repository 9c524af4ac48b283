"""What keen knows about a model: sizes, abilities, prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from keen.core.messages import Usage

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

UNKNOWN_WINDOW: Final = 200_000
"""Tokens assumed for a model whose window nobody told."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Dollars of `usage`; cached and written tokens at the input price where none is known."""
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        return (
            fresh * self.input
            + usage.cached_tokens * cached
            + usage.cache_write_tokens * written
            + usage.output_tokens * self.output
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model at one provider. Sizes in tokens; None means nobody said."""

    provider: str
    id: str
    client: str
    window: int = UNKNOWN_WINDOW
    is_window_known: bool = False
    max_output: int | None = None
    """The model's own output cap."""
    asked_output: int | None = None
    """`max_output_tokens` of the settings: what each request asks for."""
    max_input: int | None = None
    """An input limit below the window, documented by the maker or learned from a refusal."""
    reasoning: bool = True
    images: bool = True
    price: Price | None = None
    is_local: bool = False

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.id}"

"""How many tokens a request may spend on input, and when it is time to compact."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_OUTPUT = 8_192
"""Output tokens reserved where the client sends no cap of its own."""


def safety_margin(window: int) -> int:
    """Tokens kept free for estimate errors: 5 % of the window, at least 4,096."""
    return max(4_096, window * 5 // 100)


def output_reserve(window: int, asked: int) -> int:
    """Output tokens to request and to keep free: `asked`, at most half the room."""
    return max(1, min(asked, (window - safety_margin(window)) // 2))


@dataclass(frozen=True, slots=True)
class Budget:
    """The input budget of one model with one output reserve. All sizes in tokens.

    `threshold`: a percentage up to 100, or, above that, an absolute number of tokens.
    """

    window: int
    reserve: int
    max_input: int | None = None
    threshold: int = 90

    @property
    def effective(self) -> int:
        room = self.window - self.reserve
        if self.max_input is not None:
            room = min(room, self.max_input)
        return room - safety_margin(self.window)

    @property
    def trigger(self) -> int:
        """The smallest estimate that is tight."""
        if self.threshold > 100:
            return min(self.threshold, self.effective)
        return -(-self.effective * self.threshold // 100)

    def is_tight(self, estimate: int) -> bool:
        """True when a request of this estimated size should be preceded by a compaction."""
        return estimate >= self.trigger

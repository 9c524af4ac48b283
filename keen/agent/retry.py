"""When to send a request again after a transient failure. No I/O, no clock of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from keen.core.errors import Transient

ATTEMPTS: Final = 6
"""Sendings of one request at most, the first included."""
PATIENCE: Final = 120.0
"""Seconds of waiting at most, over all attempts of one request."""
_FIRST: Final = 0.5
_LONGEST: Final = 30.0


@dataclass
class Schedule:
    """The tries of one request. `jitter` returns a factor around 1."""

    jitter: random.Random = field(default_factory=random.Random)
    attempt: int = 1
    waited: float = 0.0

    def delay(self, error: Transient) -> float | None:
        """Seconds to wait before the next attempt, which it counts; None when it is time to stop.

        A wait the provider asks for is honoured exactly; one that would exceed the patience ends
        the tries, since sending earlier would only be refused again.
        """
        if error.is_spent or self.attempt >= ATTEMPTS:
            return None
        backoff = min(_LONGEST, _FIRST * 2 ** (self.attempt - 1))
        seconds = backoff * self.jitter.uniform(0.75, 1.25)
        if error.retry_after is not None:
            seconds = max(0.0, error.retry_after)
        if self.waited + seconds > PATIENCE:
            return None
        self.attempt += 1
        self.waited += seconds
        return seconds

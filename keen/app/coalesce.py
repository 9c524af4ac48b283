"""Deltas joined into pieces of a thirtieth of a second, so that a screen draws 30 times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

EVERY: Final = 1 / 30
"""Seconds between two pieces."""

Channel: TypeAlias = Literal["text", "reasoning"]


class Coalescer:
    """Joins neighbouring deltas of one channel for `flush_to`, at most 30 times a second.

    Another channel, or `flush`, hands over what there is at once: order is kept.
    """

    def __init__(self, flush_to: Callable[[Channel, str], None], every: float = EVERY) -> None:
        self._flush_to = flush_to
        self._every = every
        self._parts: list[str] = []
        self._channel: Channel = "text"
        self._timer: asyncio.TimerHandle | None = None

    def add(self, channel: Channel, text: str) -> None:
        """One more delta. Must be called on the event loop."""
        if channel != self._channel:
            self.flush()
            self._channel = channel
        self._parts.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self.flush)

    def flush(self) -> None:
        """Hand over what has been added. Nothing is handed over when there is nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parts:
            text = "".join(self._parts)
            self._parts.clear()
            self._flush_to(self._channel, text)

    def drop(self) -> None:
        """Forget what has been added: it is void."""
        self._parts.clear()
        self.flush()

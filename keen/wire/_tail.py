"""What comes behind a complete answer: the last usage, and the end that frees the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from keen.core.errors import ProviderError
from keen.wire._transport import translated
from keen.wire.base import Delta

Event = TypeVar("Event")


async def tail(
    events: AsyncIterable[Event],
    feed: Callable[[Event], Iterable[Delta]],
    *,
    provider: str,
    seconds: float,
) -> list[Delta]:
    """Read to the end for at most `seconds`. The answer stands whatever goes wrong here."""
    deltas: list[Delta] = []
    with suppress(TimeoutError, ProviderError), translated(provider, lambda _: None):
        async with asyncio.timeout(seconds):
            async for event in events:
                deltas += feed(event)
    return deltas

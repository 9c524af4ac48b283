"""Remembers what was made of a message, by identity, so that a step costs what is new in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from keen.core.messages import JsonObject

Value = TypeVar("Value")

_KEPT_SWEEPS: Final = 4
"""A turn, its compaction and a few subagents take turns on one wire without evicting each other."""


@dataclass(slots=True)
class _Entry(Generic[Value]):
    source: object
    value: Value
    sweep: int


class Remembered(Generic[Value]):
    """Values made from immutable objects, found again by the object itself, never by equality.

    The object is kept alive beside its value, so its id cannot be given to another one.
    Entries that none of the last four sweeps saw in use are dropped: memory is bounded by the
    live histories.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, Hashable], _Entry[Value]] = {}
        self._sweeps = 0

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, source: object, build: Callable[[], Value], variant: Hashable = None) -> Value:
        """The value of `source`, built at most once; `variant` is what else it depends on."""
        key = (id(source), variant)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(source, build(), self._sweeps)
        entry.sweep = self._sweeps
        return entry.value

    def sweep(self) -> None:
        """Called once after each encode of a whole history."""
        oldest = self._sweeps - _KEPT_SWEEPS + 1
        stale = [key for key, entry in self._entries.items() if entry.sweep < oldest]
        for key in stale:
            del self._entries[key]
        self._sweeps += 1


Encoded: TypeAlias = Remembered[tuple[JsonObject, ...]]
"""Native encodings of single messages."""

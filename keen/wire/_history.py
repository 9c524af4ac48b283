"""The history of a request in a wire's own form; a request costs what was appended to the last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from keen.core.messages import History, JsonObject, Message
from keen.wire._encoded import Encoded
from keen.wire._handoff import HandOff
from keen.wire.base import Request

Make: TypeAlias = Callable[[Message], tuple[JsonObject, ...]]
Join: TypeAlias = Callable[[JsonObject, JsonObject], JsonObject | None]
"""Two neighbours as one new item, None where they stay two."""


def apart(_before: JsonObject, _item: JsonObject) -> JsonObject | None:
    """Nothing is joined."""
    return None


@dataclass(slots=True)
class EncodedHistory:
    """One wire's encodings of the messages it sent, found again by identity."""

    _encoded: Encoded = field(default_factory=Encoded)
    _handed: HandOff = field(default_factory=HandOff)
    _history: History = ()
    _items: list[JsonObject] = field(default_factory=list[JsonObject])
    _variant: Hashable = None

    def items(
        self,
        request: Request,
        provider: str,
        dialect: str,
        make: Make,
        *,
        variant: Hashable = None,
        join: Join = apart,
    ) -> list[JsonObject]:
        """The native items of the request's messages, a list of its own.

        Equal messages at the same place are the same objects as the last time, joined ones too.
        `variant`: what else than the message decides what `make` returns.
        """
        history = self._handed.of(
            request.messages, provider=provider, dialect=dialect, model=request.model.id
        )
        known = len(self._history)
        goes_on = variant == self._variant and history[:known] == self._history
        if not goes_on:
            known = 0
            self._items.clear()
        for message in history[known:]:
            for item in self._encoded.of(message, lambda m=message: make(m), (dialect, variant)):
                self._add(item, join)
        if not goes_on:
            self._encoded.sweep()
        self._history, self._variant = history, variant
        return [*self._items]

    def _add(self, item: JsonObject, join: Join) -> None:
        joined = join(self._items[-1], item) if self._items else None
        if joined is None:
            self._items.append(item)
        else:
            self._items[-1] = joined

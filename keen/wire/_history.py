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


@dataclass(slots=True)
class EncodedHistory:
    """One wire's encodings of the messages it sent, found again by identity."""

    _encoded: Encoded = field(default_factory=Encoded)
    _handed: HandOff = field(default_factory=HandOff)
    _history: History = ()
    _items: list[JsonObject] = field(default_factory=list[JsonObject])
    _variant: Hashable = None

    def items(
        self, request: Request, provider: str, dialect: str, make: Make, variant: Hashable = None
    ) -> list[JsonObject]:
        """The native items of the request's messages, a list of its own.

        Equal messages at the same place are the same objects as the last time. `variant`: what
        else than the message decides what `make` returns.
        """
        history = self._handed.of(
            request.messages, provider=provider, dialect=dialect, model=request.model.id
        )
        known = len(self._history)
        goes_on = variant == self._variant and history[:known] == self._history
        items = [*self._items] if goes_on else []
        for message in history[known:] if goes_on else history:
            items += self._encoded.of(message, lambda m=message: make(m), (dialect, variant))
        if not goes_on:
            self._encoded.sweep()
        self._history, self._items, self._variant = history, items, variant
        return [*items]

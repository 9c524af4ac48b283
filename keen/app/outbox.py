"""Messages that wait for the running turn to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from keen.core.messages import User

MOST: Final = 20


@dataclass
class Outbox:
    """The queue above the prompt; after an interrupt or a failure it is held."""

    waiting: list[User] = field(default_factory=list[User])
    is_held: bool = False

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= MOST

    def add(self, message: User) -> bool:
        """Queue a message; False when the queue is full."""
        if self.is_full:
            return False
        self.waiting.append(message)
        return True

    def put_back(self, messages: tuple[User, ...]) -> None:
        """Undelivered steering goes first, in its order, also beyond the limit."""
        self.waiting[:0] = messages

    def take_newest(self) -> User | None:
        """The message queued last, taken out."""
        message = self.waiting.pop() if self.waiting else None
        self._settle()
        return message

    def take_next(self) -> User | None:
        """The message that was queued first, taken out."""
        message = self.waiting.pop(0) if self.waiting else None
        self._settle()
        return message

    def clear(self) -> bool:
        """Forget everything; False when there was nothing."""
        had_some = bool(self.waiting)
        self.waiting.clear()
        self._settle()
        return had_some

    def hold(self) -> None:
        """Keep what waits until the person says so."""
        self.is_held = bool(self.waiting)

    def _settle(self) -> None:
        if not self.waiting:
            self.is_held = False

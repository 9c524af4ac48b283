"""The one line that says what is going on, for how long, and what it has cost so far."""

from __future__ import annotations

import time
from typing import Final

from rich.segment import Segment
from textual.strip import Strip
from textual.timer import Timer

from keen.app.blocks import cropped
from keen.app.look import Look
from keen.app.units import duration, tokens
from keen.app.widgets.lines import Lines

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_EVERY: Final = 0.1
_CALM_EVERY: Final = 1.0

THINKING: Final = "Thinking..."
COMPACTING: Final = "Compacting..."
INTERRUPTS: Final = "Esc interrupts"
STOPPING: Final = "Interrupting..."
WAITING: Final = "Waiting for you..."


class Spinner(Lines):
    """Shown while a turn runs. `says` stands until the next call; elapsed time runs on."""

    def __init__(self, look: Look, *, is_calm: bool = False, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.display = False
        self.says = THINKING
        self.hint = INTERRUPTS
        self.sent = 0
        self.received = 0
        """Tokens of this turn."""
        self._is_calm = is_calm
        self._started = 0.0
        self._frame = 0
        self.last_seconds = 0.0
        """How long the turn before took."""
        self._until = 0.0
        """When a retry begins; 0: no countdown."""
        self._timer: Timer | None = None

    @property
    def seconds(self) -> float:
        """How long the turn has been running."""
        return time.monotonic() - self._started if self._started else 0.0

    def start(self) -> None:
        """A turn begins."""
        self._started = time.monotonic()
        self.sent = self.received = 0
        self.say(THINKING)
        self.display = True
        if self._timer is None:
            self._timer = self.set_interval(_CALM_EVERY if self._is_calm else _EVERY, self._tick)
        else:
            self._timer.resume()

    def say(self, text: str, *, countdown: float = 0.0) -> None:
        """What is being done. `countdown`: seconds until it goes on."""
        self.says = text
        self._until = time.monotonic() + countdown if countdown else 0.0
        self.redraw()

    def stop(self) -> None:
        """The turn is over."""
        self.display = False
        self.last_seconds = self.seconds
        self._started = 0.0
        if self._timer is not None:
            self._timer.pause()

    def _tick(self) -> None:
        self._frame += 1
        self.redraw()

    def draw(self, width: int) -> list[Strip]:
        mark = "●" if self._is_calm else _FRAMES[self._frame % len(_FRAMES)]
        says = self.says
        if self._until:
            left = self._until - time.monotonic()
            says += f", {left:.0f} s" if left >= 1 else ""
        notes = [duration(self.seconds)]
        if self.sent or self.received:
            notes.append(f"↑ {tokens(self.sent)} ↓ {tokens(self.received)}")
        if self.hint:
            notes.append(self.hint)
        room = width - 2
        said = cropped(says, room)
        note = "".join(f" · {note}" for note in notes)
        note = cropped(note, max(room - len(said), 1)) if len(said) + 4 < room else ""
        return [
            Strip(
                [
                    Segment(mark + " ", self.look.accent),
                    Segment(said, self.look.text),
                    Segment(note, self.look.muted),
                ]
            )
        ]

"""What the terminal itself tells the app."""

from __future__ import annotations

from textual import events


class TerminalGone(events.Event, bubble=False):
    """Nobody is at the other end any more."""


class BackgroundTold(events.Event, bubble=False):
    """The terminal said what its background is."""

    def __init__(self, is_light: bool) -> None:
        super().__init__()
        self.is_light = is_light

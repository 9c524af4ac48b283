"""Short-lived remarks above the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.segment import Segment
from textual.strip import Strip

from keen.app.blocks import Tone, tone, wrapped
from keen.app.look import Look
from keen.app.widgets.lines import Lines

_MOST: Final = 3
_LINES: Final = 6
"""Lines of one remark."""


@dataclass(eq=False)
class Notice:
    """One remark."""

    text: str
    tone: Tone


class Notices(Lines):
    """At most three remarks; each goes by itself."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.shown: list[Notice] = []
        self.display = False

    def say(self, text: str, tone: Tone = "muted", seconds: float = 4.0) -> None:
        """Show a remark for some seconds; the same words are not shown twice."""
        self.shown = [notice for notice in self.shown if notice.text != text]
        notice = Notice(text, tone)
        self.shown = [*self.shown[-(_MOST - 1) :], notice]
        self.set_timer(seconds, lambda: self._expire(notice))
        self._show()

    def dismiss(self, text: str) -> None:
        """Take a remark away before its time."""
        self.shown = [notice for notice in self.shown if notice.text != text]
        self._show()

    def _expire(self, notice: Notice) -> None:
        if notice in self.shown:
            self.shown.remove(notice)
            self._show()

    def _show(self) -> None:
        self.display = bool(self.shown)
        self.redraw()

    def draw(self, width: int) -> list[Strip]:
        return [
            Strip([Segment(line, tone(self.look, notice.tone))])
            for notice in self.shown
            for line in wrapped(notice.text, width, self.look)[:_LINES]
        ]

"""The last line of the screen: model, mode, safety, context, cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from keen.app.blocks import cropped
from keen.app.look import Look
from keen.app.units import dollars
from keen.app.widgets.lines import Lines

_BAR: Final = 8
_WARN: Final = 70
_TIGHT: Final = 90


@dataclass
class Status:
    """What the line tells. Sizes in tokens."""

    model: str = ""
    mode: str = "build"
    safety: str = ""
    """`untrusted` or the sandbox's level, when there is something to know."""
    branch: str = ""
    place: str = ""
    used: int | None = None
    """Of the context; None: nobody knows yet."""
    budget: int = 0
    cost: float | None = None
    compactions: int = 0
    name: str = ""
    told: str = ""
    """What the person's own command says."""


class StatusLine(Lines):
    """One line; what matters least is left out first when there is little room."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.status = Status()

    def draw(self, width: int) -> list[Strip]:
        parts = self._parts()
        while len(parts) > 1 and _width(parts) > width:
            parts.remove(max(parts, key=lambda part: part.spare))
        segments: list[Segment] = []
        for part in parts:
            if segments:
                segments.append(Segment(" · ", self.look.muted))
            segments.extend(part.segments)
        if len(parts) == 1 and _width(parts) > width:
            only = segments[0]
            segments = [Segment(cropped(only.text, width), only.style)]
        return [Strip(segments)]

    def _parts(self) -> list[_Part]:
        status, look = self.status, self.look
        parts = [_part(status.model or "no model yet", look.text, 1)]
        mode = {"plan": look.accent, "yolo": look.error}.get(status.mode, look.muted)
        parts.append(_part(status.mode, mode, 0))
        if status.safety:
            style = look.warning if status.safety == "untrusted" else look.muted
            parts.append(_part(status.safety, style, 4))
        if status.used is not None and status.budget > 0:
            parts.append(self._context_part(status.used, status.budget))
        if status.cost is not None:
            parts.append(_part(dollars(status.cost), look.muted, 3))
        if status.compactions:
            parts.append(_part(f"compacted {status.compactions}×", look.muted, 5))
        if status.told:
            parts.append(_part(status.told, look.muted, 2))
        if status.name:
            parts.append(_part(status.name, look.muted, 7))
        if status.branch:
            parts.append(_part(status.branch, look.muted, 6))
        if status.place:
            parts.append(_part(status.place, look.muted, 8))
        return parts

    def _context_part(self, used: int, budget: int) -> _Part:
        """A bar in steps of half a cell; what is used at all shows."""
        share = min(used * 100 // budget, 999)
        look = self.look
        style = look.error if share >= _TIGHT else look.warning if share >= _WARN else look.muted
        halves = min(-(-used * 2 * _BAR // budget), 2 * _BAR)
        filled = "━" * (halves // 2) + "╸" * (halves % 2)
        segments = (
            Segment(filled, look.accent if share < _WARN else style),
            Segment("─" * (_BAR - len(filled)), look.muted),
            Segment(f" {share} %", style),
        )
        return _Part(segments, 2)


@dataclass(frozen=True, slots=True)
class _Part:
    segments: tuple[Segment, ...]
    spare: int
    """How readily it is left out where there is little room: the highest goes first."""


def _part(text: str, style: Style, spare: int) -> _Part:
    return _Part((Segment(text, style),), spare)


def _width(parts: list[_Part]) -> int:
    words = sum(segment.cell_length for part in parts for segment in part.segments)
    return words + 3 * (len(parts) - 1)

"""The last line of the screen: model, mode, safety, context, cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
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
            least = max(range(len(parts)), key=lambda index: parts[index][2])
            del parts[least]
        segments: list[Segment] = []
        for text, style, _ in parts:
            if segments:
                segments.append(Segment(" · ", self.look.muted))
            segments.append(Segment(text, style))
        if len(parts) == 1 and cell_len(parts[0][0]) > width:
            segments = [Segment(cropped(parts[0][0], width), parts[0][1])]
        return [Strip(segments)]

    def _parts(self) -> list[tuple[str, Style, int]]:
        """Text, style, and how readily it is left out."""
        status, look = self.status, self.look
        parts = [(status.model or "no model yet", look.text, 1)]
        mode = {"plan": look.accent, "yolo": look.error}.get(status.mode, look.muted)
        parts.append((status.mode, mode, 0))
        if status.safety:
            style = look.warning if status.safety == "untrusted" else look.muted
            parts.append((status.safety, style, 4))
        if status.used is not None and status.budget > 0:
            parts.append(self._context_part(status.used, status.budget))
        if status.cost is not None:
            parts.append((dollars(status.cost), look.muted, 3))
        if status.compactions:
            parts.append((f"compacted {status.compactions}×", look.muted, 5))
        if status.told:
            parts.append((status.told, look.muted, 2))
        if status.name:
            parts.append((status.name, look.muted, 7))
        if status.branch:
            parts.append((status.branch, look.muted, 6))
        if status.place:
            parts.append((status.place, look.muted, 8))
        return parts

    def _context_part(self, used: int, budget: int) -> tuple[str, Style, int]:
        share = min(used * 100 // budget, 999)
        look = self.look
        style = look.error if share >= _TIGHT else look.warning if share >= _WARN else look.muted
        filled = min(share * _BAR // 100, _BAR)
        return f"{'█' * filled}{'░' * (_BAR - filled)} {share} %", style, 2


def _width(parts: list[tuple[str, Style, int]]) -> int:
    return sum(cell_len(text) for text, _, _ in parts) + 3 * (len(parts) - 1)

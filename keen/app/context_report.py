"""`/context`: a picture of the window, and every compaction of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from keen import reports as told
from keen.app.blocks import Block, cropped
from keen.app.look import Look
from keen.app.reports import Table
from keen.app.screens.opening import Opening
from keen.core.budget import Budget

if TYPE_CHECKING:
    from keen.app.screens.context import PastCompaction
    from keen.engine import Engine

_CELLS = 72
"""Width of the picture, where there is room."""
_SIGNS = "█▓▒░▚▞"
"""One for each share, so that the picture can be read without colours."""
_FREE, _RESERVED = "·", "─"


@dataclass(frozen=True, slots=True)
class WindowPicture:
    """The window as a bar and as a table; the bar's signs are the table's legend."""

    shares: Mapping[str, int]
    budget: Budget
    gap: int = 1

    @property
    def text(self) -> str:
        return "\n".join(f"{name} {amount:,}" for _, _, name, amount in self._rows())

    def estimate(self, width: int) -> int:
        return len(self.shares) + 5

    def lines(self, width: int, look: Look) -> list[Strip]:
        window = max(self.budget.window, 1)
        drawn = [Strip(self._bar(min(_CELLS, width), look)), Strip([])]
        for sign, index, name, amount in self._rows():
            share = "<1" if 0 < amount * 100 < window else f"{amount * 100 // window}"
            words = f"{name:<20}{amount:>10,}{share:>5} %"
            if len(words) + 2 > width:
                words = cropped(f"{name:<19}{amount:>9,}{share:>3}%", max(width - 2, 1))
            style = look.text if index is not None else look.muted
            drawn.append(Strip([Segment(f"{sign} ", _style(index, look)), Segment(words, style)]))
        return drawn

    @property
    def _used(self) -> int:
        return sum(self.shares.values())

    def _rows(self) -> list[tuple[str, int | None, str, int]]:
        """A sign, its place among the shares, a name and its tokens."""
        budget = self.budget
        held = budget.window - budget.effective
        rows: list[tuple[str, int | None, str, int]] = [
            (_SIGNS[index % len(_SIGNS)], index, name, amount)
            for index, (name, amount) in enumerate(self.shares.items())
        ]
        return [
            *rows,
            (_FREE, None, "free", max(budget.effective - self._used, 0)),
            (_RESERVED, None, "kept for the answer", budget.reserve),
            (_RESERVED, None, "safety margin", held - budget.reserve),
            (" ", None, "window", budget.window),
        ]

    def _bar(self, width: int, look: Look) -> list[Segment]:
        """What is there at all has a cell of its own, as long as there are cells."""
        window = max(self.budget.window, 1)
        held = min((self.budget.window - self.budget.effective) * width // window, width)
        left = width - held
        segments: list[Segment] = []
        for sign, index, _, amount in self._rows()[: len(self.shares)]:
            cells = min(left, max(round(amount * width / window), 1)) if amount > 0 else 0
            segments.append(Segment(sign * cells, _style(index, look)))
            left -= cells
        return [
            *segments,
            Segment(_FREE * left, look.muted),
            Segment(_RESERVED * held, look.muted),
        ]


def _style(index: int | None, look: Look) -> Style:
    if index is None:
        return look.muted
    styles = (look.accent, look.success, look.warning, look.user, look.error, look.strong)
    return styles[index % len(styles)]


async def context(screen: Opening, _argument: str) -> None:
    """Where the window goes, and every compaction of the session."""
    engine = screen.engine
    if engine is None:
        return
    from keen.app.screens.context import ContextSheet

    divided = told.divided(engine)
    budget = engine.conversation.sampler.budget
    used = sum(divided.values())
    share = used * 100 // max(budget.effective, 1)
    title = f"{used:,} of {budget.effective:,} tokens ({share} %)"
    rows = [("compacts from", f"{budget.trigger:,}")]
    if (reported := screen.tally.context) is not None:
        rows.append(("last reported by the provider", f"{reported:,}"))
    blocks: list[Block] = [WindowPicture(divided, budget, gap=0), Table(rows)]
    compactions = await _compactions(engine)
    screen.host.push_screen(ContextSheet(title, blocks, compactions, screen))


async def _compactions(engine: Engine) -> list[PastCompaction]:
    if engine.recorder is None:
        return []
    from keen.app.screens.context import PastCompaction
    from keen.session.projection import last_compaction
    from keen.session.records import Compaction

    records = await engine.recorder.records()
    last = last_compaction(records)
    return [
        PastCompaction(
            told.compaction(record.ts, past),
            "\n\n".join(message.content for message in past.messages),
            last is not None and record.seq == last.seq,
        )
        for record in records
        if isinstance(past := record.payload, Compaction)
    ]

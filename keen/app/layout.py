"""Which block stands on which line. Heights are estimates until a block comes into sight."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from textual.strip import Strip

from keen.app.blocks import Block
from keen.app.look import Look

_CACHED_LINES: Final = 6_000
"""Lines that stay drawn; older ones are drawn again when they come back into sight."""
_BLANK: Final = Strip([])


@dataclass
class Layout:
    """Blocks, their heights at one width, and the lines of those seen last.

    A block's height counts its gap. `heights` are exact where `is_exact` says so.
    """

    look: Look
    width: int = 80
    blocks: list[Block] = field(default_factory=list[Block])
    heights: list[int] = field(default_factory=list[int])
    is_exact: list[bool] = field(default_factory=list[bool])
    _ends: list[int] = field(default_factory=list[int])
    """The line behind each block."""
    _valid: int = 0
    """How many of `_ends` hold."""
    _drawn: OrderedDict[int, list[Strip]] = field(default_factory=OrderedDict[int, list[Strip]])
    """By the block's id, the one used last at the end."""
    _lines_drawn: int = 0

    @property
    def total(self) -> int:
        """Lines of everything."""
        self._settle()
        return self._ends[-1] if self._ends else 0

    def add(self, block: Block) -> None:
        """One more block at the end."""
        self.blocks.append(block)
        self.heights.append(self._estimate(len(self.blocks) - 1))
        self.is_exact.append(False)

    def extend(self, blocks: list[Block]) -> None:
        """Many blocks at the end."""
        for block in blocks:
            self.add(block)

    def truncate(self, count: int) -> None:
        """Keep the first `count` blocks."""
        for block in self.blocks[count:]:
            self._forget(block)
        del self.blocks[count:], self.heights[count:], self.is_exact[count:], self._ends[count:]
        self._valid = min(self._valid, count)

    def remove(self, index: int) -> None:
        """Take one block out."""
        self._forget(self.blocks[index])
        del self.blocks[index], self.heights[index], self.is_exact[index]
        self._invalidate(index)
        del self._ends[len(self.blocks) :]

    def changed(self, index: int) -> None:
        """The block at `index` looks different now; it is drawn when it is in sight."""
        self._forget(self.blocks[index])
        self.is_exact[index] = False

    def redraw(self, look: Look, width: int) -> None:
        """Everything looks different: another width or another theme."""
        is_wider = width != self.width
        self.look, self.width = look, width
        self._drawn.clear()
        self._lines_drawn = 0
        if is_wider:
            self.is_exact = [False] * len(self.blocks)
            self.heights = [self._estimate(index) for index in range(len(self.blocks))]
            self._invalidate(0)

    def all_changed(self) -> None:
        """Everything was folded or unfolded."""
        width, self.width = self.width, -1
        self.redraw(self.look, width)

    def measure(self, index: int) -> int:
        """Make the height of a block exact; returns by how many lines it changed."""
        height = len(self.strips(index)) + self._gap(index)
        difference = height - self.heights[index]
        self.is_exact[index] = True
        if difference:
            self.heights[index] = height
            self._invalidate(index)
        return difference

    def start(self, index: int) -> int:
        """The first line of a block, its gap included."""
        self._settle()
        return self._ends[index - 1] if index else 0

    def at(self, line: int) -> int:
        """The block on a line; the last one for lines behind everything. -1 without blocks."""
        self._settle()
        return min(bisect_right(self._ends, line), len(self.blocks) - 1)

    def line(self, number: int) -> Strip:
        """One line of everything."""
        index = self.at(number)
        if index < 0:
            return _BLANK
        inner = number - self.start(index) - self._gap(index)
        if inner < 0:
            return _BLANK
        strips = self.strips(index)
        return strips[inner] if inner < len(strips) else _BLANK

    def strips(self, index: int) -> list[Strip]:
        """The lines of a block, without its gap."""
        block = self.blocks[index]
        key = id(block)
        found = self._drawn.get(key)
        if found is not None:
            self._drawn.move_to_end(key)
            return found
        drawn = block.lines(self.width, self.look)
        self._drawn[key] = drawn
        self._lines_drawn += len(drawn)
        while self._lines_drawn > _CACHED_LINES and len(self._drawn) > 1:
            _, oldest = self._drawn.popitem(last=False)
            self._lines_drawn -= len(oldest)
        return drawn

    def _gap(self, index: int) -> int:
        return self.blocks[index].gap if index else 0

    def _estimate(self, index: int) -> int:
        return self.blocks[index].estimate(self.width) + self._gap(index)

    def _forget(self, block: Block) -> None:
        drawn = self._drawn.pop(id(block), None)
        self._lines_drawn -= len(drawn or ())

    def _invalidate(self, index: int) -> None:
        self._valid = min(self._valid, index)

    def _settle(self) -> None:
        if self._valid == len(self.blocks):
            return
        before = self._ends[self._valid - 1] if self._valid else 0
        ends = accumulate(self.heights[self._valid :], initial=before)
        next(ends)
        self._ends[self._valid :] = ends
        self._valid = len(self.blocks)

"""Hits of a search and selected text, shown on top of a line's own colours."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from keen.app.look import Look

_OTHER: Final = Style(underline=True, bold=True)
"""Hits beside the one that the search stands at."""


def marked(strip: Strip, needle: str, look: Look, *, is_here: bool) -> Strip:
    """The strip with every hit shown; `is_here`: the search stands at this line."""
    style = look.found if is_here else _OTHER
    text = strip.text
    folded = text.casefold()
    if len(folded) != len(text):
        return strip
    position = folded.find(needle)
    while position >= 0:
        end = position + len(needle)
        strip = _styled(strip, cell_len(text[:position]), cell_len(text[:end]), style)
        position = folded.find(needle, end)
    return strip


def selected(strip: Strip, span: tuple[int, int], look: Look) -> Strip:
    """The strip with the characters of `span` shown as selected; an end of -1 is the line's."""
    text = strip.text
    start, end = span
    end = len(text) if end == -1 else end
    return _styled(strip, cell_len(text[:start]), cell_len(text[:end]), look.selection)


def _styled(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """The strip with its cells from `start` to `end` in a style on top of their own."""
    length = strip.cell_length
    start, end = min(start, length), min(end, length)
    if start >= end:
        return strip
    before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end, length)
    lit = Strip(
        [Segment(text, (own + style) if own else style) for text, own, _ in inside], end - start
    )
    return Strip.join([before, lit, after])

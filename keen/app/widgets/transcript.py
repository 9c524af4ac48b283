"""The conversation on the screen: one scroll view that draws lines, and only those in sight."""

from __future__ import annotations

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from keen.app.blocks import Block, Prose, Thinking
from keen.app.highlights import marked, selected
from keen.app.layout import Layout
from keen.app.look import Look
from keen.app.tool_cards import READING, Card, Reads
from keen.core.messages import ToolCall

_FINISHED = 2_000
"""Finished lines that are kept."""


class Transcript(ScrollView, can_focus=False):
    """Everything that was said, oldest first. Follows its end until somebody scrolls up."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    Transcript {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        background: $background;
    }
    """

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._layout_of = Layout(look)
        self._follows = True
        self._is_settling = False
        self._since: list[Block] = []
        """What was said since the last mark: a rewind takes it back."""
        self._cards: dict[str, tuple[Card, Block]] = {}
        self.is_unfolded = False
        self._ground = Style()
        self._finished: dict[int, tuple[Strip, Strip]] = {}
        """Lines as they were drawn last, beside what they were made of."""
        self._found_at: int | None = None
        self.needle = ""
        """What the search is looking for, case folded."""

    @property
    def blocks(self) -> list[Block]:
        """All blocks, oldest first. Not to be changed."""
        return self._layout_of.blocks

    @property
    def follows(self) -> bool:
        """True while the end stays in sight as it grows."""
        return self._follows

    # What happens in the conversation.

    def add(self, block: Block) -> None:
        """Something new at the end."""
        self._layout_of.add(block)
        self._update()

    def extend(self, blocks: list[Block]) -> None:
        """A conversation that was had before."""
        self._layout_of.extend(blocks)
        self._update()

    def clear(self) -> None:
        """Start from nothing."""
        self._layout_of.truncate(0)
        self._cards.clear()
        self._since.clear()
        self._follows = True
        self._update()

    def say(self, text: str) -> None:
        """More of the answer. Only what may still change is drawn again."""
        from keen.app import markdown

        self.end_thinking()
        blocks = self.blocks
        if not (self._is_open_end() and isinstance(blocks[-1], Prose)):
            self._add_voidable(Prose(""))
        tail = blocks[-1]
        assert isinstance(tail, Prose)
        tail.text += text
        self._layout_of.changed(len(blocks) - 1)
        while (cut := markdown.cut(tail.text, self._layout_of.width)) is not None:
            tail.text = cut.head
            self._layout_of.changed(len(blocks) - 1)
            tail = Prose(cut.tail, gap=cut.gap)
            self._add_voidable(tail)
        self._update()

    def think(self, text: str) -> None:
        """More reasoning."""
        blocks = self.blocks
        last = blocks[-1] if self._is_open_end() else None
        if not isinstance(last, Thinking) or last.is_done:
            last = Thinking(is_open=self.is_unfolded)
            self._add_voidable(last)
        last.text += text
        self._layout_of.changed(len(blocks) - 1)
        self._update()

    def end_thinking(self) -> None:
        """The reasoning so far is complete."""
        blocks = self.blocks
        if blocks and isinstance(last := blocks[-1], Thinking) and not last.is_done:
            last.is_done = True
            self._layout_of.changed(len(blocks) - 1)

    def mark(self) -> None:
        """What is shown now stays, whatever is sent again."""
        self.end_thinking()
        self._since.clear()

    def void(self) -> None:
        """Take back what was said since the last mark."""
        for block in self._since:
            index = self._index(block)
            if index >= 0:
                self._layout_of.remove(index)
        self._since.clear()
        self._update()

    def _is_open_end(self) -> bool:
        """True when the last block is one that a rewind would take back."""
        return bool(self.blocks and self._since) and self.blocks[-1] is self._since[-1]

    def _add_voidable(self, block: Block) -> None:
        self._layout_of.add(block)
        self._since.append(block)

    def open_tool(self, call: ToolCall, diff: str = "") -> None:
        """A call begins; neighbouring reads share a block."""
        self.end_thinking()
        card = Card(call, diff=diff, is_open=self.is_unfolded)
        last = self.blocks[-1] if self.blocks else None
        if call.name in READING and isinstance(last, Reads):
            last.cards.append(card)
            block: Block = last
            self._layout_of.changed(len(self.blocks) - 1)
        else:
            block = Reads([card], self.is_unfolded) if call.name in READING else card
            self._layout_of.add(block)
        self._cards[call.id] = (card, block)
        self._update()

    def open_card(self, card: Card) -> None:
        """A card of the person's own."""
        self._layout_of.add(card)
        self._cards[card.call.id] = (card, card)
        self._update()

    def card(self, call_id: str) -> Card | None:
        """The card of a call that was opened."""
        found = self._cards.get(call_id)
        return found[0] if found else None

    def card_changed(self, call_id: str) -> None:
        """A card's state or output is different now."""
        found = self._cards.get(call_id)
        if found is None:
            return
        card, block = found
        index = self._index(block)
        if index >= 0:
            self._layout_of.changed(index)
        if card.state != "running":
            del self._cards[call_id]
        self._update()

    def stop_cards(self) -> None:
        """The turn is over: what still runs was interrupted."""
        for call_id, (card, _) in list(self._cards.items()):
            card.state = "stopped"
            self.card_changed(call_id)

    def _index(self, block: Block) -> int:
        """Where a block stands; those that change are near the end."""
        for index in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[index] is block:
                return index
        return -1

    # How it looks.

    def restyle(self, look: Look) -> None:
        """Another theme."""
        self._finished.clear()
        self._layout_of.redraw(look, self._layout_of.width)
        self._update()

    def unfold(self, is_open: bool) -> None:
        """Show all of tool outputs and reasoning, or their gist."""
        self.is_unfolded = is_open
        for block in self.blocks:
            if isinstance(block, Card | Reads | Thinking):
                block.is_open = is_open
        self._layout_of.all_changed()
        self._update()

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        if width > 0 and width != self._layout_of.width:
            top = self._layout_of.at(self.scroll_offset.y)
            self._layout_of.redraw(self._layout_of.look, width)
            if not self._follows and top >= 0:
                self._show_block(top)
        self._update()

    def _show_block(self, index: int) -> None:
        self._resize()
        self.scroll_to(y=self._layout_of.start(index), animate=False, immediate=True, force=True)

    def _resize(self) -> None:
        size = Size(self._layout_of.width, self._layout_of.total)
        if size != self.virtual_size:
            self.virtual_size = size

    def _update(self) -> None:
        """Bring sizes and position in line with the blocks, and draw."""
        if not self.is_attached or self.size.height == 0:
            return
        self._settle()
        self.refresh()

    def _settle(self) -> None:
        """Make every block in sight exact, holding what is looked at in its place."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            for _ in range(50):
                self._resize()
                if self._follows:
                    self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
                if not self._measure_visible():
                    break
        finally:
            self._is_settling = False

    def _measure_visible(self) -> bool:
        """Measure what is in sight; True when something had another height than thought."""
        plan = self._layout_of
        top = self.scroll_offset.y
        first, last = plan.at(top), plan.at(top + self.size.height)
        if first < 0:
            return False
        into = top - plan.start(first)
        pending = [i for i in range(first, last + 1) if not plan.is_exact[i]]
        has_moved = sum(plan.measure(index) != 0 for index in pending) > 0
        if has_moved and not self._follows:
            self._resize()
            into = min(into, max(plan.heights[first] - 1, 0))
            self.scroll_to(y=plan.start(first) + into, animate=False, immediate=True, force=True)
        return has_moved

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._is_settling:
            self._follows = round(new_value) >= self.max_scroll_y
            self._settle()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._follows = True
        self._update()

    def scroll_lines(self, count: int) -> None:
        """Scroll by lines, down when positive."""
        if count < 0:
            self._follows = False
        self.scroll_to(y=self.scroll_offset.y + count, animate=False, immediate=True, force=True)

    def scroll_pages(self, count: int) -> None:
        """Scroll by screens, two lines of the last one kept."""
        self.scroll_lines(count * max(self.size.height - 2, 1))

    def scroll_top(self) -> None:
        """Go to the beginning."""
        self._follows = False
        self.scroll_to(y=0, animate=False, immediate=True, force=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        ground = self.rich_style
        if ground != self._ground or len(self._finished) > _FINISHED:
            self._ground = ground
            self._finished.clear()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width = self._layout_of.width
        if line >= self._layout_of.total:
            return Strip.blank(width, self._ground)
        plain = self._layout_of.line(line)
        if not self.needle and self.text_selection is None:
            return self._finish(plain, line, width)
        strip = plain
        if self.needle and self.needle in strip.text.casefold():
            is_here = line == self._found_at
            strip = marked(strip, self.needle, self._layout_of.look, is_here=is_here)
        if (selection := self.text_selection) is not None:
            span = selection.get_span(line)
            if span is not None:
                strip = selected(strip, span, self._layout_of.look)
        return strip.adjust_cell_length(width).apply_style(self._ground).apply_offsets(0, line)

    def _finish(self, plain: Strip, line: int, width: int) -> Strip:
        """A line padded, coloured and numbered; the same one as before where nothing changed.

        Textual keeps what it made of a strip with the strip, so the same object costs nothing.
        """
        known = self._finished.get(line)
        if known is not None and known[0] is plain and known[1].cell_length == width:
            return known[1]
        strip = plain.adjust_cell_length(width).apply_style(self._ground).apply_offsets(0, line)
        self._finished[line] = (plain, strip)
        return strip

    # Selection and search.

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        plan = self._layout_of
        start = selection.start.y if selection.start else 0
        end = min(selection.end.y if selection.end else plan.total - 1, plan.total - 1)
        rows: list[str] = []
        for number in range(start, end + 1):
            text = plan.line(number).text
            if selection.end is not None and number == end:
                text = text[: selection.end.x]
            if selection.start is not None and number == start:
                text = text[selection.start.x :]
            rows.append(text.rstrip())
        return "\n".join(rows), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def find(self, needle: str, *, backwards: bool = True) -> bool:
        """Go to the next line with `needle`, from the last hit on; False: none.

        The first hit is the nearest one above the end of the screen, else the first one below.
        """
        self.needle = needle.casefold()
        self.refresh()
        if not self.needle:
            return False
        if self._found_at is not None:
            return self._find_from(self._found_at, backwards=backwards)
        below = self.scroll_offset.y + self.size.height
        return self._find_from(below, backwards=True) or self._find_from(below - 1, backwards=False)

    def _find_from(self, here: int, *, backwards: bool) -> bool:
        plan = self._layout_of
        step = -1 if backwards else 1
        index = plan.at(here)
        while 0 <= index < len(self.blocks):
            if self.needle in self.blocks[index].text.casefold():
                plan.measure(index)
                start = plan.start(index)
                numbers = range(start, start + plan.heights[index])
                for number in reversed(numbers) if backwards else numbers:
                    is_ahead = number < here if backwards else number > here
                    if is_ahead and self.needle in plan.line(number).text.casefold():
                        self._go_to(number)
                        return True
            index += step
        return False

    def _go_to(self, line: int) -> None:
        self._follows = False
        self._found_at = line
        self._resize()
        middle = max(line - self.size.height // 2, 0)
        self.scroll_to(y=middle, animate=False, immediate=True, force=True)
        self.refresh()

    def end_search(self) -> None:
        """No longer look for anything."""
        self.needle = ""
        self._found_at = None
        self.refresh()

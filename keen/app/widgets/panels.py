"""What stands between the conversation and the prompt: the queue, the todo list, suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from keen import sanitize
from keen.app.blocks import cropped
from keen.app.host import host_of
from keen.app.look import Look
from keen.app.outbox import Outbox
from keen.app.widgets.lines import Lines
from keen.core.messages import ToolCall

_QUEUE_ROWS: Final = 4
_ROWS: Final = 8


class QueuePanel(Lines):
    """Messages that wait, the next one first."""

    def __init__(self, look: Look, outbox: Outbox, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self._outbox = outbox
        self.steering: list[str] = []
        """Messages handed to the running turn that it has not taken yet."""
        self.display = False

    def update(self) -> None:
        """The queue has changed."""
        self.display = bool(self._outbox.waiting or self.steering)
        self.redraw()

    def draw(self, width: int) -> list[Strip]:
        look, waiting = self.look, self._outbox.waiting
        rows = [("↳ ", text, look.accent) for text in self.steering]
        rows += [("⋯ ", message.text, look.muted) for message in waiting]
        drawn = [
            Strip([Segment(mark, style), Segment(_one_line(text, width - 2), look.muted)])
            for mark, text, style in rows[:_QUEUE_ROWS]
        ]
        if len(rows) > _QUEUE_ROWS:
            drawn.append(Strip([Segment(f"  … {len(rows) - _QUEUE_ROWS} more", look.muted)]))
        if self._outbox.is_held:
            line = f"{len(waiting)} queued: Enter sends, Ctrl+C clears"
            drawn.append(Strip([Segment(cropped(line, width), look.warning)]))
        return drawn


def _one_line(text: str, width: int) -> str:
    return cropped(sanitize.line(" ".join(text[:500].split())), width)


class TodoPanel(Lines):
    """The model's list of what is to be done."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.items: list[tuple[str, str]] = []
        """Status and text, in order."""
        self.display = False

    def update(self, items: list[tuple[str, str]]) -> None:
        """Another list."""
        self.items = items
        self.redraw()

    def draw(self, width: int) -> list[Strip]:
        look = self.look
        if not self.items:
            return [Strip([Segment("There is no todo list yet.", look.muted)])]
        done = sum(status == "done" for status, _ in self.items)
        drawn = [Strip([Segment(f"Todo {done}/{len(self.items)}", look.strong)])]
        for status, text in self.items[: _ROWS * 2]:
            is_done = status == "done"
            mark = "✓" if is_done else "▸" if status == "active" else "○"
            style = look.muted if is_done else look.text
            marked = look.success if is_done else look.accent
            drawn.append(
                Strip([Segment(f"{mark} ", marked), Segment(_one_line(text, width - 2), style)])
            )
        return drawn


def todo_items(call: ToolCall) -> list[tuple[str, str]]:
    """Status and text of what a `todo` call wrote."""
    given = call.input.get("items")
    return [
        (str(item.get("status", "pending")), str(item.get("text", "")))
        for item in (given if isinstance(given, list) else [])
        if isinstance(item, dict)
    ]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One row: what is inserted, what it is called, what it does."""

    value: str
    label: str
    detail: str = ""


class Suggestions(Lines):
    """A short list to choose from; the prompt keeps the focus."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.rows: Sequence[Suggestion] = ()
        self.index = 0
        self.title = ""
        self.display = False

    @property
    def chosen(self) -> Suggestion | None:
        """The row that Tab would take."""
        return self.rows[self.index] if self.display and self.rows else None

    def offer(self, rows: Sequence[Suggestion], title: str = "") -> None:
        """Show these rows, the first one chosen; none: hide. The same rows keep their choice."""
        if list(rows) != list(self.rows) or not self.display:
            self.index = 0
        self.rows, self.title = rows, title
        self.display = bool(rows) or bool(title)
        self.redraw()

    def close(self) -> None:
        """Hide."""
        self.rows, self.title = (), ""
        self.display = False
        self.redraw()

    def move(self, step: int) -> None:
        """Choose another row, round the ends."""
        if self.rows:
            self.index = (self.index + step) % len(self.rows)
            self.redraw()

    def draw(self, width: int) -> list[Strip]:
        look = self.look
        rows = min(_ROWS, max(host_of(self).size.height // 3, 2))
        first = max(0, min(self.index - rows // 2, len(self.rows) - rows))
        shown = self.rows[first : first + rows]
        wide = min(max((cell_len(row.label) for row in shown), default=0), max(width // 2, 8))
        drawn: list[Strip] = []
        if self.title:
            drawn.append(Strip([Segment(cropped(self.title, width), look.muted)]))
        for number, row in enumerate(shown, first):
            is_chosen = number == self.index
            label = cropped(row.label, wide)
            style = look.accent + Style(bold=True) if is_chosen else look.text
            segments = [
                Segment("❯ " if is_chosen else "  ", look.accent),
                Segment(label + " " * (wide - cell_len(label)), style),
            ]
            room = width - wide - 4
            if row.detail and room > 8:
                segments.append(Segment("  " + cropped(row.detail, room), look.muted))
            drawn.append(Strip(segments))
        if len(self.rows) > rows:
            drawn.append(Strip([Segment(f"  {self.index + 1}/{len(self.rows)}", look.muted)]))
        return drawn

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-1)

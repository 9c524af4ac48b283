"""Full-screen sheets over the conversation: a list to choose from, a text to read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from keen.app.blocks import Block, cropped
from keen.app.fuzzy import ranked
from keen.app.look import Look
from keen.app.widgets.permission import SHORT
from keen.app.widgets.transcript import Transcript

T = TypeVar("T")
_FEW: Final = 6
"""Rows that are seen at once: narrowing them would be one more thing to read."""
_BESIDE: Final = 6
"""Cells of a row that are edge and scroll bar."""
_LABEL: Final = 24
"""Cells that a label keeps, however long the details are."""


class Sheet(ModalScreen[T], inherit_bindings=False):
    """Covers the conversation; Esc and Ctrl+C close it with nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "close", "close", show=False, priority=True),
        Binding("tab", "app.focus_next", show=False),
        Binding("shift+tab,backtab", "app.focus_previous", show=False),
    ]

    def __init__(self, title: str, hint: str, look: Look) -> None:
        super().__init__()
        self.heading, self.hint, self.look = title, hint, look

    def action_close(self) -> None:
        """Leave without a choice."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT, "-short")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list. `value` is what choosing it means."""

    value: str
    label: str
    detail: str = ""


class ListSheet(Sheet[str]):
    """A list; a long one, and one that `narrows`, gets shorter while one types.

    `preview` shows more of the row under the cursor.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        look: Look,
        *,
        hint: str = "Enter takes · Esc closes",
        preview: Callable[[str], Awaitable[list[Block]]] | None = None,
        keys: dict[str, Callable[[str], None]] | None = None,
        narrows: bool = False,
    ) -> None:
        super().__init__(title, hint, look)
        self.rows = list(rows)
        self._preview = preview
        self._keys = keys or {}
        self._shown: list[Row] = []
        self._narrows = narrows or preview is not None or len(self.rows) > _FEW

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            if self._narrows:
                yield Input(placeholder="Type to narrow", id="filter")
            yield OptionList(id="rows")
            if self._preview is not None:
                yield Transcript(self.look, id="preview")
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self._fill("")
        self.query_one("#filter" if self._narrows else "#rows").focus()

    def replace(self, rows: Sequence[Row]) -> None:
        """Other rows, the filter kept."""
        self.rows = list(rows)
        if self.is_mounted:
            self._fill(self.query_one("#filter", Input).value if self._narrows else "")

    def tell(self, words: str) -> None:
        """Say something below the list, in place of the hint."""
        if self.is_mounted:
            self.query_one("#hint", Static).update(words)

    def _fill(self, wanted: str) -> None:
        by_text = {f"{row.label} {row.detail} {row.value}": row for row in self.rows}
        names = ranked(wanted.strip(), by_text, most=500)
        self._shown = [by_text[name] for name in names]
        options = self.query_one("#rows", OptionList)
        options.clear_options()
        muted = self.look.muted
        # Details stand in sight below one another, however long the labels are.
        room = self.size.width - _BESIDE
        longest = max((cell_len(row.detail) for row in self.rows), default=0)
        most = max(room - longest - 2, _LABEL) if longest else room
        wide = max((cell_len(row.label) for row in self.rows if row.detail), default=0)
        wide = min(wide, most)
        for row in self._shown:
            label = cropped(row.label, most if row.detail else room)
            text = Text(label, no_wrap=True, overflow="ellipsis")
            if row.detail:
                text.append(" " * max(wide - cell_len(label), 0) + "  " + row.detail, muted)
            options.add_option(Option(text))
        if self._shown:
            options.highlighted = 0

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        index = self.query_one("#rows", OptionList).highlighted
        return self._shown[index] if index is not None and index < len(self._shown) else None

    @on(Input.Changed, "#filter")
    def _narrowed(self, message: Input.Changed) -> None:
        self._fill(message.value)

    @on(Input.Submitted, "#filter")
    def _taken(self) -> None:
        self.dismiss(self.chosen.value if self.chosen is not None else None)

    @on(OptionList.OptionSelected)
    def _clicked(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(self._shown[message.option_index].value)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        if self._preview is not None and self.chosen is not None:
            self.run_worker(self._look_at(self.chosen.value), group="preview", exclusive=True)

    async def _look_at(self, value: str) -> None:
        assert self._preview is not None
        blocks = await self._preview(value)
        shown = self.query_one("#preview", Transcript)
        shown.clear()
        shown.extend(blocks)

    def on_key(self, event: events.Key) -> None:
        options = self.query_one("#rows", OptionList)
        moves = {
            "up": options.action_cursor_up,
            "down": options.action_cursor_down,
            "pageup": options.action_page_up,
            "pagedown": options.action_page_down,
        }
        if event.key in moves:
            event.stop()
            moves[event.key]()
        elif event.key in self._keys and self.chosen is not None:
            event.stop()
            self._keys[event.key](self.chosen.value)


class TextSheet(Sheet[str]):
    """Something to read; keys in `choices` close it with their meaning."""

    def __init__(
        self,
        title: str,
        blocks: Sequence[Block],
        look: Look,
        *,
        hint: str = "↑ ↓ PgUp PgDn scroll · Esc closes",
        choices: dict[str, str] | None = None,
    ) -> None:
        super().__init__(title, hint, look)
        self._blocks = list(blocks)
        self._choices = choices or {}

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Transcript(self.look, id="text")
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        text = self.query_one("#text", Transcript)
        text.extend(self._blocks)
        self.call_after_refresh(text.scroll_top)

    def on_key(self, event: events.Key) -> None:
        text = self.query_one("#text", Transcript)
        event.stop()
        match event.key:
            case "up":
                text.scroll_lines(-1)
            case "down":
                text.scroll_lines(1)
            case "pageup":
                text.scroll_pages(-1)
            case "pagedown" | "space":
                text.scroll_pages(1)
            case "home":
                text.scroll_top()
            case "end":
                text.follow()
            case "q" | "enter" if event.key not in self._choices:
                self.dismiss(None)
            case key if key in self._choices:
                self.dismiss(self._choices[key])
            case _:
                pass


class LineSheet(Sheet[str]):
    """One line to write, hidden when it is a secret."""

    def __init__(
        self, title: str, look: Look, *, hint: str, is_secret: bool = False, value: str = ""
    ) -> None:
        super().__init__(title, hint, look)
        self._is_secret = is_secret
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Input(self._value, password=self._is_secret, id="line")
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#line", Input).focus()

    @on(Input.Submitted)
    def _done(self, message: Input.Submitted) -> None:
        self.dismiss(message.value)

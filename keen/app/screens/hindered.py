"""What stops every start, whatever model is chosen: a mistake in the settings, a broken network."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from keen import sanitize
from keen.app.look import Look
from keen.app.screens.sheet import Sheet


class HinderedScreen(Sheet[bool]):
    """Closes with True to try again, with nothing to leave it."""

    def __init__(self, look: Look, reason: str, *, is_first: bool) -> None:
        self._leaving = "Leave keen" if is_first else "Close"
        super().__init__("keen cannot start like this", "↑ ↓ Enter", look)
        self._reason = reason

    def compose(self) -> ComposeResult:
        again = Option("Try again, once it is put right", id="again")
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Static(sanitize.block(self._reason), id="reason", markup=False)
            yield OptionList(again, Option(self._leaving, id="leave"), id="rows", markup=False)
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#rows", OptionList).focus()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(True if message.option_id == "again" else None)

"""What stops a start, and the ways on: try again, another session, leave."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from keen import sanitize
from keen.app.look import Look
from keen.app.screens.sheet import Row, Sheet


class HinderedScreen(Sheet[str]):
    """Closes with the value of the way that was taken, or nothing."""

    def __init__(self, look: Look, title: str, reason: str, ways: Sequence[Row]) -> None:
        super().__init__(title, "↑ ↓ Enter", look)
        self._reason = reason
        self._ways = ways

    def compose(self) -> ComposeResult:
        ways = [Option(way.label, id=way.value) for way in self._ways]
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Static(sanitize.block(self._reason), id="reason", markup=False)
            yield OptionList(*ways, id="rows", markup=False)
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#rows", OptionList).focus()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(message.option_id)

"""Where the window goes, and the compactions of the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from keen import sanitize
from keen.app.blocks import Block, Words
from keen.app.host import host_of
from keen.app.screens.opening import Opening
from keen.app.screens.sheet import Sheet, TextSheet
from keen.app.units import several
from keen.app.widgets.transcript import Transcript


@dataclass(frozen=True, slots=True)
class PastCompaction:
    """One compaction of the session, as a row and as what the model sees of it."""

    row: str
    replacement: str
    is_last: bool


class ContextSheet(Sheet[str]):
    """The picture above, the compactions below."""

    def __init__(
        self,
        title: str,
        blocks: Sequence[Block],
        compactions: Sequence[PastCompaction],
        screen: Opening,
    ) -> None:
        hint = "Esc closes"
        if compactions:
            hint = "Enter shows what the model sees · u takes the last one back · Esc closes"
        super().__init__(title, hint, screen.look)
        self._blocks = list(blocks)
        self._compactions = compactions
        self._owner = screen

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Transcript(self.look, id="text")
            if self._compactions:
                count = several(len(self._compactions), "compaction")
                yield Static(count, id="past", markup=False)
                rows = [Option(_row(one.row)) for one in self._compactions]
                yield OptionList(*rows, id="rows", markup=False)
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        text = self.query_one("#text", Transcript)
        text.extend(self._blocks)
        self.call_after_refresh(text.scroll_top)
        if self._compactions:
            self.query_one("#rows", OptionList).focus()

    @on(OptionList.OptionSelected)
    def _opened(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        past = self._compactions[message.option_index]
        words = Words(sanitize.block(past.replacement), gap=0)
        host_of(self).push_screen(TextSheet("What the model sees in its place", [words], self.look))

    def on_key(self, event: events.Key) -> None:
        if event.key == "u" and self._compactions:
            event.stop()
            self.dismiss(None)
            self._owner.run_command("compact", "undo")


def _row(words: str) -> Text:
    """One line, however narrow the screen is."""
    return Text(sanitize.line(words), no_wrap=True, overflow="ellipsis")

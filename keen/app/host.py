"""The app as its screens and widgets know it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from keen.app.desk import Attention, Opened
from keen.app.tally import Tally
from keen.themes import Palette

if TYPE_CHECKING:
    from keen._settings import Settings


class Host(Protocol):
    """What only the app can do."""

    fault: str
    """Why the start failed."""

    @property
    def size(self) -> Size: ...

    def call_attention(self, kind: Attention, words: str) -> None: ...
    def write_raw(self, sequence: str) -> None: ...
    def repaint(self) -> None: ...
    def use_palette(self, palette: Palette) -> None: ...
    def settings_known(self, settings: Settings) -> None: ...
    def farewell(self, opened: Opened | None, tally: Tally) -> None: ...
    def push_screen(
        self, screen: Screen[Any], callback: Callable[[Any], object] | None = None
    ) -> object: ...
    def exit(self) -> None: ...
    def suspend(self) -> AbstractContextManager[object]: ...
    def batch_update(self) -> AbstractContextManager[object]: ...
    def action_suspend_process(self) -> None: ...


def host_of(widget: Widget) -> Host:
    """The app around a widget."""
    # Textual leaves out the parameter of App here, so that its type is unknown to a checker.
    return cast("Host", widget.app)  # pyright: ignore[reportUnknownMemberType]

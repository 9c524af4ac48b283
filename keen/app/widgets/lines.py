"""A widget that is as high as the lines it draws."""

from __future__ import annotations

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from keen.app.look import Look


class Lines(Widget):
    """Draws a list of lines; subclasses say which. `redraw` after any change."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.look = look
        self._drawn: tuple[int, list[Strip]] | None = None
        self._finished: dict[int, tuple[Strip, Strip]] = {}

    def draw(self, width: int) -> list[Strip]:
        """The lines for a width."""
        raise NotImplementedError

    def restyle(self, look: Look) -> None:
        """Another theme."""
        self.look = look
        self.redraw()

    def redraw(self) -> None:
        """What is to be drawn has changed; the height may have, too."""
        before = self._drawn
        self._drawn = None
        self._finished.clear()
        if before is None or not self.is_attached:
            self.refresh(layout=True)
            return
        width, old = before
        self.refresh(layout=len(self._lines(width)) != len(old))

    def _lines(self, width: int) -> list[Strip]:
        if self._drawn is None or self._drawn[0] != width:
            self._drawn = (width, self.draw(width) if width > 0 else [])
        return self._drawn[1]

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        lines = self._lines(width)
        strip = lines[y] if 0 <= y < len(lines) else Strip([])
        known = self._finished.get(y)
        if known is not None and known[0] is strip and known[1].cell_length == width:
            return known[1]
        finished = strip.adjust_cell_length(width).apply_style(self.rich_style)
        self._finished[y] = (strip, finished)
        return finished

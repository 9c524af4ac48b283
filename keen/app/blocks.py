"""The pieces a transcript is made of. Each draws itself as lines for a width, and no wider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from keen.app.look import Look

Tone: TypeAlias = Literal["text", "muted", "accent", "user", "success", "warning", "error"]


class Block(Protocol):
    """One piece of the transcript. Whoever changes it tells the transcript."""

    @property
    def gap(self) -> int:
        """Blank lines in front of it."""
        ...

    @property
    def text(self) -> str:
        """What it says, for the search."""
        ...

    def estimate(self, width: int) -> int:
        """About how many lines it has, cheaply."""
        ...

    def lines(self, width: int, look: Look) -> list[Strip]:
        """Its lines, without the gap."""
        ...


def estimated(text: str, width: int) -> int:
    """Lines of a text, roughly."""
    return text.count("\n") + 1 + len(text) // max(width, 1)


def tone(look: Look, name: Tone) -> Style:
    """The style of a tone."""
    styles: dict[Tone, Style] = {
        "text": look.text,
        "muted": look.muted,
        "accent": look.accent,
        "user": look.user,
        "success": look.success,
        "warning": look.warning,
        "error": look.error,
    }
    return styles[name]


def folded(text: str, width: int) -> list[str]:
    """The text's lines, long ones broken at the width, wherever that is. Tabs are four cells."""
    width = max(width, 4)
    result: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        if len(line) <= width and (line.isascii() or cell_len(line) <= width):
            result.append(line)
        elif line.isascii():
            result += [line[start : start + width] for start in range(0, len(line), width)]
        else:
            result += chop_cells(line, width)
    return result


def cropped(text: str, width: int) -> str:
    """One line, at most `width` cells, with an ellipsis when it was longer."""
    width = max(width, 1)
    if cell_len(text) <= width:
        return text
    pieces = chop_cells(text, max(width - 1, 1))
    return (pieces[0] if pieces else "") + "…"


def prefixed(lines: list[str], style: Style, first: str, rest: str, mark: Style) -> list[Strip]:
    """Lines with a mark before the first and another before the others."""
    return [
        Strip([Segment(rest if index else first, mark), Segment(line, style)])
        for index, line in enumerate(lines)
    ]


def wrapped(text: str, width: int, look: Look) -> list[str]:
    """The text's lines, broken between words."""
    wide = max(width, 4)
    result: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        if len(line) <= wide and line.isascii():
            result.append(line)
            continue
        broken = Text(line, end="").wrap(look.console, wide, overflow="fold")
        result += [piece.plain.rstrip() for piece in broken] or [""]
    return result


@dataclass
class Words:
    """Plain text in one tone, behind a mark."""

    text: str
    tone: Tone = "text"
    mark: str = ""
    gap: int = 1

    def estimate(self, width: int) -> int:
        return estimated(self.text, width - len(self.mark))

    def lines(self, width: int, look: Look) -> list[Strip]:
        style = tone(look, self.tone)
        room = width - cell_len(self.mark)
        blank = " " * cell_len(self.mark)
        return prefixed(wrapped(self.text, room, look), style, self.mark, blank, style)


_USER_LINES = 40
"""Lines of one's own message that are shown; a long paste would push everything else away."""


@dataclass
class Mine:
    """A message of the person's."""

    text: str
    is_steering: bool = False
    gap: int = 1

    def estimate(self, width: int) -> int:
        return min(estimated(self.text, width - 2), _USER_LINES + 1)

    def lines(self, width: int, look: Look) -> list[Strip]:
        style = look.user
        mark = "↳ " if self.is_steering else "❯ "
        broken = wrapped(self.text, width - 2, look)
        hidden = len(broken) - _USER_LINES
        if hidden > 0:
            broken = broken[:_USER_LINES]
        drawn = prefixed(broken, style, mark, "  ", look.accent)
        if hidden > 0:
            drawn.append(Strip([Segment(f"  … {hidden:,} more lines", look.muted)]))
        return drawn


@dataclass
class Prose:
    """A piece of an answer, in Markdown."""

    text: str
    gap: int = 1

    def estimate(self, width: int) -> int:
        return estimated(self.text, width)

    def lines(self, width: int, look: Look) -> list[Strip]:
        from keen.app import markdown

        return markdown.lines(self.text, width, look)


@dataclass
class Thinking:
    """Reasoning: one line, or all of it when unfolded."""

    text: str = ""
    is_open: bool = False
    is_done: bool = False
    gap: int = 1

    def estimate(self, width: int) -> int:
        return estimated(self.text, width - 2) if self.is_open else 1

    def lines(self, width: int, look: Look) -> list[Strip]:
        style = look.muted + Style(italic=True)
        if self.is_open:
            return prefixed(wrapped(self.text, width - 2, look), style, "✻ ", "  ", look.muted)
        said = self.text.strip()
        last = said.rsplit("\n", 1)[-1].replace("*", "").strip()
        head = "Thought" if self.is_done else "Thinking"
        size = said.count("\n") + 1
        line = (
            f"{head}: {last}" if not self.is_done else f"{head} ({size} lines, Ctrl+O shows them)"
        )
        return [Strip([Segment("✻ ", look.muted), Segment(cropped(line, width - 2), style)])]


@dataclass
class Banner:
    """What stands at the top of a new session."""

    rows: tuple[tuple[str, str], ...]
    title: str
    gap: int = 0

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(f"{name} {value}" for name, value in self.rows)])

    def estimate(self, width: int) -> int:
        return len(self.rows) + 1

    def lines(self, width: int, look: Look) -> list[Strip]:
        drawn = [Strip([Segment(cropped(self.title, width), look.accent + Style(bold=True))])]
        wide = max((len(name) for name, _ in self.rows), default=0) + 2
        for name, value in self.rows:
            label = Segment(name.ljust(wide), look.muted)
            drawn.append(Strip([label, Segment(cropped(value, width - wide), look.text)]))
        return drawn

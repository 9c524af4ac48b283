"""A palette as the styles that lines are drawn with, and as a Textual theme."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.style import Style
from rich.theme import Theme as RichTheme
from textual.theme import Theme

from keen.themes import Palette


@dataclass(frozen=True, slots=True)
class Look:
    """The styles of one palette."""

    palette: Palette
    text: Style
    muted: Style
    accent: Style
    user: Style
    success: Style
    warning: Style
    error: Style
    added: Style
    removed: Style
    selection: Style
    found: Style
    """A hit of the transcript's search."""
    strong: Style
    console: Console
    """Makes segments, and writes nowhere."""

    @property
    def code(self) -> str:
        """The Pygments style of code blocks."""
        return self.palette.code


def look_of(palette: Palette) -> Look:
    """The styles of a palette."""

    def style(name: str, *, is_bold: bool = False) -> Style:
        return Style(color=_rich(palette[name]), bold=is_bold or None)

    text, muted, accent = style("text"), style("muted"), style("accent")
    return Look(
        palette=palette,
        text=text,
        muted=muted,
        accent=accent,
        user=style("user", is_bold=True),
        success=style("success"),
        warning=style("warning"),
        error=style("error"),
        added=style("added"),
        removed=style("removed"),
        selection=_selection(palette),
        found=Style(reverse=True),
        strong=style("text", is_bold=True),
        console=_console(_markdown_styles(text, muted, accent, style("user"))),
    )


def _selection(palette: Palette) -> Style:
    if palette.is_ansi:
        return Style(reverse=True)
    return Style(bgcolor=palette["selection"])


def _rich(color: str) -> str:
    """Rich's name of a colour."""
    return color.removeprefix("ansi_") if color.startswith("ansi_") else color


def _markdown_styles(
    text: Style, muted: Style, accent: Style, code: Style
) -> dict[str, str | Style]:
    """What Rich calls the parts of Markdown, in the palette's styles."""
    strong = text + Style(bold=True)
    heading = accent + Style(bold=True)
    return {
        "markdown.paragraph": text,
        "markdown.text": text,
        "markdown.em": Style(italic=True),
        "markdown.strong": Style(bold=True),
        "markdown.code": code,
        "markdown.code_block": text,
        "markdown.block_quote": muted,
        "markdown.list": text,
        "markdown.item": text,
        "markdown.item.bullet": accent,
        "markdown.item.number": accent,
        "markdown.hr": muted,
        "markdown.h1": heading + Style(underline=True),
        "markdown.h2": heading,
        "markdown.h3": strong,
        "markdown.h4": strong,
        "markdown.h5": strong,
        "markdown.h6": strong,
        "markdown.h7": strong,
        "markdown.h1.border": muted,
        "markdown.link": accent,
        "markdown.link_url": muted + Style(underline=True),
        "markdown.s": Style(strike=True),
        "markdown.table.border": muted,
        "markdown.table.header": strong,
    }


def _console(styles: dict[str, str | Style]) -> Console:
    return Console(
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=80,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        theme=RichTheme(styles),
        _environ={"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "25"},
    )


def textual_theme(palette: Palette) -> Theme:
    """The palette for Textual's own widgets."""
    colors = palette.colors
    variables = _ansi_variables() if palette.is_ansi else _variables(palette)
    own = {f"keen-{name}": color for name, color in colors.items()}
    return Theme(
        name=palette.name,
        primary=colors["accent"],
        secondary=colors["user"],
        accent=colors["accent"],
        warning=colors["warning"],
        error=colors["error"],
        success=colors["success"],
        foreground=colors["text"],
        background=colors["background"],
        surface=colors["surface"],
        panel=colors["surface"],
        boost=colors["surface"],
        dark=palette.is_dark,
        ansi=palette.is_ansi,
        variables=variables | own,
    )


def _variables(palette: Palette) -> dict[str, str]:
    """Textual's names for what its widgets draw, where its own guesses would differ."""
    colors = palette.colors
    return {
        "border": colors["border"],
        "border-blurred": colors["border"],
        "scrollbar": colors["border"],
        "scrollbar-hover": colors["muted"],
        "scrollbar-active": colors["accent"],
        "scrollbar-background": colors["background"],
        "scrollbar-background-hover": colors["background"],
        "scrollbar-background-active": colors["background"],
        "scrollbar-corner-color": colors["background"],
        "input-selection-background": colors["selection"],
        "input-cursor-background": colors["text"],
        "input-cursor-foreground": colors["background"],
        "block-cursor-background": colors["selection"],
        "block-cursor-foreground": colors["text"],
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": colors["selection"],
        "block-cursor-blurred-foreground": colors["text"],
        "block-cursor-blurred-text-style": "bold",
        "screen-selection-background": colors["selection"],
    }


def _ansi_variables() -> dict[str, str]:
    """The same in the terminal's own colours; Textual's style sheets ask for the first two."""
    return {
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "block-cursor-background": "ansi_blue",
        "block-cursor-foreground": "ansi_bright_white",
        "block-cursor-blurred-background": "ansi_blue",
        "block-cursor-blurred-foreground": "ansi_bright_white",
        "block-cursor-blurred-text-style": "bold",
        "scrollbar": "ansi_bright_black",
        "scrollbar-hover": "ansi_bright_black",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "input-selection-background": "ansi_blue",
        "screen-selection-background": "ansi_blue",
    }

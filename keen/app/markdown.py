"""Markdown as lines, and where a growing text may be cut so that only its end is drawn again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    CodeBlock,
    Heading,
    HorizontalRule,
    ListItem,
    Markdown,
    MarkdownElement,
)
from rich.rule import Rule
from rich.segment import Segment
from rich.syntax import Syntax
from textual.strip import Strip

from keen.app.look import Look

LONG: Final = 4_000
"""Characters above which an unfinished block is cut although it goes on."""
_LONG_CODE: Final = 1_500
"""The same for code, which costs more to draw."""
_LONGEST: Final = 12_000
"""Characters above which it is cut wherever that is possible at all."""
_HIGHLIGHTED: Final = 60_000
"""Characters of code that are still highlighted."""
_WORD: Final = re.compile(r"\S+\s*")


class _Heading(Heading):
    """A heading at the left, its level told by colour and not by a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Code on a ground of its own."""

    background: ClassVar[str] = "default"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        lexer = self.lexer_name if len(code) <= _HIGHLIGHTED else "text"
        yield Syntax(
            code.expandtabs(4),
            lexer or "text",
            theme=self.theme,
            word_wrap=True,
            padding=(0, 1),
            background_color=_Code.background,
        )


class _Break(HorizontalRule):
    """A line across."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr", characters="─")


class _Item(ListItem):
    """A point of a list; numbers have their full stop."""

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        sign = f"{number}. ".rjust(len(f" {last_number}. "))
        room = options.update(width=max(options.max_width - len(sign), 4))
        style = console.get_style("markdown.item.number", default="none")
        for row, line in enumerate(console.render_lines(self.elements, room, style=self.style)):
            yield Segment(" " * len(sign) if row else sign, style)
            yield from line
            yield Segment.line()


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "hr": _Break,
        "list_item_open": _Item,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


def lines(text: str, width: int, look: Look) -> list[Strip]:
    """The text drawn as Markdown, without blank lines around it."""
    _Code.background = "default" if look.palette.is_ansi else look.palette["surface"]
    console = look.console
    options = console.options.update(width=max(width, 8))
    # Addresses are shown, never hidden behind words: what a link says and where it goes can differ.
    drawn = _Markdown(text, code_theme=look.code, hyperlinks=False)
    rendered = console.render_lines(drawn, options, style=look.text, pad=False)
    return _without_double_blanks([Strip(line) for line in rendered])


def _without_double_blanks(strips: list[Strip]) -> list[Strip]:
    """Blocks bring blank lines of their own; one between two is enough, and none around all."""
    kept: list[Strip] = []
    was_blank = True
    for strip in strips:
        # A line of a code block has a ground and is never blank in this sense.
        is_blank = not strip.text.strip() and not any(s.style and s.style.bgcolor for s in strip)
        if not (is_blank and was_blank):
            kept.append(strip)
        was_blank = is_blank
    if kept and was_blank:
        kept.pop()
    return kept


@dataclass(frozen=True, slots=True)
class Cut:
    """A growing text in two: `head` is finished, `tail` goes on. `gap`: blank lines between."""

    head: str
    tail: str
    gap: int


_blocks = MarkdownIt().enable("strikethrough").enable("table")
_blocks.core.ruler.enableOnly(["normalize", "block"])


def cut(text: str, width: int) -> Cut | None:
    """Where the text may be cut, or None while all of it is still changing.

    `width`: so that a long paragraph is cut where a line of it ends.
    """
    if "\n" not in text and len(text) <= LONG:
        return None
    tops = [token for token in _blocks.parse(text) if token.level == 0 and token.map]
    tops = [token for token in tops if token.nesting >= 0]
    if not tops:
        return None
    start = tops[-1].map or [0, 0]
    if len(tops) > 1 and start[0] > 0:
        where = _line_start(text, start[0])
        return Cut(text[:where], text[where:], 1)
    return _long(text, tops[0], width)


def _line_start(text: str, number: int) -> int:
    position = 0
    for _ in range(number):
        position = text.index("\n", position) + 1
    return position


def _long(text: str, top: Token, width: int) -> Cut | None:
    match top.type:
        case "fence" if len(text) > _LONG_CODE:
            return _long_fence(text, top)
        case "paragraph_open" if len(text) > LONG:
            return _long_paragraph(text, width)
        case "bullet_list_open" | "ordered_list_open" if len(text) > LONG:
            return _long_list(text)
        case _:
            return None


def _long_fence(text: str, top: Token) -> Cut | None:
    """Whole lines of an unfinished code block become a block of their own."""
    opening, _, body = text.partition("\n")
    if body.rstrip().endswith(top.markup):
        return None
    end = body.rfind("\n")
    if end > _LONGEST:
        end = body.rfind("\n", 0, _LONGEST)
    if end < _LONG_CODE // 2:
        return None
    head = f"{opening}\n{body[:end]}\n{top.markup}\n"
    return Cut(head, f"{opening}\n{body[end + 1 :]}", 0)


def _long_list(text: str) -> Cut | None:
    """The last item of a list goes on, the others are finished."""
    items = [
        token
        for token in _blocks.parse(text)
        if token.type == "list_item_open" and token.level == 1 and token.map
    ]
    if len(items) < 2 or not (place := items[-1].map):
        return None
    where = _line_start(text, place[0])
    return Cut(text[:where], text[where:], 0)


def _long_paragraph(text: str, width: int) -> Cut | None:
    """As many words as whole lines of this width hold, some left over to go on with."""
    most = min(len(text) - LONG // 4, _LONGEST)
    used = 0
    line_end = position = 0
    for word in _WORD.finditer(text, 0, most):
        size = cell_len(word[0].rstrip())
        if used and used + size > width:
            line_end, used = position, 0
        used += size + 1
        position = word.end()
    head = text[:line_end]
    if not head.strip() or (not _is_balanced(head) and len(text) < _LONGEST):
        return None
    return Cut(head, text[line_end:], 0)


def _is_balanced(text: str) -> bool:
    """True when no emphasis, code or link is open at the end, as far as counting tells."""
    return (
        text.count("`") % 2 == 0
        and text.count("**") % 2 == 0
        and text.count("~~") % 2 == 0
        and text.count("[") == text.count("]")
        and text.rfind("](") <= text.rfind(")")
    )

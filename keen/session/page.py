"""A session as one HTML page that needs no network and no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final, Protocol

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from pygments import highlight, lexers
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.util import ClassNotFound

from keen import sanitize
from keen.session.export import About, about, compaction_line, note, tool_headline, turn_end
from keen.session.records import (
    AssistantTurn,
    Attachment,
    Compaction,
    Item,
    JsonFields,
    ReasoningItem,
    Record,
    TextItem,
    ToolItem,
    UserMessage,
    images,
)
from keen.session.turns import settled

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_COLOURED: Final = 50_000
"""Characters of a code block that is still coloured."""
_LONG_FIELD: Final = 80


class _Styled(Protocol):
    """What pygments' untyped formatter does."""

    def get_style_defs(self, arg: str, /) -> str: ...


class _Lexers(Protocol):
    """What pygments' untyped module does."""

    def get_lexer_by_name(self, alias: str, /, **options: bool) -> Lexer: ...


class _Parser(MarkdownIt):
    """Markdown whose links lead to the web or to a mailbox and nowhere else."""

    def validateLink(self, url: str) -> bool:
        return sanitize.is_safe_link(url)


def page(records: Sequence[Record]) -> str:
    """The whole page."""
    records = settled(records)
    head = about(records)
    title = escape(sanitize.line(head.title))
    body = "\n".join(part for record in records for part in _blocks(record))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{title}</title>
<style>
{_style()}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
{_facts(head)}
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _style() -> str:
    css = Path(__file__).with_name("export.css").read_text(encoding="utf-8")
    light, dark = _token_rules("xcode"), _token_rules("github-dark")
    return f"{css}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _token_rules(style: str) -> str:
    return _rules(HtmlFormatter[str](style=style, classprefix="t-"))


def _rules(formatter: _Styled) -> str:
    rules = formatter.get_style_defs("code").split("\n")
    return "\n".join(rule for rule in rules if rule.startswith("code .t-"))


def _facts(head: About) -> str:
    rows = (
        f"<div><dt>{escape(label)}</dt><dd>{escape(sanitize.line(value))}</dd></div>"
        for label, value in head.facts
    )
    return f"<dl>{''.join(rows)}</dl>"


def _blocks(record: Record) -> Iterator[str]:
    match record.payload:
        case UserMessage() as message:
            label = "You, while keen was working" if message.steering else "You"
            yield (
                f'<section class="user"><h2>{label}</h2>'
                f'<div class="said">{escape(sanitize.block(message.content))}</div>'
                f"{_pictures(message.attachments)}</section>"
            )
        case AssistantTurn() as turn if turn.transcript or turn_end(turn):
            items = "\n".join(map(_item, turn.transcript))
            ending = escape(sanitize.block(turn_end(turn)))
            end = f'<p class="ending">{ending}</p>' if ending else ""
            yield f'<section class="keen"><h2>keen</h2>\n{items}{end}</section>'
        case Compaction() as compaction:
            yield _compaction(compaction)
        case _:
            if text := note(record.payload):
                yield f'<div class="note">{escape(sanitize.line(text))}</div>'


def _item(item: Item) -> str:
    match item:
        case TextItem(content=content):
            return f'<div class="text">{_rendered(content)}</div>'
        case ReasoningItem(content=content):
            text = escape(sanitize.block(content.strip()))
            return (
                f'<details class="reasoning"><summary>Reasoning</summary>'
                f'<div class="said">{text}</div></details>'
            )
        case ToolItem():
            return _tool(item)


def _tool(item: ToolItem) -> str:
    state, mark = ("failed", "✘") if item.is_error else ("done", "✔")
    output = escape(sanitize.plain(item.output).rstrip("\n"))
    shown = f"<pre><samp>{output}</samp></pre>" if output else ""
    return (
        f'<details class="tool {state}"><summary><span class="mark">{mark}</span>'
        f"<b>{escape(sanitize.line(item.name))}</b> "
        f"<code>{escape(tool_headline(item))}</code>"
        f'<span class="seconds">{item.seconds:.1f} s</span></summary>'
        f"{_arguments(item.input)}{shown}</details>"
    )


def _arguments(fields: JsonFields) -> str:
    """Short fields side by side, then each long one as a block."""
    short: list[str] = []
    long: list[str] = []
    for key, value in fields.items():
        is_text = isinstance(value, str)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        text, label = sanitize.block(text), escape(sanitize.line(key))
        if key == "command" or "\n" in text or len(text) > _LONG_FIELD:
            language = "bash" if key == "command" else "" if is_text else "json"
            code = _coloured(text, language)
            title = "" if key == "command" else f'<div class="label">{label}</div>'
            long.append(f"{title}<pre><code>{code}</code></pre>")
        else:
            short.append(f"<div><dt>{label}</dt><dd>{escape(text)}</dd></div>")
    return (f'<dl class="fields">{"".join(short)}</dl>' if short else "") + "".join(long)


def _compaction(compaction: Compaction) -> str:
    line = escape(compaction_line(compaction))
    if not compaction.summary:
        return f'<div class="note">{line}</div>'
    return (
        f'<details class="compaction"><summary>{line}</summary>'
        f'<div class="text">{_rendered(compaction.summary)}</div></details>'
    )


def _pictures(attachments: Sequence[Attachment]) -> str:
    kept = [item for item in attachments if item.media_type in PICTURES and images((item,))]
    shown = "".join(
        f'<img alt="attached picture" src="data:{item.media_type};base64,{escape(item.data)}">'
        for item in kept
    )
    missing = len(attachments) - len(kept)
    return shown + (f'<p class="ending">{missing} attachments not shown</p>' if missing else "")


def _rendered(text: str) -> str:
    """Markdown as HTML; raw HTML in it is shown as text, a picture becomes a link."""
    return _parser().render(sanitize.block(text))


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "typographer": False, "highlight": _code}
    parser = _Parser("commonmark", options).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _picture_link)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("table_open", _wide_open)
    parser.add_render_rule("table_close", _wide_close)
    return parser


def _link(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    _environment: MutableMapping[str, object],
) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return renderer.renderToken(tokens, index, options, {})


def _picture_link(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _environment: MutableMapping[str, object],
) -> str:
    """A page that loads pictures would tell strangers that it is being read."""
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    label = escape(token.content or source)
    return f'<a href="{escape(source)}" rel="noopener noreferrer nofollow">{label}</a>'


def _wide_open(*_: object) -> str:
    return '<div class="wide"><table>'


def _wide_close(*_: object) -> str:
    return "</table></div>"


def _code(code: str, language: str, _attributes: str) -> str:
    return _coloured(code, language)


def _coloured(code: str, language: str) -> str:
    lexer = _lexer(language.lower()) if len(code) <= _MAX_COLOURED else None
    if lexer is None:
        return escape(code)
    formatter = HtmlFormatter[str](nowrap=True, classprefix="t-")
    return highlight(code, lexer, formatter)


@cache
def _lexer(language: str) -> Lexer | None:
    return _found(lexers, language) if language else None


def _found(known: _Lexers, language: str) -> Lexer | None:
    try:
        return known.get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from keen.session.export import FORMS, Form, export
from keen.session.records import (
    AssistantTurn,
    Attachment,
    Compaction,
    CompactionReverted,
    KeptMessage,
    ModelChanged,
    Payload,
    ReasoningItem,
    Record,
    SessionRenamed,
    SessionStarted,
    Spent,
    TextItem,
    ToolItem,
    UserMessage,
)

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</pre></details></main><script>alert(1)</script>",
    "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html,<script>x</script>)",
    '[q](https://example.org/"onmouseover=alert(1)) <https://example.org/"x=1>',
    "![pixel](https://tracker.example/p.png) ![p](file:///etc/x) ![d](data:image/png;base64,xx)",
    "```html\n<script>alert(1)</script>\n```",
    '```"onload=alert(1)\nx\n```',
    "\x1b]0;title\x07\x1b[31mred\x1b[0m\x9b31m \u202egnp.exe\u202c \u2066x\u2069 \x00\x08\x7f",
    "</style><style>*{display:none}</style>",
    "[a]: javascript:alert(1)\n\n[a]",
    "&#60;script&#62; &lt;script&gt;",
    "```````\nunclosed",
)
SAFE_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "div", "p"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "dl", "dt", "dd", "details", "summary", "span", "b"),
    *("code", "pre", "samp", "a", "ul", "ol", "li", "blockquote", "em", "strong", "s", "hr", "br"),
    *("table", "thead", "tbody", "tr", "th", "td", "img"),
}
SAFE_ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "href", "rel", "alt", "src"),
    *("start", "style", "title"),
}


class Inspector(HTMLParser):
    """What a browser would make of the page: its tags, attributes and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "hr", "img"):
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} closes nothing"
        assert self.open.pop() == tag


def records(*payloads: Payload) -> list[Record]:
    return [
        Record(n, "2026-01-02T03:04:05.678Z", payload.kind, payload)
        for n, payload in enumerate(payloads, 1)
    ]


def a_session(text: str = "Hello") -> list[Record]:
    tool = ToolItem(
        id="1",
        name=f"bash{text}",
        input={"command": text, text: [text]},
        output=text,
        is_error=True,
        seconds=0.25,
    )
    return records(
        SessionStarted(session_id="id", cwd=f"/work/{text}", model=f"demo/{text}"),
        UserMessage(content=text),
        AssistantTurn(
            transcript=(ReasoningItem(content=text), TextItem(content=text), tool),
            usage=Spent(input_tokens=1_000, output_tokens=234),
            error=text,
        ),
        Compaction(
            messages=(KeptMessage(role="user", content="w"),),
            summary=text,
            trigger="proactive",
            tokens_before=9_000,
            tokens_after=900,
        ),
        CompactionReverted(seq=4),
        ModelChanged(model=text),
        SessionRenamed(name=text),
    )


def inspected(page: str) -> Inspector:
    inspector = Inspector()
    inspector.feed(page)
    inspector.close()
    return inspector


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_content_is_shown_as_text_on_a_page_that_loads_nothing(text: str) -> None:
    page = inspected(export(a_session(text), "html"))
    assert set(page.tags) <= SAFE_TAGS
    assert page.tags.count("style") == 1
    assert page.attributes <= SAFE_ATTRIBUTES
    assert "img" not in page.tags
    assert [a for a in page.addresses if not re.match(r"https?://", a)] == []
    assert page.open == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_form_carries_control_or_bidi_characters(form: Form, text: str) -> None:
    harmful = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    exported = export(a_session(text), form)
    if form == "json":
        assert json.loads(exported)["records"][1]["payload"]["content"] == text
    else:
        assert [character for character in harmful if character in exported] == []


def test_the_page_forbids_everything_but_its_own_style() -> None:
    page = export(a_session(), "html")
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page
    assert "url(" not in page


def test_the_page_shows_what_happened() -> None:
    page = export(a_session(), "html")
    for text in (
        "Context compacted automatically: 9,000 → 900 tokens",
        "The compaction of record 4 was taken back",
        "1,234",
        "Failed: Hello",
        '<details class="tool failed">',
        "2026-01-02 03:04",
    ):
        assert text in page


def test_code_is_coloured_and_markdown_is_rendered() -> None:
    text = "# Title\n\n```python\ndef f(): pass\n```\n\n| a | b |\n|---|---|\n| 1 | ~~2~~ |"
    page = export(records(AssistantTurn(transcript=(TextItem(content=text),))), "html")
    assert '<span class="t-k">def</span>' in page
    assert '<div class="wide"><table>' in page
    assert "<s>2</s>" in page


def test_a_picture_of_the_persons_is_in_the_page_and_a_drawing_with_scripts_is_not() -> None:
    png = Attachment(media_type="image/png", data="iVBORw0KGgo=")
    drawing = Attachment(media_type="image/svg+xml", data="PHN2Zz4=")
    broken = Attachment(media_type="image/png", data='"><script>')
    message = UserMessage(content="look", attachments=(png, drawing, broken))
    page = export(records(message), "html")
    assert page.count("<img") == 1
    assert "data:image/png;base64,iVBORw0KGgo=" in page
    assert "2 attachments not shown" in page


def test_a_fence_in_tool_output_cannot_close_its_block() -> None:
    item = ToolItem(id="1", name="bash", input={}, output="a\n`````\nb")
    text = export(records(AssistantTurn(transcript=(item,))), "md")
    assert "``````text\na\n`````\nb\n``````" in text


def test_json_holds_every_record_in_order() -> None:
    exported: dict[str, Any] = json.loads(export(a_session(), "json"))
    assert exported["session_id"] == "id"
    assert exported["usage"]["total_tokens"] == 1_234
    assert [record["seq"] for record in exported["records"]] == list(range(1, 8))
    assert exported["records"][1]["payload"]["content"] == "Hello"


def test_an_empty_session_has_a_page() -> None:
    for form in FORMS:
        assert "keen session" in export([], form)


@pytest.mark.timeout(60)
def test_a_session_of_two_hundred_rounds_is_exported_whole() -> None:
    text = TextItem(content="para *graph*\n\n```python\nx = 1\n```\n" * 10)
    tool = ToolItem(id="1", name="bash", input={"command": "ls"}, output="line\n" * 800)
    rounds = AssistantTurn(transcript=(text, tool, tool))
    session = records(*[UserMessage(content="q"), rounds] * 200)
    began = time.process_time()
    page = export(session, "html")
    print(f"200 rounds in {time.process_time() - began:.2f} s of processor time")
    assert page.count('<section class="keen">') == 200
    assert page.count("<samp>") == 400

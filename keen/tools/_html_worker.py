"""Turns HTML into Markdown, as a process of its own: a page that takes too long can be killed.

Run by path with `python -I`. stdin: the page's address, LF, the page, both UTF-8. stdout: Markdown.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

_UNREAD = ("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas")


def markdown(page: str, address: str) -> str:
    """The page with its links made absolute; plain text where it is nested too deeply."""
    soup = BeautifulSoup(page, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    for element in soup(_UNREAD):
        element.decompose()
    if soup.head:
        soup.head.decompose()
    for element in soup(["a", "img"]):
        name = "href" if element.name == "a" else "src"
        link = str(element.get(name, ""))
        if link.lower().startswith(("data:", "javascript:")):
            element.replace_with(str(element.get("alt", "")) or element.get_text())
        elif link:
            element[name] = _joined(address, link)
    text = MarkdownConverter(heading_style="ATX").convert_soup(soup)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return f"Title: {title}\n\n{text}" if title else text


def _joined(address: str, link: str) -> str:
    try:
        return urljoin(address, link)
    except ValueError:
        return link


class _TextOnly(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._unread = max(0, self._unread - (tag in ("script", "style")))

    def handle_data(self, data: str) -> None:
        if not self._unread and data.strip():
            self.pieces.append(data.strip())


def plain(page: str) -> str:
    """The text of a page, one piece a line."""
    parser = _TextOnly()
    parser.feed(page)
    parser.close()
    return "\n".join(parser.pieces)


def main() -> int:
    """Never fails on a page: what Markdown cannot be made of is given as text."""
    address, _, page = sys.stdin.buffer.read().decode("utf-8", "replace").partition("\n")
    try:
        text = markdown(page, address)
    except RecursionError:
        text = plain(page)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

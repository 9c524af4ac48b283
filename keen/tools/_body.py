"""What came over the wire, decompressed within limits, and as text for a model."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from keen.core.errors import ToolError
from keen.tools._text import decode

_META: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_NO_CHARSET: Final = frozenset(
    {"idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "utf-7"}
)
_MOST_HTML: Final = 600_000
"""Characters of a page that are converted; a second or several."""
_WORKER: Final = Path(__file__).with_name("_html_worker.py")


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


@dataclass(slots=True)
class Body:
    """Collects a body, `most` bytes after decompression at most; the rest is never unpacked.

    Raises:
        ToolError: compressed in a way that was not asked for.
    """

    encoding: str
    most: int
    content: bytearray = field(default_factory=bytearray)
    is_cut: bool = False
    _unpacker: _Unpacker | None = None

    def __post_init__(self) -> None:
        match self.encoding.strip().lower():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip":
                self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            case "deflate":
                self._unpacker = zlib.decompressobj()
            case other:
                raise ToolError(f"The server compressed the page with {other}, unasked.")

    def feed(self, chunk: bytes) -> None:
        """Take one piece off the wire."""
        room = self.most - len(self.content)
        if self._unpacker is not None:
            try:
                chunk = self._unpacker.decompress(chunk, room + 1)
            except zlib.error as error:
                raise ToolError(f"The page is damaged: {error}.") from None
        self.content += chunk[:room]
        self.is_cut = self.is_cut or len(chunk) > room


def page_text(content: bytes, charset: str, is_html: bool) -> str | None:
    """The text by the charset named in the header or the page, else as a file's; None: binary."""
    if not charset and is_html:
        named = _META.search(content[:4_096])
        charset = named[1].decode("ascii") if named else ""
    if charset:
        try:
            name = codecs.lookup(charset).name
            if name not in _NO_CHARSET:
                return content.decode(name, "replace")
        except (LookupError, UnicodeError, ValueError):
            pass  # an unknown name says nothing
    found = decode(content)
    return None if found is None else found.text


async def markdown(page: str, address: str) -> str:
    """A page as Markdown, made by a process that does not outlive the call."""
    note = ""
    if len(page) > _MOST_HTML:
        note = f"\n\n[the page goes on: {len(page) - _MOST_HTML:,} more characters of HTML]"
        page = page[:_MOST_HTML]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_WORKER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        sent = f"{address}\n{page}".encode("utf-8", "replace")
        text, _ = await process.communicate(sent)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise ToolError("The page cannot be turned into text.")
    return text.decode("utf-8", "replace") + note

"""A text file's bytes as text with plain line ends, and back with every untouched byte the same."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from keen.core.errors import ToolError

_SAMPLE: Final = 8_192
_END: Final = re.compile("\r\n|\r|\n")
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NAMES: Final = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}
_ENDINGS: Final = {"\r\n": "CRLF", "\r": "CR"}
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"


@dataclass(frozen=True, slots=True)
class FileText:
    """A decoded file. In `text` every line ends with LF."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    ending: str = "\n"
    """The most frequent line end of the file."""
    endings: tuple[str, ...] | None = None
    """The end of each line where they are mixed; None: all are `ending`."""

    @property
    def traits(self) -> tuple[str, ...]:
        """What is unusual about the file, in words; nothing for UTF-8 with LF."""
        encoding = "" if self.encoding == "utf-8" else _NAMES.get(self.encoding, self.encoding)
        ending = "mixed" if self.endings is not None else _ENDINGS.get(self.ending, "")
        return tuple(
            part
            for part in (encoding.upper() if self.bom else encoding, _line_ends(ending))
            if part
        )

    def spliced(self, starts: Sequence[int], length: int, new: str) -> FileText:
        """The text with `new` in place of `length` characters at each of `starts`, ascending.

        All other line ends are kept; new ones are as those around them.
        """
        pieces, ends, position, line = list[str](), list[str](), 0, 0
        for start in starts:
            kept, removed = self.text[position:start], self.text[start : start + length]
            pieces += (kept, new)
            position = start + length
            if self.endings is None:
                continue
            first = line + kept.count("\n")
            near = self.endings[first] if first < len(self.endings) else self.endings[-1]
            ends += self.endings[line:first]
            ends += [near] * new.count("\n")
            line = first + removed.count("\n")
        text = "".join([*pieces, self.text[position:]])
        if self.endings is None:
            return replace(self, text=text)
        return replace(self, text=text, endings=(*ends, *self.endings[line:]))

    def encoded(self) -> bytes:
        """The file's bytes.

        Raises:
            ToolError: the file's encoding has no such character.
        """
        text = self.text
        if self.endings is not None:
            parts = text.split("\n")
            pairs = zip(parts, (*self.endings, ""), strict=True)
            text = "".join(part + ending for part, ending in pairs)
        elif self.ending != "\n":
            text = text.replace("\n", self.ending)
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            name = _NAMES.get(self.encoding, self.encoding)
            raise ToolError(
                f"The file is {name}, which has no {bad!r} (U+{ord(bad):04X}); nothing was changed."
            ) from None


def decode(content: bytes) -> FileText | None:
    """Strict UTF-8, or UTF-16/32 by its mark, else Windows-1252 or Latin-1; None: it is binary."""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            try:
                return _plain(content[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                break
    if b"\0" in content[:_SAMPLE]:
        return None
    try:
        return _plain(content.decode("utf-8"), "utf-8", b"")
    except UnicodeDecodeError:
        return _single_byte(content)


def plain_ends(text: str) -> str:
    """The text with LF for CRLF and CR."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def lines_of(text: str) -> list[str]:
    """The lines of a text with plain ends; a final line end starts no further line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _single_byte(content: bytes) -> FileText | None:
    sample = content[:_SAMPLE]
    if len(sample.translate(None, _CONTROLS)) < len(sample) * 95 // 100:
        return None
    try:
        return _plain(content.decode("cp1252"), "cp1252", b"")
    except UnicodeDecodeError:
        return _plain(content.decode("latin-1"), "latin-1", b"")


def _plain(text: str, encoding: str, bom: bytes) -> FileText:
    returns = text.count("\r")
    if not returns:
        return FileText(text, encoding, bom)
    feeds, pairs = text.count("\n"), text.count("\r\n")
    if returns == feeds == pairs:
        return FileText(plain_ends(text), encoding, bom, "\r\n")
    if not feeds:
        return FileText(plain_ends(text), encoding, bom, "\r")
    endings = tuple(_END.findall(text))
    counts = {"\n": feeds - pairs, "\r\n": pairs, "\r": returns - pairs}
    usual = max(counts, key=lambda ending: counts[ending])
    return FileText(plain_ends(text), encoding, bom, usual, endings)


def _line_ends(kind: str) -> str:
    return f"{kind} line ends" if kind else ""

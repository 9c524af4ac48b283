"""The render boundary: text from models, tools, files and servers, made harmless to a terminal.

Nothing is deleted silently: a character that could move the cursor, change the screen, reorder or
hide text is shown as a visible escape, so that what a person reads is what is there. Keys that keen
knows are masked.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from keen.secrets import masked

_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"  # bidi, zero width
    "\u2028\u2029\ufff9-\ufffb"  # separators and annotations
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, tags
)
_SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC with their end
)
LINK_SCHEMES: Final = frozenset({"http", "https", "mailto"})


def block(text: str) -> str:
    """Several lines, harmless: newlines and tabs stay, CRLF is LF, the rest is made visible."""
    text = masked(text).replace("\r\n", "\n")
    return _HARMFUL.sub(_visible, text) if _HARMFUL.search(text) else text


def line(text: str) -> str:
    """One line, harmless: line breaks and tabs are made visible too."""
    return block(text).replace("\n", "\\n").replace("\t", "\\t")


def plain(text: str) -> str:
    """As `block`, for command output: whole colour and cursor sequences are dropped first."""
    return block(_SEQUENCE.sub("", text))


def is_safe_link(address: str) -> bool:
    """True for an address that a terminal may be told to open on a click."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme.lower() in LINK_SCHEMES and _HARMFUL.search(address) is None


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the Unicode pictures of control characters
    if code == 0x7F:
        return "\u2421"
    return f"<U+{code:04X}>"

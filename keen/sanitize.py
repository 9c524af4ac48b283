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
_ANY_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI, also cut off
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"  # two characters, or alone at the end
)
_ERASE_LINE: Final = re.compile(r"(?:\x1b\[|\x9b)[02]?K")
_SILENT: Final = re.compile("[\x07\x0e\x0f\x7f-\x9f]")
INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef"
)
"""What no person sees, as a character class: directions, zero width, fillers, tags, half
characters, and variation selectors, which can spell any bytes. Joiners and those of emoji are not
in it."""
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


def printed(text: str) -> str:
    """What a terminal would have been left with: for a model, which copies what it reads.

    Sequences are gone, a line that was written over and over (a progress bar) is its last state,
    and a letter struck over is the last one. Nothing is masked and nothing made visible.
    """
    text = re.sub(r"\r+\n", "\n", text)
    if "\r" in text or "\b" in text:
        text = "\n".join(_last_state(one) for one in text.split("\n"))
    return _SILENT.sub("", _ANY_SEQUENCE.sub("", text))


def _last_state(written: str) -> str:
    """One line after each return of the carriage wrote over the beginning of it."""
    state = ""
    for part in written.split("\r"):
        clean = _struck_over(_ANY_SEQUENCE.sub("", part)) if "\b" in part else part
        clean = _ANY_SEQUENCE.sub("", clean)
        state = clean if _ERASE_LINE.search(part) else clean + state[len(clean) :]
    return state


def _struck_over(text: str) -> str:
    letters: list[str] = []
    for letter in text:
        if letter != "\b":
            letters.append(letter)
        elif letters:
            letters.pop()
    return "".join(letters)


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

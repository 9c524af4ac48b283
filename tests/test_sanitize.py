from __future__ import annotations

import pytest

from keen import sanitize

HOSTILE = {
    "clear screen": "\x1b[2J",
    "set title": "\x1b]0;pwned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "clipboard in tmux": "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
    "hyperlink": "\x1b]8;;file:///etc/passwd\x1b\\here\x1b]8;;\x1b\\",
    "C1 CSI": "\x9b2J",
    "C1 OSC": "\x9d0;x\x9c",
    "backspaces": "safe\x08\x08\x08\x08evil",
    "carriage return": "real\rfake",
    "bidi override": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "tag characters": "".join(chr(0xE0000 + ord(c)) for c in "hidden"),
    "zero width": "pass\u200bword",
    "line separator": "a\u2028b",
    "lone surrogate": "\ud800",
    "bell": "\x07",
    "NUL": "\x00",
    "DEL": "\x7f",
    "application mode": "\x1b[?1049h\x1b[?1003h",
}
ALLOWED = {"\n", "\t"}


def is_harmless(text: str) -> bool:
    return all(c in ALLOWED or c.isprintable() or c == "\u3000" for c in text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_that_moves_a_terminal_gets_through(text: str) -> None:
    for clean in (sanitize.block(text), sanitize.line(text), sanitize.plain(text)):
        assert is_harmless(clean), ascii(clean)


@pytest.mark.parametrize("text", ["plain", "ünï→漢字🎉", "a\n\tb", "👩‍👩‍👧 family", "é\u0301"])
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert sanitize.block(text) == text


def test_hidden_characters_become_visible_not_gone() -> None:
    assert sanitize.block("\u202e") == "<U+202E>"
    assert sanitize.block("\x1b[2J") == "␛[2J"
    assert sanitize.line("a\nb\tc") == "a\\nb\\tc"


def test_command_output_loses_whole_sequences() -> None:
    assert sanitize.plain("\x1b[31mred\x1b[0m \x1b]0;title\x07ok") == "red ok"


def test_windows_line_ends_are_lines() -> None:
    assert sanitize.block("a\r\nb") == "a\nb"


@pytest.mark.parametrize(
    ("address", "is_safe"),
    [
        ("https://example.org/x?y#z", True),
        ("HTTP://example.org", True),
        ("mailto:a@example.org", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("data:text/html,x", False),
        ("https://exam\u202eple.org", False),
        ("ssh://-oProxyCommand=x", False),
        ("https://[broken", False),
        ("relative/path", False),
    ],
)
def test_only_harmless_links_are_links(address: str, is_safe: bool) -> None:
    assert sanitize.is_safe_link(address) is is_safe

"""The terminal below the app: what Textual's driver leaves to chance, done here.

Bytes that are no UTF-8 are shown as such instead of ending the app, a paste of any size is one
event, Esc is told from a sequence without a long wait, and a terminal that has gone ends keen.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import sys
import termios
from typing import Final

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from keen.app.terminal_events import BackgroundTold, TerminalGone

_READ: Final = 64 * 1024
_PASTE: Final = "\x1b[200~"
_PASTED: Final = "\x1b[201~"
_BACKGROUND: Final = re.compile(
    r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})[^\x07\x1b]*(?:\x07|\x1b\\)"
)
_SPELLINGS: Final = {
    "\x1b\r": "\x1b[13;3u",  # Alt+Enter of terminals without the kitty protocol
    "\x1b[27;2;13~": "\x1b[13;2u",  # Shift+Enter of xterm's modifyOtherKeys
    "\x1b[27;3;13~": "\x1b[13;3u",
    "\x1b[27;5;13~": "\x1b[13;5u",
}
"""Keys as some terminals send them, and as Textual's parser tells them apart from plain Enter."""
_TICK_SECONDS: Final = 0.1
_ESCAPE_TICK_SECONDS: Final = 0.02
"""How often to look while a lone Esc may be the start of a sequence."""


class Pastes:
    """Takes bracketed pastes out of what a terminal sends, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._held = ""
        self._parts: list[str] | None = None
        """The paste that is being received."""

    def split(self, text: str) -> list[tuple[bool, str]]:
        """Pieces in order: (True, a whole paste) or (False, keys)."""
        text, self._held = self._held + text, ""
        found: list[tuple[bool, str]] = []
        while text:
            marker = _PASTE if self._parts is None else _PASTED
            before, hit, after = text.partition(marker)
            if not hit:
                before = self._without_start_of(marker, before)
            if self._parts is not None:
                self._parts.append(before)
            elif before:
                found.append((False, before))
            if hit and self._parts is None:
                self._parts = []
            elif hit and self._parts is not None:
                found.append((True, "".join(self._parts)))
                self._parts = None
            text = after
        return found

    def held(self) -> str:
        """What looked like the start of a marker and was none."""
        if self._parts is not None:
            return ""
        text, self._held = self._held, ""
        return text

    def _without_start_of(self, marker: str, text: str) -> str:
        """Hold back the end of the text when it may be the first half of a marker.

        A lone Esc is a key as well: outside a paste it is not held back. A marker that was cut
        right behind its Esc is thus left to the parser, which is slow at pastes but knows them.
        """
        least = 1 if self._parts is not None else 2
        for size in range(min(len(marker) - 1, len(text)), least - 1, -1):
            if text.endswith(marker[:size]):
                self._held = text[-size:]
                return text[:-size]
        return text


def respelled(text: str) -> str:
    """Keys in the spelling that the parser knows."""
    if "\x1b" in text:
        for spelling, known in _SPELLINGS.items():
            text = text.replace(spelling, known)
    return text


def told_background(text: str) -> tuple[str, bool | None]:
    """The text without an answer about the background, and whether that is light."""
    match = _BACKGROUND.search(text)
    if match is None:
        return text, None
    # Each part has one to four hexadecimal digits of its own scale.
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue
    return text[: match.start()] + text[match.end() :], brightness > 0.5


def _waiting(descriptor: int) -> int:
    """Bytes that a terminal holds for its reader; 0 where it does not say."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class TerminalDriver(LinuxDriver):
    """Textual's driver for POSIX terminals, with a reader and a writer that cannot get stuck."""

    _is_gone = False
    _typed_ahead = 0
    """Bytes typed before keen had the terminal, in which Enter has become a line feed."""

    def ask_background(self) -> None:
        """Ask the terminal for its background colour; BackgroundTold is the answer, if any."""
        self.write("\x1b]11;?\x1b\\")
        self.flush()

    def run_input_thread(self) -> None:
        # The terminal has just become keen's: all that waits there was typed before.
        self._typed_ahead = _waiting(self.fileno)
        parser = XTermParser(self._debug)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pastes = Pastes()
        wait = _TICK_SECONDS
        while not self.exit_event.is_set():
            ready, _, _ = select.select([self.fileno], [], [], wait)
            if not ready:
                self._feed(parser, pastes.held())
                wait = _TICK_SECONDS
                continue
            data = self._received()
            if not data:
                self._lost()
                return
            text, is_light = told_background(decoder.decode(data))
            if is_light is not None:
                self.process_message(BackgroundTold(is_light))
            for is_paste, piece in pastes.split(text):
                if is_paste:
                    self.process_message(events.Paste(piece.replace("\x00", "")))
                else:
                    self._feed(parser, respelled(piece))
            wait = _ESCAPE_TICK_SECONDS if "\x1b" in text[-16:] else _TICK_SECONDS

    def _feed(self, parser: XTermParser, text: str) -> None:
        # An empty text would tell the parser that the end has come.
        for message in parser.feed(text) if text else ():
            self.process_message(message)
        for message in parser.tick():
            self.process_message(message)

    def _received(self) -> bytes:
        try:
            data = os.read(self.fileno, _READ)
        except OSError:  # EIO: the other side of the pseudo-terminal was closed
            return b""
        early, self._typed_ahead = self._typed_ahead, max(0, self._typed_ahead - len(data))
        return data[:early].replace(b"\n", b"\r") + data[early:]

    def _lost(self) -> None:
        self._is_gone = True
        self.process_message(TerminalGone())

    def write(self, data: str) -> None:
        # A writer that failed never empties its queue, and a full queue would stop the loop.
        writer = self._writer_thread
        if not self._is_gone and writer is not None and writer.is_alive():
            super().write(data)

    def close(self) -> None:
        writer = self._writer_thread
        if writer is not None and writer.is_alive():
            super().close()

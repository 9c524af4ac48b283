"""keen's own log: a private file, bounded, never on stdout or stderr."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from keen._files import make_private_directory
from keen.secrets import masked

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_BYTES: Final = 5_000_000


def configure(directory: Path, *, is_debugging: bool) -> None:
    """Log to keen.log in `directory`; a directory that cannot be written means no log.

    Warnings of libraries go there too: on stderr they would bring a server's words to the terminal
    as they came. The file is started anew when it has grown too large; the one before is kept
    beside it.
    """
    own = logging.getLogger("keen")
    own.setLevel(logging.DEBUG if is_debugging else logging.WARNING)
    own.propagate = False
    handler = _handler(directory)
    for logger in (own, logging.getLogger()):
        ours = (_PrivateFile, logging.NullHandler)
        for old in [one for one in logger.handlers if isinstance(one, ours)]:
            logger.removeHandler(old)
            old.close()
        logger.addHandler(handler)
    logging.captureWarnings(True)


def _handler(directory: Path) -> logging.Handler:
    try:
        handler = _PrivateFile(_ready(directory), delay=True, encoding="utf-8")
    except OSError:
        return logging.NullHandler()
    handler.setFormatter(_Masked(_FORMAT))
    return handler


class _Masked(logging.Formatter):
    """No key stands in a line, not in a traceback either."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


class _PrivateFile(logging.FileHandler):
    """Opens its file for the owner alone, and gives up silently where it cannot be written."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """A directory that is gone by now, or was never writable, must not end what logs."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not print tracebacks into the person's screen."""


def _ready(directory: Path) -> Path:
    """The path of the log, its directory made, an old one that is too large put aside."""
    make_private_directory(directory)
    path = directory / "keen.log"
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.replace(directory / "keen.old.log")
    return path

"""keen's own log: a private file, bounded, never on stdout or stderr."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from pathlib import Path
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_BYTES: Final = 5_000_000


def configure(directory: Path, *, is_debugging: bool) -> None:
    """Log to keen.log in `directory`; a directory that cannot be written means no log.

    The file is started anew when it has grown too large; the one before is kept beside it.
    """
    logger = logging.getLogger("keen")
    logger.setLevel(logging.DEBUG if is_debugging else logging.WARNING)
    logger.propagate = False
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    try:
        handler = _PrivateFile(_ready(directory), delay=True, encoding="utf-8")
    except OSError:
        logger.addHandler(logging.NullHandler())
        return
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)


class _PrivateFile(logging.FileHandler):
    """Opens its file for the owner alone, and gives up silently where it cannot be written."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not print tracebacks into the person's screen."""


def _ready(directory: Path) -> Path:
    """The path of the log, its directory made, an old one that is too large put aside."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "keen.log"
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.replace(directory / "keen.old.log")
    return path

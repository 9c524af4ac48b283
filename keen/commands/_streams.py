"""The three standard streams as a start found them: closed, full, or in another encoding."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import cast


def hold() -> None:
    """Occupy the descriptors 0 to 2 that are closed, and let any text be printed.

    A file that is opened later (a session, a socket) would else get the number of a closed
    stream, and what is printed would land in it. Writing to a held stdout fails, as it should.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
    stdout = cast("TextIOWrapper | None", sys.stdout)
    if stdout is None:
        stdout = sys.stdout = os.fdopen(1, "w", closefd=False)
    # What is read by programs is UTF-8 whatever the locale; a terminal gets what it can show.
    stdout.reconfigure(encoding=None if stdout.isatty() else "utf-8", errors="replace")


def settled(code: int) -> int:
    """Write what is still buffered; the exit code, 1 in place of 0 where that fails.

    Python would try again while it leaves, complain in its own words and exit with 120.
    """
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if number == 1:
                code = code or 1
                _tell(error)
        except AttributeError:  # None: it was closed at the start
            continue
    return code


def _tell(error: OSError) -> None:
    if error.errno != errno.EPIPE:
        from keen.commands.saying import err

        err(f"keen: stdout cannot be written: {error.strerror}")

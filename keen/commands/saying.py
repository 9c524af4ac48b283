"""What the commands print: harmless to a terminal, without keys, never a reason to stop."""

from __future__ import annotations

import sys

from keen import sanitize
from keen.core.errors import KeenError


def out(text: str) -> None:
    """Lines on stdout. Raises: BrokenPipeError when the reader is gone."""
    print(sanitize.block(text))


def complain(who: str, error: KeenError) -> None:
    """An error on stderr, with its notes: the usage, where it was wrong use."""
    err("\n".join([f"{who}: {error}", *getattr(error, "__notes__", ())]))


def err(text: str) -> None:
    """Lines on stderr; a closed one is no reason to stop."""
    try:
        print(sanitize.block(text), file=sys.stderr, flush=True)
    except OSError:
        return

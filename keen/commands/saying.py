"""What the commands print: harmless to a terminal, without keys, never a reason to stop."""

from __future__ import annotations

import sys

from keen import sanitize


def out(text: str) -> None:
    """Lines on stdout. Raises: BrokenPipeError when the reader is gone."""
    print(sanitize.block(text))


def err(text: str) -> None:
    """Lines on stderr; a closed one is no reason to stop."""
    try:
        print(sanitize.block(text), file=sys.stderr, flush=True)
    except OSError:
        return

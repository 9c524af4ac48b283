"""The one choke point of size: of what is too long, head and tail stay, the rest goes to a file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from keen.secrets import masked

RESULT_BYTES: Final = 65_536
"""What the model sees of one tool result at most."""


def bounded(text: str, limit: int, scratch: Path, stem: str) -> str:
    """`text` if its UTF-8 fits in `limit` bytes; else head and tail and where the whole of it lies.

    Blocking: it may write a file. Where that fails, the text says so and only the middle is lost.
    """
    if len(text) <= limit // 4:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    try:
        where = f"whole text in {_spill(masked(text).encode('utf-8', 'replace'), scratch, stem)}"
    except OSError as error:
        where = f"the whole text could not be kept: {error.strerror}"
    head, tail = clipped(data, limit - 300)
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n\n[… {left_out:,} bytes left out; {where} …]\n\n{tail}"


def clipped(data: bytes, limit: int) -> tuple[str, str]:
    """The first two thirds and the last third of `limit` bytes, cut at character boundaries."""
    first = limit * 2 // 3
    head = data[:first].decode("utf-8", "ignore")
    tail = data[-(limit - first) :].decode("utf-8", "ignore")
    return head, tail


def _spill(data: bytes, scratch: Path, stem: str) -> Path:
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = scratch / f"{stem}-{secrets.token_hex(4)}.txt"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path

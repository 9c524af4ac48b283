"""What a server says beside the protocol: kept in a private file of bounded size."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from keen._files import make_private_directory
from keen.extend._mcp_text import visible
from keen.secrets import masked

_MOST_BYTES: Final = 1_000_000
_TAIL: Final = 1_000


class ServerLog:
    """The log of one server; a full file moves aside once, so that two are kept at most."""

    def __init__(self, directory: Path, part: str) -> None:
        self.path = directory / f"mcp-{part}.log"
        self._tail = ""
        self._size: int | None = None

    @property
    def last_words(self) -> str:
        """The end of what was said, for an error; empty when nothing was."""
        text = visible(re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", self._tail))[0].strip()
        return "\n".join(text.splitlines()[-5:])[-500:]

    def write(self, data: bytes) -> None:
        """Keep a piece; a place that cannot be written keeps nothing. Blocking."""
        text = masked(data.decode("utf-8", "replace"))
        self._tail = (self._tail + text)[-_TAIL:]
        with suppress(OSError):
            self._append(text.encode())

    def _append(self, data: bytes) -> None:
        make_private_directory(self.path.parent)
        if self._size is None:
            self._size = self.path.stat().st_size if self.path.exists() else 0
        if self._size + len(data) > _MOST_BYTES:
            os.replace(self.path, self.path.with_suffix(".old.log"))
            self._size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.path, flags, 0o600)
        try:
            self._size += os.write(descriptor, data)
        finally:
            os.close(descriptor)

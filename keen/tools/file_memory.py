"""What the model has seen of each file in this session, so that nobody's change is overwritten."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as the model last read or wrote it; `digest` is empty when it was too large."""

    mtime_ns: int
    size: int
    digest: bytes = b""


@dataclass(slots=True)
class FileMemory:
    """One for a session, shared by the file tools; keys are real paths."""

    _seen: dict[Path, Seen] = field(default_factory=dict[Path, Seen])

    def note(self, path: Path, status: os.stat_result, content: bytes | None) -> None:
        """Remember the file as read or written; `content` is None when only a part was read."""
        self._seen[path] = Seen(status.st_mtime_ns, status.st_size, _digest(content))

    def is_stale(self, path: Path, status: os.stat_result, content: bytes) -> bool:
        """True when the file was seen and is different now; a touched file is not."""
        seen = self._seen.get(path)
        if seen is None:
            return False
        if seen.digest:
            return seen.digest != _digest(content)
        return (seen.mtime_ns, seen.size) != (status.st_mtime_ns, status.st_size)

    def clear(self) -> None:
        """Forget everything, as after a rewind."""
        self._seen.clear()


@dataclass(slots=True)
class Judged:
    """What stood in a file when a person was shown the change to it."""

    _digest: bytes | None = None

    def remember(self, content: bytes | None) -> None:
        self._digest = _digest(content)

    def is_outdated(self, content: bytes | None) -> bool:
        """True when the person was shown another state of the file than this one."""
        return self._digest is not None and self._digest != _digest(content)


def _digest(content: bytes | None) -> bytes:
    return b"" if content is None else hashlib.sha256(content).digest()

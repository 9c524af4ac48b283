"""The file operations of a session that can fail, and how whole writes are made of them."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

_CHUNK: Final = 1024 * 1024
_INTERRUPTIONS: Final = 1_000

T = TypeVar("T")

if sys.platform == "darwin":
    import fcntl

    def durable(descriptor: int) -> None:
        """Make what was written survive a power loss."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
else:
    durable: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class FileLayer:
    """The operations that can fail, so that a test can let each of them fail."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, bytes], int] = os.write
    sync: Callable[[int], None] = durable
    truncate: Callable[[int, int], None] = os.ftruncate
    rename: Callable[[Path, Path], None] = os.replace


def write_all(files: FileLayer, descriptor: int, data: bytes) -> None:
    """Write in one call; a short count is cut off and tried once more. Raises: OSError."""
    start = os.fstat(descriptor).st_size
    for _ in range(2):
        if uninterrupted(lambda: files.write(descriptor, data)) == len(data):
            return
        files.truncate(descriptor, start)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def copy(files: FileLayer, source: int, target: Path, start: int, end: int) -> None:
    """Bytes of an open file, durably in a new one. Raises: OSError, and leaves none."""
    descriptor = files.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while start < end and (chunk := os.pread(source, min(_CHUNK, end - start), start)):
            write_all(files, descriptor, chunk)
            start += len(chunk)
        uninterrupted(lambda: files.sync(descriptor))
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        raise
    finally:
        os.close(descriptor)


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, readable by the owner alone. Raises: OSError."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)


def uninterrupted(operation: Callable[[], T]) -> T:
    """The operation's result, tried again when a signal came first. Raises: OSError."""
    for _ in range(_INTERRUPTIONS):
        with contextlib.suppress(InterruptedError):
            return operation()
    return operation()


def sync_directory(directory: Path) -> None:
    """Make a new name survive a power loss, where directories can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cause(error: OSError) -> str:
    """What the operating system says."""
    return error.strerror or type(error).__name__

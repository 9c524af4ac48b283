"""Private files: written whole or not at all, readable by their owner only, locked where shared."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from keen.core.errors import ConfigError
from keen.core.messages import JsonObject

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_SECONDS: Final = 20.0
"""How long a lock is waited for: longer than any holder keeps it, a token refresh included."""


def make_private_directory(path: Path) -> None:
    """Create `path` and its missing parents, 0700 each; existing ones keep their mode."""
    missing: list[Path] = []
    current = path
    while not current.is_dir() and current != current.parent:
        missing.append(current)
        current = current.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def write_private(path: Path, text: str) -> None:
    """Replace the file's content in one step, 0600. A symbolic link is followed and stays.

    Raises: ConfigError when the place cannot be written.
    """
    try:
        target = path.resolve()
        make_private_directory(target.parent)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(draft, flags, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"Cannot write {path}: {reason(error)}.{_advice(error)}") from error


def read_json(path: Path) -> JsonObject:
    """The object stored in a file; empty when there is none.

    Raises: ConfigError when the file is there but cannot be read as a JSON object.
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}. Mend or delete it.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object. Mend or delete it.")
    return cast("JsonObject", value)


def update_json(path: Path, change: Callable[[JsonObject], None]) -> None:
    """Read, change and write a JSON file under its lock; keys that `change` leaves alone stay."""
    with locked(path):
        value = read_json(path)
        change(value)
        write_private(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """Hold the lock that belongs to `path` against other threads and processes.

    Raises: ConfigError when it stays taken for `LOCK_SECONDS` or cannot be made.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    descriptor = _open_lock(path)
    try:
        while not _try_lock(descriptor):
            _give_up_after(deadline, path)
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def locked_async(path: Path) -> AsyncGenerator[None, None]:
    """As `locked`, without holding up the event loop. Raises: ConfigError as `locked`."""
    deadline = time.monotonic() + LOCK_SECONDS
    descriptor = await asyncio.to_thread(_open_lock, path)
    try:
        # A lock between processes announces nothing, so it has to be asked for again and again.
        while not _try_lock(descriptor):
            _give_up_after(deadline, path)
            await asyncio.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def reason(error: BaseException) -> str:
    """The operating system's words for a failure, without its number and path."""
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


def _advice(error: BaseException) -> str:
    """What helps where a directory may not be written; a full disk needs something else."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return " Set KEEN_HOME to a directory that can be written."
    return ""


def _open_lock(path: Path) -> int:
    try:
        target = path.resolve()
        make_private_directory(target.parent)
        lock = target.with_name(f"{target.name}.lock")
        return os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"Cannot lock {path}: {reason(error)}.{_advice(error)}") from error


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _give_up_after(deadline: float, path: Path) -> None:
    if time.monotonic() >= deadline:
        raise ConfigError(f"Another keen keeps {path} locked. Close it and try again.")

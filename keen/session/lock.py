"""The writer's lock of a session: held by the kernel, so that a dead process never keeps it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNSUPPORTED: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
_TRIES: Final = 10
_PAUSE: Final = 0.02
"""Seconds between tries: who only asks whether the lock is held has it for a moment."""

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # past the text, which others may read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Locked(Exception):
    """Another process holds the lock; the message says which, as far as it is known."""


@dataclass(slots=True)
class Lock:
    """An acquired lock file; where the file system cannot lock, one that keeps nobody out."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Give the lock up and remove its file. Idempotent."""
        if self.descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self.descriptor)
        self.descriptor = -1


def acquire(path: Path) -> Lock:
    """The lock of `path`, for this process alone and not for its children.

    Raises:
        Locked: another process has it.
        OSError: the lock file cannot be made.
    """
    holder = "another process"
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # close-on-exec (PEP 446)
        try:
            _try_lock(descriptor)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return Lock(path, descriptor)
            holder = _holder(path)
            os.close(descriptor)
            continue
        if _is_current(path, descriptor):
            _describe(descriptor)
            return Lock(path, descriptor)
        os.close(descriptor)  # its holder removed the file just now: try the new one
    raise Locked(holder)


def is_held(path: Path) -> bool:
    """True when some process holds the lock of `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        _try_lock(descriptor)
    except OSError as error:
        return error.errno not in _UNSUPPORTED
    finally:
        os.close(descriptor)
    return False


def _is_current(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _describe(descriptor: int) -> None:
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot_id": _boot_id(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with contextlib.suppress(OSError):  # only a courtesy: the kernel decides
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(owner).encode())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _holder(path: Path) -> str:
    try:
        owner = json.loads(path.read_bytes()[:4096])
        return f"process {int(owner['pid'])} on {str(owner['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"

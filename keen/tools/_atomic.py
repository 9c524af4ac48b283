"""Files opened, and replaced as a whole, by directory descriptors that follow no link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.errors import ToolError
from keen.tools.guard import is_system, printable

MOST_BYTES: Final = 25 * 1024 * 1024
"""The largest file that is read whole, edited or written."""

_DIRECTORY: Final = (
    getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
    | os.O_DIRECTORY
    | os.O_NOFOLLOW
    | os.O_CLOEXEC
)
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NOT_BESIDE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV})
"""No file can be put beside this one, or over it (a bind mount): it is rewritten in place."""

_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}

_ADVICE: Final = {
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EDQUOT: "the disk quota is used up; nothing was changed",
    errno.EFBIG: "larger than files may be here; nothing was changed",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOTDIR: "a part of the path is a file, or was replaced by a link after it was judged",
    errno.ELOOP: "a part of the path was replaced by a link after it was judged",
}


@dataclass(frozen=True, slots=True)
class Current:
    """A regular file as it stood when it was read."""

    content: bytes
    status: os.stat_result


def tool_error(error: OSError, path: Path) -> ToolError:
    """What went wrong with `path`, for the model."""
    number = error.errno or 0
    return ToolError(f"{printable(str(path))}: {_ADVICE.get(number) or error.strerror or error}.")


@contextlib.contextmanager
def directory(path: Path, *, create: bool = False) -> Generator[int, None, None]:
    """A descriptor of the directory at `path`, every part opened without following a link.

    `path` is real; a part that has become a link since is refused. `create` makes what is missing.
    """
    current = os.open("/", _DIRECTORY)
    try:
        for name in path.parts[1:]:
            try:
                following = os.open(name, _DIRECTORY, dir_fd=current)
            except FileNotFoundError:
                if not create:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=current)
                following = os.open(name, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


@contextlib.contextmanager
def regular_file(path: Path) -> Generator[tuple[int, os.stat_result], None, None]:
    """A descriptor to read the regular file at the real `path`, and its status.

    Anything else is refused before it is opened: opening a pipe or a device blocks or acts.

    Raises:
        ToolError: it is no regular file.
        OSError: it cannot be opened.
    """
    with directory(path.parent) as parent:
        status = os.stat(path.name or ".", dir_fd=parent, follow_symlinks=False)
        _check_regular(status, path)
        descriptor = os.open(path.name, _READ, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        _check_regular(status, path)
        yield descriptor, status
    finally:
        os.close(descriptor)


def read_current(path: Path) -> Current | None:
    """The file at the real `path`, whole, or None where there is none.

    Raises:
        ToolError: no regular file, larger than `MOST_BYTES`, or not readable.
    """
    try:
        with regular_file(path) as (descriptor, status):
            if status.st_size > MOST_BYTES:
                raise ToolError(
                    f"{printable(str(path))} has {status.st_size:,} bytes; files up to 25 MB can"
                    " be changed here. Use a command for larger ones."
                )
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
            return Current(content, os.fstat(descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise tool_error(error, path) from error


def replace(path: Path, content: bytes, expected: os.stat_result | None) -> os.stat_result:
    """Give the file at the real `path` new content, all of it or nothing. Mode and owner stay.

    `expected` is the status of what is replaced, None where no file was; parents are made.
    Hard links are cut: the other names keep the old content.

    Raises:
        ToolError: it is not what was expected any more, read-only, or cannot be written.
    """
    if is_system(path):
        raise ToolError(f"{path}: keen writes nothing inside /proc, /sys and /dev.")
    try:
        with directory(path.parent, create=expected is None) as parent:
            if expected is not None:
                _check_writable(path, parent, expected)
            try:
                return _replace_by_rename(path, parent, content, expected)
            except OSError as error:
                if expected is None or error.errno not in _NOT_BESIDE:
                    raise
            return _rewrite(path, parent, content, expected)
    except OSError as error:
        raise tool_error(error, path) from error


def check_replaceable(path: Path, expected: os.stat_result | None) -> None:
    """Refuse what `replace` would refuse, and make the parents it would make.

    For one who writes by the path alone and follows links: call it right before.

    Raises: ToolError.
    """
    if is_system(path):
        raise ToolError(f"{path}: keen writes nothing inside /proc, /sys and /dev.")
    try:
        with directory(path.parent, create=expected is None) as parent:
            if expected is not None:
                _check_writable(path, parent, expected)
            _check_unchanged(path, parent, expected)
    except OSError as error:
        raise tool_error(error, path) from error


def _check_regular(status: os.stat_result, path: Path) -> None:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind == "a directory":
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if kind is not None:
        raise ToolError(f"{printable(str(path))} is {kind}; only regular files can be used.")
    if is_system(path):
        raise ToolError(f"{path}: keen reads nothing inside /proc, /sys and /dev.")


def _check_writable(path: Path, parent: int, expected: os.stat_result) -> None:
    if not expected.st_mode & 0o222 or not os.access(path.name, os.W_OK, dir_fd=parent):
        mode = stat.S_IMODE(expected.st_mode)
        raise ToolError(
            f"{printable(str(path))} is read-only (mode {mode:04o})."
            " Ask the user before making it writable."
        )


def _check_unchanged(path: Path, parent: int, expected: os.stat_result | None) -> None:
    try:
        now = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if now is None or expected is None:
        same = now is expected
    else:
        same = _identity(now) == _identity(expected)
    if not same:
        raise ToolError(
            f"{printable(str(path))} was changed by someone else just now; nothing was written."
            " Read it again."
        )


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _replace_by_rename(
    path: Path, parent: int, content: bytes, expected: os.stat_result | None
) -> os.stat_result:
    name = f".keen-{secrets.token_hex(8)}.tmp"
    mode = 0o600 if expected is not None else 0o666  # the kernel applies the umask
    descriptor = os.open(name, _CREATE, mode, dir_fd=parent)
    try:
        _write_all(descriptor, content)
        if expected is not None:
            _take_over(descriptor, path, parent, expected)
        os.fsync(descriptor)
        _check_unchanged(path, parent, expected)
        os.rename(name, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        status = os.fstat(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)
    _sync_directory(parent)
    return status


def _take_over(descriptor: int, path: Path, parent: int, old: os.stat_result) -> None:
    """Owner, attributes and mode of the old file. EPERM where the owner cannot be kept."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            source = os.open(path.name, _READ, dir_fd=parent)
            try:
                for attribute in os.listxattr(source):
                    with contextlib.suppress(OSError):
                        os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
            finally:
                os.close(source)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _rewrite(path: Path, parent: int, content: bytes, expected: os.stat_result) -> os.stat_result:
    """Rewrite in place, where no rename is possible; the old bytes are put back on failure."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path.name, flags, dir_fd=parent)
    try:
        if _identity(os.fstat(descriptor)) != _identity(expected):
            _check_unchanged(path, parent, expected)
        with open(descriptor, "rb", closefd=False) as file:
            old = file.read()
        try:
            _overwrite(descriptor, content)
        except OSError:
            _overwrite(descriptor, old)
            raise
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, content: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, content)
    os.ftruncate(descriptor, len(content))
    os.fsync(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_directory(parent: int) -> None:
    """The rename itself on disk; not every file system has this, and O_PATH descriptors cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Landlock: the files a command may read and write, where bubblewrap cannot run.

Also the program that puts it on and becomes the command, run by path with `python -I -S`: one
argument of JSON, {"read": [paths], "write": [paths]}, then the command's words. Landlock only ever
adds up what is allowed, so nothing inside a writable directory can be protected or hidden.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys

_CREATE = 444
_ADD_RULE = 445
_RESTRICT = 446
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_PATH_ONLY = getattr(os, "O_PATH", 0)

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1, 2, 4, 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_CHANGE = sum(1 << bit for bit in range(4, 13)) | _WRITE_FILE
"""Write, remove and make files, directories, links, sockets and devices."""
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_FAULT = 97
"""The exit code when the bounds could not be put on; the command did not run then."""


def version() -> int:
    """The version of Landlock that the kernel speaks; 0 for none."""
    if sys.platform != "linux":
        return 0
    found = _system().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(0, int(found))


def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return result


def restrict(read: list[str], write: list[str]) -> None:
    """Bind this process and its children for ever. Directories count with all below them.

    Raises: OSError when the kernel refuses.
    """
    system = _system()
    speaks = version()
    change = _CHANGE
    if speaks >= 2:
        change |= _REFER
    if speaks >= 3:
        change |= _TRUNCATE
    handled = change | _EXECUTE | _READ_FILE | _READ_DIRECTORY
    rules = struct.pack("=Q", handled)
    made = system.syscall(_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    ruleset = _checked(int(made), "landlock_create_ruleset")
    _allow(system, ruleset, "/", _READ_DIRECTORY)
    for path in read:
        _allow(system, ruleset, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    for path in write:
        _allow(system, ruleset, path, handled)
    zero = [ctypes.c_ulong(0)] * 3
    _checked(int(system.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), *zero)), "prctl")
    _checked(int(system.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0))), "landlock_restrict_self")
    os.close(ruleset)


def _allow(system: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, _PATH_ONLY | os.O_CLOEXEC)
    except OSError:
        return  # gone since it was listed
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        rule = struct.pack("=Qi", rights, place)
        flags = ctypes.c_uint32(0)
        added = system.syscall(_ADD_RULE, ruleset, ctypes.c_int(_PATH_BENEATH), rule, flags)
        _checked(int(added), path)
    finally:
        os.close(place)


def _main() -> None:
    rules = json.loads(sys.argv[1])
    try:
        restrict(rules["read"], rules["write"])
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"keen: the command was not run: {error}", file=sys.stderr)
        sys.exit(_FAULT)


if __name__ == "__main__":
    _main()

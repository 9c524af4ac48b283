"""Searches files for a pattern, as a process of its own: a pattern that explodes can be killed.

Run by path with `python -I -S`. stdin: the pattern, the most lines wanted of a file (0: all), and
the paths, each ended by NUL. stdout: path, NUL, line number, colon, the line's beginning, LF.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from typing import BinaryIO

_MOST_BYTES = 25 * 1024 * 1024
_MOST_WIDTH = 2_000
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def _content(path: bytes) -> str:
    """The text of a regular file; empty for all else: binary files, and links, as ripgrep does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return ""
        try:
            content = file.read(_MOST_BYTES)
        except OSError:
            return ""
    encoding = _UTF16.get(content[:2])
    if encoding is not None:
        return content[2:].decode(encoding, "replace")
    if b"\0" in content:
        return ""
    return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _matches(expression: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.removesuffix("\r")
        if expression.search(bare):
            yield number, bare[:_MOST_WIDTH]


def _search(expression: re.Pattern[str], most: int, paths: list[bytes], out: BinaryIO) -> None:
    for path in paths:
        text = _content(path)
        if not text:
            continue
        for count, (number, line) in enumerate(_matches(expression, text.removesuffix("\n")), 1):
            out.write(path + b"\0%d:" % number + line.encode("utf-8", "replace") + b"\n")
            if count == most:
                break
        out.flush()


def main() -> int:
    """Exit code 2 and a message when the pattern is wrong."""
    warnings.simplefilter("ignore")
    pattern, most, *paths = sys.stdin.buffer.read().split(b"\0")
    try:
        expression = re.compile(pattern.decode())
    except (re.error, RecursionError, OverflowError) as error:
        print(error, file=sys.stderr)
        return 2
    _search(expression, int(most), paths[:-1], sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())

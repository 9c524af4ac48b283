"""Text that people and projects wrote for models: read within bounds, with nothing hidden in it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from keen.sanitize import INVISIBLE

_HIDDEN: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}]")
"""Controls and what is invisible: a model reads what no person sees."""


def visible(text: str) -> tuple[str, int]:
    """`text` without its invisible characters, and how many there were."""
    return _HIDDEN.subn("", text)


def one_line(text: str) -> str:
    """`text` on one line, without invisible characters."""
    return " ".join(visible(text)[0].split())


def beginning(path: Path, most: int, *, boundary: Path | None = None) -> tuple[str, bool]:
    """At most `most` bytes of a regular file as text, and whether there is more. Blocking.

    `boundary`: a real path that holds the file also behind its symlinks.

    Raises: OSError when the file is none, cannot be read or leaves the boundary.
    """
    if boundary is not None and not is_inside(path, boundary):
        raise OSError("it leads out of the project")
    # A pipe would be waited for until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    return data[:most].decode("utf-8", "replace").removeprefix("\ufeff"), len(data) > most


def is_inside(path: Path, boundary: Path) -> bool:
    """True when `path` lies inside the real path `boundary` also behind its symlinks."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(boundary)
    except (OSError, ValueError):
        return False

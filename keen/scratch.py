"""Where a session keeps what was too long for the model: private, and not for ever."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from keen._files import make_private_directory

_KEPT_SECONDS: Final = 7 * 24 * 3_600


def directory(cache: Path, name: str) -> Path:
    """The scratch directory of a session, made private; among the temporary files if it must.

    Directories nobody touched for a week are removed on the way. Blocking.
    """
    parent = cache / "scratch"
    try:
        make_private_directory(parent)
        _sweep(parent)
        place = parent / name
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return Path(os.path.realpath(tempfile.mkdtemp(prefix="keen-")))
    return Path(os.path.realpath(place))


def _sweep(parent: Path) -> None:
    oldest = time.time() - _KEPT_SECONDS
    with os.scandir(parent) as entries:
        old = [
            entry.path
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_mtime < oldest
        ]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)

"""Opens a page in the person's browser, never with a program of the project's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from keen import sanitize, trust

_OPENERS: Final = (
    ("xdg-open",), ("gio", "open"), ("wslview",), ("sensible-browser",), ("x-www-browser",),
    ("firefox",), ("google-chrome",), ("chromium",),
)  # fmt: skip
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
_SECONDS: Final = 5.0


def open_page(address: str, cwd: Path, environment: Mapping[str, str]) -> bool:
    """Start the browser of a desktop; False where there is none or the address is no https page.

    A browser for the terminal is never started: keen itself has the terminal. Blocking.
    """
    if not sanitize.is_safe_link(address) or urlsplit(address).scheme != "https":
        return False
    path = foreign_path(cwd, environment)
    command = _opener(path, trust.project_root(cwd), environment)
    if not command:
        return False
    # The shell ends at once, so that the browser is nobody's child and waits for nobody.
    line = ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 &', "sh", *command, address]
    try:
        done = subprocess.run(
            line,
            cwd=os.sep,
            env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def foreign_path(cwd: Path, environment: Mapping[str, str]) -> str:
    """PATH without what is relative and what lies in the project."""
    root = trust.project_root(cwd)

    def is_foreign(entry: str) -> bool:
        return os.path.isabs(entry) and not Path(os.path.realpath(entry)).is_relative_to(root)

    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(filter(is_foreign, entries))


def _opener(path: str, root: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("/usr/bin/open",)
    if not any(environment.get(name) for name in _DISPLAYS):
        return ()
    wanted = environment.get("BROWSER", "")
    named = ((wanted,),) if wanted and os.sep not in wanted and " " not in wanted else ()
    for name, *rest in (*named, *_OPENERS):
        program = shutil.which(name, path=path)
        # A link into the project is the project's program, wherever it stands.
        if program is not None and not Path(os.path.realpath(program)).is_relative_to(root):
            return (program, *rest)
    return ()

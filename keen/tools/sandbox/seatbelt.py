"""The profile of macOS' sandbox-exec for given confines.

Written from the documented language and tested as text; it has not run on a Mac yet. The self-test
at start decides there whether it holds; where it does not, commands ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from keen.tools.sandbox.confines import Confines

PROGRAM: Final = "/usr/bin/sandbox-exec"

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")
_SERVICES: Final = (
    "com.apple.securityd", "com.apple.SecurityServer", "com.apple.securityd.xpc",
    "com.apple.pasteboard.1", "com.apple.coreservices.launchservicesd",
    "com.apple.coreservices.quarantine-resolver", "com.apple.lsd.mapdb",
)  # fmt: skip
"""Keychain, clipboard, and what starts programs outside the sandbox."""


def command_line(confines: Confines, argv: Iterable[str]) -> list[str]:
    """sandbox-exec with its profile in front of `argv`."""
    return [PROGRAM, "-p", profile(confines), *argv]


def profile(confines: Confines) -> str:
    """The profile's text. The last rule that fits an operation decides."""
    lines = ["(version 1)", "(allow default)", "(deny appleevent-send)", "(deny job-creation)"]
    lines.append(f"(deny mach-lookup {_each('global-name', _SERVICES)})")
    if not confines.has_network:
        lines.append("(deny network*)")
    if not confines.is_wide:
        lines.append("(deny file-write*)")
        writable = (*confines.writable, confines.temporary)
        lines.append(f"(allow file-write* {_each('subpath', map(str, writable))})")
        lines.append(f"(allow file-write* {_each('literal', _DEVICES)})")
    if barred := (*confines.protected, *confines.missing):
        lines.append(f"(deny file-write* {_each_path(barred)})")
    if names := (*confines.pinned, *(path for path, _ in confines.links)):
        lines.append(f"(deny file-write-unlink {_each('literal', map(str, names))})")
    if confines.hidden:
        lines.append(f"(deny file-read* file-write* {_each_path(confines.hidden)})")
    if shown := (*confines.shown, confines.scratch):
        lines.append(f"(allow file-read* {_each('subpath', map(str, shown))})")
    lines.append(f"(allow file-write* {_each('subpath', (str(confines.temporary),))})")
    if confines.covered:
        lines.append(f"(deny file-read* file-write* {_each_path(confines.covered)})")
    return "\n".join(lines)


def _each(kind: str, values: Iterable[str]) -> str:
    return " ".join(f"({kind} {_quoted(value)})" for value in values)


def _each_path(paths: Iterable[Path]) -> str:
    """The paths and all below, in any spelling: most volumes of a Mac ignore case."""
    return " ".join(f'(regex #"{_pattern(path)}")' for path in paths)


def _pattern(path: Path) -> str:
    # No backslash and no quotation mark: how a profile reads them inside #"…" is not documented.
    pieces: list[str] = []
    for character in str(path):
        if character in '^[]\\"' or not character.isascii():
            pieces.append(".")
        elif character.isalpha():
            pieces.append(f"[{character.lower()}{character.upper()}]")
        else:
            pieces.append(character if character in "/-_ " else f"[{character}]")
    return "^" + "".join(pieces) + "(/.*)?$"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""The tool `glob`: files by name, the most recently changed first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._blocking import in_thread
from keen.tools._ignore import MOST_SECONDS, Walk, matcher
from keen.tools.base import Context, Effect, Outcome, PreparedCall
from keen.tools.guard import Place, is_system, locate, shown

_MOST_SHOWN: Final = 200
_WILD: Final = frozenset("*?[{")


class GlobArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"pattern": "src/**/*.py"}

    pattern: str = Field(min_length=1, max_length=1_000)
    path: str = Field(default=".", min_length=1)


class Glob:
    """Newest first, for the list is bounded and what changed lately is what is worked on."""

    effect: Effect = "read"
    spec: ToolSpec = tool_spec(
        "glob",
        "Find files by name, newest first. Without a slash (*.py) at any depth, else relative to"
        " path (src/**/*.py). Ignored files are left out.",
        GlobArguments,
    )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(GlobArguments, input, "glob")
        base, pattern = _split(arguments.pattern, arguments.path)
        place = locate(base, context)
        matches = matcher(pattern)

        async def run() -> Outcome:
            check_searchable(place, context)
            start = place.real
            if not start.is_dir():
                raise ToolError(f"{shown(start, context)} is a file; path must be a directory.")
            said = await in_thread(lambda stop: _listed(Walk(start, stop), matches, context))
            return Outcome(said or f"No file below {shown(start, context)} matches {pattern}")

        return PreparedCall(place.accesses("read"), run)


def check_searchable(place: Place, context: Context) -> None:
    """Raises ToolError where there is no file or directory to search."""
    name = shown(place.real, context)
    if is_system(place.real):
        raise ToolError(f"{name}: keen reads nothing inside /proc, /sys and /dev.")
    if not os.path.lexists(place.real):
        raise ToolError(f"{name} does not exist. Leave path out to search the whole workspace.")
    if not place.real.is_dir() and not place.real.is_file():
        raise ToolError(f"{name} is neither a directory nor a regular file.")


def _split(pattern: str, path: str) -> tuple[str, str]:
    """The directory and the relative pattern; what is absolute in the pattern goes to the path."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if _WILD & set(part)), len(parts) - 1)
    if ".." in parts[fixed:]:
        raise ToolError("A pattern may have .. only before its first wildcard.")
    if not pattern.startswith(("/", "~")) and ".." not in parts:
        return path, pattern
    base = "/".join(parts[:fixed]) or "/"
    return os.path.join(path, base), "./" + "/".join(parts[fixed:])


def _listed(walk: Walk, matches: Callable[[str], bool], context: Context) -> str:
    beginning = len(str(walk.start).rstrip("/")) + 1
    found = [(_changed(path), path) for path in walk.files() if matches(path[beginning:])]
    found.sort(key=lambda each: (-each[0], each[1]))
    lines = [shown(Path(path), context) for _, path in found[:_MOST_SHOWN]]
    if len(found) > _MOST_SHOWN:
        lines.append(f"[{len(found) - _MOST_SHOWN:,} more, changed earlier; narrow the pattern]")
    if walk.is_cut:
        lines.append(f"[stopped after {MOST_SECONDS:.0f} s: there may be more]")
    return "\n".join(lines)


def _changed(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0

"""The names under which a model calls the tools of MCP servers."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

PREFIX: Final = "mcp__"
MOST: Final = 64
"""Characters that every provider takes in a tool's name."""
_MOST_OF_SERVER: Final = 24
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def server_names(names: Iterable[str]) -> dict[str, str]:
    """Configured names by the part that stands for them in tool names.

    No part holds `__`, so that the end of the server's part is always the first `__` after it.
    """
    return {part: name for name, part in _apart(names, _server_part, _MOST_OF_SERVER).items()}


def tool_names(server_part: str, names: Iterable[str]) -> dict[str, str]:
    """The server's own names by the full name, `mcp__server__tool`, each of them once."""
    beginning = f"{PREFIX}{server_part}__"
    parts = _apart(names, _tool_part, MOST - len(beginning))
    return {beginning + part: name for name, part in parts.items()}


def split(full_name: str) -> tuple[str, str]:
    """Server part and tool part of a full name; empty when it is none."""
    server, separator, tool = full_name.removeprefix(PREFIX).partition("__")
    if not full_name.startswith(PREFIX) or not (server and separator and tool):
        return "", ""
    return server, tool


def _server_part(name: str) -> str:
    return re.sub(r"_{2,}", "_", _FOREIGN.sub("_", name)).strip("_") or "server"


def _tool_part(name: str) -> str:
    # Two underscores in front would move the place where the server's part ends.
    return _FOREIGN.sub("_", name).strip("_") or "tool"


def _apart(names: Iterable[str], part: Callable[[str], str], most: int) -> dict[str, str]:
    """A part for each name, whatever the order they come in.

    A part that is too long, or that several names would have, ends in a hash of its name.
    """
    unique = dict.fromkeys(names)
    parts = {name: part(name) for name in unique}
    counts = Counter(text[:most] for text in parts.values())
    return {
        name: text
        if len(text) <= most and (counts[text] == 1 or text == name)
        else _hashed(text, name, most)
        for name, text in parts.items()
    }


def _hashed(text: str, name: str, most: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: most - 9].rstrip('_')}-{digest}"

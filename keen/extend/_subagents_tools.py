"""The tools that a profile names, in keen's own names; other agents' profiles use theirs."""

from __future__ import annotations

import re
from typing import Final

from keen import sanitize
from keen.core.messages import Json

_OWN: Final = frozenset(
    {
        "read_file",
        "write_file",
        "edit_file",
        "glob",
        "grep",
        "bash",
        "web_fetch",
        "ask_user",
        "skill",
    }
)
_OTHERS: Final = {
    "read": "read_file",
    "view": "read_file",
    "readfile": "read_file",
    "read_many_files": "read_file",
    "notebookread": "read_file",
    "write": "write_file",
    "create": "write_file",
    "writefile": "write_file",
    "edit": "edit_file",
    "multiedit": "edit_file",
    "str_replace": "edit_file",
    "replace": "edit_file",
    "patch": "edit_file",
    "apply_patch": "edit_file",
    "ls": "glob",
    "list": "glob",
    "list_directory": "glob",
    "find": "glob",
    "search": "grep",
    "search_file_content": "grep",
    "ripgrep": "grep",
    "shell": "bash",
    "execute": "bash",
    "terminal": "bash",
    "run_shell_command": "bash",
    "webfetch": "web_fetch",
    "fetch": "web_fetch",
    "askuserquestion": "ask_user",
    "question": "ask_user",
}
_NOTHING: Final = frozenset(
    {
        "task",
        "agent",
        "todo",
        "todowrite",
        "todoread",
        "recall",
        "bashoutput",
        "killbash",
        "killshell",
        "taskoutput",
        "taskstop",
        "exitplanmode",
    }
)
"""Tools that no subagent has, or that need no name of their own: nothing is lost without them."""
_ALL: Final = frozenset({"*", "all"})
_SEPARATOR: Final = re.compile(r",(?![^(]*\))|\s+(?![^(]*\))")
"""Between names, but not inside the brackets of `Bash(git diff:*)`."""


def tool_names(given: Json, notes: list[str]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Tools that are named, None for all of them, and tools that are refused by name.

    `given` is text with commas, a list, or a mapping of names to true and false. What keen does not
    know is told in `notes` and left out: a list never grows by being read.
    """
    match given:
        case None:
            return None, ()
        case str() | list():
            words = _words(given)
            return (_named(words, notes) if words or given == [] else None), ()
        case dict():
            on = [name for name, is_on in given.items() if is_on is True]
            off = [name for name, is_on in given.items() if is_on is False]
            if not _ALL.isdisjoint(off):
                return _named(on, notes) or (), ()
            # Switches: where some are only switched off, the others stay on.
            return (_named(on, notes) if on and not off else None), refused_names([*off], notes)
        case _:
            notes.append("tools is neither a list nor text: it has none")
            return (), ()


def refused_names(given: Json, notes: list[str]) -> tuple[str, ...]:
    """Tools that are taken away, given as text or a list; one with a pattern goes as a whole."""
    words = [word.partition("(")[0] for word in _words(given)]
    if not _ALL.isdisjoint(words):
        return ("*",)
    return _named(words, notes) or ()


def _words(given: Json) -> list[str]:
    if isinstance(given, str):
        return [word for word in _SEPARATOR.split(given.strip()) if word]
    return [word for word in given if isinstance(word, str)] if isinstance(given, list) else []


def _named(words: list[str], notes: list[str]) -> tuple[str, ...] | None:
    names: dict[str, None] = {}
    for word in words:
        if word in _ALL:
            return None
        if name := _own(word.strip(), notes):
            names[name] = None
    return tuple(names)


def _own(word: str, notes: list[str]) -> str:
    """keen's name of a tool; empty where there is none to be had."""
    if word.startswith("mcp__"):
        return word if word.endswith("*") or word.count("__") > 1 else f"{word}__*"
    shown = sanitize.line(word)[:80]
    if "(" in word:
        notes.append(f"tool {shown}: left out, since keen would give it without its pattern")
        return ""
    lower = word.casefold()
    if lower in _OWN:
        return lower
    if lower in _NOTHING:
        return ""
    if lower not in _OTHERS:
        notes.append(f"tool {shown}: keen has no such tool")
        return ""
    return _OTHERS[lower]

"""Every key of the conversation in one table, and what [keys] of the settings makes of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Command:
    """One thing a key does. `keys` as Textual names them; `help` is empty for plain editing."""

    name: str
    keys: tuple[str, ...]
    help: str = ""


COMMANDS: Final[tuple[Command, ...]] = (
    Command("send", ("enter",), "send; while a turn runs: queue, on an empty prompt: steer"),
    Command("newline", ("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter"), "new line"),
    Command("steer", ("ctrl+s",), "deliver to the running turn at its next step"),
    Command(
        "escape",
        ("escape",),
        "close, cancel the compaction, interrupt, clear: the first that applies",
    ),
    Command("cancel", ("ctrl+c",), "copy the selection, cancel the turn, clear; twice: exit"),
    Command("leave", ("ctrl+d",), "delete forward; on an empty prompt: exit"),
    Command("accept", ("tab",), "take the suggestion"),
    Command("up", ("up",), "line up; on the first line: history, or take a queued message back"),
    Command("down", ("down",), "line down; on the last line: history"),
    Command("history", ("ctrl+r",), "search in what you sent before"),
    Command("mode", ("shift+tab", "backtab"), "plan or build"),
    Command("editor", ("ctrl+g",), "the prompt in $VISUAL or $EDITOR"),
    Command("paste", ("ctrl+v",), "paste text or an image"),
    Command("unfold", ("ctrl+o",), "show or fold tool outputs and reasoning"),
    Command("todo", ("ctrl+t",), "the todo list"),
    Command("search", ("ctrl+f",), "search the conversation"),
    Command("page_up", ("pageup",), "scroll up"),
    Command("page_down", ("pagedown",), "scroll down"),
    Command("top", ("ctrl+home",), "the beginning"),
    Command("bottom", ("ctrl+end",), "the end, and follow it again"),
    Command("redraw", ("ctrl+l",), "draw the screen again"),
    Command("suspend", ("ctrl+z",), "back to the shell; fg returns"),
    Command("home", ("home",)),
    Command("end", ("end",)),
    Command("line_start", ("ctrl+a",)),
    Command("line_end", ("ctrl+e",)),
    Command("left", ("left", "ctrl+b")),
    Command("right", ("right",)),
    Command("word_left", ("ctrl+left", "alt+b", "alt+left")),
    Command("word_right", ("ctrl+right", "alt+f", "alt+right")),
    Command("delete_left", ("backspace", "ctrl+h", "shift+backspace")),
    Command("delete_right", ("delete",)),
    Command("delete_word_left", ("ctrl+w", "alt+backspace", "ctrl+backspace")),
    Command("delete_word_right", ("alt+d", "alt+delete", "ctrl+delete")),
    Command("delete_line_start", ("ctrl+u",)),
    Command("delete_line_end", ("ctrl+k",)),
    Command("yank", ("ctrl+y",)),
    Command("undo", ("ctrl+underscore", "ctrl+slash", "ctrl+minus")),
    Command("select_left", ("shift+left",)),
    Command("select_right", ("shift+right",)),
    Command("select_up", ("shift+up",)),
    Command("select_down", ("shift+down",)),
    Command("select_all", ("f7",)),
)

_NAMES: Final = {command.name: command for command in COMMANDS}


def keymap(changes: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], list[str]]:
    """Which command each key means, and what is wrong with `changes`, one sentence each.

    `changes` are [keys] of the settings: a command's name and its keys, which replace the usual
    ones. A key given there is taken from whatever command had it.
    """
    faults: list[str] = []
    table = {key: command.name for command in COMMANDS for key in command.keys}
    for name, keys in changes.items():
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            faults.append(f"keys.{name}: there is no such command.{hint}")
            continue
        for key in [key for key, command in table.items() if command == name]:
            del table[key]
        table |= {_normal(key): name for key in keys}
    return table, faults


def _normal(key: str) -> str:
    """A key as Textual names it: `Ctrl-X` and `ctrl+x` are the same."""
    parts = key.strip().lower().replace("-", "+").split("+")
    names = {"control": "ctrl", "meta": "alt", "option": "alt", "esc": "escape", "return": "enter"}
    return "+".join(names.get(part, part) for part in parts)


def spoken(key: str) -> str:
    """A key as a person writes it."""
    names = {
        "escape": "Esc",
        "pageup": "PgUp",
        "pagedown": "PgDn",
        "backtab": "Shift+Tab",
        "underscore": "_",
        "slash": "/",
    }
    parts = key.split("+")
    return "+".join(names.get(part, part.capitalize()) for part in parts)

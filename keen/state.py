"""What keen remembers between starts without being told in config.toml: model, effort, theme."""

from __future__ import annotations

from dataclasses import dataclass

from keen import _files
from keen.core.errors import ConfigError
from keen.core.messages import JsonObject
from keen.paths import Paths


@dataclass(frozen=True, slots=True)
class State:
    """The last choices made with /model, /thinking and /theme; empty where none was made."""

    model: str = ""
    thinking: str = ""
    theme: str = ""


def read_state(paths: Paths) -> State:
    """The remembered choices. A lost or broken file remembers nothing."""
    try:
        value = _files.read_json(paths.state_file)
    except ConfigError:
        return State()
    words = {name: word for name in State.__slots__ if isinstance(word := value.get(name), str)}
    return State(**words)


def remember(
    paths: Paths, *, model: str | None = None, thinking: str | None = None, theme: str | None = None
) -> bool:
    """Keep what is given and leave the rest; False where nothing can be written."""
    given = {"model": model, "thinking": thinking, "theme": theme}
    chosen: JsonObject = {name: word for name, word in given.items() if word is not None}
    try:
        _files.update_json(paths.state_file, lambda value: value.update(chosen))
    except ConfigError:
        return False
    return True

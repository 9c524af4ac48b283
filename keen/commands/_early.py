"""What the first frame needs: colours and keys, read without anything heavy."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from keen import themes
from keen.app.desk import Early
from keen.app.keys import keymap
from keen.core.errors import ConfigError
from keen.options import Options
from keen.paths import Paths
from keen.state import read_state


def early(
    wanted: Options,
    environment: Mapping[str, str],
    *,
    theme: str = "",
    prompt: str = "",
    is_picking: bool = False,
) -> Early:
    """What the first frame needs, read without anything heavy; mistakes are told later in full.

    Raises: ConfigError for a theme on the command line that is not there.
    """
    paths = Paths.from_environment(environment)
    table = _own_table(wanted.config or paths.config_file)
    ui = _table(table, "ui")
    keys, faults = keymap(_keys(_table(table, "keys")))
    chosen = theme or read_state(paths).theme or _text(ui, "theme")
    name = chosen or _fitting(environment)
    try:
        palette = themes.load(name, paths.themes)
    except ConfigError as error:
        if theme:
            raise
        faults.append(str(error))
        palette = themes.load(themes.DEFAULT)
    mode = wanted.mode or _text(_table(table, "permissions"), "mode") or "build"
    return Early(
        palette=palette,
        keymap=keys,
        cwd=wanted.cwd,
        mode=mode,
        prompt=prompt,
        is_theme_chosen=bool(chosen) or bool(environment.get("COLORFGBG")),
        is_picking=is_picking,
        mouse=ui.get("mouse", True) is not False,
        is_calm=environment.get("TEXTUAL_ANIMATIONS", "").lower() == "none",
        faults=tuple(faults),
    )


def _own_table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""


def _keys(table: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        name: [value] if isinstance(value, str) else list(map(str, cast("list[Any]", value)))
        for name, value in table.items()
        if isinstance(value, str | list)
    }


def _fitting(environment: Mapping[str, str]) -> str:
    """The theme for what the terminal says of its background, dark when it says nothing."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return themes.DEFAULT_LIGHT if background in ("7", "15") else themes.DEFAULT

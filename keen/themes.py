"""Named colours: the packaged themes and the user's own, read from TOML."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from keen.core.errors import ConfigError

DEFAULT: Final = "keen-dark"
DEFAULT_LIGHT: Final = "keen-light"
COLORS: Final = (
    "background",
    "surface",
    "text",
    "muted",
    "accent",
    "user",
    "success",
    "warning",
    "error",
    "added",
    "removed",
    "border",
    "selection",
)
"""What a theme names. A user's theme may leave some out; keen-dark's or keen-light's stand in."""

_HEX: Final = re.compile(r"#[0-9a-fA-F]{6}")
_ANSI: Final = re.compile(
    r"ansi_(?:default|(?:bright_)?(?:black|red|green|yellow|blue|magenta|cyan|white))"
)
_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme. `code` names a Pygments style; `is_ansi`: the terminal's own colours."""

    name: str
    colors: Mapping[str, str]
    is_dark: bool = True
    is_ansi: bool = False
    code: str = "github-dark"

    def __getitem__(self, name: str) -> str:
        return self.colors[name]


def packaged_directory() -> Path:
    """Where keen's own themes lie: inside the package, or in a checkout beside it."""
    here = Path(__file__).parent
    inside = here / "_themes"
    return inside if inside.is_dir() else here.parent / "themes"


def names(own: Path | None = None) -> tuple[str, ...]:
    """The themes there are, keen's first, then those in the user's directory `own`."""
    found = [path.stem for path in sorted(packaged_directory().glob("*.toml"))]
    found.sort(key=lambda name: name not in (DEFAULT, DEFAULT_LIGHT))
    if own is not None and own.is_dir():
        found += sorted(path.stem for path in own.glob("*.toml"))
    return tuple(dict.fromkeys(found))


def load(name: str, own: Path | None = None) -> Palette:
    """The theme of that name; a user's own one wins over keen's.

    Raises: ConfigError naming the file and the mistake, or the names there are.
    """
    path = _place(name, own)
    if path is None:
        known = names(own)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f'There is no theme "{name}".{hint} Themes: {", ".join(known)}.')
    return _read(path, name)


def _place(name: str, own: Path | None) -> Path | None:
    if not name or "/" in name or "\\" in name or name.startswith("."):
        return None
    places = [own] if own is not None else []
    for directory in (*places, packaged_directory()):
        path = directory / f"{name}.toml"
        if path.is_file():
            return path
    return None


def _read(path: Path, name: str) -> Palette:
    try:
        with path.open("rb") as source:
            data = source.read(_BYTES)
        table = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}: expected TOML") from error
    is_dark = table.get("dark", True) is not False
    colors = table.get("colors", {})
    if not isinstance(colors, dict):
        raise ConfigError(f"{path}: colors: expected a table of names and colours")
    given = cast("dict[str, object]", colors)
    kept = _colors(path, given)
    missing = [color for color in COLORS if color not in kept]
    if missing and path.parent != packaged_directory():
        base = load(DEFAULT if is_dark else DEFAULT_LIGHT)
        kept |= {color: base[color] for color in missing}
    elif missing:
        raise ConfigError(f"{path}: colors: {', '.join(missing)} missing")
    code = table.get("code")
    fallback = "github-dark" if is_dark else "friendly"
    return Palette(
        name=name,
        colors=kept,
        is_dark=is_dark,
        is_ansi=table.get("ansi") is True,
        code=code if isinstance(code, str) and code else fallback,
    )


def _colors(path: Path, given: Mapping[str, object]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for key, value in given.items():
        if key not in COLORS:
            near = difflib.get_close_matches(key, COLORS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"{path}: colors.{key} is no colour of a theme{hint}")
        if not isinstance(value, str) or not (_HEX.fullmatch(value) or _ANSI.fullmatch(value)):
            raise ConfigError(f'{path}: colors.{key}: expected "#rrggbb" or "ansi_" and a colour')
        kept[key] = value
    return kept

"""keen config: where settings come from, what they come to, and every mistake in them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from keen import _toml, config, providers, trust
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.saying import out
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.tools.permission.rules import SavedRules
from keen.toolset import rules


def add_parser(subparsers: Subparsers) -> None:
    """`keen config path|show|check`."""
    parser = subparsers.add_parser("config", help="settings: path, show, check")
    parser.add_argument("action", choices=("path", "show", "check"))
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do the action. Returns: 1 when `check` found a mistake. Raises: ConfigError from `show`."""
    place = place_of(arguments)
    match arguments.action:
        case "path":
            return _path(place)
        case "show":
            return _show(place)
        case _:
            return _check(place)


def _path(place: Place) -> int:
    own, *projects = config.files(place.cwd, place.paths, place.file)
    out(f"{own}{'' if own.exists() else '  (not there)'}")
    for path in projects:
        if path.exists():
            out(f"{path}{'' if place.is_trusted else '  (ignored: the folder is not trusted)'}")
    return 0


def _show(place: Place) -> int:
    loaded = place.load()
    for line in toml_lines(config.masked(loaded.settings), loaded.origins):
        out(line)
    return 0


def _check(place: Place) -> int:
    mistakes, warnings = config.check(
        place.cwd,
        environment=place.environment,
        trusted=place.is_trusted,
        paths=place.paths,
        file=place.file,
    )
    mistakes = mistakes or tuple(_deeper_mistakes(place))
    for line in (*mistakes, *warnings):
        out(line)
    if not mistakes and not warnings:
        out("The settings are right.")
    return 1 if mistakes else 0


def _deeper_mistakes(place: Place) -> Iterator[str]:
    """What a start would stop at although every key holds what it may hold."""
    loaded = place.load()
    settings = loaded.settings
    saved = SavedRules(place.paths.permissions_file, trust.project_root(place.cwd))
    checks: list[tuple[str, Callable[[], object]]] = [("", lambda: rules(loaded)), ("", saved.load)]
    named = {"model": settings.model, "compaction.model": settings.compaction.model}
    for key, model in named.items():
        if model:
            provider = model.partition("/")[0]
            where = f"{loaded.origins.get(key, key)}: {key}: "
            checks.append((where, partial(providers.base_url, settings, provider)))
    for where, look in checks:
        try:
            look()
        except ConfigError as error:
            yield f"{where}{error}"
    yield from saved.faults


def toml_lines(values: JsonObject, origins: Mapping[str, str]) -> Iterator[str]:
    """Settings as TOML; a comment names the origin of what is not built in."""
    yield from _table(values, (), origins)


def _table(
    values: JsonObject, location: tuple[str, ...], origins: Mapping[str, str]
) -> Iterator[str]:
    """A table's own keys, then the tables in it, each under its header."""
    tables: list[tuple[str, JsonObject]] = []
    rows: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict):
            tables.append((name, value))
        elif value is not None:
            place = (*location, name)
            origin = origins.get(_toml.dotted(place)) or _of_entries(origins, place)
            comment = f"  # {origin}" if origin else ""
            rows.append(f"{_toml.dotted((name,))} = {_value(value)}{comment}")
    if rows and location:
        yield ""
        yield f"[{_toml.dotted(location)}]"
    yield from rows
    for name, table in tables:
        yield from _table(table, (*location, name), origins)


def _of_entries(origins: Mapping[str, str], place: tuple[str, ...]) -> str:
    start = f"{_toml.dotted(place)}["
    found = (origin for key, origin in origins.items() if key.startswith(start))
    return ", ".join(dict.fromkeys(found))


def _value(value: Json) -> str:
    """A value as TOML writes it; its basic strings read like JSON's."""
    if isinstance(value, list):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_toml.dotted((name,))} = {_value(one)}" for name, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    written = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else _escape(one) for one in written)


def _escape(character: str) -> str:
    """What a terminal must not get, as TOML spells it."""
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"

"""Settings in layers: built-in, the user's file, a trusted project's, the environment, flags."""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, ValidationError

from keen import _files, _toml
from keen._settings import Settings, expectation
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.paths import Paths
from keen.trust import project_root
from keen.wire import catalogue

PROJECT_FILE: Final = Path(".keen") / "config.toml"

PROJECT_MAY_SET: Final = (
    ("model",),
    ("providers", "*", "models"),
    ("compaction",),
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("ui",),
    ("session",),
)
"""All that a project's file decides. What sends a key somewhere, runs a command or loosens a rule
is the user's alone, trusted folder or not (CVE-2026-21852, CVE-2026-33068)."""

USERS_OWN: Final = (("ui", "notify_command"), ("ui", "status_command"))
"""Commands inside what a project may set: never a project's."""

ADDED_UP: Final = frozenset({"permissions.allow", "permissions.ask", "permissions.deny"})
"""Lists that every layer adds to: a later layer must not empty the rules of an earlier one."""

_MOST_BYTES: Final = 1_000_000
"""Of one settings file."""

_SECRET: Final = re.compile(
    r"(^|\.)(api_key|headers\..+|env\..+)$",
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, what was odd about them, and where each key came from.

    `origins` maps dotted keys to words such as "/home/ada/config.toml:12", "KEEN_MODEL" or
    "--mode"; one entry of an added-up list is `permissions.deny[0]`.
    """

    settings: Settings
    warnings: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class _Layer:
    """One source of settings. `place` names the source of a key for a person."""

    name: str
    values: JsonObject
    lines: Mapping[_toml.Location, int] = field(default_factory=dict[_toml.Location, int])
    places: Mapping[str, str] = field(default_factory=dict[str, str])

    def place(self, location: _toml.Location) -> str:
        if self.lines:
            return f"{self.name}:{_toml.line_of(self.lines, location)}"
        key = _toml.dotted(tuple(name for name in location if isinstance(name, str)))
        return self.places.get(key, self.name)


@dataclass(slots=True)
class _Gathering:
    """Layers being read; mistakes are collected so that all can be shown at once."""

    merged: JsonObject = field(default_factory=dict[str, Json])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    warnings: list[str] = field(default_factory=list[str])
    mistakes: list[str] = field(default_factory=list[str])

    def add(self, layer: _Layer) -> None:
        values = self._without_mistakes(layer)
        self._merge(self.merged, values, layer, ())

    def _without_mistakes(self, layer: _Layer) -> JsonObject:
        """The layer's known keys. Unknown ones become warnings, wrong values mistakes."""
        values = cast("JsonObject", _copy(layer.values))
        try:
            Settings.model_validate(values)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                location = _location(detail["loc"])
                place = layer.place(location)
                if detail["type"] == "extra_forbidden":
                    self.warnings.append(f"{place}: unknown key {_unknown(location)}")
                else:
                    wanted = expectation(detail["type"], detail["msg"], detail.get("ctx", {}))
                    shown = _shown(location, detail["input"])
                    self.mistakes.append(f"{place}: {shown}: expected {wanted}")
                _drop(values, location)
        return values

    def _merge(
        self, into: JsonObject, values: JsonObject, layer: _Layer, prefix: _toml.Location
    ) -> None:
        for name, value in values.items():
            location = (*prefix, name)
            key = _toml.dotted(location)
            known = into.get(name)
            if isinstance(value, dict):
                table = known if isinstance(known, dict) else {}
                into[name] = table
                self._merge(table, value, layer, location)
            elif key in ADDED_UP and isinstance(value, list):
                rules = known if isinstance(known, list) else []
                for number in range(len(rules), len(rules) + len(value)):
                    self.origins[f"{key}[{number}]"] = layer.place(location)
                into[name] = [*rules, *value]
            else:
                into[name] = value
                self.origins[key] = layer.place(location)


def load(
    cwd: Path,
    *,
    flags: Mapping[str, Json],
    environment: Mapping[str, str],
    trusted: bool,
    paths: Paths,
    file: Path | None = None,
) -> Loaded:
    """The settings that hold in `cwd`.

    `flags` maps dotted keys to values (`{"permissions.mode": "yolo"}`). `file` (`--config`) takes
    the place of the user's own file and must exist. A project's file counts only when `trusted`.

    Raises: ConfigError naming file, line, key and what was expected, for every mistake at once.
    """
    gathering = _gather(
        cwd, flags=flags, environment=environment, trusted=trusted, paths=paths, file=file
    )
    if gathering.mistakes:
        raise ConfigError("\n".join(gathering.mistakes))
    settings = Settings.model_validate(gathering.merged)
    return Loaded(settings, tuple(gathering.warnings), gathering.origins)


def check(
    cwd: Path,
    *,
    environment: Mapping[str, str],
    trusted: bool,
    paths: Paths,
    file: Path | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All mistakes and all warnings, each with its place. Never raises for a mistake."""
    gathering = _gather(
        cwd, flags={}, environment=environment, trusted=trusted, paths=paths, file=file
    )
    return tuple(gathering.mistakes), tuple(gathering.warnings)


def files(cwd: Path, paths: Paths, file: Path | None = None) -> tuple[Path, ...]:
    """Where settings are looked for, earliest layer first; a file listed need not exist."""
    return (file or paths.config_file, *_project_files(cwd, paths))


def masked(settings: Settings) -> JsonObject:
    """The settings as plain values for a person to read, every secret replaced by `***`."""
    values = cast("JsonObject", settings.model_dump(mode="json"))
    return cast("JsonObject", _mask(values, ()))


def _gather(
    cwd: Path,
    *,
    flags: Mapping[str, Json],
    environment: Mapping[str, str],
    trusted: bool,
    paths: Paths,
    file: Path | None,
) -> _Gathering:
    gathering = _Gathering()
    if file is not None and not file.is_file():
        gathering.mistakes.append(f"{file}: there is no such file. Check --config.")
    for layer in _read_layer(file or paths.config_file, gathering):
        gathering.add(layer)
    if trusted:
        for project_file in _project_files(cwd, paths):
            for layer in _read_layer(project_file, gathering):
                gathering.add(_what_a_project_may_say(layer, gathering))
    gathering.add(_environment_layer(environment, gathering))
    gathering.add(_flags_layer(flags))
    return gathering


def _read_layer(path: Path, gathering: _Gathering) -> Iterator[_Layer]:
    """The file as a layer; nothing when it is absent or (a mistake then) unreadable."""
    text = ""
    try:
        text = _text(path)
        values = cast("JsonObject", tomllib.loads(text))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        gathering.mistakes.append(f"{path}: cannot be read: {_files.reason(error)}")
        return
    except UnicodeDecodeError:
        gathering.mistakes.append(f"{path}: is not text in UTF-8. Save it in that encoding.")
        return
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        gathering.mistakes.append(_syntax_mistake(path, text, str(error)))
        return
    yield _Layer(str(path), values, _toml.key_lines(text) or {(): 1})


def _text(path: Path) -> str:
    """The file's text, its line ends as \\n. Raises: OSError, also for what could block."""
    data = b""
    is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    if not is_pipe:
        with path.open("rb") as file:  # a device may have no end
            data = file.read(_MOST_BYTES + 1)
    if is_pipe or len(data) > _MOST_BYTES:
        raise OSError(errno.EINVAL, f"it is a pipe, or larger than {_MOST_BYTES:,} bytes")
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def _syntax_mistake(path: Path, text: str, message: str) -> str:
    words, _, place = message.partition(" (at ")
    if line := re.match(r"line (\d+)", place):
        where = f"{path}:{line.group(1)}"
    else:  # "at end of document", and what nests too deep to be placed
        where = f"{path}:{len(text.splitlines())}" if place else str(path)
    return f"{where}: {words}: expected TOML"


def _project_files(cwd: Path, paths: Paths) -> tuple[Path, ...]:
    """The project's files from its root down to `cwd`, the user's own file never among them."""
    root = project_root(cwd)
    here = Path(os.path.realpath(cwd))
    below = (root, *reversed([step for step in (here, *here.parents) if root in step.parents]))
    own = os.path.realpath(paths.config_file)
    candidates = (directory / PROJECT_FILE for directory in below)
    return tuple(path for path in candidates if os.path.realpath(path) != own)


def _what_a_project_may_say(layer: _Layer, gathering: _Gathering) -> _Layer:
    values: JsonObject = {}
    for location, value in _leaves(layer.values):
        if _may_set(location) or location[0] not in Settings.model_fields:
            _put(values, location, value)
        elif value != {}:
            is_hook = location[0] == "hooks"
            where = "its hooks stand in .keen/hooks.toml" if is_hook else "only your own can"
            gathering.warnings.append(
                f"{layer.place(location)}: {_toml.dotted(location)} is ignored: "
                f"a project's config.toml cannot set it, {where}"
            )
    return _Layer(layer.name, values, layer.lines)


def _may_set(location: _toml.Location) -> bool:
    return location not in USERS_OWN and any(
        len(location) >= len(allowed)
        and all(want in ("*", name) for want, name in zip(allowed, location, strict=False))
        for allowed in PROJECT_MAY_SET
    )


def _environment_layer(environment: Mapping[str, str], gathering: _Gathering) -> _Layer:
    values: JsonObject = {}
    places: dict[str, str] = {}
    if model := environment.get("KEEN_MODEL", "").strip():
        _put(values, ("model",), model)
        places["model"] = "KEEN_MODEL"
    for provider in catalogue.providers().values():
        try:
            variable, address = provider.address_from(environment)
        except ValueError as error:  # a bracket without its partner
            names = " or ".join(provider.addresses)
            gathering.mistakes.append(f"{names}: {error}: expected host:port or an address")
            continue
        if address:
            _put(values, ("providers", provider.name, "base_url"), address)
            places[f"providers.{provider.name}.base_url"] = variable
    return _Layer("environment", values, places=places)


def _flags_layer(flags: Mapping[str, Json]) -> _Layer:
    values: JsonObject = {}
    for key, value in flags.items():
        _put(values, tuple(key.split(".")), value)
    places = {key: f"--{key.rpartition('.')[2].replace('_', '-')}" for key in flags}
    return _Layer("flags", values, places=places)


def _location(where: tuple[int | str, ...]) -> _toml.Location:
    """pydantic's path, without its mark for a table's key."""
    return tuple(name for name in where if name != "[key]")


def _unknown(location: _toml.Location) -> str:
    key = _toml.dotted(location)
    near = difflib.get_close_matches(str(location[-1]), _known_names(location), n=1, cutoff=0.6)
    return f"{key} (did you mean {near[0]}?)" if near else key


def _known_names(location: _toml.Location) -> list[str]:
    """The names that could stand where `location` ends."""
    table: type[BaseModel] = Settings
    for name in location[:-1]:
        if isinstance(name, str) and name in table.model_fields:
            table = _table_in(table.model_fields[name].annotation) or table
    return list(table.model_fields)


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field's type holds, inside dict, tuple or Annotated."""
    if isinstance(annotation, type):
        kind: type = annotation
        if issubclass(kind, BaseModel):
            return kind
    inner = (_table_in(argument) for argument in get_args(annotation))
    return next((table for table in inner if table), None)


def _shown(location: _toml.Location, value: object) -> str:
    """`key = value` for a mistake; secrets and tables are not repeated.

    An address that is wrong may be so because of a key within it, so all that stands before
    its last @ or behind its first question mark is left out.
    """
    key = _toml.dotted(location)
    if _SECRET.search(key) or isinstance(value, dict | list | tuple):
        return key
    if isinstance(value, str):
        text = re.sub(r"//\S*@", "//***@", re.sub(r"\?\S+", "?***", value))
        shown = f'"{text}"'
    else:
        shown = str(value).lower()
    return f"{key} = {shown}" if len(shown) <= 80 else key


def _mask(value: Json, location: _toml.Location) -> Json:
    if isinstance(value, dict):
        return {name: _mask(inner, (*location, name)) for name, inner in value.items()}
    if value and _SECRET.search(_toml.dotted(location)):
        return "***"
    return re.sub(r"//[^/@\s]+@", "//***@", value) if isinstance(value, str) else value


def _leaves(
    values: JsonObject, prefix: _toml.Location = ()
) -> Iterator[tuple[_toml.Location, Json]]:
    for name, value in values.items():
        location = (*prefix, name)
        if isinstance(value, dict) and value:
            yield from _leaves(value, location)
        else:
            yield location, value


def _put(values: JsonObject, location: _toml.Location, value: Json) -> None:
    table = values
    for name in location[:-1]:
        inner = table.setdefault(str(name), {})
        table = cast("JsonObject", inner)
    table[str(location[-1])] = value


def _drop(values: JsonObject, location: _toml.Location) -> None:
    """Take a key away so that the rest can be used."""
    table: Any = values
    for name in location[:-1]:
        try:
            table = table[name]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(table, dict):
        cast("JsonObject", table).pop(str(location[-1]), None)


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value

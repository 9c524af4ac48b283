"""Where skills and custom commands stand on disk, and what their heads say of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.messages import Json, JsonObject
from keen.extend.front_matter import HEAD_CHARACTERS, FrontMatterError, front_matter
from keen.extend.project_text import beginning, is_inside, one_line

Kind: TypeAlias = Literal["skill", "command"]
Scope: TypeAlias = Literal["project", "user"]

SKILL_FILE: Final = "SKILL.md"
MOST_ENTRIES: Final = 500
"""Looked at in one folder of skills or commands."""

_HEAD_BYTES: Final = HEAD_CHARACTERS + 4_096
_DEEPEST: Final = 4
"""Folders of commands within folders."""
_MOST_DESCRIPTION: Final = 1_024
_MOST_HINT: Final = 80
_NAME: Final = re.compile(r"\w[\w.-]{0,63}")
_NOT_HONOURED: Final = ("allowed-tools", "model", "effort", "context", "agent", "hooks")


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill or a custom command, as far as its head tells."""

    kind: Kind
    name: str
    """Of a command with its folders: `folder:name`."""
    description: str
    path: Path
    """The file: SKILL.md of a skill."""
    scope: Scope
    boundary: Path | None = None
    """What its file must not leave."""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    is_for_model: bool = True
    is_for_person: bool = True
    notes: tuple[str, ...] = ()
    """Fields that keen cannot honour."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of skills or commands. What lies in a project stays within `boundary`."""

    path: Path
    kind: Kind
    scope: Scope
    boundary: Path | None = None


@dataclass
class Search:
    """Looks through places, the strongest first; collects what is broken."""

    faults: list[str] = field(default_factory=list[str])

    def entries(self, place: Place) -> Iterator[Entry]:
        """What stands in one place, by name. Blocking."""
        if place.boundary is not None and not is_inside(place.path, place.boundary):
            if os.path.lexists(place.path):
                self.faults.append(f"{place.path}: not read: it leads out of the project")
            return
        if place.kind == "skill":
            yield from self._skills(place)
        else:
            yield from self._commands(place)

    def _skills(self, place: Place) -> Iterator[Entry]:
        for folder in self._children(place.path):
            path = folder / SKILL_FILE
            if not os.path.lexists(path):
                path = folder / SKILL_FILE.lower()
                if not os.path.lexists(path):
                    continue
            entry = self._entry(place, path, folder.name)
            if entry is not None:
                yield entry

    def _commands(self, place: Place) -> Iterator[Entry]:
        files = self._files(place, place.path, (), set())
        for path, names in islice(files, MOST_ENTRIES):
            entry = self._entry(place, path, ":".join((*names, path.stem)))
            if entry is not None:
                yield entry
        if next(files, None) is not None:
            self.faults.append(f"{place.path}: only the first {MOST_ENTRIES} files are looked at")

    def _files(
        self, place: Place, folder: Path, names: tuple[str, ...], seen: set[str]
    ) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Markdown files below `folder`, each with the folders that lead to it."""
        real = os.path.realpath(folder)
        if real in seen or len(seen) >= MOST_ENTRIES:
            return
        seen.add(real)
        for path in self._children(folder):
            if path.suffix.lower() == ".md":
                yield path, names
            elif len(names) < _DEEPEST and _is_folder(path, place.boundary):
                yield from self._files(place, path, (*names, path.name), seen)

    def _children(self, folder: Path) -> Sequence[Path]:
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            self.faults.append(f"{folder}: {error.strerror or error}")
            return ()
        if len(names) > MOST_ENTRIES:
            self.faults.append(f"{folder}: only the first {MOST_ENTRIES} entries are looked at")
        return [folder / name for name in names[:MOST_ENTRIES]]

    def _entry(self, place: Place, path: Path, name: str) -> Entry | None:
        try:
            text, _ = beginning(path, _HEAD_BYTES, boundary=place.boundary)
            fields, body = front_matter(text)
            return _described(place, path, name, fields, body)
        except FrontMatterError as error:
            self.faults.append(f"{path}: {error}")
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else None
            self.faults.append(f"{path}: {words or error}")
        return None


def _is_folder(path: Path, boundary: Path | None) -> bool:
    if path.name.startswith(".") or not path.is_dir():
        return False
    return boundary is None or is_inside(path, boundary)


def _described(place: Place, path: Path, name: str, fields: JsonObject, body: str) -> Entry:
    """Raises: FrontMatterError when it has no usable name, or says nothing."""
    given = fields.get("name")
    if place.kind == "skill" and isinstance(given, str) and is_name(given.strip()):
        name = given.strip()
    if not all(is_name(part) for part in name.split(":")):
        raise FrontMatterError("its name must be letters, digits and hyphens, 64 at most")
    description = _text(fields.get("description")) or _first_words(body)
    if not description:
        raise FrontMatterError("it says nothing: neither a description nor a text")
    is_command = place.kind == "command"
    return Entry(
        place.kind,
        name,
        description[:_MOST_DESCRIPTION],
        path,
        place.scope,
        place.boundary,
        _hint(fields.get("argument-hint"))[:_MOST_HINT],
        _names(fields.get("arguments")),
        is_for_model=not is_command and not _is_true(fields.get("disable-model-invocation"), False),
        is_for_person=is_command or _is_true(fields.get("user-invocable"), True),
        notes=tuple(f"{key} is not honoured" for key in _NOT_HONOURED if key in fields),
    )


def is_name(text: str) -> bool:
    """True for what can be called: letters, digits, hyphens, points, 64 at most."""
    return _NAME.fullmatch(text) is not None


def _text(value: Json) -> str:
    return one_line(str(value)) if isinstance(value, str | int | float) else ""


def _hint(value: Json) -> str:
    """YAML takes the usual `[file] [mode]` for a list."""
    if isinstance(value, list):
        return " ".join(f"[{_text(part)}]" for part in value)
    return _text(value)


def _names(value: Json) -> tuple[str, ...]:
    parts = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(part for part in parts if isinstance(part, str) and part.isidentifier())


def _is_true(value: Json, default: bool) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "yes", "on"):
        return True
    if isinstance(value, str) and value.strip().lower() in ("false", "no", "off"):
        return False
    return default


def _first_words(body: str) -> str:
    """The first line that says something: a text without a description is known by it."""
    lines = (one_line(line).lstrip("#").strip() for line in body.splitlines())
    return next((line for line in lines if line), "")

"""Agent profiles: what a subagent is told and may use; Markdown files, and two of keen's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from keen import sanitize
from keen.core.errors import KeenError
from keen.core.messages import Json
from keen.extend._subagents_tools import refused_names, tool_names
from keen.extend.front_matter import front_matter
from keen.extend.project_text import is_inside
from keen.tools.task import GENERAL

PROJECT_FOLDERS: Final = (".claude/agents", ".agents/agents", ".keen/agents")
"""Of each directory from the project's root to the working directory; later ones win."""

_FILE_BYTES: Final = 65_536
_MOST_FILES: Final = 200
_DEEPEST: Final = 3
_MOST_NAME: Final = 64
_EXPLORE: Final = """\
You search and read, you change nothing. Look in several places and under several names before you \
say that something is not there. Report facts, each with path:line, and say what you did not find \
or were not sure of. Do not propose changes unless you were asked to."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of subagent. All it says can only narrow what the conversation itself may do."""

    name: str
    description: str = ""
    body: str = ""
    """Put behind the system prompt."""
    tools: tuple[str, ...] | None = None
    """Names, a final `*` standing for any rest; None: all there are."""
    without: tuple[str, ...] = ()
    """Tools it does not have although `tools` names them."""
    model: str = ""
    """PROVIDER/MODEL[:EFFORT]; empty: the conversation's own."""
    mode: Literal["plan"] | None = None
    """`plan`: it changes nothing, whatever the conversation's mode is."""
    path: Path | None = None
    notes: tuple[str, ...] = ()
    """What of its file does not mean anything here."""

    def has(self, tool: str) -> bool:
        """True when the profile leaves this tool in."""
        if any(_matches(name, tool) for name in self.without):
            return False
        return self.tools is None or any(_matches(name, tool) for name in self.tools)


BUILT_IN: Final = (
    Profile(GENERAL, "Any task of several steps, with all tools."),
    Profile(
        "explore",
        "Searches and reads files to answer a question about the code. Changes nothing.",
        _EXPLORE,
        tools=("read_file", "glob", "grep", "bash", "web_fetch"),
        mode="plan",
    ),
)


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles in force, by name, and what the person should know of files that are none."""

    profiles: Mapping[str, Profile] = field(
        default_factory=lambda: {profile.name: profile for profile in BUILT_IN}
    )
    notices: tuple[str, ...] = ()

    def report(self) -> str:
        """Every profile with its source and what was noted about it, for `/agents`."""
        return "\n\n".join(_told(profile) for profile in self.profiles.values())


def load_profiles(config: Path, home: Path, cwd: Path, root: Path | None) -> Profiles:
    """keen's own profiles, the person's, and those of the project, each beating the one before.

    `config`: keen's configuration directory; `root`: the project's root, None where the folder is
    not trusted. Blocking.
    """
    found = {profile.name: profile for profile in BUILT_IN}
    notices: list[str] = []
    personal = (home / ".claude" / "agents", home / ".agents" / "agents", config / "agents")
    folders: list[tuple[Path, Path | None]] = [(folder, None) for folder in personal]
    if root is not None:
        folders += [(folder, root) for folder in _project_folders(cwd, root)]
    seen: set[str] = set()
    for folder, inside in folders:
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        if inside is not None and not is_inside(folder, inside):
            notices.append(f"{folder}: not read: it leads out of the project")
            continue
        for path in _files(folder, inside, notices):
            try:
                profile = parsed(_text(path), path)
            except KeenError as error:
                notices.append(f"{path}: no agent profile: {error}")
            else:
                found[profile.name] = profile
    return Profiles(found, tuple(notices))


def parsed(text: str, path: Path) -> Profile:
    """The profile that a file holds. Raises: KeenError with the reason why it is none."""
    fields, body = front_matter(text)
    name = _name(fields.get("name"), path.stem)
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise KeenError("its head has no description (between two lines ---, description: …)")
    notes: list[str] = []
    tools, left_out = tool_names(fields.get("tools"), notes)
    refused = refused_names(fields.get("disallowedTools"), notes)
    return Profile(
        name,
        sanitize.line(" ".join(description.split())),
        sanitize.block(body.strip()),
        tools=tools,
        without=(*left_out, *refused),
        model=_model(fields.get("model"), notes),
        mode=_mode(fields, notes),
        path=path,
        notes=tuple(notes),
    )


def _name(given: Json, stem: str) -> str:
    name = given.strip() if isinstance(given, str) and given.strip() else stem
    is_word = name.replace("-", "").replace("_", "").replace(" ", "").replace(".", "").isalnum()
    if not is_word or len(name) > _MOST_NAME:
        raise KeenError(
            f"its name {sanitize.line(name)[:_MOST_NAME]!r} is not letters, digits, - and _ alone, "
            f"{_MOST_NAME} at most"
        )
    return name


def _model(given: Json, notes: list[str]) -> str:
    if not isinstance(given, str) or given.strip() in ("", "inherit"):
        return ""
    name = given.strip()
    provider, slash, model = name.partition("/")
    if slash and provider and model:
        return name
    notes.append(
        f"model {sanitize.line(name)} is no PROVIDER/MODEL: it uses the conversation's own"
    )
    return ""


def _mode(fields: Mapping[str, Json], notes: list[str]) -> Literal["plan"] | None:
    wanted = fields.get("permissionMode")
    if wanted == "plan" or fields.get("readonly") is True:
        return "plan"
    if isinstance(wanted, str) and wanted != "default":
        notes.append(f"permissionMode {sanitize.line(wanted)} would widen: it is left out")
    return None


def _matches(name: str, tool: str) -> bool:
    return tool.startswith(name[:-1]) if name.endswith("*") else tool == name


def _project_folders(cwd: Path, root: Path) -> list[Path]:
    inside = cwd.relative_to(root).parts if cwd.is_relative_to(root) else ()
    places = [root.joinpath(*inside[:depth]) for depth in range(len(inside) + 1)]
    return [place / folder for place in places for folder in PROJECT_FOLDERS]


def _files(folder: Path, inside: Path | None, notices: list[str]) -> Iterator[Path]:
    """The Markdown files of a folder in order; with `inside`, only what lies there in truth."""
    found: list[Path] = []
    for place, names, files in os.walk(folder):
        names.sort()
        if len(Path(place).relative_to(folder).parts) >= _DEEPEST:
            names.clear()
        found += [Path(place) / name for name in sorted(files) if name.endswith(".md")]
        if len(found) > _MOST_FILES:
            notices.append(f"{folder}: only the first {_MOST_FILES} agent profiles are read")
            break
    for path in found[:_MOST_FILES]:
        if inside is not None and not is_inside(path, inside):
            notices.append(f"{path}: no agent profile: it leads out of the project")
        else:
            yield path


def _text(path: Path) -> str:
    """Raises: KeenError for what is no readable text file of sensible size."""
    try:
        if not path.is_file():
            raise KeenError("it is no regular file")
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES + 1)
    except OSError as error:
        raise KeenError(f"it cannot be read: {error.strerror}") from error
    if len(data) > _FILE_BYTES:
        raise KeenError(f"it is larger than {_FILE_BYTES // 1024} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise KeenError("it is no UTF-8 text") from error


def _told(profile: Profile) -> str:
    lines = [f"{profile.name}: {profile.description}".removesuffix(": ")]
    lines.append(f"  from {profile.path or 'keen itself'}")
    lines.append(f"  tools: {_tools(profile.tools, profile.without)}")
    if profile.model:
        lines.append(f"  model: {profile.model}")
    if profile.mode:
        lines.append("  changes nothing (plan mode)")
    lines += [f"  note: {note}" for note in profile.notes]
    return "\n".join(lines)


def _tools(tools: Sequence[str] | None, without: Sequence[str]) -> str:
    words = "all" if tools is None else ", ".join(tools) or "none"
    return f"{words}; not {', '.join(without)}" if without else words

"""Skills and custom commands: found, told to the model, called by the model or by a person."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keen import _files
from keen.core.errors import ConfigError, ToolError
from keen.core.messages import JsonObject
from keen.extend._skills_found import Entry, Place, Search
from keen.extend._skills_told import called, listing, section
from keen.extend.slash import BUILT_IN, typed
from keen.paths import Paths

if TYPE_CHECKING:
    from keen.tools.skill import SkillTool

PROJECT_FOLDERS: Final = (".keen", ".agents", ".claude")
"""In each folder of a project, the strongest first; each may hold `skills` and `commands`."""
STATE_KEY: Final = "skills_off"
"""In the state file: the names that the person has switched off."""

_MOST_NOTICES: Final = 5
_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class SlashEntry:
    """What can be called by `/name`, for a menu."""

    name: str
    description: str
    argument_hint: str
    scope: str
    """`project` or `user`."""
    path: Path


def user_folders(paths: Paths) -> tuple[Path, ...]:
    """Folders of the person's own that may hold `skills` and `commands`, the strongest first."""
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # a user without a home: a relative one would lie in the project
        return (paths.config,)
    return (paths.config, home / ".agents", home / ".claude")


@dataclass
class Skills:
    """All skills and commands of a session. Reading blocks; what was read is kept until `reload`.

    On equal names the nearest folder of the project wins, then the person's own.
    """

    folders: Sequence[Path]
    """The person's own, see `user_folders`."""
    root: Path | None
    """The project's root; None: the folder is not trusted, and nothing of it is looked at."""
    cwd: Path
    state_file: Path | None = None
    entries: tuple[Entry, ...] = ()
    """In force, by name; those switched off too."""
    shadowed: tuple[Entry, ...] = ()
    """Found, but another one of the same name is nearer."""
    off: frozenset[str] = frozenset()
    """Skills that the person has switched off, here and elsewhere."""
    faults: tuple[str, ...] = ()
    """What could not be read, and why: a file and a reason each."""
    _by_slash: dict[str, Entry] = field(default_factory=dict[str, Entry])

    @classmethod
    def read(
        cls,
        user_folders: Sequence[Path],
        project_root: Path | None,
        cwd: Path,
        *,
        state_file: Path | None = None,
    ) -> Skills:
        """Look for skills and commands, reading no more than their heads. Blocking, no error."""
        root = Path(os.path.realpath(project_root)) if project_root is not None else None
        skills = cls(tuple(user_folders), root, Path(os.path.realpath(cwd)), state_file)
        skills.reload()
        return skills

    def reload(self) -> None:
        """Look again. Blocking."""
        search = Search()
        every = list(chain.from_iterable(map(search.entries, self._places())))
        found: dict[tuple[str, str], Entry] = {}
        for entry in every:
            found.setdefault((entry.kind, entry.name), entry)
        shadowed = [one for one in every if found[one.kind, one.name] is not one]
        in_order = sorted(found.values(), key=lambda one: (one.scope, one.kind, one.name))
        self.entries, self.shadowed = tuple(in_order), tuple(shadowed)
        self.faults = tuple(search.faults)
        self.off = frozenset(_names_off(self.state_file)) if self.state_file else self.off
        self._index()

    def switch(self, name: str, *, is_on: bool) -> Entry | None:
        """Switch a skill on or off, for good; None when there is none of that name. Blocking.

        Raises: ConfigError when it cannot be remembered; it holds for this session all the same.
        """
        entry = self._skill(name)
        if entry is None:
            return None
        self.off = self.off - {entry.name} if is_on else self.off | {entry.name}
        self._index()
        if self.state_file is not None:
            _keep(self.state_file, entry.name, is_on=is_on)
        return entry

    @property
    def words(self) -> str:
        """The section of the system prompt; empty when there is nothing a model may use."""
        return section(self._for_model())

    @property
    def commands(self) -> tuple[SlashEntry, ...]:
        """What a person can call, by name."""
        shortest: dict[int, str] = {}
        for name, entry in self._by_slash.items():
            shortest.setdefault(id(entry), name)
        rows = [
            SlashEntry(
                shortest[id(entry)],
                entry.description,
                entry.argument_hint,
                entry.scope,
                entry.path,
            )
            for entry in self._callable()
        ]
        return tuple(sorted(rows, key=lambda row: row.name))

    @property
    def notices(self) -> tuple[str, ...]:
        """What the person should know: what is broken, and names that are keen's own."""
        said = [f"Skill or command left out: {fault}" for fault in self.faults]
        said += [
            f"/{entry.name} is keen's own; {entry.path} is called by /{entry.kind}:{entry.name}."
            for entry in self._callable()
            if entry.name.lower() in BUILT_IN
        ]
        if len(said) > _MOST_NOTICES:
            more = len(said) - _MOST_NOTICES
            return (*said[:_MOST_NOTICES], f"{more} more about skills and commands: see /skills.")
        return tuple(said)

    @property
    def readable(self) -> tuple[Path, ...]:
        """Real folders of the skills in force: what their texts point to lies there."""
        folders = (os.path.realpath(one.path.parent) for one in self.entries if _is_skill(one))
        return tuple(Path(folder) for folder in dict.fromkeys(folders))

    def tool(self) -> SkillTool | None:
        """The model's way to a skill; None when there is none it may use."""
        if not self._for_model():
            return None
        from keen.tools.skill import SkillTool

        return SkillTool(self.load)

    def find(self, text: str) -> Entry | None:
        """What a typed text would call; None when it is no call of a skill or command."""
        call = typed(text)
        if call is None:
            return None
        name = call[0]
        return self._by_slash.get(name) or self._by_slash.get(name.lower())

    def expand(self, text: str) -> str | None:
        """The message that a typed `/name arguments` stands for; None for any other text. Blocking.

        A file that can no longer be read is said in the message.
        """
        entry, call = self.find(text), typed(text)
        if entry is None or call is None:
            return None
        first, _, rest = text.strip().partition("\n")
        title = first[:200] + ("…" if rest or len(first) > 200 else "")
        try:
            body = called(entry, call[1])
        except ToolError as error:
            body = f"[{error}]"
        return f"[Command: {title}]\n\n{body}"

    def load(self, name: str, arguments: str) -> str:
        """A skill for the model; without a name the list of all. Blocking.

        Raises: ToolError when there is none of that name, or it is not the model's to use.
        """
        name = name.strip().removeprefix("/").removeprefix("skill:")
        if not name:
            return listing(self._for_model())
        entry = self._skill(name)
        if entry is None:
            raise ToolError(self._unknown(name))
        if entry.name in self.off:
            raise ToolError(f"The person has switched the skill {entry.name} off.")
        if not entry.is_for_model:
            raise ToolError(
                f"Only the person starts the skill {entry.name}, by typing /{entry.name}. "
                "Tell them if it would help."
            )
        return called(entry, arguments.strip())

    def renewed(self, system: str, before: str) -> str:
        """A system prompt with the words of now in the place of those of `before`."""
        now = self.words
        if before and before in system:
            if now:
                return system.replace(before, now, 1)
            return system.replace(f"\n\n{before}", "", 1)
        return f"{system}\n\n{now}" if now and not before else system

    def _places(self) -> Iterator[Place]:
        below = [self.root] if self.root is not None else []
        if self.root is not None and self.cwd.is_relative_to(self.root):
            for part in self.cwd.relative_to(self.root).parts:
                below.append(below[-1] / part)
        own = {os.path.realpath(folder) for folder in self.folders}
        for directory in reversed(below):
            for folder in (directory / name for name in PROJECT_FOLDERS):
                # Where the home directory itself is worked in, its folders are the person's own.
                if os.path.realpath(folder) not in own:
                    yield Place(folder / "skills", "skill", "project", self.root)
                    yield Place(folder / "commands", "command", "project", self.root)
        for folder in self.folders:
            yield Place(folder / "skills", "skill", "user")
            yield Place(folder / "commands", "command", "user")

    def _for_model(self) -> list[Entry]:
        return [one for one in self.entries if one.is_for_model and one.name not in self.off]

    def _callable(self) -> list[Entry]:
        return [
            one
            for one in self.entries
            if one.is_for_person and not (_is_skill(one) and one.name in self.off)
        ]

    def _index(self) -> None:
        """Skills come before commands of their name; both have a long name that always works."""
        ways: dict[str, Entry] = {}
        entries = sorted(self._callable(), key=lambda one: not _is_skill(one))
        for entry in entries:
            if entry.name.lower() not in BUILT_IN:
                ways.setdefault(entry.name, entry)
        for entry in entries:
            ways.setdefault(f"{entry.kind}:{entry.name}", entry)
        self._by_slash = ways

    def _skill(self, name: str) -> Entry | None:
        skills = {one.name: one for one in self.entries if _is_skill(one)}
        return skills.get(name) or skills.get(name.lower())

    def _unknown(self, name: str) -> str:
        names = [one.name for one in self._for_model()]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"There is no skill {name!r}.{hint} Skills: {_joined(names[:_MOST_NAMED])}{more}."


def _is_skill(entry: Entry) -> bool:
    return entry.kind == "skill"


def _joined(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def _names_off(state_file: Path) -> list[str]:
    try:
        names = _files.read_json(state_file).get(STATE_KEY)
    except ConfigError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _keep(state_file: Path, name: str, *, is_on: bool) -> None:
    def change(value: JsonObject) -> None:
        before = value.get(STATE_KEY)
        names = {one for one in before if isinstance(one, str)} if isinstance(before, list) else ()
        value[STATE_KEY] = [*sorted({*names} - {name} if is_on else {*names, name})]

    _files.update_json(state_file, change)

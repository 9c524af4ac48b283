"""Hooks that a trusted project brings: each runs only where the person agreed to exactly that one.

Hooks run outside of the sandbox, so an agreement covers the project's scripts that a hook names: a
model may edit those unasked. What such a script reads or loads in turn is not covered.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from pydantic import ValidationError

from keen import _files, _toml, sanitize
from keen._settings import Hook, expectation
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.extend._hooks_answer import unknown_event
from keen.extend.project_text import beginning
from keen.paths import Paths

PROJECT_FILE: Final = Path(".keen") / "hooks.toml"
SHELL_FILES: Final = (
    Path(".claude") / "settings.json",
    Path(".claude") / "settings.local.json",
)
"""Where a project may keep hooks that are texts for a shell. They are counted, never run."""

FILE_BYTES: Final = 262_144
SCRIPT_BYTES: Final = 16 * 1024 * 1024
"""The largest file that a hook of a project may name: it is hashed before each run."""
_MOST: Final = 64
_TOLD: Final = 5

State: TypeAlias = Literal["approved", "not approved", "changed"]


@dataclass(frozen=True, slots=True)
class ProjectHook:
    """One hook of a project, as it was when the project's file was read.

    `root`: the project, where it runs. `key`: a hash over all that an approval is for.
    """

    event: str
    hook: Hook
    root: Path
    key: str

    @classmethod
    def read(cls, event: str, hook: Hook, root: Path) -> ProjectHook:
        """Raises: ConfigError when it names a file that cannot be hashed. Blocking."""
        return cls(event, hook, root, _key(event, hook, root))

    @property
    def command(self) -> str:
        """The words of the command, kept apart as in a shell."""
        return shlex.join(self.hook.command)

    @property
    def shown(self) -> str:
        """For a person: event, matcher and command."""
        matcher = f" for {self.hook.matcher}" if self.hook.matcher else ""
        return f"{self.event}{matcher}: {self.command}"

    @property
    def scripts(self) -> tuple[str, ...]:
        """Words of the command that name something of the project. Blocking."""
        return _scripts(self.hook, self.root)

    def key_now(self) -> str:
        """The hash over what it would be now. Raises: ConfigError. Blocking."""
        return _key(self.event, self.hook, self.root)

    def is_same(self, entry: Json) -> bool:
        """True for the approval of an earlier state of this hook."""
        names = ("event", "matcher", "command", "project")
        mine = [self.event, self.hook.matcher, self.command, str(self.root)]
        return isinstance(entry, dict) and [entry.get(name) for name in names] == mine


@dataclass
class ProjectHooks:
    """The hooks of a trusted project, and which of them may run. All methods block."""

    root: Path
    approvals: Path
    hooks: tuple[ProjectHook, ...] = ()
    faults: tuple[str, ...] = ()
    """A sentence for each thing that was left out."""
    _read: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, root: Path, paths: Paths) -> ProjectHooks:
        """The hooks of the project in the real path `root`, which is trusted."""
        found = cls(root, paths.data / "hook-approvals.json")
        found.reload()
        return found

    def reload(self) -> None:
        """Read the project's file again."""
        self._read = []
        self.hooks = tuple(self._hooks())[:_MOST]
        self.faults = tuple(self._read)

    @property
    def notices(self) -> tuple[str, ...]:
        """What was left out, and in one line which hooks do not run."""
        waiting = [one.shown for one in self.hooks if self.state(one) != "approved"]
        if not waiting:
            return self.faults
        more = [f"{len(waiting) - _TOLD} more"] if len(waiting) > _TOLD else []
        names = "; ".join([*waiting[:_TOLD], *more])
        return (
            *self.faults,
            f"{PROJECT_FILE}: not approved, so not run: {names}. See /hooks or `keen hooks list`.",
        )

    def state(self, one: ProjectHook) -> State:
        """Whether the hook may run, "changed" where an earlier state of it might."""
        approved = self._approved()
        try:
            if one.key_now() in approved:
                return "approved"
        except ConfigError:
            return "not approved"
        return "changed" if any(map(one.is_same, approved.values())) else "not approved"

    def approve(self, one: ProjectHook) -> None:
        """Remember the person's yes to the hook as it was read. Raises: ConfigError."""
        entry: JsonObject = {
            "event": one.event,
            "matcher": one.hook.matcher,
            "command": one.command,
            "project": str(one.root),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._change(lambda approved: {**approved, one.key: entry})

    def revoke(self, one: ProjectHook) -> None:
        """Forget every yes to the hook, whatever it was then. Raises: ConfigError."""
        self._change(
            lambda approved: {
                key: entry
                for key, entry in approved.items()
                if key != one.key and not one.is_same(entry)
            }
        )

    def runnable(
        self, chosen: Iterable[ProjectHook]
    ) -> tuple[tuple[ProjectHook, ...], tuple[str, ...]]:
        """Those of `chosen` that may run now, and a sentence for each that changed meanwhile."""
        states = [(one, self.state(one)) for one in chosen]
        return (
            tuple(one for one, state in states if state == "approved"),
            tuple(
                f"The hook {one.shown} changed since you approved it, so it does not run: /hooks"
                for one, state in states
                if state == "changed"
            ),
        )

    def _approved(self) -> JsonObject:
        """An unreadable file approves nothing."""
        try:
            found = _files.read_json(self.approvals).get("approved")
        except ConfigError:
            return {}
        return found if isinstance(found, dict) else {}

    def _change(self, changed: Callable[[JsonObject], JsonObject]) -> None:
        def change(value: JsonObject) -> None:
            found = value.get("approved")
            value["approved"] = changed(found if isinstance(found, dict) else {})

        _files.update_json(self.approvals, change)

    def _hooks(self) -> Iterator[ProjectHook]:
        file = self.root / PROJECT_FILE
        try:
            text, is_longer = beginning(file, FILE_BYTES, boundary=self.root)
            if is_longer:
                raise OSError(f"it is over {FILE_BYTES // 1024} KiB")
            values = cast("JsonObject", tomllib.loads(text.replace("\r\n", "\n")))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._left_out(f"cannot be read: {error.strerror or error}")
            return
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self._left_out(f"{error}: expected TOML. Its hooks are left out.")
            return
        lines = _toml.key_lines(text)
        for name in values:
            if name != "hooks":
                self._left_out(f"{name} is ignored: only [[hooks.EVENT]] is read", lines, (name,))
        tables = values.get("hooks", {})
        if not isinstance(tables, dict):
            self._left_out("hooks should be tables, as in [[hooks.PreToolUse]]", lines, ("hooks",))
            return
        for event, entries in tables.items():
            yield from self._of_event(event, entries, lines)

    def _of_event(
        self, event: str, entries: Json, lines: Mapping[_toml.Location, int]
    ) -> Iterator[ProjectHook]:
        where: _toml.Location = ("hooks", event)
        if wrong := unknown_event(event):
            self._left_out(wrong, lines, where)
            return
        if not isinstance(entries, list):
            self._left_out(f"hooks.{event}: expected [[hooks.{event}]]", lines, where)
            return
        for at, entry in enumerate(entries):
            one = self._one(event, entry, (*where, at), lines)
            if one is not None:
                yield one

    def _one(
        self, event: str, entry: Json, where: _toml.Location, lines: Mapping[_toml.Location, int]
    ) -> ProjectHook | None:
        try:
            return ProjectHook.read(event, Hook.model_validate(entry), self.root)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                place = (*where, *detail["loc"])
                kind, context = detail["type"], detail.get("ctx", {})
                wanted = expectation(kind, detail["msg"], context)
                if kind == "extra_forbidden":
                    wanted = "only command, matcher and timeout"
                self._left_out(
                    f"{_toml.dotted(place)}: expected {wanted}. This hook is left out.",
                    lines,
                    place,
                )
        except ConfigError as error:
            self._left_out(f"{_toml.dotted(where)}: {error} This hook is left out.", lines, where)
        return None

    def _left_out(
        self,
        why: str,
        lines: Mapping[_toml.Location, int] | None = None,
        where: _toml.Location = (),
    ) -> None:
        line = f":{_toml.line_of(lines, where)}" if lines else ""
        self._read.append(sanitize.line(f"{PROJECT_FILE}{line}: {why}"))


def shell_hooks(root: Path) -> str:
    """One sentence about hooks of the project that are texts for a shell; "" without. Blocking."""
    found = {file: _count(root / file, root) for file in SHELL_FILES}
    names = " and ".join(str(file) for file, count in found.items() if count)
    if not names:
        return ""
    return (
        f"{names} has hooks ({sum(found.values())}) that are texts for a shell: keen does not run "
        f"them. Write them as [[hooks.EVENT]] with command = [argv] in {PROJECT_FILE}."
    )


def _count(file: Path, root: Path) -> int:
    try:
        text, _ = beginning(file, FILE_BYTES, boundary=root)
        value: object = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return 0
    events = cast("JsonObject", value).get("hooks") if isinstance(value, dict) else None
    groups = [group for groups in _values(events) for group in _values(groups)]
    lists = [group.get("hooks") for group in groups if isinstance(group, dict)]
    return sum(len(one) for one in lists if isinstance(one, list))


def _values(value: Json) -> Sequence[Json]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else ()


def _key(event: str, hook: Hook, root: Path) -> str:
    parts: list[Json] = [
        event,
        hook.matcher,
        [*hook.command],
        hook.timeout,
        str(root),
        [_content(word, root) for word in _scripts(hook, root)],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _scripts(hook: Hook, root: Path) -> tuple[str, ...]:
    return tuple(word for word in hook.command if _is_inside(word, root))


def _is_inside(word: str, root: Path) -> bool:
    """True when a word names something that is there, below `root` as it is spelt."""
    if not word or word.startswith("-") or "\0" in word:
        return False
    path = Path(os.path.normpath(root / word))
    return path != root and path.is_relative_to(root) and os.path.lexists(path)


def _content(word: str, root: Path) -> list[Json]:
    """What a word names, links followed, and a hash of a regular file of the project."""
    real = Path(os.path.realpath(root / word))
    named: list[Json] = [word, str(real)]
    if not real.is_relative_to(root):
        return named
    try:
        found = real.stat()
        if not stat.S_ISREG(found.st_mode):
            return named
        if found.st_size > SCRIPT_BYTES:
            raise ConfigError(f"{word} is larger than {SCRIPT_BYTES // 1024**2} MB.")
        with real.open("rb") as file:
            return [*named, hashlib.file_digest(file, "sha256").hexdigest()]
    except FileNotFoundError:
        return named
    except OSError as error:
        raise ConfigError(f"{word} cannot be read: {error.strerror}.") from error

"""Which bounds a command gets: from the sandbox, the mode, and what a person was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from keen._files import make_private_directory, write_private
from keen.core.errors import ConfigError, ToolError
from keen.tools._launch import Appeal, Launch, environment_of, open_launch, shell_argv
from keen.tools.base import Context
from keen.tools.guard import printable
from keen.tools.permission.policy import Policy
from keen.tools.sandbox import denial
from keen.tools.sandbox.appeal import ask_person
from keen.tools.sandbox.confines import Confines
from keen.tools.sandbox.probe import Sandbox

_NO_HOOKS: Final = (("core.hooksPath", "/dev/null"),)
_TAKEN: Final = "taken-away"
_MOST_SAID: Final = 5


@dataclass
class Placeholders:
    """Empty directories that stand where a protected name is missing, so that none can be made.

    Shared by all commands of a session: the last one to end takes them away.
    """

    register: Path | None = None
    """keen's directory that notes which stand, for a start after one that was killed."""
    _held: Counter[Path] = field(default_factory=Counter[Path])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Make the directories, parents first. Returns: those that stand."""
        standing: list[Path] = []
        with self._lock:
            self._note(path for path in paths if not os.path.lexists(path))
            for path in sorted(paths):
                with contextlib.suppress(OSError):
                    path.mkdir(mode=0o755)
                    self._held[path] = 0
                if path in self._held:
                    self._held[path] += 1
                if os.path.isdir(path):
                    standing.append(path)
        return tuple(standing)

    def let_go(self, paths: tuple[Path, ...]) -> None:
        """Remove what no other command needs, if it is still empty."""
        with self._lock:
            for path in sorted(paths, reverse=True):
                if path not in self._held:
                    continue
                self._held[path] -= 1
                if self._held[path] <= 0:
                    del self._held[path]
                    with contextlib.suppress(OSError):
                        path.rmdir()
            if not self._held and self.register is not None:
                with contextlib.suppress(OSError):
                    self._file(self.register, os.getpid()).unlink()

    def sweep(self) -> None:
        """Remove what a keen that was killed left standing, if it is still empty. Blocking."""
        if self.register is None or not self.register.is_dir():
            return
        for file in self.register.glob("*.json"):
            if not file.stem.isdecimal() or _is_alive(int(file.stem)):
                continue
            for path in sorted(_noted(file), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
            with contextlib.suppress(OSError):
                file.unlink()

    def _note(self, paths: Iterable[Path]) -> None:
        """Write down what is about to be made: before, so that nothing is ever forgotten."""
        if self.register is None or not (new := set(paths)):
            return
        names = sorted(map(str, new | set(self._held)))
        with contextlib.suppress(OSError, ConfigError):
            make_private_directory(self.register)
            write_private(self._file(self.register, os.getpid()), json.dumps(names))

    @staticmethod
    def _file(register: Path, pid: int) -> Path:
        return register / f"{pid}.json"


@dataclass(frozen=True, slots=True)
class Confinement:
    """Starts commands in the sandbox, as the policy's mode wants it. A `Launcher`.

    The policy has allowed the command before: what needs a question was asked.
    """

    sandbox: Sandbox
    policy: Policy
    placeholders: Placeholders = field(default_factory=Placeholders)

    def under(self, policy: Policy) -> Confinement:
        """The same for a subagent's policy."""
        return replace(self, policy=policy)

    def __call__(self, command: str, needs: str, context: Context) -> Launch:
        """Blocking. Raises: ToolError where a sandbox is required and there is none."""
        sandbox = self.sandbox
        if sandbox.is_required and sandbox.level != "full":
            raise ToolError(
                f'Commands are refused: permissions.sandbox is "require", but {sandbox.reason}. '
                "`keen doctor` says what to install. Go on without commands."
            )
        is_yolo = self.policy.mode == "yolo"
        is_outside = needs == "outside"
        if sandbox.level == "none" or (is_outside and not is_yolo):
            return open_launch(command, needs, context)
        nature = self.policy.nature(command)
        is_reading = self.policy.mode == "plan" or nature == "read"
        has_git = not is_reading and (nature == "git" or (is_outside and is_yolo))
        openings = self.policy.openings
        surveyor = replace(
            sandbox.surveyor,
            covers=self.policy.is_covered,
            is_any=self.policy.denies_reads,
            writable=(*sandbox.surveyor.writable, *openings.writable),
        )
        confines = surveyor.survey(
            context,
            network=openings.has_network or needs != "",
            git=has_git,
            is_reading=is_reading,
            is_wide=is_outside,
        )
        return self._launch(command, context, confines, is_reading=is_reading, has_git=has_git)

    def _launch(
        self,
        command: str,
        context: Context,
        confines: Confines,
        *,
        is_reading: bool,
        has_git: bool,
    ) -> Launch:
        is_full = self.sandbox.level == "full"
        missing = confines.missing if is_full else ()
        standing = self.placeholders.hold(missing)
        try:
            confines = replace(confines, missing=standing)
            argv = tuple(self.sandbox.around(shell_argv(command), confines))
            environment = {
                **environment_of(context),
                "TMPDIR": self.sandbox.temporary(confines),
            }
            hooks = has_git and _has_hooks(confines)
            if has_git:
                environment |= _git_settings(environment)
        except BaseException:
            self.placeholders.let_go(missing)
            raise

        # Only a full sandbox stops connections: elsewhere a failed one has other reasons.
        bounds = replace(confines, has_network=confines.has_network or not is_full)

        def note(text: str, code: int) -> str:
            is_plan = self.policy.mode == "plan"
            told = denial.note(text, code, bounds, is_reading=is_plan, hooks=hooks)
            appeared = [] if is_reading else _appeared(confines)
            return "\n".join(filter(None, (told, *_mended(confines), *appeared)))

        async def appeal(text: str, code: int) -> Appeal:
            stopped = await asyncio.to_thread(denial.denied, text, code, bounds)
            return await ask_person(command, stopped if code else (), self.policy, context)

        def release() -> None:
            self.placeholders.let_go(missing)
            _mended(confines)

        return Launch(argv, environment, True, confines.temporary, note, appeal, release)


def _noted(file: Path) -> list[Path]:
    """The paths of one register."""
    try:
        names: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(names, list):
        return []
    texts = (name for name in cast("list[object]", names) if isinstance(name, str))
    return [Path(text) for text in texts if os.path.isabs(text)]


def _is_alive(pid: int) -> bool:
    """Whether a process of this number runs; a number used again only delays the sweep."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _git_settings(environment: dict[str, str]) -> dict[str, str]:
    """Variables by which git runs no hook: a commit's directory may be written meanwhile."""
    count = int(environment.get("GIT_CONFIG_COUNT", "0"))
    added = {"GIT_CONFIG_COUNT": str(count + len(_NO_HOOKS))}
    for number, (key, value) in enumerate(_NO_HOOKS, count):
        added |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return added


def _has_hooks(confines: Confines) -> bool:
    """Whether there is a hook that a person might expect to run."""
    for place in confines.protected:
        if place.name != "hooks" and ".husky" not in place.parts:
            continue
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                is_sample = entry.name.endswith(".sample") or not entry.is_file()
                if not is_sample and os.access(entry.path, os.X_OK):
                    return True
    return False


def _mended(confines: Confines) -> list[str]:
    """Undo what no mount can keep from happening: a replaced link, a file that bends git."""
    said: list[str] = []
    for path in confines.absent:
        if os.path.lexists(path):
            _take_away(path, confines)
            said.append(f"[sandbox] {printable(str(path))} is protected and was taken away")
    for link, target in confines.links:
        if os.path.islink(link) and os.readlink(link) == target:
            continue
        with contextlib.suppress(OSError):
            if os.path.lexists(link):
                _take_away(link, confines)
            link.symlink_to(target)
            said.append(f"[sandbox] the link {printable(str(link))} is protected and was put back")
    return said


def _appeared(confines: Confines) -> list[str]:
    """Says what is new below the top under a protected name; keen's own is taken away."""
    said: list[str] = []
    for path in confines.new_nested():
        if path.name == ".keen":
            _take_away(path, confines)
            said.append(f"[sandbox] {printable(str(path))} is protected and was taken away")
        else:
            said.append(
                f"[sandbox] {printable(str(path))} is new: other programs obey what stands in it"
            )
    return said[:_MOST_SAID]


def _take_away(path: Path, confines: Confines) -> None:
    """Move to the session's scratch, also where that is on another disk."""
    away = confines.scratch / _TAKEN
    with contextlib.suppress(OSError):
        away.mkdir(mode=0o700, exist_ok=True)
        shutil.move(path, away / f"{path.name}-{os.urandom(4).hex()}")

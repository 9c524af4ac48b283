"""What a sandboxed command may see and change: looked up anew for each command.

Nothing here knows how a sandbox is made; `bubblewrap`, `landlock` and `seatbelt` do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.errors import ToolError
from keen.tools.base import Context
from keen.tools.guard import (
    Guard,
    git_directories,
    hooks_directories,
    is_environment_file,
    login_places,
    protected_names,
    real_path,
)

_PASSED_OVER: Final = frozenset({
    ".git", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", "target", ".next", ".gradle",
})  # fmt: skip
"""Directories in which nobody keeps secrets of their own, and which are large."""

_MOST_DIRECTORIES: Final = 20_000
_MOST_COVERED: Final = 400
"""Mounts that one command may need; more cost seconds."""
_MOST_NESTED: Final = 200
"""Protected places below the top of the workspace that get a mount; more cost seconds."""
_MODULES_DEPTH: Final = 4
_PROTECTED: Final = frozenset(protected_names())
_NOT_IN_GIT: Final = ("hooks", "info")
"""What a commit does not need to change in a git directory, and what git runs or obeys."""

Covers = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class Confines:
    """The bounds of one command. Every path is absolute and real."""

    cwd: Path
    scratch: Path
    """Where spooled output is: readable."""
    temporary: Path
    """Stands for /tmp."""
    roots: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    """Inside what is writable, there, and read-only."""
    pinned: tuple[Path, ...] = ()
    """Directories above protected ones: writable, but they keep their names."""
    hidden: tuple[Path, ...] = ()
    """Directories and files outside the workspace that hold credentials; there."""
    covered: tuple[Path, ...] = ()
    """Files and directories of the workspace that are not shown."""
    shown: tuple[Path, ...] = ()
    """Parts of hidden directories that may be read."""
    missing: tuple[Path, ...] = ()
    """Protected names that are not there: nothing may appear under them."""
    links: tuple[tuple[Path, str], ...] = ()
    """Protected names that are symbolic links, and where they lead."""
    absent: tuple[Path, ...] = ()
    """Files that no command may leave behind: git would take its settings from elsewhere."""
    has_network: bool = False
    is_wide: bool = False
    """Everything may be changed but what is protected or hidden."""
    nested: frozenset[Path] = frozenset()
    """Protected names below the top of the workspace that were there before the command."""

    def new_nested(self) -> list[Path]:
        """Those that are there by now: no mount keeps a new one from appearing. Blocking."""
        names = (entry for entry in _walked(self.roots) if _is_nested(entry, self.roots))
        return sorted({Path(entry.path) for entry in names} - self.nested)


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Looks up the confines. `covers`: may a file of the workspace not be shown.

    `is_any`: every file may be covered, not only names that begin with a dot. `writable`: folders
    beside the workspace that commands may change.
    """

    guard: Guard
    covers: Covers = is_environment_file
    is_any: bool = False
    writable: tuple[Path, ...] = ()

    def survey(
        self,
        context: Context,
        *,
        network: bool = False,
        git: bool = False,
        is_reading: bool = False,
        is_wide: bool = False,
    ) -> Confines:
        """The confines of one command. Blocking: reads directories of the workspace.

        `git`: the git directories may change but for hooks and configuration. `is_reading`: the
        workspace may not. Raises: ToolError when there are too many files to cover.
        """
        hidden = tuple(dict.fromkeys(_present(self.guard.hidden_places())))
        opened = () if is_reading else tuple(_present(self.writable))
        roots = () if is_reading else (*context.roots, *opened)

        def exposed(places: tuple[Path, ...]) -> tuple[Path, ...]:
            """Those that lie where commands may write although it is not the workspace."""
            tops = (Path("/"),) if is_wide else opened
            return tuple(p for p in places if any(p.is_relative_to(top) for top in tops))

        logins, own = exposed(login_places()), exposed(self.guard.own)
        covered, nested = self._looked_through(context.roots, shows_all=git)
        barred = _Barred(context, roots, git=git)
        barred.look(nested[:_MOST_NESTED])
        if len(covered) > _MOST_COVERED:
            raise ToolError(
                f"More than {_MOST_COVERED} files of the workspace are to be hidden from commands. "
                "Tell the person to write the deny rules for whole directories."
            )
        return Confines(
            cwd=context.cwd,
            scratch=context.scratch,
            temporary=context.scratch / "tmp",
            roots=context.roots,
            writable=(*roots, *barred.opened),
            protected=(*barred.protected, *_present(logins)),
            pinned=tuple(barred.pinned),
            hidden=hidden,
            covered=tuple(covered),
            shown=tuple(_present(self.guard.readable)),
            missing=(*barred.missing, *_unmade(own)),
            links=tuple(barred.links),
            absent=(*barred.absent, *_unmade_files(logins)),
            has_network=network,
            is_wide=is_wide,
            nested=frozenset(nested),
        )

    def _looked_through(
        self, roots: tuple[Path, ...], *, shows_all: bool
    ) -> tuple[list[Path], list[Path]]:
        """What is to be covered in the workspace, and protected names below its top."""
        covered: list[Path] = []
        nested: list[Path] = []
        closed: set[str] = set()
        for entry in _walked(roots, closed):
            if not shows_all and self._is_covered(entry):
                closed.add(entry.path)
                covered += _present((Path(entry.path),))
            elif _is_nested(entry, roots):
                nested.append(Path(entry.path))
        return covered, nested

    def _is_covered(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if not self.is_any and name.isascii() and not name.startswith("."):
            return False
        if not self.covers(Path(entry.path)):
            return False
        return not os.path.exists(f"{entry.path}/pyvenv.cfg")  # a virtual environment named .env


class _Barred:
    """Collects what is protected inside the writable roots."""

    def __init__(self, context: Context, roots: tuple[Path, ...], *, git: bool) -> None:
        self._context = context
        self._roots = roots
        self._has_git = git
        self.protected: dict[Path, None] = {}
        self.pinned: dict[Path, None] = {}
        self.missing: dict[Path, None] = {}
        self.links: dict[tuple[Path, str], None] = {}
        self.absent: list[Path] = []
        self.opened: list[Path] = []
        """Git directories outside the roots that a commit needs."""

    def look(self, nested: Sequence[Path]) -> None:
        """Fill everything. `nested`: protected names that are there, below the roots' top."""
        if not self._roots:
            return
        self._look_at_top()
        self._look_at_git()
        for place in nested:
            self._look_inside(place)

    def _look_at_top(self) -> None:
        for root in self._context.roots:
            for name in protected_names():
                if name != ".git" or not self._has_git:
                    self._bar(root, root / name)
        for root in self._roots[len(self._context.roots) :]:  # opened: what is missing may be made
            for place in filter(os.path.lexists, (root / name for name in protected_names())):
                self._bar(root, place)

    def _look_at_git(self) -> None:
        for directory in git_directories(self._context.roots):
            for hooks in hooks_directories(directory, self._context):
                self._bar(self._root_of(hooks), hooks)
            if self._has_git:
                self._open(Path(real_path(directory)), directory)
            else:
                self._bar(self._root_of(directory), directory)

    def _look_inside(self, place: Path) -> None:
        """A protected name below the top keeps its content; what is above it may be renamed."""
        real = Path(real_path(place))
        if self._has_git and place.name == ".git" and real.is_dir():
            self._open(real, place)
            return
        if os.path.islink(place):
            self.links[place, os.readlink(place)] = None
        if os.path.lexists(real):
            self.protected[real] = None

    def _root_of(self, path: Path) -> Path | None:
        return next((root for root in self._roots if path.is_relative_to(root)), None)

    def _bar(self, root: Path | None, path: Path) -> None:
        """Make one path read-only, also where it is a link, also where it is not there yet."""
        if root is None or path == root:
            return
        for part in (*reversed(path.relative_to(root).parents), path.relative_to(root)):
            if os.path.islink(root / part):
                self.links[root / part, os.readlink(root / part)] = None
        real = Path(real_path(path))
        root = self._root_of(real)
        if root is None or real in self._roots:
            return
        if os.path.lexists(real):
            self.protected[real] = None
        else:
            self.missing[real] = None
        for parent in real.parents:
            if parent == root or parent in self._roots:
                break
            (self.pinned if os.path.lexists(parent) else self.missing)[parent] = None

    def _open(self, real: Path, marker: Path) -> None:
        """A git directory that a commit may change, hooks and configuration excepted."""
        if not _is_git_directory(real) or not self._is_ours(real):
            if os.path.lexists(real):  # a missing one may be made: git init
                self._bar(self._root_of(marker), marker)
            return
        if os.path.islink(marker):
            self.links[marker, os.readlink(marker)] = None
        if self._root_of(real) is None:
            self.opened.append(real)
            self._roots = (*self._roots, real)
        else:
            self.pinned[real] = None
        for directory in (real, *_modules(real)):
            for name in (*_NOT_IN_GIT, "config"):
                self._bar(real, directory / name)
            for name in ("config.worktree", "commondir", "gitdir"):
                if os.path.lexists(directory / name):
                    self._bar(real, directory / name)
                else:
                    self.absent.append(directory / name)

    def _is_ours(self, real: Path) -> bool:
        """False where a `.git` file of the workspace points at somebody else's repository."""
        if self._root_of(real) is not None:
            return True
        tops = [top for root in self._context.roots for top in (root, *root.parents)]
        if any(real == top / ".git" for top in tops):
            return True
        back = _line(real / "gitdir")
        if back:
            return any(real_path(back) == str(top / ".git") for top in tops)
        worktrees = real / "worktrees"
        named = (_line(Path(entry.path) / "gitdir") for entry in _entries(str(worktrees)))
        return any(real_path(name) == str(top / ".git") for name in named for top in tops)


def _walked(roots: Iterable[Path], closed: Collection[str] = ()) -> Iterator[os.DirEntry[str]]:
    """What lies in the workspace, but for what is in large directories that programs fill.

    The upper levels come first: of a larger tree than is looked at, the depths are left out.
    `closed`: paths that are not entered; the caller may add to them on the way.
    """
    seen = 0
    waiting = deque(str(root) for root in roots)
    while waiting and seen < _MOST_DIRECTORIES:
        seen += 1
        for entry in _entries(waiting.popleft()):
            yield entry
            if entry.path in closed or entry.name in _PASSED_OVER:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _is_nested(entry: os.DirEntry[str], roots: tuple[Path, ...]) -> bool:
    """True for a protected name that does not stand at the top of the workspace."""
    is_protected = entry.name.startswith(".") and entry.name in _PROTECTED
    return is_protected and Path(entry.path).parent not in roots


def _is_git_directory(path: Path) -> bool:
    has_store = os.path.isdir(path / "objects") or os.path.isfile(path / "commondir")
    return has_store and os.path.lexists(path / "HEAD")


def _modules(directory: Path) -> Iterator[Path]:
    """The git directories of submodules, at any depth that anybody uses."""
    waiting = [(directory / "modules", 0)]
    while waiting:
        place, depth = waiting.pop()
        for entry in _entries(str(place)):
            if not entry.is_dir(follow_symlinks=False):
                continue
            found = Path(entry.path)
            if _is_git_directory(found):
                yield found
                waiting.append((found / "modules", 0))
            elif depth < _MODULES_DEPTH:
                waiting.append((found, depth + 1))


def _present(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Where the paths that exist really are."""
    for path in paths:
        real = real_path(path)
        if os.path.exists(real):
            yield Path(real)


def _unmade(places: tuple[Path, ...]) -> Iterator[Path]:
    """Of places that are not there, themselves and each directory above them that is not."""
    for place in places:
        for path in (place, *place.parents):
            if os.path.lexists(path):
                break
            yield path


def _unmade_files(places: tuple[Path, ...]) -> Iterator[Path]:
    return (place for place in places if not os.path.lexists(place))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _line(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(4_096).strip()
    except OSError:
        return ""

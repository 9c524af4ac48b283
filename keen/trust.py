"""Which folders the user said may influence keen; nothing in a workspace is read as advice before.

Git's own files are only ever read, and believed only where both sides agree: a `.git` file can
point anywhere, so a worktree belongs to a repository when that repository points back to it
(GHSA-q5hj-mxqh-vv77: a crafted pointer inherited the trust of another folder).
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from keen import _files
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.paths import Paths

TAKE_EFFECT: Final = (
    "AGENTS.md",
    "CLAUDE.md",
    ".keen/config.toml",
    ".keen/skills",
    ".keen/agents",
    ".keen/commands",
    ".keen/hooks.toml",
    ".mcp.json",
    ".agents/skills",
    ".agents/agents",
    ".agents/commands",
    ".claude/skills",
    ".claude/agents",
    ".claude/commands",
)
"""What of a project would take effect once it is trusted."""

_POINTER_BYTES: Final = 4_096


def is_trusted(path: Path, paths: Paths) -> bool:
    """True when the user trusted this folder, its repository, or the repository of its worktree.

    An unreadable trust file trusts nothing.
    """
    try:
        folders = _files.read_json(paths.trust_file).get("folders")
    except ConfigError:
        return False
    return isinstance(folders, dict) and str(_trusted_unit(path)) in folders


def trust(path: Path, paths: Paths) -> None:
    """Remember the user's yes. Raises: ConfigError when it cannot be stored."""
    now: Json = datetime.now(UTC).isoformat(timespec="seconds")
    _remember(path, paths, folders=now, refused=None)


def refuse(path: Path, paths: Paths) -> None:
    """Remember the user's no to what would take effect now; it takes back an earlier yes.

    Raises: ConfigError when it cannot be stored.
    """
    names: Json = [*what_would_take_effect(path)]
    _remember(path, paths, folders=None, refused=names)


def distrust(path: Path, paths: Paths) -> None:
    """Forget the user's yes. Raises: ConfigError when that cannot be stored."""
    _remember(path, paths, folders=None)


def is_refused(path: Path, paths: Paths) -> bool:
    """True when the user said no to everything that would take effect now: then nobody asks."""
    try:
        refused = _files.read_json(paths.trust_file).get("refused")
    except ConfigError:
        return False
    names = refused.get(str(_trusted_unit(path))) if isinstance(refused, dict) else None
    return isinstance(names, list) and set(what_would_take_effect(path)) <= {*map(str, names)}


def _remember(path: Path, paths: Paths, **answers: Json) -> None:
    """Store an answer for what a yes covers, in the table of its name; None takes it out."""
    unit = str(_trusted_unit(path))

    def change(value: JsonObject) -> None:
        for name, answer in answers.items():
            found = value.get(name)
            table: JsonObject = found if isinstance(found, dict) else {}
            table.pop(unit, None)
            if answer is not None:
                table[unit] = answer
            value[name] = table

    _files.update_json(paths.trust_file, change)


def project_root(path: Path) -> Path:
    """The real path of the repository around `path`; the folder itself outside of one.

    The home directory and the root of the file system are never a project's root: whoever keeps
    dotfiles in git would otherwise trust every download below with one yes.
    """
    here = Path(os.path.realpath(path))
    too_wide = {Path(os.path.realpath(os.path.expanduser("~"))), Path(here.anchor)}
    for directory in (here, *here.parents):
        if directory in too_wide:
            break
        if _kind(directory / ".git"):
            return directory
    return here


def what_would_take_effect(root: Path) -> tuple[str, ...]:
    """Names of the project's files that trust would bring into effect, looked for, not read."""
    start = project_root(root)
    here = Path(os.path.realpath(root))
    below = [start, *reversed([step for step in (here, *here.parents) if start in step.parents])]
    found = (
        (directory / name).relative_to(start).as_posix()
        for directory in below
        for name in TAKE_EFFECT
        if _kind(directory / name)
    )
    return tuple(dict.fromkeys(found))


def current_branch(path: Path) -> str:
    """The branch that is checked out around `path`, as HEAD names it; empty for none."""
    marker = project_root(path) / ".git"
    named = _first_line(marker)
    if named.startswith("gitdir:"):
        marker = marker.parent / named.removeprefix("gitdir:").strip()
    head = _first_line(marker / "HEAD")
    beginning = "ref: refs/heads/"
    return head.removeprefix(beginning) if head.startswith(beginning) else ""


def _trusted_unit(path: Path) -> Path:
    """What a yes covers: the main repository for a linked worktree, else the project's root."""
    root = project_root(path)
    return _repository_of_worktree(root) or root


def _repository_of_worktree(root: Path) -> Path | None:
    """The repository a linked worktree belongs to, when that repository says so itself.

    A worktree holds a `.git` file that names `REPOSITORY/worktrees/NAME`; there, git keeps a file
    `gitdir` that names the worktree's `.git` in turn.
    """
    pointer = root / ".git"
    if _kind(pointer) != "file":
        return None
    words = _first_line(pointer)
    if not words.startswith("gitdir:"):
        return None
    named = words.removeprefix("gitdir:").strip()
    git_directory = Path(os.path.realpath(root / named))
    repository = git_directory.parent.parent
    back = _first_line(git_directory / "gitdir")
    if git_directory.parent.name != "worktrees" or not back:
        return None
    points_back = Path(os.path.realpath(git_directory / back)) == pointer
    is_repository = _kind(repository / "HEAD") == "file" and _kind(repository / "objects") == "dir"
    if not (points_back and is_repository):
        return None
    return repository.parent if repository.name == ".git" else repository


def _kind(path: Path) -> str:
    """ "file" or "dir" of what stands there itself; a link is "link", nothing is ""."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return ""
    if stat.S_ISLNK(mode):
        return "link"
    return "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _first_line(path: Path) -> str:
    """The first line of a small regular file; empty when it is anything else."""
    if _kind(path) != "file":
        return ""
    try:
        with path.open("rb") as stream:
            words = stream.read(_POINTER_BYTES)
    except OSError:
        return ""
    return words.decode("utf-8", "surrogateescape").partition("\n")[0].strip()

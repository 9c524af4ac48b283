"""Where a path leads and what kind of place that is; what follows from it the policy decides."""

from __future__ import annotations

import functools
import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.errors import ToolError
from keen.tools._known_places import HIDDEN, LOGIN, PEERS, SOCKETS
from keen.tools.base import Access, Context

Kind: TypeAlias = Literal["missing", "file", "directory", "device", "fifo", "socket", "system"]
"""`system`: inside /proc, /sys or /dev, whatever it is."""

Protection: TypeAlias = Literal["none", "ask", "person", "refuse"]
"""How an edit is guarded in every mode, yolo too. `ask`: a person, or a rule that names the file
exactly. `person`: no rule covers it. `refuse`: never."""

_SYSTEM: Final = (Path("/proc"), Path("/sys"), Path("/dev"))
_NOT_SYSTEM: Final = (Path("/dev/shm"),)

_HOOKS_PATH: Final = re.compile(r"^\s*hookspath\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.I | re.M)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([nrt]))")
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t"}
_BARE: Final = frozenset({"head", "objects", "refs"})
_MOST_CONFIG: Final = 1_000_000
_MOST_PATH: Final = 4_096
"""What Linux takes in one call."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path of the model's: `literal` as it was spelled, made absolute; `real` where it leads."""

    literal: Path
    real: Path

    def accesses(self, kind: Literal["read", "edit"]) -> tuple[Access, ...]:
        """What rules judge: the real path and, where a link stands between, the spelling too."""
        targets = dict.fromkeys((str(self.real), str(self.literal)))
        return tuple(Access(kind, target) for target in targets)


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What is known about a path. One that cannot be resolved has no root."""

    path: Path
    """Absolute and real."""
    root: Path | None
    """The directory of the workspace (or the session's scratch) that holds it."""
    kind: Kind
    protection: Protection = "none"
    reason: str = ""
    """Of the protection or the secrecy, for a card: "git hooks", "credentials in .ssh"."""
    is_secret: bool = False
    """`.env*` at any depth, and all that is hidden."""
    is_hidden: bool = False
    """Holds credentials: not even read in yolo without a rule that names it."""
    links: int = 1
    """Hard links of a file: with more than one, other names share its content."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Classifies paths. `own`: keen's directories (settings, data, logs); `readable`: parts of them
    that a model may read, for example skills."""

    own: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    def facts(self, target: str, context: Context) -> PathFacts:
        """What is known about `target`, resolved anew. Never raises for a path."""
        try:
            real = locate(target, context).real
        except ToolError:
            spelled = _folded(Path(os.path.normpath(context.cwd / target.replace("\0", ""))))
            return PathFacts(Path("/", *spelled), None, "missing", "ask", "cannot be resolved")
        root = _holder(real, (*context.roots, context.scratch))
        kind, links = _kind(real, root)
        is_scratch = root == context.scratch
        protection, reason = ("none", "") if is_scratch else self._protection(real, context)
        hidden = "" if is_scratch else self._hidden(real)
        if not hidden and root is None and any(real.is_relative_to(at) for at in SOCKETS):
            hidden = "sockets of other programs"
        return PathFacts(
            real,
            root,
            kind,
            protection,
            reason or hidden,
            is_secret=bool(hidden) or is_environment_file(real),
            is_hidden=bool(hidden),
            links=links,
        )

    def is_secret(self, real: Path) -> bool:
        """True for what a search leaves out unless it is named: `.env*` and credentials."""
        return is_environment_file(real) or bool(self._hidden(real))

    def hidden_places(self) -> tuple[Path, ...]:
        """All that holds credentials or is keen's own, whether it is there or not."""
        home = _home()
        return (*self.own, *(home / part for part in HIDDEN))

    def _hidden(self, real: Path) -> str:
        names = _folded(real)
        if any(_starts(names, _folded(part)) for part in self.readable):
            return ""
        if any(_starts(names, _folded(part)) for part in self.own):
            return "keen's own files"
        home = _folded(_home())
        for part in HIDDEN:
            if _starts(names, home + _below(part)):
                return f"credentials in ~/{part}"
        return ""

    def _protection(self, real: Path, context: Context) -> tuple[Protection, str]:
        names = _folded(real)
        if ".keen" in names or any(_starts(names, _folded(part)) for part in self.own):
            return "refuse", "keen's own files"
        inside_git = _inside_git(real, names, context)
        if inside_git is not None:
            return inside_git
        home = _folded(_home())
        for part in LOGIN:
            if _starts(names, home + _below(part)):
                return "person", f"~/{part} runs at the next login"
        for part in PEERS:
            if part in names:
                return "ask", f"{part} is run by other programs"
        if _contains(names, (".github", "workflows")):
            return "ask", ".github/workflows is run by other programs"
        return "none", ""


def locate(text: str, context: Context) -> Place:
    """Where a path of the model's leads, from `context.cwd`, `~` and all links followed.

    A name that keen printed with escapes (see `shown`) is understood when no file is spelled so.

    Raises:
        ToolError: the path is empty, impossible, or cannot be resolved.
    """
    if not text or "\0" in text:
        raise ToolError("A path must be given, without NUL characters.")
    place = _resolved(text, context)
    if "\\" in text and not os.path.lexists(place.real):
        original = _unescaped(text)
        is_other = original != text and "\0" not in original
        if is_other and os.path.lexists((again := _resolved(original, context)).real):
            return again
    return place


def shown(path: Path, context: Context) -> str:
    """A path for the model: relative below the working directory, control characters escaped."""
    text = str(path.relative_to(context.cwd) if path.is_relative_to(context.cwd) else path)
    return printable(text)


def printable(name: str) -> str:
    """A file name on one line, controls and undecodable bytes as backslash escapes."""
    if name.isprintable():
        return name
    raw = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in raw
    )


def real_path(path: str | Path) -> str:
    """Where a path leads; its plain spelling where even looking is refused (/proc/1/root)."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.normpath(path)


def is_environment_file(path: Path) -> bool:
    """True for `.env` and its kin, at any depth."""
    return _fold(path.name).startswith(".env")


def protected_names() -> tuple[str, ...]:
    """Below a root: what commands do not change, because keen or other programs run it later."""
    return (".git", ".keen", *PEERS, ".github/workflows")


def login_places() -> tuple[Path, ...]:
    """What the next login of the person runs, whether it is there or not."""
    home = _home()
    return tuple(home / part for part in LOGIN)


def is_system(path: Path) -> bool:
    """True inside /proc, /sys and /dev: no tool reads or writes there."""
    if any(path.is_relative_to(part) for part in _NOT_SYSTEM):
        return False
    return any(path.is_relative_to(part) for part in _SYSTEM)


def _resolved(text: str, context: Context) -> Place:
    try:
        os.fsencode(text)
        spelled = os.path.expanduser(text) if text.startswith("~") else text
        absolute = os.path.join(context.cwd, spelled)
        try:
            real = os.path.realpath(absolute, strict=True)
        except FileNotFoundError:
            real = os.path.realpath(absolute)
    except UnicodeEncodeError:
        raise ToolError("The path has characters that no file name can have.") from None
    except OSError as error:
        raise ToolError(
            f"{printable(text[:200])}: {error.strerror}. Give a path that can be resolved."
        ) from error
    if len(os.fsencode(real)) >= _MOST_PATH:
        raise ToolError(f"The path is longer than {_MOST_PATH:,} bytes.")
    return Place(Path(os.path.normpath(absolute)), Path(real))


def _unescaped(text: str) -> str:
    raw = _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _LETTERS[match[2]],
        text,
    )
    try:
        return os.fsdecode(raw.encode("latin-1")) if "\\x" in text else raw
    except UnicodeEncodeError:
        return raw


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))


def _kind(real: Path, root: Path | None) -> tuple[Kind, int]:
    if root is None and is_system(real):
        return "system", 1
    try:
        status = os.lstat(real)
    except OSError:
        return "missing", 1
    kinds: dict[int, Kind] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "directory",
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
    }
    kind = kinds.get(stat.S_IFMT(status.st_mode), "device")
    return kind, status.st_nlink if kind == "file" else 1


def _holder(real: Path, roots: tuple[Path, ...]) -> Path | None:
    return next((root for root in roots if real.is_relative_to(root)), None)


@functools.lru_cache(maxsize=4_096)
def _fold(name: str) -> str:
    """A name as the most forgiving file system compares it: case, composition, invisibles, tail."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    if not plain.isascii():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    plain = plain.rstrip(" .") or plain
    return ".git" if plain == "git~1" else plain


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(_fold(part) for part in path.parts if part != "/")


@functools.cache
def _below(part: str) -> tuple[str, ...]:
    """The names of a fixed place."""
    return _folded(Path(part))


def _starts(names: tuple[str, ...], beginning: tuple[str, ...]) -> bool:
    return names[: len(beginning)] == beginning


def _contains(names: tuple[str, ...], run: tuple[str, ...]) -> bool:
    return any(_starts(names[start:], run) for start in range(len(names)))


def _inside_git(
    real: Path, names: tuple[str, ...], context: Context
) -> tuple[Protection, str] | None:
    if ".git" in names:
        return _git_part(names[len(names) - names[::-1].index(".git") :])
    for directory in git_directories(context.roots):
        if _starts(names, _folded(directory)):
            return _git_part(names[len(_folded(directory)) :])
        if any(_starts(names, _folded(hooks)) for hooks in hooks_directories(directory, context)):
            return "refuse", "git hooks"
    for parent in real.parents:
        if _would_be_bare(parent, real):
            return _git_part(names[len(_folded(parent)) :])
    return None


def _git_part(inner: tuple[str, ...]) -> tuple[Protection, str]:
    if "hooks" in inner:
        return "refuse", "git hooks"
    if {"config", "config.worktree"} & set(inner) or inner[-2:] == ("info", "attributes"):
        return "refuse", "git configuration"
    return "ask", "git's own data"


def _would_be_bare(directory: Path, written: Path) -> bool:
    """True where git, once `written` exists, takes `directory` itself for a repository."""
    present = {name for name in ("HEAD", "objects", "refs") if os.path.lexists(directory / name)}
    if not present:
        return False
    first = _fold(written.relative_to(directory).parts[0])
    return {_fold(name) for name in present} | {first} >= _BARE


def git_directories(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """The roots' git directories; those of worktrees and --separate-git-dir stand elsewhere."""
    found: list[Path] = []
    for root in roots:
        for top in (root, *root.parents):
            marker = top / ".git"
            if not os.path.lexists(marker):
                continue
            link = _first_line(marker).removeprefix("gitdir:").strip()
            directory = Path(real_path(top / link)) if link else marker
            found.append(directory)
            common = _first_line(directory / "commondir")
            if common:
                found.append(Path(real_path(directory / common)))
            break
    return tuple(found)


def hooks_directories(directory: Path, context: Context) -> tuple[Path, ...]:
    """Where `core.hooksPath` of a git directory leads."""
    targets = (
        match[1].replace("\0", "") for match in _HOOKS_PATH.finditer(_content(directory / "config"))
    )
    return tuple(
        Path(real_path(root / os.path.expanduser(target)))
        for target in targets
        for root in context.roots
        if target != "/dev/null"
    )


def _first_line(path: Path) -> str:
    return _content(path).partition("\n")[0].replace("\0", "").strip()


def _content(path: Path) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CONFIG)
    except OSError:
        return ""

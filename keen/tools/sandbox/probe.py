"""Runs a command in the operating system's sandbox where there is one that was seen to hold."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen._files import write_private
from keen.core.errors import ConfigError, ToolError
from keen.tools._launch import shell_argv
from keen.tools.base import Context
from keen.tools.guard import Guard
from keen.tools.sandbox import bubblewrap, landlock, seatbelt
from keen.tools.sandbox.confines import Confines, Surveyor

Choice: TypeAlias = Literal["auto", "require", "off"]
Level: TypeAlias = Literal["full", "fs-only", "none"]
Kind: TypeAlias = Literal["bubblewrap", "bubblewrap with /proc", "seatbelt", "landlock", "nothing"]

_PROBE_SECONDS: Final = 2.0
_PROBE_VERSION: Final = 1
"""Raised whenever the line or the self-test changes, so that no older verdict counts."""
PROGRAMS: Final = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
"""Where bwrap is looked for: not in PATH, which the person's project may bend."""
_SWITCHES: Final = (
    "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/osrelease",
    "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)  # fmt: skip
"""What decides whether a sandbox can start on this machine."""
_TEST: Final = r"""
tried() { ( exec 9>>"$1" ) 2>/dev/null; }
tried own || echo work
tried "$TMPDIR/own" || echo temporary
tried "$1/outside/file" && echo outside
( read -r line <"$1/hidden/secret" && [ "$line" = secret ] ) 2>/dev/null && echo hidden
if [ "$2" = full ]; then
tried .git/file && echo protected
( : >.keen/file ) 2>/dev/null && echo missing
( read -r line <.env && [ "$line" = secret ] ) 2>/dev/null && echo covered
( exec 9<>"/dev/tcp/127.0.0.1/$3" ) 2>/dev/null && echo network
[ -e /proc/sys/kernel/core_pattern ] && tried /proc/sys/kernel/core_pattern && echo kernel
( : <"/proc/$4/environ" ) 2>/dev/null && [ -e "/proc/$4/root/$1/hidden/secret" ] && echo processes
if [ -e /proc/self/status ]; then while read -r name value; do
[ "$name" = CapEff: ] && [ -n "${value//0/}" ] && echo capabilities
done </proc/self/status; fi
fi
echo end
"""
"""Says each thing that should not have worked, in one word, then `end`."""
_MEANING: Final = {
    "work": "the workspace cannot be written",
    "temporary": "temporary files cannot be written",
    "outside": "a write outside the workspace was not stopped",
    "hidden": "a hidden file could be read",
    "protected": "a write to .git was not stopped",
    "missing": "a protected name could be made",
    "covered": "a hidden file of the workspace could be read",
    "network": "a connection was not stopped",
    "kernel": "/proc/sys can be written",
    "processes": "processes outside can be reached",
    "capabilities": "the command kept rights of root",
}


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What holds commands on this machine. `reason`: why it is not more; "" for full."""

    level: Level
    reason: str = ""
    kind: Kind = "nothing"
    program: str = ""
    surveyor: Surveyor = field(default_factory=lambda: Surveyor(Guard()))
    is_required: bool = False
    """Without a full one no command runs."""

    def argv(
        self,
        command: str,
        context: Context,
        *,
        network: bool = False,
        writable: tuple[Path, ...] = (),
        git: bool = False,
    ) -> list[str]:
        """The words to execute for `command`, one word of them. Blocking. Raises: ToolError."""
        surveyor = replace(self.surveyor, writable=(*self.surveyor.writable, *writable))
        confines = surveyor.survey(context, network=network, git=git)
        return self.around(shell_argv(command), confines)

    def around(self, argv: Iterable[str], confines: Confines) -> list[str]:
        """`argv` with the sandbox around it; makes the directories it needs. Blocking."""
        if self.kind == "nothing":
            return list(argv)
        confines.temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.kind == "landlock":
            return _landlock_line(argv, confines)
        if self.kind == "seatbelt":
            return seatbelt.command_line(confines, argv)
        return bubblewrap.command_line(
            self.program,
            confines,
            argv,
            _empty_file(confines.scratch),
            is_proc_bound=self.kind != "bubblewrap",
        )

    def temporary(self, confines: Confines) -> str:
        """What TMPDIR should say inside."""
        is_moved = self.kind in ("bubblewrap", "bubblewrap with /proc")
        return "/tmp" if is_moved else str(confines.temporary)


def find(choice: Choice, cache: Path | None = None, *, surveyor: Surveyor | None = None) -> Sandbox:
    """The best sandbox that starts here and passes the self-test. Blocking, 2 s a try at most.

    `cache`: keen's cache directory, in which the verdict is kept until the machine starts anew or
    one of its switches changes; None looks again.
    """
    surveyor = surveyor or Surveyor(Guard())
    if choice == "off":
        return Sandbox("none", 'permissions.sandbox is "off"', surveyor=surveyor)
    key = _key()
    found = _kept(cache, key) if cache is not None else None
    if found is None:
        found = _probed(cache)
        if cache is not None:
            _keep(cache, key, found)
    return replace(found, surveyor=surveyor, is_required=choice == "require")


def renewed(cache: Path) -> Sandbox:
    """Look again, whatever was kept, and keep what was found. Blocking."""
    found = _probed(cache)
    _keep(cache, _key(), found)
    return found


def _probed(cache: Path | None) -> Sandbox:
    """Try what the system has, the best first."""
    if sys.platform == "darwin":
        return _tried(Sandbox("full", kind="seatbelt", program=seatbelt.PROGRAM), cache)
    if sys.platform != "linux":
        return Sandbox("none", f"keen knows no sandbox for {sys.platform}")
    program = shutil.which("bwrap", path=PROGRAMS)
    if program is None:
        found = Sandbox("none", "bubblewrap (bwrap) is not installed")
    else:
        found = _tried(Sandbox("full", kind="bubblewrap", program=program), cache)
        if found.level == "none" and "mount proc" in found.reason:
            found = _tried(Sandbox("full", kind="bubblewrap with /proc", program=program), cache)
    if found.level == "none" and landlock.version():
        files = _tried(Sandbox("fs-only", kind="landlock"), cache)
        if files.level == "fs-only":
            return replace(files, reason=found.reason)
    return found


def _tried(sandbox: Sandbox, cache: Path | None) -> Sandbox:
    """The sandbox if it passes its self-test, else none with the reason."""
    try:
        # Beside keen's own files: what lies under /tmp would be out of sight anyway.
        with tempfile.TemporaryDirectory(prefix="probe-", dir=_made(cache)) as place:
            fault = _fault(sandbox, Path(os.path.realpath(place)))
    except subprocess.TimeoutExpired:
        fault = f"it did not start within {_PROBE_SECONDS:g} s"
    except (OSError, ToolError) as error:
        fault = str(error)
    if not fault:
        return sandbox
    name = sandbox.kind.partition(" ")[0]
    return Sandbox("none", f"{name}: {fault}")


def _made(directory: Path | None) -> Path | None:
    """The directory, there; None where it cannot be written."""
    if directory is None:
        return None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None


def _fault(sandbox: Sandbox, place: Path) -> str:
    """What went wrong when a command tried all that it must not; "" for nothing."""
    work, scratch, hidden = place / "work", place / "scratch", place / "hidden"
    outside = place / "outside"
    for directory in (work / ".git", scratch, hidden, outside):
        directory.mkdir(parents=True)
    (hidden / "secret").write_text("secret\n", encoding="ascii")
    (work / ".env").write_text("secret\n", encoding="ascii")
    context = Context(work, (work,), scratch)
    confines = Surveyor(Guard(own=(hidden,))).survey(context)
    for missing in confines.missing:
        missing.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        words = ("keen", str(place), sandbox.level, port, str(os.getpid()))
        line = sandbox.around((*shell_argv(_TEST), *words), confines)
        done = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
            cwd=work,
            env={"PATH": PROGRAMS, "TMPDIR": sandbox.temporary(confines)},
            start_new_session=True,
        )
    said = done.stdout.split()
    if said[-1:] != ["end"]:
        last = done.stderr.strip().rpartition("\n")[2][:200]
        return last.removeprefix("bwrap: ") or f"it ended with code {done.returncode}"
    if os.listdir(outside):
        said.insert(0, "outside")
    return "; ".join(dict.fromkeys(_MEANING.get(word, word) for word in said[:-1]))


def _landlock_line(argv: Iterable[str], confines: Confines) -> list[str]:
    rules = {
        "read": [str(path) for path in (*_readable(confines), *confines.shown, confines.scratch)],
        "write": [
            *(str(path) for path in (*confines.writable, confines.temporary)),
            *("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm", "/dev/pts"),
        ],
    }
    worker = str(Path(landlock.__file__))
    return [sys.executable, "-I", "-S", worker, json.dumps(rules), *argv]


def _readable(confines: Confines) -> list[Path]:
    """The largest directories without anything hidden in them."""
    found: list[Path] = []
    waiting = [Path("/")]
    while waiting:
        place = waiting.pop()
        if place in confines.hidden or os.path.islink(place):
            continue
        if not any(hidden.is_relative_to(place) for hidden in confines.hidden):
            found.append(place)
            continue
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            waiting += [Path(entry.path) for entry in entries]
    return found


def _empty_file(scratch: Path) -> Path:
    """An empty file to lay over hidden ones."""
    path = scratch / ".empty"
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o400))
    return path


def _key() -> dict[str, object]:
    """Everything the verdict depends on."""
    program = shutil.which("bwrap", path=PROGRAMS)
    changed = os.stat(program).st_mtime_ns if program else 0
    switches = [_content(Path(path)) for path in _SWITCHES]
    user = os.getuid() if hasattr(os, "getuid") else -1
    return {
        "version": _PROBE_VERSION,
        "program": [program, changed],
        "switches": switches,
        "user": user,
        "python": sys.executable,
    }


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _kept(cache: Path, key: dict[str, object]) -> Sandbox | None:
    try:
        stored = json.loads(_file(cache).read_text(encoding="utf-8"))
        if stored["key"] != key or sys.platform == "darwin":
            return None
        return Sandbox(**stored["found"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _keep(cache: Path, key: dict[str, object], found: Sandbox) -> None:
    kept = {name: getattr(found, name) for name in ("level", "reason", "kind", "program")}
    with contextlib.suppress(ConfigError):
        write_private(_file(cache), json.dumps({"key": key, "found": kept}))


def _file(cache: Path) -> Path:
    return cache / "sandbox.json"

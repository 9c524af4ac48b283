"""The command line of bubblewrap for given confines.

The environment is inherited from whoever starts it, who passes exactly the scrubbed one: on the
command line every process of the machine could read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from keen.tools.sandbox.confines import Confines

_FIXED: Final = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_KERNEL: Final = (
    "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/asound", "/proc/acpi",
    "/proc/scsi", "/sys/firmware",
)  # fmt: skip
"""What root could use on the machine as a whole."""
_RESOLVERS: Final = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
"""Where /etc/resolv.conf leads."""


@dataclass(frozen=True, slots=True)
class _Mount:
    """One step; steps are taken from the root of the tree downwards."""

    kind: Literal["--bind", "--ro-bind", "--ro-bind-try", "hide", "--tmpfs", "--dev", "--proc"]
    place: Path
    source: Path | None = None

    def arguments(self) -> tuple[str, ...]:
        place = str(self.place)
        match self.kind:
            case "hide":
                return ("--tmpfs", place)
            case "--tmpfs" | "--dev" | "--proc":
                return (self.kind, place)
            case _:
                return (self.kind, str(self.source or place), place)


def command_line(
    program: str,
    confines: Confines,
    argv: Iterable[str],
    empty: Path,
    *,
    is_proc_bound: bool = False,
) -> list[str]:
    """bwrap with everything around `argv`. `empty`: an empty file that stands for hidden ones.

    `is_proc_bound`: the machine's /proc is shown where no new one can be mounted.
    """
    mounts = [
        *_system(confines, is_proc_bound=is_proc_bound),
        *_opened(confines),
        *_hidden(confines, empty),
        *_barred(confines, empty),
    ]
    # A later mount covers an earlier one: what lies deeper must come later. Among equals what
    # covers comes after what opens, as above.
    mounts.sort(key=lambda mount: len(mount.place.parts))
    line = [program, *_FIXED]
    if confines.has_network:
        line.append("--share-net")
    for mount in mounts:
        line += mount.arguments()
    for mount in mounts:
        if mount.kind == "hide":  # not before what is shown inside has its place there
            line += ("--remount-ro", str(mount.place))
    return [*line, "--chdir", str(confines.cwd), "--", *argv]


def _system(confines: Confines, *, is_proc_bound: bool) -> list[_Mount]:
    proc = Path("/proc")
    mounts = [
        _Mount("--bind" if confines.is_wide else "--ro-bind", Path("/")),
        _Mount("--dev", Path("/dev")),
        _Mount("--ro-bind" if is_proc_bound else "--proc", proc),
        _Mount("--ro-bind", proc / "sys"),
        _Mount("hide", Path("/run")),
        _Mount("--ro-bind-try", Path("/run/current-system")),
    ]
    if os.getuid() == 0:
        mounts += [_Mount("--ro-bind-try", Path(place)) for place in _KERNEL]
    if confines.is_wide:
        mounts.append(_Mount("--ro-bind", Path("/sys")))
    if os.path.isdir("/var/run") and not os.path.islink("/var/run"):
        mounts.append(_Mount("hide", Path("/var/run")))
    if confines.has_network:
        mounts += [_Mount("--ro-bind-try", Path(place)) for place in _RESOLVERS]
    for place in dict.fromkeys(map(os.path.realpath, ("/tmp", "/var/tmp"))):
        if os.path.isdir(place):
            mounts.append(_Mount("--bind", Path(place), confines.temporary))
    return mounts


def _hidden(confines: Confines, empty: Path) -> list[_Mount]:
    mounts = [_cover(place, empty) for place in confines.hidden]
    mounts += [_Mount("--ro-bind", place) for place in confines.shown]
    mounts.append(_Mount("--ro-bind", confines.scratch))
    mounts.append(_Mount("--bind", confines.temporary))
    return mounts


def _opened(confines: Confines) -> list[_Mount]:
    # A root that is only read is bound too: it may lie under /tmp.
    mounts = [_Mount("--ro-bind", root) for root in confines.roots]
    return mounts + [_Mount("--bind", root) for root in confines.writable]


def _barred(confines: Confines, empty: Path) -> list[_Mount]:
    mounts = [_Mount("--bind", place) for place in confines.pinned]
    barred = (*confines.protected, *confines.missing)
    mounts += [_Mount("--ro-bind", place) for place in barred]
    return mounts + [_cover(place, empty) for place in confines.covered]


def _cover(place: Path, empty: Path) -> _Mount:
    return _Mount("hide", place) if os.path.isdir(place) else _Mount("--ro-bind", place, empty)

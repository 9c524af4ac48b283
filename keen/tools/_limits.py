"""What one command may use of the machine: looked at while it runs, since no limit of the system
counts a whole group of processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROCESSES: Final = 1_024
"""More processes a command may start."""

_GIGABYTE: Final = 1024**3
_MEMORY_SHARE: Final = 0.75
_MOST_TEMPORARY: Final = 10 * _GIGABYTE
_DISK_SHARE: Final = 0.5
_ROOM: Final = 64 * 1024**2
"""What a command may add to temporary files that are too many already: it may be clearing up."""
_MOST_ENTRIES: Final = 200_000
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_SHARED: Final = "/dev/shm"


def machine_memory() -> int:
    """Bytes of memory that this machine, or the container, has; 0 where that is not told."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
    with suppress(OSError, ValueError):
        total = min(total, int(_CGROUP.read_text(encoding="ascii")))
    return total


@dataclass(slots=True)
class Limits:
    """The bounds of one command, and what was seen of it. 0: no bound."""

    memory: int = field(default_factory=lambda: int(machine_memory() * _MEMORY_SHARE))
    """Bytes that all its processes hold together, files they map not counted."""
    processes: int = PROCESSES
    temporary: Path | None = None
    """The directory of temporary files that is its own."""
    disk: int = _MOST_TEMPORARY
    """Bytes of temporary files, or half of what is free, whichever is less."""
    _at_first: int = 0

    def begin(self) -> None:
        """Look at what is there before the command is. Blocking."""
        if self.temporary is not None and self.disk:
            self._at_first = _tree_size(self.temporary)
            self.disk = min(self.disk, self._at_first + int(_free(self.temporary) * _DISK_SHARE))

    def exceeded(self, members: set[int]) -> str:
        """What is too much, in words for the model; "" as long as nothing is. Blocking."""
        if self.processes and len(members) > self.processes:
            return f"it had started more than {self.processes:,} processes"
        if self.memory and self._held(members) > self.memory:
            return f"it used more than {_size(self.memory)} of memory"
        if self.temporary is not None and self.disk:
            return self._too_many_files(self.temporary)
        return ""

    def _held(self, members: set[int]) -> int:
        """Bytes of memory: added up quickly, and only exactly where the sum is too much."""
        private = sum(_fields(f"/proc/{pid}/status", ("RssAnon", "VmSwap")) for pid in members)
        mapped = sum(_fields(f"/proc/{pid}/status", ("RssShmem",)) for pid in members)
        files = _own_shared(members)
        if private + max(mapped, files) <= self.memory:
            return 0
        # Pages that several processes have in common after a fork were counted for each of them.
        names = ("Pss_Anon", "SwapPss")
        private = sum(_fields(f"/proc/{pid}/smaps_rollup", names) for pid in members) or private
        shared = sum(_fields(f"/proc/{pid}/smaps_rollup", ("Pss_Shmem",)) for pid in members)
        return private + max(shared, files)

    def _too_many_files(self, directory: Path) -> str:
        used = _tree_size(directory)
        if used <= self.disk or used < self._at_first + _ROOM:
            return ""
        return f"its temporary files in /tmp are more than {_size(self.disk)}; delete some"


def system_tasks() -> int:
    """Processes and threads of the whole system; 0 where it does not say. Costs microseconds."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):
        return 0


def limited(argv: Sequence[str], processes: int) -> tuple[str, ...]:
    """`argv` with its limits put on before it starts: what wraps a command forks at once."""
    if sys.platform != "linux":
        return tuple(argv)
    limits = (
        'ulimit -c 0; ulimit -u "$1"; echo 500 >/proc/self/oom_score_adj; shift; exec 2>&3 3>&-; '
        'exec "$@"'
    )
    script = f"exec 3>&2 2>/dev/null; {limits}"
    return ("/bin/bash", "--noprofile", "--norc", "-c", script, "bash", str(processes), *argv)


def limit(pid: int, processes: int) -> None:
    """Bounds that no honest build meets; the system's memory killer takes the command first."""
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
        if hard == resource.RLIM_INFINITY or processes < hard:
            resource.prlimit(pid, resource.RLIMIT_NPROC, (processes, processes))
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("500", encoding="ascii")


def _fields(file: str, names: Iterable[str]) -> int:
    """The sum of some fields of a table in kB, in bytes; 0 where it cannot be read."""
    total = 0
    try:
        with open(file, encoding="ascii", errors="replace") as table:
            for line in table:
                name, _, value = line.partition(":")
                if name in names:
                    total += int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return total


def _own_shared(members: set[int]) -> int:
    """Bytes of a /dev/shm that only the command sees: it is memory, whoever maps it."""
    with suppress(OSError):
        outside = os.stat(_SHARED).st_dev
        for pid in members:
            with suppress(OSError):
                place = f"/proc/{pid}/root{_SHARED}"
                if os.stat(place).st_dev != outside:
                    held = os.statvfs(place)
                    return (held.f_blocks - held.f_bfree) * held.f_frsize
    return 0


def _tree_size(directory: Path) -> int:
    """Bytes on disk below a directory; of a very large tree only the first part is counted."""
    total, entries_seen = 0, 0
    waiting = [str(directory)]
    while waiting and entries_seen < _MOST_ENTRIES:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                entries_seen += 1
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def _free(directory: Path) -> int:
    try:
        held = os.statvfs(directory)
    except OSError:
        return _MOST_TEMPORARY
    return held.f_bavail * held.f_frsize


def _size(count: int) -> str:
    if count >= _GIGABYTE:
        return f"{count / _GIGABYTE:.1f} GB"
    return f"{count / 1024**2:,.0f} MB"

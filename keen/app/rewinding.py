"""Files brought back to what they held before a message of the person's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from keen.core.errors import KeenError
from keen.session import snapshots
from keen.session.snapshots import Snapshot, Snapshots
from keen.tools import _atomic

State: TypeAlias = Literal["ready", "changed", "lost"]


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs from what it was.

    `changed`: somebody else changed it since keen's last edit. `lost`: what it was is not kept.
    """

    snapshot: Snapshot
    state: State

    @property
    def path(self) -> Path:
        return self.snapshot.path


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of it: the files brought back, and why others were not."""

    paths: tuple[Path, ...]
    faults: tuple[str, ...]


def changes(log: Path, seq: int) -> tuple[Change, ...]:
    """The files that keen's edits since message `seq` left different. Blocking."""
    first: dict[Path, Snapshot] = {}
    last: dict[Path, tuple[Snapshot, str]] = {}
    """A file's last edit, and what its edit before that had left."""
    for one in snapshots.kept(log):
        before = last.get(one.path)
        last[one.path] = (one, before[0].after if before else "")
        if one.seq >= seq:
            first.setdefault(one.path, one)
    found = (_change(one, *last[path]) for path, one in first.items())
    return tuple(change for change in found if change is not None)


def _change(wanted: Snapshot, last: Snapshot, left_before: str) -> Change | None:
    try:
        current = _atomic.read_current(wanted.path)
    except KeenError:
        return Change(wanted, "changed")
    present = "" if current is None else snapshots.digest(current.content)
    if present == wanted.before:
        return None
    if not wanted.is_kept:
        return Change(wanted, "lost")
    # The last edit may have been noted and then failed: the file is as it was before it.
    is_keens = present == last.after or (present == last.before == left_before)
    return Change(wanted, "ready" if is_keens else "changed")


def restore(log: Path, wanted: Iterable[Change], seq: int) -> Restored:
    """Bring files back, each as a whole or not at all. Blocking."""
    keeping = Snapshots(snapshots.file_of(log), lambda: seq)
    paths: list[Path] = []
    faults: list[str] = []
    for change in wanted:
        try:
            _restore(log, change.snapshot, keeping)
        except (KeenError, OSError) as error:
            faults.append(f"{change.path.name}: {error}")
        else:
            paths.append(change.path)
    return Restored(tuple(paths), tuple(faults))


def _restore(log: Path, snapshot: Snapshot, keeping: Snapshots) -> None:
    content = snapshots.content(log, snapshot)
    current = _atomic.read_current(snapshot.path)
    present = None if current is None else current.content
    if content == present:
        return
    keeping.keep(snapshot.path, present, content)
    if content is None:
        with _atomic.directory(snapshot.path.parent) as parent:
            os.unlink(snapshot.path.name, dir_fd=parent)
        return
    _atomic.replace(snapshot.path, content, None if current is None else current.status)
    if current is None:
        with _atomic.regular_file(snapshot.path) as (descriptor, _):
            os.fchmod(descriptor, snapshot.mode)

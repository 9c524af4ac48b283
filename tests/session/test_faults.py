from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from keen.core.errors import SessionError
from keen.session.files import FileLayer
from keen.session.log import MAX_UNSAVED, SessionLog
from keen.session.reading import read
from keen.session.records import Payload, SessionRenamed, UserMessage
from tests.session.samples import a_draft, said, turn, user

pytestmark = pytest.mark.timeout(60)

P = ParamSpec("P")
T = TypeVar("T")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT", "ESTALE", "EINTR")
OPERATIONS = ("open", "write", "sync", "truncate", "rename")
SCRIPT: tuple[Payload, ...] = (
    user("one"),
    turn("two"),
    SessionRenamed(name="parser"),
    user("three"),
    turn("four"),
)
TEXTS = ["one", "two", "three", "four"]


@dataclass
class Broken:
    """A file layer of which one operation fails from its `first` call on, `times` times."""

    operation: str
    error: int
    first: int = 1
    times: int = 1_000_000
    is_broken: bool = True
    calls: list[str] = field(default_factory=list[str])

    def layer(self) -> FileLayer:
        return FileLayer(
            self.guarded("open", os.open),
            self.guarded("write", os.write),
            self.guarded("sync", os.fsync),
            self.guarded("truncate", os.ftruncate),
            self.guarded("rename", os.replace),
        )

    def guarded(self, name: str, operation: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            self.calls.append(name)
            count = self.calls.count(name)
            if (
                name == self.operation
                and self.is_broken
                and self.first <= count < self.first + self.times
            ):
                raise OSError(self.error, os.strerror(self.error))
            return operation(*args, **kwargs)

        return call


def play(log: SessionLog) -> None:
    for payload in SCRIPT:
        log.append(payload)


def healthy_calls(directory: Path, operation: str) -> int:
    recorder = Broken("nothing", 0)
    log = a_draft(directory, files=recorder.layer())
    play(log)
    log.close()
    return recorder.calls.count(operation)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_fails_once_loses_nothing(
    operation: str, name: str, tmp_path: Path
) -> None:
    for first in range(1, healthy_calls(tmp_path / "healthy", operation) + 2):
        broken = Broken(operation, getattr(errno, name), first, times=1)
        log = a_draft(tmp_path / str(first), files=broken.layer())
        play(log)
        log.close()
        assert log.unsaved == 0
        reading = read(log.path)
        assert said(reading.records) == TEXTS
        assert reading.unreadable == 0


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_while_an_operation_fails_the_log_says_so_and_saves_all_when_it_heals(
    operation: str, name: str, tmp_path: Path
) -> None:
    for first in range(1, healthy_calls(tmp_path / "healthy", operation) + 1):
        broken = Broken(operation, getattr(errno, name), first)
        log = a_draft(tmp_path / str(first), files=broken.layer())
        play(log)
        assert log.reason is not None
        assert os.strerror(broken.error) in log.reason
        assert log.unsaved > 0
        assert not log.heal()
        assert said(log.records()) == TEXTS
        on_disk = said(read(log.path).records) if log.path.exists() else []
        assert on_disk == TEXTS[: len(on_disk)]

        broken.is_broken = False

        assert log.heal()
        assert (log.reason, log.unsaved) == (None, 0)
        assert said(read(log.path).records) == TEXTS
        log.append(user("five"))
        log.close()
        assert said(read(log.path).records) == [*TEXTS, "five"]
        assert [r.seq for r in read(log.path).records] == [*range(1, 8)]


def test_a_short_write_is_cut_back_and_leaves_no_half_record(tmp_path: Path) -> None:
    room = 1_500

    def write(descriptor: int, data: bytes) -> int:
        """As a full file system does: a short count first, an error on the next call."""
        left = room - os.fstat(descriptor).st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data[:left])

    log = a_draft(tmp_path, files=FileLayer(write=write))
    for number in range(20):
        log.append(user(f"message {number}"))
    assert log.reason is not None
    raw = log.path.read_bytes()
    assert raw.endswith(b"\n")
    assert len(said(read(log.path).records)) + log.unsaved == 20

    room = 1_000_000

    assert log.heal()
    assert said(read(log.path).records) == [f"message {number}" for number in range(20)]
    log.close()


def test_a_sync_that_failed_is_never_taken_for_success(tmp_path: Path) -> None:
    """The kernel may have dropped the pages: they are written again, into a new file."""
    broken = Broken("sync", errno.EIO, first=2, times=1)
    log = a_draft(tmp_path, files=broken.layer())
    log.append(user("one"))
    before = log.path.stat().st_ino
    log.append(user("two"))
    assert log.unsaved == 1

    assert log.heal()

    assert log.path.stat().st_ino != before
    assert said(read(log.path).records) == ["one", "two"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".jsonl", ".lock"]
    log.close()


def test_a_file_that_someone_removes_while_it_is_written_is_made_again(tmp_path: Path) -> None:
    log = a_draft(tmp_path / "place")
    log.append(user("one"))
    log.path.unlink()
    log.append(user("two"))
    log.close()
    assert said(read(log.path).records) == ["one", "two"]


def test_a_strict_append_fails_with_a_fresh_fault_and_leaves_no_trace(tmp_path: Path) -> None:
    for operation in ("write", "sync"):
        broken = Broken(operation, errno.EIO, first=2)
        log = a_draft(tmp_path / operation, files=broken.layer())
        log.append(user("one"))
        with pytest.raises(SessionError, match="nothing was saved"):
            log.append(turn("committed"), strict=True)
        assert said(read(log.path).records) == ["one"]
        broken.is_broken = False
        log.append(user("two"))
        log.close()
        assert said(read(log.path).records) == ["one", "two"]
        assert [record.seq for record in read(log.path).records] == [1, 2, 3]


def test_records_beyond_the_limit_of_memory_are_counted_as_lost(tmp_path: Path) -> None:
    broken = Broken("write", errno.ENOSPC)
    log = a_draft(tmp_path, files=broken.layer())
    size = 8 * 1024 * 1024
    for number in range(9):
        log.append(UserMessage(content=f"{number}" + "x" * size))
    assert log.lost == 9 - MAX_UNSAVED // size + 1
    assert f"{log.lost} records were given up" in (log.reason or "")
    assert log.unsaved == 9 + 1
    log.close()


def test_a_session_that_never_could_be_written_leaves_no_empty_file(tmp_path: Path) -> None:
    log = a_draft(tmp_path, files=Broken("write", errno.ENOSPC).layer())
    log.append(user("one"))
    log.close()
    assert list(tmp_path.iterdir()) == []
    assert log.unsaved == 2

"""What edits change is kept beside the session, bounded, whole after a crash, and copied along."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from keen.session import snapshots
from keen.session.records import Record, SessionStarted, UserMessage
from keen.session.snapshots import Snapshots, content, file_of, kept, opened


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "project" / "0f3c.jsonl"


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    path = tmp_path / "parser.py"
    path.write_bytes(b"one\n")
    return path


def change(store: Snapshots, path: Path, after: bytes) -> None:
    """One edit, as the tools make it."""
    store.keep(path, path.read_bytes() if path.exists() else None, after)
    path.write_bytes(after)


def test_old_bytes_and_missing_files_are_kept_by_message(log: Path, edited: Path) -> None:
    seq = 2
    store = Snapshots(file_of(log), lambda: seq)
    edited.chmod(0o755)
    change(store, edited, b"two\n")
    change(store, edited.with_name("new.py"), b"x\n")
    seq = 9
    change(store, edited, b"three\n")

    first, new, second = kept(log)

    assert [first.seq, new.seq, second.seq] == [2, 2, 9]
    assert first.mode == 0o755
    assert content(log, first) == b"one\n"
    assert new.before == ""
    assert content(log, new) is None
    assert content(log, second) == b"two\n"
    assert second.after == snapshots.digest(b"three\n")


def test_only_its_owner_can_read_it(log: Path, edited: Path) -> None:
    change(Snapshots(file_of(log), lambda: 1), edited, b"two\n")

    assert file_of(log).stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_the_same_bytes_are_stored_once_and_within_a_message_only_the_first(
    log: Path, edited: Path
) -> None:
    seq = 2
    store = Snapshots(file_of(log), lambda: seq)
    big = b"a" * 100_000
    edited.write_bytes(big)
    for number in range(5):
        change(store, edited, b"b" * 100_000 + bytes([number]))
    seq = 8
    edited.write_bytes(big)
    change(store, edited, b"c")

    assert file_of(log).stat().st_size < 102_000
    assert content(log, kept(log)[-1]) == big


@pytest.mark.parametrize("bound", ["FILE_BYTES", "SESSION_BYTES"])
def test_what_is_too_much_is_noted_but_not_kept(
    bound: str, log: Path, edited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, bound, 1_000)
    edited.write_bytes(b"a" * 1_001)
    change(Snapshots(file_of(log), lambda: 2), edited, b"small")

    (one,) = kept(log)

    assert not one.is_kept
    assert file_of(log).stat().st_size < 600
    with pytest.raises(OSError, match="was not kept"):
        content(log, one)


def test_a_torn_entry_is_cut_off_at_any_byte_and_what_came_before_stays(
    log: Path, edited: Path
) -> None:
    store = Snapshots(file_of(log), lambda: 2)
    change(store, edited, b"two\n")
    whole = file_of(log).read_bytes()
    change(Snapshots(file_of(log), lambda: 3), edited, b"three\n")
    longer = file_of(log).read_bytes()
    for cut in range(len(whole), len(longer)):
        file_of(log).write_bytes(longer[:cut])
        assert [one.seq for one in kept(log)] == [2]

        edited.write_bytes(b"two\n")
        change(Snapshots(file_of(log), lambda: 3), edited, b"three\n")

        assert file_of(log).read_bytes() == longer


def test_a_session_that_goes_on_appends(log: Path, edited: Path) -> None:
    change(Snapshots(file_of(log), lambda: 2), edited, b"two\n")

    change(Snapshots(file_of(log), lambda: 5), edited, b"three\n")

    assert [content(log, one) for one in kept(log)] == [b"one\n", b"two\n"]


def test_a_copy_takes_over_what_its_part_of_the_conversation_did(log: Path, edited: Path) -> None:
    for seq, after in ((2, b"two\n"), (5, b"three\n"), (8, b"four\n")):
        change(Snapshots(file_of(log), lambda seq=seq: seq), edited, after)
    copy = log.with_name("77aa.jsonl")
    started = SessionStarted(session_id="77aa", parent="0f3c")
    records = [
        Record(1, "", started.kind, started),
        Record(6, "", UserMessage.kind, UserMessage(content="go")),
    ]

    store = opened(copy, records, lambda: 0)
    change(store, edited, b"five\n")

    assert [(one.seq, content(copy, one)) for one in kept(copy)] == [
        (2, b"one\n"),
        (5, b"two\n"),
        (6, b"four\n"),
    ]


def test_a_full_disk_stops_no_edit(log: Path, edited: Path) -> None:
    log.parent.mkdir(parents=True)
    file_of(log).mkdir()  # cannot be opened for writing, whoever asks

    change(Snapshots(file_of(log), lambda: 2), edited, b"two\n")

    assert edited.read_bytes() == b"two\n"
    assert kept(log) == []


def test_threads_do_not_mix_their_entries(log: Path, tmp_path: Path) -> None:
    store = Snapshots(file_of(log), lambda: 2)
    paths = [tmp_path / f"{number}.txt" for number in range(40)]
    for path in paths:
        path.write_bytes(path.name.encode() * 500)
    threads = [threading.Thread(target=change, args=(store, path, b"x")) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {one.path: content(log, one) for one in kept(log)} == {
        path: path.name.encode() * 500 for path in paths
    }

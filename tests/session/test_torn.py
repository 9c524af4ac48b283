from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.reading import read
from keen.session.records import AssistantTurn, Recovered, TextItem, TurnSegment
from tests.session.samples import a_session, kinds, said, user

BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return a_session(tmp_path_factory.mktemp("whole"), 100).read_bytes()


def survivors(data: bytes, cut: int) -> int:
    """Records that stand whole before the cut; the line end alone may be missing."""
    return data[:cut].count(b"\n") + (data[cut : cut + 1] == b"\n")


def without_sync() -> FileLayer:
    return FileLayer(sync=lambda _descriptor: None)


def check_cut(data: bytes, cut: int, path: Path) -> None:
    path.write_bytes(data[:cut])
    expected = survivors(data, cut)
    if expected == 0:
        return
    log = SessionLog.open(path, files=without_sync())
    log.append(user("after the crash"))
    log.close()
    reading = read(path)
    records = reading.records
    assert [record.seq for record in records][:expected] == list(range(1, expected + 1))
    assert said(records)[-1] == "after the crash"
    assert reading.unreadable == 0
    torn = [r.payload for r in records if isinstance(r.payload, Recovered)]
    remains = len(data[:cut].rpartition(b"\n")[2])
    is_whole_but_its_end = data[cut : cut + 1] == b"\n"
    expected_torn = [] if is_whole_but_its_end or not remains else [remains]
    assert [recovered.bytes for recovered in torn] == expected_torn
    for recovered in torn:
        aside = path.with_name(recovered.aside)
        assert aside.stat().st_size == recovered.bytes
        aside.unlink()


@pytest.mark.timeout(120)
def test_a_cut_at_every_byte_of_the_last_three_records_loses_only_what_was_cut(
    whole: bytes, memory_path: Path
) -> None:
    start = len(b"\n".join(whole.split(b"\n")[:-4])) + 1
    for cut in range(start, len(whole) + 1):
        check_cut(whole, cut, memory_path / "session.jsonl")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(4))
def test_a_cut_at_a_random_place_loses_only_what_was_cut(
    seed: int, whole: bytes, memory_path: Path
) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        check_cut(whole, chance.randrange(1, len(whole)), memory_path / "session.jsonl")


def half_then_whole(data: bytes) -> bytes:
    last = data.rstrip(b"\n").split(b"\n")[-1]
    return data[: -len(last) - 1] + last[: len(last) // 2] + last + b"\n"


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "NUL run at the end": (lambda data: data + b"\0" * 4096, 201),
    "NUL run before a record": (
        lambda data: data.replace(b'{"v":1,"seq":50,', b"\0" * 512 + b'{"v":1,"seq":50,'),
        201,
    ),
    "NUL run in place of a record": (
        lambda data: b"\n".join(
            b"\0" * len(line) if b'"seq":50,' in line else line for line in data.split(b"\n")
        ),
        200,
    ),
    "CRLF": (lambda data: data.replace(b"\n", b"\r\n"), 201),
    "BOM": (lambda data: BOM + data, 201),
    "half a record, then the whole one": (half_then_whole, 201),
    "every record twice": (
        lambda data: b"".join(line * 2 for line in data.splitlines(keepends=True)),
        201,
    ),
    "two records on one line": (
        lambda data: data.replace(b'\n{"v":1,"seq":50,', b'{"v":1,"seq":50,'),
        201,
    ),
    "all records on one line": (lambda data: data.replace(b"\n", b"") + b"\n", 201),
    "records in the wrong order": (
        lambda data: b"\n".join(reversed(data.split(b"\n")[:-1])) + b"\n",
        201,
    ),
    "garbage between": (lambda data: data.replace(b"\n", b"\n[[[{\n", 7), 201),
    "invalid UTF-8 in one record": (
        lambda data: data.replace(b"question 77", b"quest\xffon 7"),
        200,
    ),
    "deep nesting": (lambda data: data + b"[" * 100_000 + b"\n", 201),
    "a number with 5,000 digits": (
        lambda data: data + b'{"v":' + b"1" * 5_000 + b"}\n",
        201,
    ),
    "a line of 20 MB": (lambda data: b"x" * 20_000_000 + b"\n" + data, 201),
    "blank lines": (lambda data: data.replace(b"\n", b"\n\n \n"), 201),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_can_be_read_is_read_and_the_next_record_is_readable(
    name: str, whole: bytes, tmp_path: Path
) -> None:
    damage, expected = DAMAGE[name]
    path = tmp_path / "session.jsonl"
    path.write_bytes(damage(whole))
    reading = read(path)
    assert len(reading.records) == expected
    assert [r.seq for r in reading.records] == sorted({r.seq for r in reading.records})

    log = SessionLog.open(path)
    log.append(user("after"))
    log.close()

    assert said(read(path).records)[-1] == "after"
    assert len(read(path).records) in (expected + 1, expected + 2)


def test_bad_lines_in_the_middle_stay_in_the_file_and_are_counted(
    whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(whole.replace(b"\n", b"\n!damaged!\n", 3))
    log = SessionLog.open(path)
    log.append(user("after"))
    log.close()
    assert log.unreadable == 3
    assert path.read_bytes().count(b"!damaged!") == 3


def test_a_tail_that_cannot_be_put_aside_stays_where_it_is(whole: bytes, tmp_path: Path) -> None:
    def refuse(path: Path, flags: int, mode: int) -> int:
        if ".torn-" in path.name:
            raise OSError(errno.ENOSPC, "full")
        return os.open(path, flags, mode)

    path = tmp_path / "session.jsonl"
    path.write_bytes(whole + b'{"v":1,"seq":202,"ts":"half')
    log = SessionLog.open(path, files=FileLayer(open=refuse))
    log.append(user("after"))
    log.close()
    assert b'"ts":"half\n' in path.read_bytes()
    assert said(read(path).records)[-1] == "after"


def test_a_crashed_turn_becomes_one_interrupted_turn_when_the_session_is_opened(
    tmp_path: Path,
) -> None:
    path = a_session(tmp_path, 1)
    log = SessionLog.open(path)
    log.append(user("and now?"))
    log.append(TurnSegment(transcript=(TextItem(content="one"),)))
    log.append(TurnSegment(transcript=(TextItem(content=" two"),)))
    log.close()

    for _ in range(2):
        SessionLog.open(path).close()

    last = read(path).records[-1].payload
    assert isinstance(last, AssistantTurn)
    assert (last.message, last.interrupted) == ("one two", True)
    assert kinds(path).count("assistant_turn") == 2


@pytest.mark.timeout(60)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 200))
def test_no_damage_makes_a_session_unreadable(
    whole: bytes, tmp_path: Path, noise: bytes, place: int, removed: int
) -> None:
    path = tmp_path / "session.jsonl"
    data = whole[:10_000]
    path.write_bytes(data[:place] + noise + data[place + removed :])
    before = read(path).records
    if not before:
        return
    log = SessionLog.open(path, files=without_sync())
    log.append(user("after"))
    log.close()
    after = read(path).records
    assert after[: len(before)] == before
    assert said(after)[-1] == "after"

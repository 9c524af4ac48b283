from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keen.core.errors import SessionError
from keen.core.messages import User
from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.reading import read
from keen.session.records import MAX_LINE, ModelChanged, SessionRenamed, Unknown, UserMessage
from tests.session.samples import SESSION, a_draft, a_session, kinds, said, turn, user


def test_nothing_touches_the_disk_before_the_first_user_message(tmp_path: Path) -> None:
    log = a_draft(tmp_path / "sessions" / "place")
    log.append(ModelChanged(model="demo/other"))
    assert list(tmp_path.iterdir()) == []

    log.append(user("hello"))

    assert kinds(log.path) == ["session_started", "model_changed", "user_message"]
    log.close()


def test_a_line_is_what_the_contract_says(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("hällo\u2028"))
    log.close()

    raw = log.path.read_bytes()
    lines = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    assert raw.endswith(b"\n")
    assert [list(line) for line in lines] == [["v", "seq", "ts", "kind", "payload"]] * 2
    assert [line["seq"] for line in lines] == [1, 2]
    assert lines[0]["payload"]["session_id"] == SESSION
    assert lines[1]["payload"] == {
        "content": "hällo\u2028",
        "attachments": [],
        "steering": False,
        "turn": 1,
    }
    assert lines[1]["ts"].endswith("Z")


def test_files_are_0600_in_0700_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = a_draft(tmp_path / "a" / "b")
        log.append(user("hello"))
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*")}
    log.close()
    assert modes.pop(tmp_path / "a" / "b") == 0o700
    assert set(modes.values()) == {0o600}


def test_a_second_writer_is_told_who_writes_and_offered_a_fork(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("hello"))

    with pytest.raises(SessionError, match=rf"process {os.getpid()} on .*--fork-session"):
        SessionLog.open(log.path)

    log.close()
    SessionLog.open(log.path).close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("hello"))
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        log.close()
        SessionLog.open(log.path).close()
        child.communicate()


def test_a_lock_file_that_a_dead_process_left_locks_nothing(tmp_path: Path) -> None:
    path = a_session(tmp_path, 1)
    path.with_suffix(".lock").write_text('{"pid": 1, "host": "elsewhere"}', encoding="utf-8")
    SessionLog.open(path).close()


def test_unknown_kinds_and_fields_are_kept_and_skipped(tmp_path: Path) -> None:
    path = a_session(tmp_path, 1)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"v":1,"seq":4,"ts":"t","kind":"hologram","payload":{"x":[1]}}\n')
        file.write('{"v":2,"seq":5,"ts":"t","kind":"user_message","payload":{"new":1}}\n')
        file.write(
            '{"v":1,"seq":6,"ts":"t","kind":"user_message","payload":{"content":"x","mood":"ok"}}\n'
        )
    reading = read(path)
    assert reading.unreadable == 0
    assert [type(record.payload) for record in reading.records[3:5]] == [Unknown, Unknown]
    assert (reading.records[5].payload.model_extra or {})["mood"] == "ok"

    log = SessionLog.open(path)
    assert log.append(user("next")) == 7
    log.close()


def test_a_lone_surrogate_is_replaced_and_a_split_pair_is_joined(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(UserMessage.of(User("a\ud800b \ud83d\ude00")))
    assert said(log.records()) == ["a\ufffdb 😀"]
    log.close()


def test_a_record_beyond_sixteen_megabytes_is_refused_with_advice(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("first"))
    with pytest.raises(SessionError, match="send less text"):
        log.append(user("x" * MAX_LINE))
    log.append(user("second"))
    assert said(log.records()) == ["first", "second"]
    assert [record.seq for record in log.records()] == [1, 2, 3]
    log.close()


def test_user_messages_carry_the_turn_and_the_name_across_a_reopening(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("one"))
    log.append(SessionRenamed(name="parser"))
    log.close()
    log = SessionLog.open(log.path)
    log.append(user("two"))
    last = log.records()[-1].payload
    log.close()
    assert last.model_dump()["turn"] == 2
    assert last.model_dump()["name"] == "parser"


def test_opening_a_file_without_any_record_fails_and_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(b"")
    with pytest.raises(SessionError, match="no readable record"):
        SessionLog.open(path)
    assert path.exists()


@pytest.mark.timeout(60)
def test_appending_costs_the_same_at_ten_records_and_at_ten_thousand(tmp_path: Path) -> None:
    """Counted in bytes written, not in time."""
    written: list[int] = []

    def write(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        return os.write(descriptor, data)

    log = a_draft(tmp_path, files=FileLayer(write=write, sync=lambda _descriptor: None))
    log.append(user("begin"))
    for number in range(10_000):
        log.append(turn(f"{number:05}"))
    log.close()
    assert len(written) == 10_001
    assert max(written[1:]) - min(written[1:]) <= 8


def test_a_closed_log_refuses_records(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    log.append(user("x"))
    log.close()
    log.close()
    with pytest.raises(SessionError, match="closed"):
        log.append(user("y"))

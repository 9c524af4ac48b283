from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from keen.session.records import AssistantTurn, Record, SessionStarted, UserMessage, encoded
from keen.session.store import Store

PROGRAM = """
import resource, sys, time
from pathlib import Path

def peak_kilobytes():
    # Linux keeps ru_maxrss of the process that forked over exec; VmHWM begins anew.
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

from keen.session.log import SessionLog
from keen.session.projection import conversation
began = time.perf_counter()
log, records = SessionLog.resume(Path(sys.argv[1]))
history = conversation(records)
seconds = time.perf_counter() - began
log.close()
print(len(history), peak_kilobytes() // 1024, seconds)
"""


def write(path: Path, turns: int, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        started = SessionStarted(session_id=path.stem, cwd="/work", model="demo/demo")
        file.write(encoded(Record(1, "2026-01-01T00:00:00.000Z", started.kind, started)))
        for number in range(1, turns + 1):
            asked = UserMessage(content=f"question {number}", turn=number)
            turn = AssistantTurn(message="x" * size)
            for seq, payload in enumerate((asked, turn), 2 * number):
                line = Record(seq, "2026-01-01T00:00:00.000Z", payload.kind, payload)
                file.write(encoded(line))


@pytest.mark.timeout(60)
def test_a_thousand_sessions_are_listed_without_reading_them_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    directory = store.directory(tmp_path)
    for number in range(1_000):
        write(directory / f"{number:08}-0000-4000-8000-000000000000.jsonl", 4, 10_000)
    began = time.process_time()
    found = store.sessions(tmp_path)
    seconds = time.process_time() - began
    assert len(found) == 1_000
    assert {(item.turns, item.title) for item in found} == {(4, "question 1")}
    print(f"1,000 sessions in {seconds:.3f} s of processor time")


@pytest.mark.timeout(60)
def test_a_session_of_a_hundred_megabytes_opens_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    write(path, 10_000, 10_000)
    assert path.stat().st_size > 100_000_000
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    messages, megabytes, seconds = output.split()
    print(f"100 MB opened in {seconds} s with {megabytes} MB")
    assert int(messages) == 20_000
    assert int(megabytes) <= 300

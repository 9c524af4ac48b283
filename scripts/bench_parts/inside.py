"""Measurements inside of keen's modules, and the session files that some of them need.

inside.py WHAT …; what was measured is printed as one line of JSON, in seconds and MB.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.records import (
    AssistantTurn,
    Compaction,
    KeptMessage,
    Payload,
    Record,
    SessionStarted,
    TextItem,
    ToolItem,
    TurnSegment,
    UserMessage,
    encoded,
)

_TIMES: Final = 200
_ROUNDS: Final = 15
"""Rounds that a history grows by while it is measured."""
_TIME: Final = "2026-01-01T00:00:00.000Z"
_LINE: Final = "a line of the output of a tool, as a screen has shown it\n"
_NAME: Final = "00000000-0000-4000-8000-000000000000"


def estimate(dialect: str, count: str) -> dict[str, float]:
    """Processor seconds to size the next request after one more round, behind `count` messages."""
    from keen.agent.sampling import Sampler
    from keen.core.messages import Assistant, Message, Results, ToolCall, ToolResult, User
    from tests.fakes.asking import asking
    from tests.fakes.dialects import dialect_named

    spoken = dialect_named(dialect)
    model = spoken.model(window=10_000_000)
    sampler = Sampler(spoken.wire("http://127.0.0.1:9"), model)

    def a_round(number: int) -> tuple[Message, Message]:
        call = ToolCall(f"call_{number}", "read_file", {"path": f"part-{number}.txt"})
        return Assistant((call,)), Results((ToolResult(call.id, call.name, _LINE * 20),))

    history: list[Message] = [User("Read every part.")]
    for number in range(int(count) // 2):
        history += a_round(number)
    sampler.meter.report(sampler.encode(asking(spoken, *history, model=model)), 1_000)
    both: list[float] = []
    alone: list[float] = []
    for number in range(_ROUNDS):
        history += a_round(10_000 + number)
        request = asking(spoken, *history, model=model)
        start = time.thread_time()
        body = sampler.encode(request)
        encoded_at = time.thread_time()
        sampler.meter.measure(body)
        end = time.thread_time()
        both.append(end - start)
        alone.append(end - encoded_at)
    return {"measure": statistics.median(alone), "encode and measure": statistics.median(both)}


def append(path: str) -> dict[str, float]:
    """Seconds of one append to an opened session, with and without waiting for the disk."""
    return {
        "wall": _append_seconds(Path(path), FileLayer()),
        "without fsync": _append_seconds(Path(path), FileLayer(sync=lambda _: None)),
    }


def _append_seconds(path: Path, files: FileLayer) -> float:
    log = SessionLog.open(path, files=files)
    segment = _segment(0)
    spent: list[float] = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        log.append(segment)
        spent.append(time.perf_counter() - start)
    log.close()
    return statistics.median(spent)


def resume(path: str) -> dict[str, float]:
    """Seconds and peak memory of opening a session and building its conversation."""
    from keen.session.projection import conversation

    start, cpu = time.perf_counter(), time.process_time()
    log, records = SessionLog.resume(Path(path))
    conversation(records)
    told = {"wall": time.perf_counter() - start, "CPU": time.process_time() - cpu}
    log.close()
    return told | {"peak RSS": _peak()}


def _peak() -> float:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def listed(root: str) -> dict[str, float]:
    """Seconds to list all sessions of a store."""
    from keen.session.store import Store

    start, cpu = time.perf_counter(), time.process_time()
    found = Store(Path(root)).sessions(None)
    told = {"wall": time.perf_counter() - start, "CPU": time.process_time() - cpu}
    return told | {"sessions": len(found)}


def session_of(path: str, count: str) -> dict[str, float]:
    """A session of `count` records."""
    records = itertools.islice(_begun(Path(path).stem, _work()), int(count))
    return _write(Path(path), records)


def session_of_megabytes(path: str, megabytes: str) -> dict[str, float]:
    """A session of turns of 20 rounds, each with its segments, compacted after every fourth."""
    return _write(Path(path), _begun(Path(path).stem, _work()), int(megabytes) * 10**6)


def session_in(home: str, megabytes: str) -> dict[str, float]:
    """The same as the only session of the current directory."""
    from keen.session.store import Store

    directory = Store(Path(home) / "sessions").directory(Path.cwd())
    directory.mkdir(parents=True, mode=0o700)
    return session_of_megabytes(str(directory / f"{_NAME}.jsonl"), megabytes)


def sessions_in(root: str, count: str) -> dict[str, float]:
    """`count` sessions of about 100 KB in ten workspaces."""
    for number in range(int(count)):
        directory = Path(root) / f"work-{number % 10:010d}"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{number:08d}{_NAME[8:]}"
        _write(directory / f"{name}.jsonl", _begun(name, _work()), 100_000)
    return {}


def _begun(name: str, payloads: Iterator[Payload]) -> Iterator[Payload]:
    yield SessionStarted(session_id=name, cwd=os.getcwd(), model="fake/fake-chat-1")
    yield UserMessage(content="Read every part, one after another.", turn=1)
    yield from payloads


def _work() -> Iterator[Payload]:
    turn = 1
    while True:
        segments = [_segment(number) for number in range(20)]
        yield from segments
        text = TextItem(content=_LINE * 10)
        items = [item for segment in segments for item in segment.transcript]
        yield AssistantTurn(transcript=(*items, text), message=text.content)
        if turn % 4 == 0:
            kept = KeptMessage(role="user", content=_LINE * 80)
            yield Compaction(messages=(kept,), summary=_LINE * 60, trigger="proactive")
        turn += 1
        yield UserMessage(content=f"Go on with part {turn}.", turn=turn)


def _segment(number: int) -> TurnSegment:
    arguments = {"path": f"folder/part-{number}.txt", "offset": number}
    item = ToolItem(
        id=f"call_{number}",
        name="read_file",
        input=dict(arguments),
        output=_LINE * 40,
        seconds=0.01,
    )
    return TurnSegment(transcript=(item,))


def _write(path: Path, payloads: Iterator[Payload], limit: int = 10**12) -> dict[str, float]:
    size = 0
    with path.open("wb") as file:
        for number, payload in enumerate(payloads, 1):
            size += file.write(encoded(Record(number, _TIME, payload.kind, payload)))
            if size >= limit:
                break
        file.flush()
        os.fsync(file.fileno())  # or the first append waits for all of it
    path.chmod(0o600)
    return {"bytes": size}


WHAT: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "estimate": estimate,
    "append": append,
    "resume": resume,
    "list": listed,
    "session-of": session_of,
    "session-of-megabytes": session_of_megabytes,
    "session-in": session_in,
    "sessions-in": sessions_in,
}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](*sys.argv[2:])))

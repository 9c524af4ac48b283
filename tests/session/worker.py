"""A program that records a scripted session until it is killed; see test_kill.py.

Reads lines `PATH RUN` and forks for each: the child opens the session at PATH (or begins it),
plays turns and tells each acknowledged step on stdout; when it is dead the parent says `dead`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from keen.core.events import (
    CompactionApplied,
    Receipt,
    Rewound,
    SteeringDelivered,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from keen.core.messages import Checkpoint, History, ToolCall, ToolResult, Usage, User
from keen.session.checkpoint import Recorder
from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.records import SessionStarted
from tests.session.samples import play


def acknowledge(step: str) -> None:
    os.write(1, f"{step}\n".encode())


def a_log(path: Path, run: int) -> SessionLog:
    files = FileLayer() if run % 2 else FileLayer(sync=lambda _descriptor: None)
    if path.exists() and path.stat().st_size:
        return SessionLog.open(path, files=files)
    path.unlink(missing_ok=True)
    return SessionLog.draft(path, SessionStarted(session_id=path.stem), files=files)


async def a_turn(recorder: Recorder, tag: str) -> None:
    await recorder.user_message(User(f"ask {tag}"))
    acknowledge(f"ask {tag}")
    await play(recorder, TextDelta("void"), Rewound("transient", 2, 0.0), TextDelta(f"plan {tag}"))
    for number in range(3):
        call = ToolCall(f"{tag}-{number}", "bash", {"command": f"tool {tag}-{number}"})
        result = ToolResult(call.id, "bash", "x" * 3_000, exit_code=0)
        await play(recorder, ToolStarted(call), ToolFinished(result, 0.1))
        acknowledge(f"tool {tag}-{number}")
    await play(recorder, SteeringDelivered(User(f"steer {tag}", steering=True)))
    acknowledge(f"steer {tag}")
    checkpoint = Checkpoint(f"summary {tag}", (f"ask {tag}", f"steer {tag}"))
    replacement: History = (User(f"wrapped {tag}", checkpoint=checkpoint),)
    receipt = Receipt("proactive", 900, 90)
    await recorder.commit(replacement, receipt)
    acknowledge(f"wrapped {tag}")
    await play(recorder, CompactionApplied(replacement, receipt), TextDelta(f"end {tag}"))
    await recorder.finish(False, None, Usage(1), 1)
    acknowledge(f"end {tag}")


async def play_on(path: Path, run: int) -> None:
    recorder = Recorder(a_log(path, run))
    for number in count():
        await a_turn(recorder, f"{run}.{number}")


def main() -> None:
    for line in sys.stdin:
        path, run = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            acknowledge(f"pid {os.getpid()}")
            asyncio.run(play_on(Path(path), int(run)))
        os.waitpid(child, 0)
        acknowledge("dead")


if __name__ == "__main__":
    main()

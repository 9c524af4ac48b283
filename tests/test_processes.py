"""A program ends with everything it started, wherever that went."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keen.processes import HAS_PROC, MARKER, Output, Program, in_thread, pids

GRACE, LAST = 5.0, 5.0

needs_proc = pytest.mark.skipif(not HAS_PROC, reason="the system lists no processes")


async def started(script: str, output: Output, *, is_wrapped: bool = False) -> Program:
    """A running shell, its output read."""
    program = await Program.start(
        ["/bin/bash", "-c", script],
        Path("/"),
        {"PATH": os.environ["PATH"]},
        stdout=output.writing,
        stderr=output.writing,
        is_wrapped=is_wrapped,
    )
    output.listen()
    return program


class Said:
    """What a program wrote; `word` waits for it."""

    def __init__(self) -> None:
        self.data = b""
        self._more = asyncio.Event()

    def take(self, data: bytes) -> None:
        self.data += data
        self._more.set()

    async def word(self, word: bytes) -> None:
        while word not in self.data:
            self._more.clear()
            await self._more.wait()


async def test_it_is_asked_to_end_before_it_is_killed() -> None:
    said = Said()
    with Output(said.take) as output:
        script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.01; done"
        program = await started(script, output)
        await said.word(b"up")
        await program.end(GRACE, LAST)
        output.finish()

    assert said.data.endswith(b"asked\n")
    assert program.code == 3


async def test_what_does_not_listen_is_killed() -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started("trap '' TERM; echo up; while :; do sleep 100; done", output)
        await said.word(b"up")
        await program.end(0.1, LAST)

    assert program.code == -9


async def test_what_stands_still_is_woken_to_hear_it() -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started("trap 'exit 4' TERM; echo up; kill -STOP $$; sleep 100", output)
        await said.word(b"up")
        await program.end(GRACE, LAST)

    assert program.code in (4, -15)


@needs_proc
@pytest.mark.parametrize(
    "escape",
    ["setsid sleep 1000 &", f"setsid env -u {MARKER} sleep 1000 &", "setsid -f sleep 1000;"],
    ids=["another session", "another session without its mark", "no parent left"],
)
async def test_what_left_its_session_ends_too(escape: str) -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started(f"{escape} echo up; sleep 1000; :", output)
        await said.word(b"up")
        while len(members := await in_thread(program.members)) < 3:
            await asyncio.sleep(0.01)
        left = await program.end(GRACE, LAST)

    assert left == 2
    assert not members & set(alive())


@needs_proc
async def test_a_program_that_ended_first_has_its_leftovers_counted_and_ended() -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started("sleep 1000 & setsid sleep 1000 & exit 0", output)
        assert await program.exited() == 0
        members = await in_thread(program.members)
        left = await program.end(GRACE, LAST)

    assert left == len(members) == 2
    assert not members & set(alive())


@needs_proc
async def test_what_a_wrapper_holds_gets_the_grace() -> None:
    """The wrapper kills at once what it holds; only the inner program is asked."""
    said = Said()
    inner = 'trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.01; done'
    with Output(said.take) as output:
        program = await started(
            f"trap 'kill -KILL $held; exit 9' TERM; bash -c '{inner}' & held=$!; wait $held",
            output,
            is_wrapped=True,
        )  # fmt: skip
        await said.word(b"up")
        await program.end(GRACE, LAST)
        output.finish()

    assert b"saved" in said.data
    assert program.code == 0


async def test_a_cancellation_waits_for_the_end_and_goes_on() -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started("trap '' TERM; echo up; while :; do sleep 100; done", output)
        await said.word(b"up")
        ending = asyncio.create_task(program.end(0.2, LAST))
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending

    assert program.code == -9


@needs_proc
def test_a_loop_that_closes_ends_it_too() -> None:
    """Such a loop cancels every task, also the one that is ending the program."""
    programs: list[Program] = []

    async def run(said: Said) -> None:
        with Output(said.take) as output:
            script = "trap 'echo asked' TERM; echo up; while :; do sleep 100; done"
            program = await started(script, output)
            programs.append(program)
            try:
                await program.exited()
            finally:
                await program.end(0.5, LAST)

    async def leave() -> asyncio.Task[None]:
        said = Said()
        running = asyncio.create_task(run(said))
        await said.word(b"up")
        running.cancel()
        await said.word(b"asked")
        return running

    running = asyncio.run(leave())

    assert running.cancelled()
    assert programs[0].pid not in alive()


@needs_proc
async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        starting = asyncio.create_task(
            Program.start(
                ["/bin/sleep", "1000"],
                tmp_path,
                {"KEEN_TEST": str(tmp_path)},
                stdout=writing,
                stderr=writing,
            )
        )
        while f"KEEN_TEST={tmp_path}" not in environments() and not starting.done():
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    finally:
        os.close(writing)
    # Whoever still held the other end would make this wait.
    assert await in_thread(lambda: os.read(reading, 1)) == b""
    os.close(reading)

    assert f"KEEN_TEST={tmp_path}" not in environments()


async def test_who_writes_without_end_is_not_read_for_ever() -> None:
    said = Said()
    with Output(said.take) as output:
        program = await started("exec yes", output)
        await said.word(b"y")
        output.finish()
        await program.end(GRACE, LAST)

    assert program.code != 0


async def test_a_look_in_a_thread_that_fails_is_not_taken_for_a_lack_of_threads() -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(threading.get_ident())
        raise RuntimeError("of the look itself")

    with pytest.raises(RuntimeError, match="of the look itself"):
        await in_thread(look)

    assert len(looks) == 1
    assert looks[0] != threading.get_ident()


async def test_without_a_thread_a_look_is_taken_at_once() -> None:
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    executor.shutdown()

    assert await in_thread(threading.get_ident) == threading.get_ident()


def alive() -> list[int]:
    """Processes that are there and not only waiting to be collected."""
    found: list[int] = []
    for pid in pids():
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if status.rpartition(")")[2].split()[0] not in ("Z", "X"):
            found.append(pid)
    return found


def environments() -> set[str]:
    """The variables of all processes."""
    found: set[str] = set()
    for pid in pids():
        try:
            found |= set(Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"))
        except OSError:
            continue
    return found

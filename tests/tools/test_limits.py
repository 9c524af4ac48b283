"""Commands that use more of the machine than one command may, with bounds made small for it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from keen.tools._environment import command_environment
from keen.tools._limits import Limits, machine_memory
from keen.tools.base import Context, Outcome
from keen.tools.bash import Bash
from keen.tools.guard import Guard
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.sandbox.confinement import Confinement
from keen.tools.sandbox.confines import Surveyor
from keen.tools.sandbox.probe import find

MEGABYTE = 1024 * 1024
FULL = find("auto")
needs_full = pytest.mark.skipif(
    FULL.level != "full", reason=f"no full sandbox on this machine: {FULL.reason}"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="the system counts it elsewhere")
pytestmark = [linux, pytest.mark.timeout(30)]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    root = (tmp_path / "work").resolve()
    root.mkdir()
    scratch = (tmp_path / "scratch").resolve()
    return Context(root, (root,), scratch, environment=command_environment(os.environ, (root,)))


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    jobs = Jobs()
    yield jobs
    await jobs.aclose()


async def run(command: str, context: Context, jobs: Jobs, limits: Limits) -> Outcome:
    return await Bash(jobs, limits=limits).prepare({"command": command}, context).run()


async def contained(command: str, context: Context, jobs: Jobs, limits: Limits) -> Outcome:
    guard = Guard()
    policy = Policy(context, guard=guard, sandbox="full")
    confinement = Confinement(replace(FULL, surveyor=Surveyor(guard)), policy)
    tool = Bash(jobs, confinement, limits)
    return await tool.prepare({"command": command}, context).run()


def python(text: str) -> str:
    return f"{sys.executable} -S -c '{text}'"


async def test_a_command_that_takes_too_much_memory_is_stopped(
    context: Context, jobs: Jobs
) -> None:
    eats = python('import time; held = b"x" * 300_000_000; time.sleep(600)')

    found = await run(eats, context, jobs, Limits(memory=150 * MEGABYTE))

    assert found.is_error
    assert "[stopped: it used more than 150 MB of memory]" in found.output


async def test_memory_is_counted_over_all_its_processes(context: Context, jobs: Jobs) -> None:
    eats = python('import time; held = b"x" * 60_000_000; time.sleep(600)')

    found = await run(f"{eats} & {eats} & {eats} & wait", context, jobs, Limits(150 * MEGABYTE))

    assert "of memory]" in found.output


async def test_a_mapped_file_and_pages_shared_by_a_fork_are_no_memory_of_its_own(
    context: Context, jobs: Jobs
) -> None:
    (context.cwd / "data").write_bytes(b"x" * 100 * MEGABYTE)
    maps = python(
        "import mmap, os, time\n"
        'held = b"x" * 50_000_000\n'
        'file = mmap.mmap(os.open("data", os.O_RDONLY), 0, prot=mmap.PROT_READ)\n'
        "sum(file[at] for at in range(0, len(file), 4096))\n"
        "for _ in range(3):\n"
        "    if not os.fork():\n"
        "        time.sleep(1)\n"
        "        os._exit(0)\n"
        "time.sleep(1)\n"
        'print("done")'
    )

    found = await run(maps, context, jobs, Limits(memory=110 * MEGABYTE))

    assert found.output.splitlines()[0] == "done"


async def test_a_command_that_starts_too_many_processes_is_stopped_also_as_root(
    context: Context, jobs: Jobs
) -> None:
    found = await run(
        "for n in {1..90}; do sleep 600 & done; wait", context, jobs, Limits(processes=40)
    )

    assert "[stopped: it had started more than 40 processes]" in found.output


async def test_too_many_processes_in_the_background_end_as_well(
    context: Context, jobs: Jobs
) -> None:
    many = "for n in {1..90}; do sleep 600 & done; wait"  # a number: nothing grows by itself here
    tool = Bash(jobs, limits=Limits(processes=60))
    await tool.prepare({"command": many, "background": True}, context).run()
    [job] = jobs.all()
    assert job.task is not None

    await job.task

    assert job.state == "stopped: it had started more than 60 processes"


@needs_full
async def test_temporary_files_of_the_sandbox_are_bounded(context: Context, jobs: Jobs) -> None:
    limits = Limits(disk=20 * MEGABYTE)
    fills = "head -c 120M /dev/zero > /tmp/big; sleep 600"

    found = await contained(fills, context, jobs, limits)

    assert "its temporary files in /tmp are more than 20 MB; delete some]" in found.output
    cleared = await contained("sleep 0.5; rm /tmp/big; echo gone", context, jobs, limits)
    assert cleared.output.splitlines()[0] == "gone"


@needs_full
async def test_files_in_shared_memory_count_as_memory(context: Context, jobs: Jobs) -> None:
    fills = "head -c 250M /dev/zero > /dev/shm/big; sleep 600"

    found = await contained(fills, context, jobs, Limits(memory=150 * MEGABYTE))

    assert "[stopped: it used more than 150 MB of memory]" in found.output


@needs_full
async def test_nothing_else_that_is_memory_can_be_filled(context: Context, jobs: Jobs) -> None:
    tries = "for place in /run /var/run; do head -c 1M /dev/zero > $place/big && echo $place; done"

    found = await contained(tries, context, jobs, Limits())

    assert not {"/run", "/var/run"} & set(found.output.splitlines())


def test_the_bound_is_a_part_of_the_machine() -> None:
    assert MEGABYTE < Limits().memory < machine_memory()

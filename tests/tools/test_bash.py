"""What a hostile or broken command can do to the one who runs it: nothing lasting."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.core.messages import Json
from keen.tools._environment import command_environment, command_path
from keen.tools._spool import Spool
from keen.tools.base import Context, Outcome
from keen.tools.bash import Bash
from keen.tools.jobs import MOST_RUNNING, Jobs
from keen.tools.spill import RESULT_BYTES

MEGABYTE = 1024 * 1024


@pytest.fixture
def mark() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def context(tmp_path: Path, mark: str) -> Iterator[Context]:
    root = (tmp_path / "work").resolve()
    root.mkdir()
    environment = {**command_environment(os.environ, (root,)), "KEEN_TEST": mark}
    yield Context(root, (root,), (tmp_path / "scratch").resolve(), environment=environment)
    assert leftovers(mark) == []


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    jobs = Jobs()
    yield jobs
    await jobs.aclose()


def leftovers(mark: str) -> list[int]:
    """Living processes that were started with the mark."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        is_marked = f"KEEN_TEST={mark}".encode() in environment.split(b"\0")
        if is_marked and is_alive(int(name)):
            found.append(int(name))
    return found


def is_alive(pid: int) -> bool:
    """False for one that is gone or only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def bash(context: Context, command: str, **more: Json) -> Outcome:
    prepared = Bash(Jobs()).prepare({"command": command, **more}, context)
    return await prepared.run()


async def test_output_comes_back_whole_and_silent_when_all_went_well(context: Context) -> None:
    found = await bash(context, "echo out; echo err >&2; printf '%s' \"$PWD\"")

    assert found == Outcome(f"out\nerr\n{context.cwd}", exit_code=0)


async def test_an_exit_code_is_told_when_it_is_not_zero(context: Context) -> None:
    found = await bash(context, "echo no; exit 3")

    assert found == Outcome("no\n[exit code 3]", is_error=True, exit_code=3)


async def test_silence_is_said(context: Context) -> None:
    assert (await bash(context, "true")).output == "(no output)"


async def test_a_signal_is_named(context: Context) -> None:
    found = await bash(context, "kill -SEGV $$")

    assert found.output == "[ended by SIGSEGV]"
    assert found.is_error


async def test_the_text_judged_is_the_text_run(context: Context) -> None:
    command = "  printf '%s|' 'a  b' \"$0\" \"$#\"  # é\n"
    prepared = Bash(Jobs()).prepare({"command": command}, context)

    assert prepared.accesses[0].target == command
    assert (await prepared.run()).output.startswith("a  b|")


async def test_no_start_up_file_is_read(context: Context, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo from bashrc\n")
    (tmp_path / ".bash_profile").write_text("echo from profile\n")
    home = replace(context, environment={**context.environment, "HOME": str(tmp_path)})

    assert (await bash(home, "shopt login_shell; echo $-")).output.splitlines()[-1] != "i"
    assert "from" not in (await bash(home, "true")).output


async def test_a_command_that_reads_gets_end_of_file(context: Context) -> None:
    found = await bash(context, "read -r line; echo \"got '$line' $?\"; cat", timeout_seconds=5)

    assert found.output == "got '' 1"


async def test_there_is_no_terminal_to_open(context: Context) -> None:
    found = await bash(context, "exec 3<>/dev/tty || echo none; stty -echo; tty", timeout_seconds=5)

    assert "none" in found.output
    assert "not a tty" in found.output


async def test_a_command_that_never_ends_is_ended(context: Context) -> None:
    started = time.monotonic()

    found = await bash(context, "echo begun; sleep 1000", timeout_seconds=0.3)

    assert time.monotonic() - started < 3.3
    assert found.output.startswith("begun\n[timed out after 0.3 s")
    assert found.is_error


async def test_ignoring_the_polite_signal_does_not_help(context: Context) -> None:
    started = time.monotonic()

    command = "trap '' TERM INT HUP; while :; do sleep 1; done"
    found = await bash(context, command, timeout_seconds=0.3)

    assert time.monotonic() - started < 3.3
    assert "timed out" in found.output


async def test_a_stopped_command_is_ended(context: Context) -> None:
    started = time.monotonic()

    found = await bash(context, "kill -STOP $$", timeout_seconds=0.3)

    assert time.monotonic() - started < 3.3
    assert "timed out" in found.output


async def test_a_child_that_keeps_the_pipe_holds_nothing(context: Context) -> None:
    started = time.monotonic()

    found = await bash(context, "sleep 1000 & echo done", timeout_seconds=30)

    assert time.monotonic() - started < 4
    assert found.output == "done\n[1 process left running had to be ended.]"
    assert found.exit_code == 0


async def test_a_silent_child_is_ended_too(context: Context) -> None:
    found = await bash(context, "sleep 1000 >/dev/null 2>&1 & echo done")

    assert "1 process left running" in found.output


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sleep 1000 &",
        "setsid setsid sleep 1000 & disown",
        "(setsid bash -c 'trap \"\" TERM HUP; sleep 1000' &)",
        "nohup sleep 1000 >/dev/null 2>&1 &",
        "(exec >&- 2>&-; setsid sleep 1000 &)",
        "python3 -c 'import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:"
        "\n  time.sleep(1000)\n os._exit(0)\nos.wait()'",
    ],
)
async def test_no_daemon_survives(daemon: str, context: Context, mark: str) -> None:
    found = await bash(context, f"{daemon}\necho done", timeout_seconds=5)

    assert "done" in found.output
    assert leftovers(mark) == []


async def test_a_child_without_mark_and_session_is_ended_with_its_parent(context: Context) -> None:
    daemon = "setsid env -i bash -c 'echo $$ > pid; exec sleep 1000'"

    await bash(context, f"{daemon} & sleep 1000", timeout_seconds=1)

    pid = int((context.cwd / "pid").read_text())
    assert not is_alive(pid)


async def test_what_is_printed_after_the_exit_of_the_shell_is_still_read(context: Context) -> None:
    found = await bash(context, "(sleep 0.05; echo late) & echo early")

    assert found.output == "early\nlate"


async def test_closing_its_output_does_not_end_the_wait(context: Context) -> None:
    found = await bash(context, "echo x; exec >&- 2>&-; sleep 0.2; exit 4")

    assert found.exit_code == 4
    assert found.output == "x\n[exit code 4]"


async def test_cancelling_ends_every_process(context: Context, mark: str) -> None:
    begun = asyncio.Event()

    async def progress(_text: str) -> None:
        begun.set()

    watched = replace(context, progress=progress)
    command = "trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000"
    task = asyncio.create_task(bash(watched, command))
    await begun.wait()
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leftovers(mark) == []


async def test_cancelling_twice_while_it_ends_still_leaves_nothing(
    context: Context, mark: str
) -> None:
    begun = asyncio.Event()

    async def progress(_text: str) -> None:
        begun.set()

    command = "trap '' TERM; echo begun; while :; do sleep 1; done"
    task = asyncio.create_task(bash(replace(context, progress=progress), command))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leftovers(mark) == []


async def test_cancelling_at_the_start_leaves_nothing(context: Context, mark: str) -> None:
    for turns in range(12):
        task = asyncio.create_task(bash(context, "sleep 1000"))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert leftovers(mark) == []


async def test_a_fork_bomb_is_ended(context: Context) -> None:
    bomb = "f() { sleep 1000 & if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & fi; wait; }; f 5"
    started = time.monotonic()

    found = await bash(context, bomb, timeout_seconds=1)

    assert time.monotonic() - started < 4
    assert "timed out" in found.output


def _peak() -> int:
    """Kilobytes this process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


@pytest.mark.parametrize("stream", ["1", "2"])
async def test_a_flood_is_kept_within_bounds(stream: str, context: Context) -> None:
    await _flood(300 * MEGABYTE, stream, context)


@pytest.mark.campaign
@pytest.mark.timeout(120)
@pytest.mark.parametrize("stream", ["1", "2"])
async def test_a_gigabyte_is_kept_within_bounds(stream: str, context: Context) -> None:
    await _flood(1024 * MEGABYTE, stream, context)


async def _flood(size: int, stream: str, context: Context) -> None:
    before = _peak()
    command = f"echo first; head -c {size} /dev/zero | tr '\\0' x >&{stream}; echo; echo last"

    found = await bash(context, command, timeout_seconds=100)

    assert len(found.output.encode()) <= RESULT_BYTES
    assert found.output.startswith("first\n")
    assert found.output.endswith("last")
    (spool,) = context.scratch.iterdir()
    assert str(spool) in found.output
    assert spool.stat().st_size <= 64 * MEGABYTE + 200
    assert spool.stat().st_mode & 0o777 == 0o600
    assert spool.read_bytes().endswith(b"x\nlast\n")
    assert _peak() - before < 150 * 1024


async def test_a_flood_of_lines_does_not_freeze_the_loop(context: Context) -> None:
    longest, last, going = 0.0, time.monotonic(), True

    async def beat() -> None:
        nonlocal longest, last
        while going:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    heart = asyncio.create_task(beat())
    pieces: list[str] = []

    async def progress(text: str) -> None:
        pieces.append(text)

    await bash(replace(context, progress=progress), "yes", timeout_seconds=1)
    going = False
    await heart

    assert longest < 0.5
    assert 1 <= len(pieces) <= 12
    assert all(len(piece) <= 4_096 for piece in pieces)


async def test_a_slow_reader_of_progress_does_not_stretch_the_time(context: Context) -> None:
    async def progress(_text: str) -> None:
        await asyncio.Event().wait()

    started = time.monotonic()
    found = await bash(replace(context, progress=progress), "yes", timeout_seconds=0.5)

    assert "timed out" in found.output
    assert time.monotonic() - started < 3.5


@pytest.mark.parametrize(
    "command",
    [
        "head -c 3000000 /dev/urandom",
        "head -c 200000 /dev/zero",
        "printf '\\303'; head -c 70000 /dev/zero | tr '\\0' '\\303'; printf '\\251'",
        "head -c 10000000 /dev/zero | tr '\\0' y",
        "for i in $(seq 40000); do printf '\\303\\251'; done",
        "printf 'a\\033[31m\\033]52;c;aGk=\\007\\233x\\r\\n'",
    ],
)
async def test_any_bytes_become_bounded_text(command: str, context: Context) -> None:
    found = await bash(context, command)

    assert len(found.output.encode()) <= RESULT_BYTES


async def test_broken_text_is_said_and_whole_text_is_not(context: Context) -> None:
    broken = await bash(context, "printf 'a\\377b\\0c'")
    whole = await bash(context, "printf 'é漢\\033[1m'")

    assert broken.output == "a\ufffdb\0c\n[not UTF-8 in 1 places, shown there as \ufffd]"
    assert whole.output == "é漢"


async def test_a_full_disk_costs_only_the_middle(context: Context) -> None:
    nowhere = replace(context, scratch=Path("/proc/nowhere"))

    found = await bash(nowhere, "echo first; seq 200000; echo last")

    assert found.output.startswith("first\n1\n")
    assert found.output.endswith("199999\n200000\nlast")
    assert "could not be kept" in found.output


async def test_no_core_is_written_and_memory_killers_take_the_command_first(
    context: Context,
) -> None:
    found = await bash(context, "sleep 0.1; bash -c 'ulimit -c; cat /proc/self/oom_score_adj'")

    assert found.output.split() == ["0", "500"]
    assert resource.getrlimit(resource.RLIMIT_NPROC)[0] != 0


async def test_a_missing_directory_is_told(context: Context) -> None:
    gone = replace(context, cwd=context.cwd / "gone")

    with pytest.raises(ToolError, match="is gone"):
        await bash(gone, "ls")


@pytest.mark.parametrize(
    ("input", "words"),
    [
        ({}, "command is missing"),
        ({"command": " "}, "empty"),
        ({"command": "ls\r\nrm x"}, "U\\+000D"),
        ({"command": "ls \u202e"}, "U\\+202E"),
        ({"command": "ls", "timeout_seconds": 4_000}, "timeout_seconds"),
        ({"command": "ls", "sandbox": False}, "no argument"),
        ({"command": "x" * 20_000}, "longer than"),
    ],
)
def test_wrong_arguments_say_what_to_send(
    input: dict[str, Json], words: str, context: Context
) -> None:
    with pytest.raises(ToolError, match=words):
        Bash(Jobs()).prepare(input, context)


async def test_a_card_shows_the_whole_command(context: Context) -> None:
    prepared = Bash(Jobs()).prepare(
        {"command": "ls\nrm x", "needs": "network", "reason": "because"}, context
    )

    preview = await prepared.preview()

    assert isinstance(preview, dict)
    assert preview["command"] == "ls\nrm x"
    assert (preview["lines"], preview["characters"]) == (2, 7)
    assert (preview["needs"], preview["reason"]) == ("network", "because")
    assert prepared.accesses[0].needs == "network"


async def test_a_background_job_runs_on_and_ends_with_its_owner(
    context: Context, mark: str, jobs: Jobs
) -> None:
    prepared = Bash(jobs).prepare(
        {"command": "echo begun; setsid sleep 1000 & sleep 1000", "background": True}, context
    )

    said = (await prepared.run()).output

    (job,) = jobs.all()
    assert said.startswith("Still running in background as job 1. Its output goes to /")
    assert job.is_running
    while "begun" not in jobs.output(1):
        await asyncio.sleep(0.01)
    assert job.spool.path is not None
    assert job.spool.path.read_text() == "begun\n"
    await jobs.aclose()
    assert leftovers(mark) == []
    assert job.state == "stopped by signal 15"
    assert job.spool.path.exists()


async def test_a_job_that_ends_by_itself_keeps_its_output(context: Context, jobs: Jobs) -> None:
    argv = ("/bin/bash", "-c", "echo all; exit 3")
    job = await jobs.start(argv, "x", context.cwd, context.environment, context.scratch)
    assert job.task is not None
    await job.task

    assert job.state == "exit code 3"
    assert jobs.output(job.id) == "all\n"


async def test_jobs_are_bounded_and_stopped_one_by_one(
    context: Context, mark: str, jobs: Jobs
) -> None:
    argv = ("/bin/sleep", "1000")
    for _ in range(MOST_RUNNING):
        await jobs.start(argv, "sleep", context.cwd, context.environment, context.scratch)
    with pytest.raises(ToolError, match="run already"):
        await jobs.start(argv, "sleep", context.cwd, context.environment, context.scratch)

    await jobs.stop(3)

    assert [job.id for job in jobs.all() if not job.is_running] == [3]
    assert len(leftovers(mark)) == MOST_RUNNING - 1
    with pytest.raises(ToolError, match="no background job 77"):
        jobs.output(77)


def test_a_spool_keeps_the_first_and_the_newest_bytes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit=400_000)
    data = b"".join(b"%07d\n" % number for number in range(100_000))
    for start in range(0, len(data), 7_777):
        spool.write(data[start : start + 7_777])
    spool.close()

    assert spool.path is not None
    kept = spool.path.read_bytes()
    assert kept.startswith(data[:300_000])
    assert kept.endswith(data[-100_000:])
    assert b"400,000 bytes left out" in kept


def test_short_output_never_touches_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "scratch")
    spool.write(b"short")
    spool.close()

    assert spool.text() == "short"
    assert not (tmp_path / "scratch").exists()


def test_commands_see_no_secret_and_nothing_that_asks(tmp_path: Path) -> None:
    inherited = {
        "PATH": "/usr/bin",
        "HOME": "/home/u",
        "LC_ALL": "C.UTF-8",
        "ANTHROPIC_API_KEY": "sk-1",
        "GITHUB_TOKEN": "g",
        "SSH_AUTH_SOCK": "/run/x",
        "DB_PASSWORD": "p",
        "BASH_ENV": "/evil",
        "LD_PRELOAD": "/evil.so",
        "PROMPT_COMMAND": "id",
        "FORCE_COLOR": "1",
        "CDPATH": "/",
        "HTTPS_PROXY": "http://user:word@proxy:1",
        "http_proxy": "http://proxy:1",
        "BASH_FUNC_ls%%": "() { id; }",
        "MY_SETTING": "1",
    }

    plain = command_environment(inherited, (tmp_path,))
    added = command_environment(
        inherited, (tmp_path,), added=["MY_SETTING", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "CDPATH"]
    )

    passed = {name for name in plain if name in inherited}
    assert passed == {"PATH", "HOME", "LC_ALL", "http_proxy"}
    assert plain["PAGER"] == plain["GIT_PAGER"] == "cat"
    assert plain["GIT_TERMINAL_PROMPT"] == "0"
    assert (added["MY_SETTING"], added["GITHUB_TOKEN"]) == ("1", "g")
    assert not {"ANTHROPIC_API_KEY", "CDPATH"} & set(added)


def test_no_program_is_found_in_the_workspace_by_name(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "work"
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/pyvenv.cfg").write_text("")
    link = tmp_path / "link"
    link.symlink_to(root)
    path = f".::{root}:{root}/bin:{link}/bin:relative:/usr/bin:{root}/.venv/bin:/usr/bin"

    assert command_path(path, (root,)) == "/usr/bin"
    assert command_path(path, (root,), is_trusted=True) == f"/usr/bin:{root}/.venv/bin"
    assert command_path(str(root), (root,)).startswith("/usr/local/bin:")


async def test_the_signals_of_keen_itself_do_not_reach_a_command(context: Context) -> None:
    found = await bash(context, "ps -o sid= -p $$ | tr -d ' '; echo $$")

    session, pid = found.output.split()
    assert session == pid != str(os.getsid(0))
    assert signal.getsignal(signal.SIGINT) is not None

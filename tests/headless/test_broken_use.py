"""`keen run` used wrongly on purpose: odd command lines, broken streams, signals at the start."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import ROOT, Place, Ran

CHAT = dialect_named("chat")
pytestmark = pytest.mark.timeout(60)


async def shell(place: Place, command: str, **environment: str) -> Ran:
    """A line for bash in which `keen` is this checkout."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f'keen() {{ "{sys.executable}" -m keen "$@"; }}\n{command}'),
        cwd=place.work,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(place.home),
            "KEEN_HOME": str(place.home),
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


def words_sent(provider: FakeProvider) -> str:
    return CHAT.read(provider.requests[-1]).messages[-1].text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "a", "--format", "json", "b"), "a b"),
        (("run", "--format=json", "--", "-p", "--nope"), "-p --nope"),
        (("run", "--format", "json", "a", "--", "-c", "b"), "a -c b"),
        (("run", "-p", "a", "--format=json"), "a"),
        (("-pm", "fake/fake-chat-1", "--format=json", "models"), "models"),
        (("a", "b", "--format=json", "-p"), "a b"),
        (("--format", "json", "-p", "--", "--help"), "--help"),
    ],
)
async def test_flags_and_words_may_come_in_any_order(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run(*words)

    assert (ran.code, ran.result["text"]) == (0, "ok")
    assert words_sent(provider) == said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nosuch",), "unrecognized arguments: --nosuch"),
        (("--max-turns", "abc"), "argument --max-turns: 'abc' is not a positive whole number"),
        (("--max-budget-usd", ""), "argument --max-budget-usd: '' is not a positive amount"),
        (("-m", ""), "argument -m/--model: the value is empty"),
        (("-C", ""), "argument -C/--cwd: the value is empty"),
        (("--completion-signal", ""), "argument --completion-signal: the value is empty"),
    ],
)
async def test_wrong_use_is_one_sentence_in_json_and_has_the_usage_on_stderr(
    place: Place, words: tuple[str, ...], message: str
) -> None:
    ran = await place.run("run", "--format", "json", "x", *words)

    assert (ran.code, ran.result["error"]) == (2, {"type": "UsageError", "message": message})
    assert "usage: keen run" in ran.stderr


async def test_a_flag_of_keen_run_alone_names_keen_run(place: Place) -> None:
    ran = await place.run("--format=json", "hello")

    assert (ran.code, ran.stderr) == (2, "keen: --format belongs to `keen run` (or `keen -p`).\n")


@pytest.mark.parametrize("command", ["models", "sessions list", "config show", "auth status"])
async def test_every_command_knows_its_version(place: Place, command: str) -> None:
    ran = await place.run(*command.split(), "--version")

    assert (ran.code, ran.stdout.split()[0]) == (0, "keen")


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
@pytest.mark.parametrize(
    ("target", "reason"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")]
)
async def test_a_stdout_that_takes_nothing_is_said_in_one_line(
    place: Place, form: str, target: str, reason: str
) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        ran = await shell(place, f"keen run --format {form} hi {target}")

    assert ran.code == 1
    assert ran.stderr.startswith(f"keen run: stdout cannot be written: {reason}")
    assert len(ran.stderr.splitlines()) == 1


async def test_closed_streams_never_let_output_into_the_session(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        ran = await shell(place, "keen run --format json hi <&- >&- 2>&-")

    assert ran.code == 1
    kinds = [record["kind"] for record in place.records()]
    assert kinds == ["session_started", "user_message", "assistant_turn"]


@pytest.mark.parametrize(
    "words", ["config show", "models demo", "permissions list", "completion bash"]
)
async def test_a_full_disk_under_a_command_is_no_mistake_of_keen(place: Place, words: str) -> None:
    ran = await shell(place, f"keen {words} >/dev/full")

    assert (ran.code, ran.stderr.splitlines()[-1]) == (
        1,
        "keen: stdout cannot be written: No space left on device",
    )


@pytest.mark.parametrize(
    "words", ["run hi", "models demo", "sessions list", "doctor", "config check"]
)
async def test_a_directory_that_is_gone_is_named_as_the_reason(place: Place, words: str) -> None:
    ran = await shell(place, f"mkdir d && cd d && rmdir ../d && keen {words}")

    assert ran.code == 2
    assert "The current directory does not exist any more." in ran.stderr


async def test_a_directory_whose_name_is_not_utf8_has_sessions_too(place: Place) -> None:
    odd = os.fsencode(place.work) + b"/bad\xff"
    os.mkdir(odd)
    async with FakeProvider(CHAT.says("ok"), CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        there = Place(place.home, Path(os.fsdecode(odd)))
        first = await there.run("run", "one", "--format=json")
        second = await there.run("run", "-c", "two", "--format=json")

    assert (first.code, second.code) == (0, 0)
    assert first.result["session_id"] == second.result["session_id"]


async def test_a_session_is_shown_whatever_the_locale_says(place: Place) -> None:
    async with FakeProvider(CHAT.says("grün → 漢")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "one", "--format=json")
        shown = await place.run(
            "sessions",
            "show",
            str(ran.result["session_id"]),
            environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"},
        )

    assert (shown.code, "grün → 漢" in shown.stdout) == (0, True)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_a_signal_while_the_prompt_is_still_being_read_prints_the_object(
    place: Place, number: signal.Signals, code: int
) -> None:
    process = await place.start("run", "--format", "json", stdin=subprocess.PIPE)
    await _reads_its_stdin(process.pid)
    process.send_signal(number)
    out, err = await process.communicate()

    assert (process.returncode, err) == (code, b"")
    assert json.loads(out)["stop_reason"] == "interrupted"


async def _reads_its_stdin(pid: int) -> None:
    """Return once the process waits in a read of descriptor 0 (Linux shows the system call)."""
    read_numbers = ("0", "63")  # x86_64, and arm64 with the other new ones
    while not ((call := _waits_for(pid))[0] in read_numbers and call[1] == "0x0"):
        await asyncio.sleep(0.01)


def _waits_for(pid: int) -> list[str]:
    """The number and the arguments of the system call a process is in."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        pytest.skip("this system does not show what a process waits for")


async def test_a_hangup_ends_the_run_like_the_other_signals(place: Place) -> None:
    async with FakeProvider(CHAT.hangs("begun")) as provider:
        place.configure(CHAT, provider.url)
        process = await place.start("run", "--format", "stream-json", "hi")
        assert process.stdout is not None
        while b'"text":"begun"' not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGHUP)
        out, _ = await process.communicate()

    assert process.returncode == 129
    result = json.loads(out.splitlines()[-1])
    assert (result["stop_reason"], result["text"]) == ("interrupted", "begun")
    assert place.records()[-1]["kind"] == "assistant_turn"


async def test_a_turn_keeps_the_last_reported_size_of_its_prompt(place: Place) -> None:
    async with FakeProvider(CHAT.calls("glob", pattern="*"), CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "hi", "--format=stream-json")

    reported = [line["input_tokens"] for line in ran.lines if line["type"] == "usage"]
    payload = place.records()[-1]["payload"]
    assert isinstance(payload, dict)
    assert isinstance(payload["usage"], dict)
    assert len(reported) == 2
    assert payload["usage"]["context_tokens"] == reported[-1]


async def test_a_reader_that_takes_nothing_does_not_outlive_a_signal(place: Place) -> None:
    pieces = tuple("x" * 1_000 for _ in range(300))
    async with FakeProvider(CHAT.says("", pieces=pieces)) as provider:
        place.configure(CHAT, provider.url)
        reader, writer = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "keen", "run", "--format", "stream-json", "hi"),
            cwd=place.work,
            env={
                **{name: os.environ[name] for name in ("PATH",)},
                **{"HOME": str(place.home), "KEEN_HOME": str(place.home), "PYTHONPATH": str(ROOT)},
            },
            stdin=subprocess.DEVNULL,
            stdout=writer,
        )
        while select.select([], [writer], [], 0)[1]:
            await asyncio.sleep(0.01)
        os.close(writer)
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
        whole = _all_of(reader).splitlines(keepends=True)

    assert code == 143
    assert json.loads(whole[0])["type"] == "session"
    assert all(json.loads(line) for line in whole[:-1])


async def test_a_file_that_never_answers_does_not_outlive_a_signal(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        os.mkfifo(place.home / "trust.json")
        process = await place.start("run", "--format", "json", "hi")
        # Opening waits for a reader, which then waits for what never comes.
        held = await asyncio.to_thread(os.open, place.home / "trust.json", os.O_WRONLY)
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
        os.close(held)

    assert (process.returncode, json.loads(out)["stop_reason"]) == (143, "interrupted")


async def test_a_busy_session_is_told_with_code_1_and_can_be_forked(place: Place) -> None:
    answers = (CHAT.says("one"), CHAT.hangs("begun"), CHAT.says("copied"))
    async with FakeProvider(*answers) as provider:
        place.configure(CHAT, provider.url)
        await place.run("run", "first")
        busy = await place.start("run", "--format", "stream-json", "-c", "second")
        assert busy.stdout is not None
        while b'"text":"begun"' not in await busy.stdout.readline():
            pass
        refused = await place.run("run", "--format", "json", "-c", "third")
        forked = await place.run("run", "--format", "json", "-c", "--fork-session", "third")
        busy.terminate()
        await busy.communicate()

    assert (refused.code, refused.result["stop_reason"]) == (1, "error")
    assert "--fork-session" in refused.stderr
    assert (forked.code, forked.result["text"]) == (0, "copied")


def _all_of(descriptor: int) -> bytes:
    """What is left in a pipe that nobody writes to any more."""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


async def test_what_is_piped_in_is_text_or_is_said_to_be_none(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok"), CHAT.says("ok")) as provider:
        place.configure(CHAT, provider.url)
        marked = await shell(place, r"printf '\xef\xbb\xbfone\r\ntwo\r\n' | keen run")
        assert words_sent(provider) == "one\r\ntwo"
        broken = await shell(place, r"printf 'caf\xe9' | keen run look")
        assert words_sent(provider) == "look\ncaf\ufffd"

    assert (marked.code, marked.stderr) == (0, "")
    assert broken.code == 0
    assert "no UTF-8 text (byte 4)" in broken.stderr


@pytest.mark.parametrize("form", ["json", "stream-json"])
async def test_a_missing_key_is_told_before_anything_is_sent_or_kept(
    place: Place, form: str
) -> None:
    ran = await place.run("run", "hi", "-m", "groq/x", "--format", form)

    result = ran.lines[-1]
    error = result["error"]
    assert isinstance(error, dict)
    assert (ran.code, len(ran.lines), error["type"]) == (4, 1, "Unauthorized")
    assert (result["session_id"], result["requests"]) == (None, 0)
    assert place.sessions() == []


async def test_a_mistake_in_keen_itself_is_told_in_the_wanted_format(place: Place) -> None:
    (place.work / "broken.py").write_text(
        "import sys\n"
        "from keen import cli\n"
        "from keen.commands import run\n"
        "run._prompt = lambda words: 1 // 0\n"
        "sys.exit(cli.run(['run', 'hi', '--format=json']))\n"
    )
    ran = await shell(place, f'"{sys.executable}" broken.py')

    assert (ran.code, ran.result["stop_reason"]) == (1, "error")
    assert "ZeroDivisionError" in str(ran.result["error"])
    assert "a mistake in keen itself: ZeroDivisionError" in ran.stderr


async def test_the_type_of_an_error_is_one_that_scripts_know(place: Place) -> None:
    wrong = await place.run("run", "hi", "--format", "json", environment={"KEEN_MODEL": "bad"})
    (place.home / "config.toml").write_text("[ui]\nmouse = 3\n")
    broken = await place.run("run", "hi", "--format", "json")

    for ran in (wrong, broken):
        assert isinstance(error := ran.result["error"], dict)
        assert (ran.code, error["type"]) == (4, "ConfigError")

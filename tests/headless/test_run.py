"""`keen run` from outside: formats, exit codes, sessions, signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from keen.core.messages import Json, JsonObject, Usage
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place, Ran

CHAT = dialect_named("chat")
UNEXPLAINED = Scripted(
    status=400,
    content_type="application/json",
    frames=(b'{"error": {"message": "Something is wrong."}}',),
)
KEYS = {
    "session_id",
    "text",
    "stop_reason",
    "error",
    "model",
    "requests",
    "duration_seconds",
    "cost_usd",
    "usage",
    "compactions",
}
pytestmark = pytest.mark.timeout(60)


async def run(place: Place, provider: FakeProvider, *words: str, **options: str) -> Ran:
    place.configure(CHAT, provider.url)
    return await place.run("run", *words, **options)  # pyright: ignore[reportArgumentType]


async def test_the_answer_is_on_stdout_and_nothing_else(dialect: Dialect, place: Place) -> None:
    async with FakeProvider(dialect.says("Hello there.")) as provider:
        place.configure(dialect, provider.url)
        ran = await place.run("run", "say", "hello")
        request = dialect.read(provider.requests[0])

    assert (ran.code, ran.stdout, ran.stderr) == (0, "Hello there.\n", "")
    assert request.messages[-1].text == "say hello"
    assert provider.violations == []


async def test_the_tools_work_on_real_files_and_the_texts_are_joined(
    dialect: Dialect, place: Place
) -> None:
    (place.work / "a.py").write_text("x = 1\n")
    edit: list[Json] = [{"old": "x = 1", "new": "x = 2"}]
    async with FakeProvider(
        dialect.calls_many(("read_file", {"path": "a.py"}), text="Let me look."),
        dialect.calls_many(("edit_file", {"path": "a.py", "edits": edit}), text="Now I change it."),
        dialect.says("Done."),
    ) as provider:
        place.configure(dialect, provider.url)
        ran = await place.run("run", "change x", "--format", "json")

    assert ran.code == 0, ran.stderr
    assert (place.work / "a.py").read_text() == "x = 2\n"
    assert ran.result["text"] == "Let me look.\n\nNow I change it.\n\nDone."
    assert set(ran.result) == KEYS
    assert ran.result["requests"] == 3
    assert provider.violations == []


async def test_stdin_follows_the_words(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        ran = await run(place, provider, "explain", "this", stdin="line one\nline two\n")
        said = CHAT.read(provider.requests[0]).messages[-1].text

    assert ran.code == 0
    assert said == "explain this\nline one\nline two"


@pytest.mark.parametrize("words", [["run"], ["run", "  "], ["-p"]])
async def test_an_empty_prompt_is_wrong_use(place: Place, words: list[str]) -> None:
    ran = await place.run(*words, stdin="")

    assert ran.code == 2
    assert "prompt is required" in ran.stderr
    assert ran.stdout == ""


async def test_minus_p_is_run(place: Place) -> None:
    async with FakeProvider(CHAT.says("one"), CHAT.says("two")) as provider:
        place.configure(CHAT, provider.url)
        first = await place.run("-p", "hello")
        second = await place.run("hello", "-p")

    assert (first.stdout, second.stdout) == ("one\n", "two\n")


def scripted(name: str) -> list[Scripted]:
    calls = CHAT.calls("read_file", path="a")
    return {
        "failed": [UNEXPLAINED],
        "length": [CHAT.truncated("half an")],
        "refused": [CHAT.refused("I will not")],
        "context": [CHAT.overflow()],
        "key refused": [CHAT.unauthorized()],
        "no signal": [CHAT.says("finished")],
        "max turns": [calls, CHAT.says("never")],
        "tokens": [calls, CHAT.says("never")],
        "try later": [CHAT.spent()],
    }[name]


@pytest.mark.parametrize(
    ("name", "words", "code", "reason"),
    [
        ("failed", [], 1, "error"),
        ("length", [], 1, "length"),
        ("refused", [], 1, "refused"),
        ("context", [], 3, "context_limit"),
        ("key refused", [], 4, "error"),
        ("no signal", ["--completion-signal", "ALL-DONE"], 5, "done"),
        ("max turns", ["--max-turns", "1"], 6, "max_turns"),
        ("tokens", ["--max-tokens", "100"], 6, "budget"),
        ("try later", [], 75, "error"),
    ],
)
async def test_every_exit_code_comes_with_its_object(
    place: Place, name: str, words: list[str], code: int, reason: str
) -> None:
    async with FakeProvider(*scripted(name)) as provider:
        ran = await run(place, provider, "go", "--format", "json", *words)

    assert ran.code == code, ran.stderr
    assert ran.stdout.count("\n") == 1
    assert set(ran.result) == KEYS
    assert ran.result["stop_reason"] == reason
    assert (ran.result["error"] is None) == (reason not in ("error", "context_limit"))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--no-such-flag"], 2),
        (["--mode", "wild"], 2),
        (["--max-turns", "0"], 2),
        (["-C", "/no/such/directory"], 2),
        (["--resume", "nothing-like-it"], 2),
        (["--continue"], 2),
        (["-m", "nobody/model"], 4),
        (["-m", "anthropic/claude-sonnet-5"], 4),
    ],
)
async def test_wrong_use_and_missing_configuration_print_the_object_too(
    place: Place, words: list[str], code: int
) -> None:
    place.configure(CHAT, "http://127.0.0.1:9")
    ran = await place.run("run", "go", "--format", "json", *words)

    assert ran.code == code, ran.stderr
    assert set(ran.result) == KEYS
    assert ran.result["stop_reason"] == "error"
    assert ran.stderr.strip()


async def test_without_any_model_it_says_what_helps(place: Place) -> None:
    ran = await place.run("run", "go")

    assert ran.code == 4
    assert "keen demo" in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_a_window_that_is_too_small_is_refused_with_the_numbers(place: Place) -> None:
    async with FakeProvider() as provider:
        place.configure(CHAT, provider.url, window=6_000)
        ran = await place.run("run", "go")

    assert ran.code == 4
    assert "6,000" in ran.stderr
    assert "context_window" in ran.stderr
    assert provider.requests == []


async def test_a_stream_tells_events_in_order(place: Place) -> None:
    (place.work / "a.py").write_text("x = 1\n")
    async with FakeProvider(
        CHAT.calls_many(("read_file", {"path": "a.py"}), text="Looking.", reasoning="hm"),
        CHAT.says("Done\u2028."),
    ) as provider:
        ran = await run(place, provider, "go", "--format", "stream-json")

    kinds = [str(line["type"]) for line in ran.lines]
    assert kinds[0] == "session"
    assert kinds[-1] == "result"
    order = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    assert order == [
        *("session", "reasoning", "text", "usage", "tool_started", "tool_finished"),
        *("text", "usage", "result"),
    ]
    assert "\u2028" not in ran.stdout
    assert ran.lines[-1]["text"] == "Looking.\n\nDone\u2028."
    started = next(line for line in ran.lines if line["type"] == "tool_started")
    finished = next(line for line in ran.lines if line["type"] == "tool_finished")
    assert started["name"] == "read_file"
    assert started["input"] == {"path": "a.py"}
    assert started["id"] == finished["id"]
    assert "x = 1" in str(finished["output"])
    assert finished["is_error"] is False


async def test_a_retry_is_told_and_its_text_is_void(place: Place) -> None:
    async with FakeProvider(CHAT.cut("half a wo"), CHAT.says("whole")) as provider:
        ran = await run(place, provider, "go", "--format", "stream-json")

    retry = next(line for line in ran.lines if line["type"] == "retry")
    assert (retry["reason"], retry["attempt"]) == ("transient", 2)
    assert ran.result["text"] == "whole"
    assert ran.result["requests"] == 2
    assert "Retrying (attempt 2)..." in ran.stderr
    assert ".," not in ran.stderr


async def test_the_session_holds_what_happened(place: Place) -> None:
    (place.work / "a.py").write_text("SECRET-BODY\n" * 1_000)
    async with FakeProvider(
        CHAT.calls_many(("read_file", {"path": "a.py"}), text="Looking."), CHAT.says("Done.")
    ) as provider:
        ran = await run(place, provider, "go", "--format", "json")

    kinds = [record["kind"] for record in place.records()]
    assert kinds[0] == "session_started"
    assert kinds.count("user_message") == 1
    assert kinds.count("assistant_turn") == 1
    (turn,) = [r["payload"] for r in place.records() if r["kind"] == "assistant_turn"]
    assert isinstance(turn, dict)
    assert ran.result["session_id"] == place.sessions()[0].stem
    assert turn["message"] in ("Looking.Done.", "Looking.\n\nDone.")
    assert len(json.dumps(turn)) < 12_000
    assert os.stat(place.sessions()[0]).st_mode & 0o777 == 0o600


async def test_a_session_is_continued_resumed_and_forked(dialect: Dialect, place: Place) -> None:
    async with FakeProvider(
        dialect.calls_many(("glob", {"pattern": "*"}), text="One."),
        dialect.says("Two."),
        dialect.says("Three."),
        dialect.says("Four."),
        dialect.says("Five."),
    ) as provider:
        place.configure(dialect, provider.url)
        first = await place.run("run", "first", "--format", "json")
        identity = str(first.result["session_id"])
        again = await place.run("run", "second", "--continue", "--format", "json")
        resumed = await place.run("run", "third", "--resume", identity[:8], "--format", "json")
        forked = await place.run(
            "run", "fourth", "-r", identity, "--fork-session", "--format", "json"
        )
        last = dialect.read(provider.requests[-1])

    assert again.result["session_id"] == resumed.result["session_id"] == identity
    assert forked.result["session_id"] not in (None, identity)
    said = "\n".join(entry.text for entry in last.messages)
    assert all(word in said for word in ("first", "second", "third", "fourth", "One.", "Four."))
    assert provider.violations == []


async def test_no_session_keeps_nothing(place: Place) -> None:
    async with FakeProvider(CHAT.says("ok")) as provider:
        ran = await run(place, provider, "go", "--no-session")

    assert ran.code == 0
    assert place.sessions() == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
async def test_a_signal_ends_the_run_with_what_was_said(
    place: Place, number: signal.Signals, code: int
) -> None:
    async with FakeProvider(CHAT.hangs("so far")) as provider:
        place.configure(CHAT, provider.url)
        process = await place.start("run", "go", "--format", "json")
        await provider.asked()
        assert process.stdout is not None
        await _streamed(place)
        process.send_signal(number)
        out, err = await process.communicate()
        await provider.left()

    result = json.loads(out)
    assert process.returncode == code, err
    assert result["stop_reason"] == "interrupted"
    turns = [r["payload"] for r in place.records() if r["kind"] == "assistant_turn"]
    assert isinstance(turns[0], dict)
    assert turns[0]["interrupted"] is True


async def _streamed(place: Place) -> None:
    """Until the session exists: the user's message is recorded before the request."""
    while not place.sessions():
        await asyncio.sleep(0.01)


async def test_what_would_ask_is_refused_with_a_reason_and_a_rule_allows_it(place: Place) -> None:
    command = "touch made.txt"
    script = (CHAT.calls("bash", command=command), CHAT.says("ok"))
    async with FakeProvider(*script, *script) as provider:
        place.configure(CHAT, provider.url, extra='[permissions]\nsandbox = "off"\n')
        refused = await place.run("run", "go")
        told = CHAT.read(provider.requests[1]).results[0].output
        allowed = await place.run("run", "go", "--allow", "bash(touch made.txt)")

    assert refused.code == allowed.code == 0
    assert "--allow" in told or "rule" in told
    assert (place.work / "made.txt").exists()


async def test_an_untrusted_folder_is_not_read_as_advice(place: Place) -> None:
    (place.work / "AGENTS.md").write_text("ALWAYS-SAY-MOO")
    async with FakeProvider(CHAT.says("a"), CHAT.says("b")) as provider:
        place.configure(CHAT, provider.url)
        untrusted = await place.run("run", "go")
        trusted = await place.run("run", "go", "--trust")
        texts = [request.text for request in provider.requests]

    assert "MOO" not in texts[0]
    assert "AGENTS.md" in untrusted.stderr
    assert "MOO" in texts[1]
    assert trusted.stderr == ""


async def test_a_turn_longer_than_the_window_is_finished(dialect: Dialect, place: Place) -> None:
    (place.work / "big.txt").write_text("a line of text\n" * 1_400)
    rounds = 8
    done: list[int] = []

    def answer(request: Recorded) -> Scripted:
        transcript = dialect.read(request)
        if not transcript.tools:
            return dialect.says("## Goal\nSUMMARY-MARKER", usage=Usage(500, 0, 0, 20))
        assert "count the lines" in request.text
        if len(done) == rounds:
            return dialect.says("Counted.", usage=None)
        done.append(request.number)
        return dialect.calls_many(("read_file", {"path": "big.txt"}), usage=None)

    async with FakeProvider(answer) as provider:
        place.configure(dialect, provider.url, window=36_000)
        ran = await place.run("run", "count the lines", "--format", "json")

    assert ran.code == 0, ran.stderr
    compactions = ran.result["compactions"]
    assert isinstance(compactions, list)
    assert compactions
    assert all(isinstance(c, dict) and c["outcome"] == "applied" for c in compactions)
    assert ran.result["text"] == "Counted."
    assert ran.result["requests"] == rounds + 1 + len(compactions)
    assert "SUMMARY-MARKER" not in ran.stdout + ran.stderr
    assert ran.stderr == ""
    applied = [r for r in place.records() if r["kind"] == "compaction_applied"]
    assert len(applied) == len(compactions)
    assert provider.violations == []


async def test_the_embedded_provider_answers_about_the_real_directory(place: Place) -> None:
    (place.work / "alpha.txt").write_text("first words of alpha\n")
    (place.work / "beta").mkdir()
    (place.work / "beta" / "gamma.py").write_text("print('x')\n")

    ran = await place.run("run", "-m", "demo/guide", "what is in this directory?")

    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("I am keen's built-in guide")
    assert "alpha.txt" in ran.stdout
    assert "beta/" in ran.stdout


async def test_reading_a_lot_with_the_embedded_provider_compacts(place: Place) -> None:
    for number in range(24):
        (place.work / f"file{number:02}.txt").write_text(f"words of file {number}\n" * 400)

    ran = await place.run("run", "-m", "demo/guide", "read all the files", "--format", "json")

    assert ran.code == 0, ran.stderr
    compactions = ran.result["compactions"]
    assert isinstance(compactions, list)
    assert compactions
    assert "I read 24 files." in str(ran.result["text"])


def usage_of(result: JsonObject) -> JsonObject:
    value = result["usage"]
    assert isinstance(value, dict)
    return value


async def test_usage_is_the_sum_of_all_requests(place: Place) -> None:
    async with FakeProvider(
        CHAT.calls_many(("glob", {"pattern": "*"}), usage=Usage(1_000, 400, 0, 20, 5)),
        CHAT.says("ok", usage=Usage(1_200, 1_000, 0, 30, 0)),
    ) as provider:
        ran = await run(place, provider, "go", "--format", "json")

    assert usage_of(ran.result) == {
        "input_tokens": 2_200,
        "cached_tokens": 1_400,
        "cache_write_tokens": 0,
        "output_tokens": 50,
        "reasoning_tokens": 5,
        "total_tokens": 2_250,
    }


async def test_a_reader_that_leaves_ends_the_run_quietly(place: Place) -> None:
    async with FakeProvider(CHAT.says("word " * 20_000)) as provider:
        place.configure(CHAT, provider.url)
        reading, writing = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "keen", "run", "go", "--format", "stream-json"),
            cwd=place.work,
            env={
                "PATH": os.environ["PATH"],
                "KEEN_HOME": str(place.home),
                "PYTHONPATH": str(Path(__file__).parent.parent.parent),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writing)
        await provider.asked()
        os.close(reading)
        _, err = await process.communicate()

    assert process.returncode == 1
    assert b"Traceback" not in err

"""`keen run` with hooks of the person's, as real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.extend.hooking import alive
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")


def program(place: Place, body: str, name: str = "hook") -> str:
    path = place.home / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


def hook(event: str, program: str, more: str = "") -> str:
    return f'\n[[hooks.{event}]]\ncommand = ["{program}"]\n{more}\n'


async def test_a_hook_keeps_an_edit_from_being_made(place: Place) -> None:
    veto = program(place, "echo 'Generated: change the template.' >&2; exit 2")
    async with FakeProvider(
        CHAT.calls("write_file", path="a.txt", content="x"), CHAT.says("I see.")
    ) as provider:
        place.configure(
            CHAT, provider.url, extra=hook("PreToolUse", veto, 'matcher = "Edit|Write"')
        )
        ran = await place.run("run", "--format", "json", "write")
        told = CHAT.read(provider.requests[1]).results

    assert ran.code == 0
    assert ran.result["text"] == "I see."
    assert "Generated: change the template." in told[0].output
    assert not (place.work / "a.txt").exists()


async def test_hooks_know_the_session_and_end_with_it(place: Place) -> None:
    keeping = program(place, f"cat >> {place.home}/said; echo >> {place.home}/said")
    events = ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
    async with FakeProvider(CHAT.says("hello")) as provider:
        extra = "".join(hook(event, keeping) for event in events)
        place.configure(CHAT, provider.url, extra=extra)
        ran = await place.run("run", "hi")

    assert (ran.code, ran.stdout) == (0, "hello\n")
    said = [json.loads(line) for line in (place.home / "said").read_text().splitlines()]
    (session,) = place.sessions()
    assert [one["hook_event_name"] for one in said] == list(events)
    assert {one["transcript_path"] for one in said} == {str(session)}
    assert {one["session_id"] for one in said} == {session.stem}
    assert {Path(one["cwd"]) for one in said} == {place.work.resolve()}
    assert {one["permission_mode"] for one in said} == {"build"}


async def test_a_blocked_message_fails_the_run(place: Place) -> None:
    veto = program(place, "echo 'Not on Fridays.' >&2; exit 2")
    async with FakeProvider() as provider:
        place.configure(CHAT, provider.url, extra=hook("UserPromptSubmit", veto))
        ran = await place.run("run", "--format", "json", "hi")

    assert ran.code == 1
    assert "A hook blocked this message: Not on Fridays." in ran.stderr
    assert ran.result["text"] == ""
    assert provider.requests == []


async def test_a_broken_hook_is_said_on_stderr_and_the_run_goes_on(place: Place) -> None:
    broken = program(place, "printf '\\033[2Jout of order' >&2; exit 1")
    async with FakeProvider(CHAT.says("hello")) as provider:
        extra = hook("SessionStart", broken) + hook("PreTool", broken)
        place.configure(CHAT, provider.url, extra=extra)
        ran = await place.run("run", "hi")

    assert (ran.code, ran.stdout) == (0, "hello\n")
    assert "failed (1): out of order" in ran.stderr
    assert "hooks.PreTool: there is no such event" in ran.stderr
    assert "\x1b" not in ran.stderr


async def test_interrupting_a_run_ends_its_hooks(place: Place) -> None:
    pid = place.home / "pid"
    slow = program(place, f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 300")
    async with FakeProvider(CHAT.calls("read_file", path="a")) as provider:
        place.configure(CHAT, provider.url, extra=hook("PreToolUse", slow))
        process = await place.start("run", "hi")
        while not pid.exists():
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert process.returncode == 130
    assert not alive(int(pid.read_text()))


@pytest.mark.parametrize("key", ["notify_command", "status_command"])
async def test_a_project_names_no_program_of_the_screen(place: Place, key: str) -> None:
    (place.work / ".keen").mkdir()
    (place.work / ".keen" / "config.toml").write_text(f'[ui]\n{key} = ["evil"]\n')
    async with FakeProvider(CHAT.says("hello")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "--trust", "hi")

    assert ran.code == 0
    assert f"ui.{key} is ignored" in ran.stderr

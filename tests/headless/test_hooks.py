"""`keen run` with hooks of the person's, as real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from keen.paths import Paths
from keen.trust import trust
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


def project_hook(place: Place, body: str) -> None:
    """A hook of the project's that looks at every call."""
    (place.work / ".keen").mkdir()
    (place.work / ".keen" / "hooks.toml").write_text(
        '[[hooks.PreToolUse]]\ncommand = [".keen/check"]\n'
    )
    check = place.work / ".keen" / "check"
    check.write_text(f"#!/bin/sh\n{body}\n")
    check.chmod(0o700)


async def test_a_projects_hook_is_named_until_it_is_approved_and_then_runs(place: Place) -> None:
    project_hook(place, "echo 'Not today.' >&2; exit 2")
    replies = (CHAT.calls("glob", pattern="*"), CHAT.says("ok"))
    async with FakeProvider(*replies, *replies, *replies) as provider:
        place.configure(CHAT, provider.url)
        untrusted = await place.run("run", "hi")
        waiting = await place.run("run", "--trust", "hi")
        approved = await place.run("hooks", "approve", "--all")
        ran = await place.run("run", "hi")
        told = [CHAT.read(provider.requests[at]).results[0].output for at in (1, 3, 5)]

    line = ".keen/hooks.toml: not approved, so not run: PreToolUse: .keen/check."
    assert [line in one.stderr for one in (untrusted, waiting, ran)] == [False, True, False]
    assert approved.stdout == (
        "Approved, as it is now, .keen/check included: PreToolUse: .keen/check\n"
    )
    assert ["Not today." in one for one in told] == [False, False, True]
    assert [untrusted.code, waiting.code, approved.code, ran.code] == [0, 0, 0, 0]


async def test_what_a_hook_would_ask_the_person_is_refused_and_says_what_can_be_done(
    place: Place,
) -> None:
    word = '{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"Big?"}}'
    asking = program(place, f"echo '{word}'")
    async with FakeProvider(
        CHAT.calls("write_file", path="a.txt", content="x"), CHAT.says("ok")
    ) as provider:
        place.configure(CHAT, provider.url, extra=hook("PreToolUse", asking))
        await place.run("run", "--yolo", "write")
        told = CHAT.read(provider.requests[1]).results[0].output

    assert f"The hook {asking[:40]}" in told
    assert "leaves this to the person: Big?" in told
    assert "no rule and no mode allows what a hook asks about" in told
    assert "Do what is possible without this call" in told
    assert not (place.work / "a.txt").exists()


async def test_the_list_names_what_is_mine_what_waits_and_what_is_ignored(place: Place) -> None:
    project_hook(place, "exit 0")
    (place.home / "config.toml").write_text('[[hooks.Stop]]\ncommand = ["true"]\n')
    untrusted = await place.run("hooks")
    refused = await place.run("hooks", "approve", "--all")
    trust(place.work, Paths.in_one_directory(place.home))
    listed = await place.run("hooks", "list")
    unknown = await place.run("hooks", "approve", "zzzz")

    assert "yours     Stop: true" in untrusted.stdout
    assert ".keen/check" not in untrusted.stdout
    assert ".keen/hooks.toml is ignored: this folder is not trusted." in untrusted.stderr
    assert (refused.code, unknown.code) == (2, 2)
    assert "PreToolUse: .keen/check  (.keen/hooks.toml, not approved)" in listed.stdout

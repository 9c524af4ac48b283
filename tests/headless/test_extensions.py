"""MCP servers and subagents in `keen run`, from outside: real processes on both sides."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from keen.core.messages import Json
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
SERVER = Path(__file__).parents[1] / "extend/mcp_server.py"
pytestmark = pytest.mark.timeout(60)


def entry(place: Place, mode: str = "plain") -> str:
    argv = ["-I", str(SERVER), mode, str(place.home / "record")]
    return json.dumps({"mcpServers": {"test": {"command": sys.executable, "args": argv}}})


def flag(place: Place, mode: str = "plain") -> tuple[str, str]:
    file = place.home / "servers.json"
    file.write_text(entry(place, mode))
    return "--mcp-config", str(file)


async def test_a_tool_of_a_server_is_called_by_its_full_name(place: Place) -> None:
    async with FakeProvider(
        CHAT.calls("mcp__test__echo", text="over there"), CHAT.says("Heard.")
    ) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", *flag(place), "--allow", "mcp__test__echo", "go")
        told = CHAT.read(provider.requests[1]).results

    assert (ran.code, ran.stdout) == (0, "Heard.\n")
    assert "over there" in told[0].output
    assert not told[0].is_error


async def test_without_a_rule_it_is_refused_and_nothing_is_started(place: Place) -> None:
    async with FakeProvider(
        CHAT.calls("mcp__test__echo", text="over there"), CHAT.says("A pity.")
    ) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", *flag(place), "go")
        told = CHAT.read(provider.requests[1]).results

    assert ran.code == 0
    assert "--allow" in told[0].output
    assert not (place.home / "record").exists()


async def test_a_projects_server_waits_for_trust_and_for_approval(place: Place) -> None:
    (place.work / ".mcp.json").write_text(entry(place))
    calls = CHAT.calls("mcp__test__echo", text="x")
    async with FakeProvider(calls, CHAT.says("No."), calls, CHAT.says("No.")) as provider:
        place.configure(CHAT, provider.url)
        await place.run("run", "--yolo", "go")
        await place.run("run", "--yolo", "--trust", "go")
        untrusted, trusted = (
            CHAT.read(provider.requests[number]).results[0].output for number in (1, 3)
        )

    assert "no tool named" in untrusted
    assert "keen mcp approve test" in trusted
    assert not (place.home / "record").exists()


async def test_a_server_that_never_answers_keeps_no_run_waiting(place: Place) -> None:
    async with FakeProvider(CHAT.says("Here.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", *flag(place, "silent"), "go")

    assert (ran.code, ran.stdout) == (0, "Here.\n")
    assert not (place.home / "record").exists()


async def test_subagents_work_side_by_side_and_are_paid_for(place: Place) -> None:
    tasks: list[Json] = [
        {"agent": "explore", "prompt": f"look at {name}"} for name in ("one", "two", "three")
    ]
    async with FakeProvider(
        CHAT.calls("task", tasks=tasks),
        CHAT.says("Found it."),
        CHAT.says("Found it."),
        CHAT.says("Found it."),
        CHAT.says("All three found it."),
    ) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "--format", "json", "go")
        told = CHAT.read(provider.requests[4]).results

    assert ran.code == 0
    assert ran.result["text"] == "All three found it."
    assert ran.result["requests"] == 5
    assert told[0].output.count("Found it.") == 3

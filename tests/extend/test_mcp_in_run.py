"""Resources and prompts of MCP servers in `keen run`, from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.extend.mcp_place import SCRIPT
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    words = ["-I", str(SCRIPT), "plain", str(work / "record")]
    entries = {"docs": {"command": sys.executable, "args": words}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    return Place(home, work)


async def test_a_named_resource_is_sent_with_the_prompt(place: Place) -> None:
    async with FakeProvider(CHAT.says("Read.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "What is in @docs:note://a and @docs:note://none?")
        asked = CHAT.read(provider.requests[0])

    assert (ran.code, ran.stdout) == (0, "Read.\n")
    assert asked.messages[-1].text.endswith("what note://a holds\n</mcp_resource>")
    assert "@docs:note://none was not attached: The MCP server docs refused" in ran.stderr


async def test_a_prompt_of_a_server_is_sent_as_what_it_says(place: Place) -> None:
    async with FakeProvider(CHAT.says("Hello, Ada.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "/mcp__docs__greet", "Ada")
        asked = CHAT.read(provider.requests[0])

    assert (ran.code, ran.stdout) == (0, "Hello, Ada.\n")
    assert "Greet Ada warmly." in asked.messages[-1].text


async def test_a_prompt_that_lacks_an_argument_ends_the_run_unsent(place: Place) -> None:
    async with FakeProvider(CHAT.says("Never.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "/mcp__docs__greet")

    assert ran.code == 1
    assert "/mcp__docs__greet needs who" in ran.stderr
    assert provider.requests == []

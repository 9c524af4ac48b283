"""Resources and prompts of MCP servers in `keen run`, from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.extend.mcp_oauth_server import Protected
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


async def test_signing_in_shows_the_page_and_keeps_the_tokens(place: Place) -> None:
    async with Protected() as site, FakeProvider(CHAT.says("Hm.")) as provider:
        place.configure(CHAT, provider.url)
        entries = {"web": {"type": "http", "url": site.url}}
        (place.home / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        before = await place.run("mcp", "test", "web")
        process = await place.start("mcp", "login", "web")
        assert process.stderr is not None
        assert process.stdout is not None
        address = ""
        while not address.startswith("http"):
            address = (await process.stderr.readline()).decode().strip()
        await site.browse(address)
        said = (await process.stdout.read()).decode()
        await process.stderr.read()
        code = await process.wait()
        after = await place.run("mcp", "test", "web")
        out = await place.run("mcp", "logout", "web")

    assert before.code == 1
    assert "run `keen mcp login web`" in before.stderr
    assert (code, said) == (0, "Signed in to web. Try it: keen mcp test web\n")
    assert (after.code, out.stdout) == (0, "Signed out of web.\n")

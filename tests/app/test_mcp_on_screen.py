"""Resources and prompts of MCP servers as a person meets them: menus, sending, notices."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.terminal import Terminal
from tests.extend.mcp_oauth_server import Protected
from tests.extend.mcp_place import SCRIPT
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


@pytest.fixture(autouse=True)
def docs(home: Path, tmp_path: Path) -> None:
    words = ["-I", str(SCRIPT), "plain", str(tmp_path / "record")]
    entries = {"docs": {"command": sys.executable, "args": words}}
    (home / "keen/mcp.json").write_text(json.dumps({"mcpServers": entries}))


async def test_a_resource_and_a_prompt_are_offered_once_the_server_runs(
    keen: Start, chat: Dialect
) -> None:
    script = (
        chat.calls("mcp__docs__echo", text="a"),
        chat.says("Started."),
        chat.says("Read."),
        chat.says("Greeted."),
    )
    async with FakeProvider(*script) as provider, keen(provider, "--yolo") as terminal:
        await terminal.ready()
        terminal.type("start")
        terminal.press("enter")
        await terminal.until("Started.")

        terminal.type("read @docs:")
        await terminal.until("docs:note://logo")
        terminal.type("note://evil")
        await terminal.until(lambda: "docs:note://logo" not in terminal.text)
        terminal.press("tab")
        await terminal.until(lambda: terminal.prompt == "read @docs:note://evil")
        terminal.press("enter")
        await terminal.until("Read.")

        terminal.type("/mcp__docs")
        await terminal.until("/mcp__docs__greet who [how]")
        terminal.press("tab")
        terminal.type("Ada")
        terminal.press("enter")
        await terminal.until("Greeted.")

    asked = [chat.read(request).messages[-1].text for request in provider.requests]
    assert '<mcp_resource server="docs" uri="note://evil">' in asked[2]
    assert "Greet Ada warmly." in asked[3]


async def test_a_resource_that_is_not_there_is_told_and_the_message_goes_as_typed(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Hm.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("see @docs:note://none")
        terminal.press("enter")
        await terminal.until("Hm.")
        await terminal.until("@docs:note://none was not attached")

    assert chat.read(provider.requests[0]).messages[-1].text == "see @docs:note://none"


async def test_signing_in_shows_the_page_and_says_when_it_is_done(
    keen: Start, home: Path, chat: Dialect
) -> None:
    async with Protected() as site, FakeProvider(chat.says("Hm.")) as provider:
        entries = {"web": {"type": "http", "url": site.url}}
        (home / "keen/mcp.json").write_text(json.dumps({"mcpServers": entries}))
        async with keen(provider, size=(1_000, 30)) as terminal:
            await terminal.ready()
            terminal.type("/mcp login web")
            terminal.press("enter")
            await terminal.until(f"{site.issuer.origin}/authorize?")
            found = re.search(r"http://\S+/authorize\?\S+", terminal.text)
            assert found is not None
            await site.browse(found[0])
            await terminal.until("Signed in to web.")

            terminal.type("/mcp logout web")
            terminal.press("enter")
            await terminal.until("Signed out of web.")

    assert json.loads((home / "keen/mcp-auth.json").read_text()) == {}

"""Resources and prompts of MCP servers in what an editor sends."""

from __future__ import annotations

import json
import sys

import pytest

from tests.acp.editor import editing
from tests.extend.mcp_place import SCRIPT
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

CHAT = dialect_named("chat")
pytestmark = pytest.mark.timeout(90)


async def test_a_prompt_and_a_resource_are_sent_as_what_they_say(place: Place) -> None:
    words = ["-I", str(SCRIPT), "plain", str(place.work / "record")]
    entries = {"docs": {"command": sys.executable, "args": words}}
    (place.home / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    async with FakeProvider(CHAT.says("Hello."), CHAT.says("Read.")) as provider:
        place.configure(CHAT, provider.url)
        async with editing(place) as editor:
            session = await editor.new()
            await editor.prompt(session.session_id, "/mcp__docs__greet Ada")
            await editor.prompt(session.session_id, "What is @docs:note://a?")
        greeted, read = (CHAT.read(request).messages[-1].text for request in provider.requests[:2])

    assert "Greet Ada warmly." in greeted
    assert "what note://a holds" in read

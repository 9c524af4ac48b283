from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.core.messages import User
from keen.extend import mcp_messages
from keen.extend._mcp_text import PromptText, ResourceText
from keen.extend.mcp import McpServers
from keen.tools.base import Context
from tests.extend.mcp_place import McpPlace, Session


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    work = tmp_path / "work"
    work.mkdir()
    return McpPlace(tmp_path / "home", work)


def context(place: McpPlace) -> Context:
    return Context(place.work, (place.work,), place.home / "scratch")


async def attached(session: Session, text: str) -> tuple[User, tuple[str, ...]]:
    return await mcp_messages.with_resources(
        User(text), text, session.servers, context(session.place)
    )


async def called(session: Session, text: str) -> User:
    return await mcp_messages.with_prompt(User(text), session.servers, context(session.place))


def named(text: str, servers: McpServers | None) -> Sequence[str]:
    return [one.typed for one in mcp_messages.mentions(text, servers)]


async def test_a_named_resource_goes_behind_the_message(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        user, notices = await attached(session, "Look at (@test:note://a), and say.")

    assert notices == ()
    assert user.text == (
        "Look at (@test:note://a), and say.\n\n"
        '<mcp_resource server="test" uri="note://a">\n'
        "[resource note://a]\nwhat note://a holds\n</mcp_resource>"
    )


async def test_a_picture_that_is_named_is_attached(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        user, _ = await attached(session, "What is on @test:note://logo?")

    assert [image.media_type for image in user.images] == ["image/png"]


async def test_a_long_resource_is_bounded_as_a_file_is(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        user, _ = await attached(session, "@test:note://big")

    assert len(user.text) < 67_000
    assert "bytes left out" in user.text
    assert [path.stat().st_size > 250_000 for path in (place.home / "scratch").iterdir()] == [True]


async def test_a_resource_cannot_leave_the_part_that_says_where_it_comes_from(
    place: McpPlace,
) -> None:
    async with place.running(place.config()) as session:
        user, _ = await attached(session, "@test:note://evil")

    assert user.text.count("</mcp_resource>") == 1
    assert user.text.endswith("</mcp_resource>")
    assert "\u200b" not in user.text
    assert "1 invisible characters were left out" in user.text


async def test_what_cannot_be_read_stays_as_typed_and_is_told(place: McpPlace) -> None:
    text = "@test:note://none @nobody:note://a @gone:x://y"
    gone = place.config("exits", "gone")
    async with place.running(place.config(), gone) as session:
        user, notices = await attached(session, text)

    assert user == User(text)
    assert "@test:note://none was not attached" in notices[0]
    assert "no resource note://none" in notices[0]
    assert "there is no MCP server nobody. Configured: gone, test." in notices[1]
    assert "no licence found" in notices[2]


async def test_a_server_that_nobody_approved_is_not_started_for_a_resource(place: McpPlace) -> None:
    async with place.running(place.config(scope="project")) as session:
        user, notices = await attached(session, "@test:note://a")

    assert user.text == "@test:note://a"
    assert "did not want" in notices[0]
    assert place.recorded() == []


async def test_only_what_names_a_server_is_taken_for_a_resource(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        text = 'a@test:note://x @a.py:12 @https://a.invalid @lib:3 @"test:note://with blank" @test:'
        found = named(text, session.servers)

    assert found == ["@test:note://with blank"]
    assert place.recorded() == []
    assert named("see @docs:file:///a.md", None) == ["@docs:file:///a.md"]


async def test_a_resource_is_read_once_and_many_are_bounded(place: McpPlace) -> None:
    text = " ".join(f"@test:note://{number}" for number in (*range(12), 3))
    async with place.running(place.config()) as session:
        user, notices = await attached(session, text)

    assert user.text.count("<mcp_resource") == 10
    assert "not attached: @test:note://10, @test:note://11" in notices[0]
    assert place.recorded().count("resources/read") == 10


async def test_a_prompt_is_called_by_its_full_name(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        user = await called(session, '/mcp__test__greet "Ada L." in verse')

    assert user.text == (
        '[Command: /mcp__test__greet "Ada L." in verse]\n\nGreet Ada L. in verse.'
        "\n[1 invisible characters were left out]"
    )
    assert len(user.images) == 1


async def test_a_prompt_that_lacks_an_argument_says_which(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        with pytest.raises(ToolError, match=r"needs who\. Type: /mcp__test__greet who \[how\]"):
            await called(session, "/mcp__test__greet")
        with pytest.raises(ToolError, match=r"no prompt mcp__test__gret.*/mcp__test__greet"):
            await called(session, "/mcp__test__gret Ada")

    assert "prompts/get" not in place.recorded()


async def test_arguments_of_a_prompt_without_any_stand_behind_it(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        user = await called(session, "/mcp__test__say_hello to Ada")

    assert "Greet all warmly." in user.text
    assert user.text.endswith("\n\nARGUMENTS: to Ada")


async def test_any_other_text_is_no_call_of_a_prompt(place: McpPlace) -> None:
    async with place.running(place.config()) as session:
        texts = ("/mcp__nobody__greet", "/mcp", " /mcp__test__greet", "/mcp__test", "hello")
        calls = [mcp_messages.is_prompt(text, session.servers) for text in texts]
        is_call = mcp_messages.is_prompt("/mcp__test__whatever", session.servers)

    assert calls == [False] * 5
    assert is_call
    assert place.recorded() == []


async def test_what_a_server_offers_is_known_once_it_runs(place: McpPlace) -> None:
    async with place.running(place.config(name="a b")) as session:
        await session.servers.look()
        assert (session.servers.resources(), session.servers.is_to_look) == ((), False)
        await session.call("mcp__a_b__echo", text="a")
        assert session.servers.is_to_look
        await session.servers.look()
        await session.servers.look()
        resources = dict(session.servers.resources())
        prompts = [(name, prompt) for name, prompt, _ in session.servers.prompts()]

    assert resources["a_b:note://logo"] == "logo"
    assert prompts[0] == (
        "mcp__a_b__greet",
        PromptText("greet", "Greets somebody.", (("who", True), ("how", False))),
    )
    assert place.recorded().count("resources/list") == 1


def test_what_a_menu_shows_is_one_line_without_what_nobody_sees() -> None:
    found = ResourceText.read({"uri": "a://b", "description": "one\n two\u202e" + "x" * 999})

    assert found is not None
    assert found.description.startswith("one two")
    assert len(found.description) == 200
    assert ResourceText.read({"uri": "a://\nb"}) is None
    assert PromptText.read({"arguments": []}) is None

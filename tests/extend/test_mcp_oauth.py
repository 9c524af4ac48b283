from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from keen import secrets
from keen.core.errors import ConfigError, KeenError, Unauthorized
from keen.core.messages import JsonObject
from keen.extend.mcp_config import ServerConfig
from tests.extend.mcp_oauth_server import Protected
from tests.extend.mcp_place import McpPlace


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    work = tmp_path / "work"
    work.mkdir()
    return McpPlace(tmp_path / "home", work)


def web(url: str, headers: dict[str, str] | None = None, scope: str = "user") -> ServerConfig:
    return ServerConfig(
        "web",
        "project" if scope == "project" else "user",
        "x",
        transport="http",
        url=url,
        headers=headers or {},
        key="web",
        cwd=None,
    )


async def sign_in(
    place: McpPlace,
    site: Protected,
    show: Callable[[str], Awaitable[None]] | None = None,
    *,
    port: int = 0,
    client_id: str = "",
    seconds: float = 8.0,
    config: ServerConfig | None = None,
) -> bool:
    async with place.running(config or web(site.url)) as session:
        return await session.servers.sign_in(
            "web", show or site.browse, port=port, client_id=client_id, seconds=seconds
        )


async def called(place: McpPlace, site: Protected) -> str:
    async with place.running(web(site.url)) as session:
        return (await session.call("mcp__web__echo", text="a")).output


def stored(place: McpPlace) -> JsonObject:
    file = place.home / "mcp-auth.json"
    return json.loads(file.read_text()) if file.exists() else {}


def redirect_of(address: str) -> tuple[str, str]:
    query = parse_qs(urlsplit(address).query)
    return query["redirect_uri"][0], query["state"][0]


async def test_a_sign_in_gives_tokens_that_calls_carry(place: McpPlace) -> None:
    async with Protected() as site:
        assert await sign_in(place, site)
        assert await called(place, site) == "said"

    (entry,) = stored(place).values()
    assert isinstance(entry, dict)
    assert [entry["access_token"]] == [*site.tokens]
    assert (place.home / "mcp-auth.json").stat().st_mode & 0o777 == 0o600
    assert site.registered[0]["client_name"] == "keen"
    masked = secrets.masked(f"{entry['access_token']} {entry['refresh_token']}")
    assert "access-" not in masked
    assert "refresh-" not in masked


async def test_tokens_and_headers_go_to_no_other_host(place: McpPlace) -> None:
    async with Protected() as site:
        config = web(site.url, {"X-Team": "a"})
        assert await sign_in(place, site, config=config)
        assert await called(place, site) == "said"

    for _, path, headers in site.issuer.seen:
        assert "authorization" not in headers, path
        assert "x-team" not in headers, path
    assert any("x-team" in headers for _, _, headers in site.resource.seen)


async def test_a_server_that_wants_a_sign_in_says_how(place: McpPlace) -> None:
    async with Protected() as site:
        output = await called(place, site)

    assert "it wants you to sign in: run `keen mcp login web`." in output
    assert site.issuer.seen == []


async def test_a_refused_header_of_the_entry_is_named_and_no_sign_in_tried(
    place: McpPlace,
) -> None:
    async with Protected() as site:
        await sign_in(place, site)
        config = web(site.url, {"Authorization": "Bearer old"})
        async with place.running(config) as session:
            result = await session.call("mcp__web__echo", text="a")

    assert "refused the Authorization header of its entry" in result.output
    assert site.refreshes == []


async def test_a_token_at_its_end_is_refreshed_before_it_is_used(place: McpPlace) -> None:
    async with Protected(lifetime=5) as site:
        await sign_in(place, site)
        before = stored(place)
        site.lifetime = 3600
        assert await called(place, site) == "said"
        assert len(site.refreshes) == 1
        assert await called(place, site) == "said"

    assert len(site.refreshes) == 1
    assert stored(place) != before


async def test_a_token_that_is_refused_is_refreshed_once(place: McpPlace) -> None:
    async with Protected() as site:
        await sign_in(place, site)
        async with place.running(web(site.url)) as session:
            assert (await session.call("mcp__web__echo", text="a")).output == "said"
            site.end_tokens()
            outputs = await asyncio.gather(
                *(session.call("mcp__web__echo", text="a") for _ in range(4))
            )

    assert [each.output for each in outputs] == ["said"] * 4
    assert len(site.refreshes) == 1


async def test_two_sessions_refresh_once(place: McpPlace) -> None:
    async with Protected(lifetime=5) as site:
        await sign_in(place, site)
        site.lifetime = 3600
        outputs = await asyncio.gather(called(place, site), called(place, site))

    assert outputs == ["said", "said"]
    assert len(site.refreshes) == 1


async def test_a_sign_in_that_has_ended_says_how_to_get_another(place: McpPlace) -> None:
    async with Protected(lifetime=5) as site:
        await sign_in(place, site)
        file = place.home / "mcp-auth.json"
        file.write_text(file.read_text().replace("refresh-", "other-"))
        output = await called(place, site)
        assert "your sign-in has ended: run `keen mcp login web`" in output

        site.lifetime = 3600
        assert await sign_in(place, site)
        assert await called(place, site) == "said"


async def test_only_the_answer_of_this_attempt_counts(place: McpPlace) -> None:
    statuses: list[int] = []

    async def attack(address: str) -> None:
        redirect, state = redirect_of(address)
        statuses.append(await site.come_back(redirect, code="theirs", state="other"))
        statuses.append(await site.come_back(redirect, code="theirs"))
        statuses.append(await site.come_back(redirect, "evil.invalid", code="c", state=state))
        statuses.append(await site.come_back(redirect + "/x", code="c", state=state))
        await site.browse(address)

    async with Protected() as site:
        assert await sign_in(place, site, attack)
        assert await called(place, site) == "said"

    assert statuses == [400, 400, 404, 404]


async def test_a_denied_sign_in_says_so_and_stores_nothing(place: McpPlace) -> None:
    async def deny(address: str) -> None:
        redirect, state = redirect_of(address)
        query = {"error": "access_denied", "error_description": "They said\u202e no."}
        await site.come_back(redirect, state=state, **query)

    async with Protected() as site:
        with pytest.raises(Unauthorized, match=r"refused: They said no\."):
            await sign_in(place, site, deny)

    assert stored(place) == {}


async def test_a_code_that_is_not_taken_says_so(place: McpPlace) -> None:
    async def wrong(address: str) -> None:
        redirect, state = redirect_of(address)
        await site.come_back(redirect, state=state, code="never given", iss=site.issuer.origin)

    async with Protected() as site:
        with pytest.raises(Unauthorized, match="invalid_grant"):
            await sign_in(place, site, wrong)

    assert stored(place) == {}


async def test_a_port_that_is_taken_is_named(place: McpPlace) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with Protected() as site:
            with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is taken"):
                await sign_in(place, site, port=port)

    assert site.resource.seen == []


async def test_a_cancelled_sign_in_frees_its_port(place: McpPlace) -> None:
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def show(address: str) -> None:
        shown.set_result(address)

    async with Protected() as site:
        running = asyncio.create_task(sign_in(place, site, show))
        redirect, _ = redirect_of(await shown)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        with pytest.raises(ConnectionRefusedError):
            await site.come_back(redirect)

    assert running.cancelled()
    assert stored(place) == {}


async def test_nobody_is_waited_for_without_end(place: McpPlace) -> None:
    async def look_away(address: str) -> None:
        return None

    async with Protected() as site:
        with pytest.raises(Unauthorized, match="Nobody signed in within"):
            await sign_in(place, site, look_away, seconds=0.5)


async def test_a_browser_is_sent_to_no_page_but_https(place: McpPlace) -> None:
    shown: list[str] = []

    async def show(address: str) -> None:
        shown.append(address)

    for address in ("http://evil.invalid/authorize", "file:///etc/passwd", "javascript:alert(1)"):
        async with Protected(authorization=address) as site:
            with pytest.raises(KeenError):
                await sign_in(place, site, show)

    assert shown == []


async def test_a_client_that_the_server_knows_needs_no_registration(place: McpPlace) -> None:
    async with Protected(knows="mine") as site:
        assert await sign_in(place, site, client_id="mine")
        assert await called(place, site) == "said"

    assert site.registered == []


async def test_a_server_that_wants_no_token_says_so(place: McpPlace) -> None:
    async with Protected(is_open=True) as site:
        assert not await sign_in(place, site)


async def test_tokens_are_sent_over_no_open_line(place: McpPlace) -> None:
    async with place.running(web("http://a.invalid/mcp")) as session:
        with pytest.raises(Unauthorized, match="no https address"):
            await session.servers.sign_in("web", _nobody)


async def test_a_project_server_is_asked_nothing_before_it_is_approved(place: McpPlace) -> None:
    async with Protected() as site:
        with pytest.raises(KeenError, match="did not want"):
            await sign_in(place, site, config=web(site.url, scope="project"))

    assert site.resource.seen == []


async def test_a_sign_out_forgets_the_tokens(place: McpPlace) -> None:
    async with Protected() as site:
        await sign_in(place, site)
        async with place.running(web(site.url)) as session:
            assert await session.servers.sign_out("web")
            assert not await session.servers.sign_out("web")
        assert "keen mcp login web" in await called(place, site)

    assert stored(place) == {}


async def _nobody(_address: str) -> None:
    return None

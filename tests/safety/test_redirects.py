"""A key goes to its provider's host and follows no redirect elsewhere; the wires: tests/wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from keen import auth, providers
from keen._settings import Settings
from keen.core.errors import KeenError
from keen.proxies import spare_loopback
from keen.wire.local import ask
from tests.headless.running import Place

KEY = "sk-mine-0123456789"


@dataclass
class Port:
    """A loopback port that answers everything with one head and keeps what came."""

    answer: str
    url: str = ""
    came: list[str] = field(default_factory=list[str])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.came.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            head = f"HTTP/1.1 {self.answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            writer.write(head.encode())
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def port(answer: str) -> AsyncGenerator[Port, None]:
    found = Port(answer)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()


@contextlib.asynccontextmanager
async def redirecting(status: str) -> AsyncGenerator[tuple[Port, Port], None]:
    """A port that redirects everything, and the one it redirects to."""
    async with (
        port("200 OK") as elsewhere,
        port(f"{status}\r\nlocation: {elsewhere.url}/taken") as here,
    ):
        yield here, elsewhere


REDIRECTS = pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"]
)


@REDIRECTS
async def test_a_refresh_token_follows_no_redirect(tmp_path: Path, status: str) -> None:
    entry = {"access_token": "acc-old", "refresh_token": KEY, "expires_at": time.time() - 1}
    auth_file = tmp_path / "auth.json"
    auth_file.write_text(json.dumps({"openai-codex": entry}))
    async with redirecting(status) as (here, elsewhere):
        sign_in = auth.CodexSignIn(auth_file, issuer=here.url)
        with pytest.raises(KeenError):
            await sign_in.secret()

    assert len(here.came) == 1
    assert elsewhere.came == []
    assert json.loads(auth_file.read_text())["openai-codex"] == entry


@REDIRECTS
async def test_asking_a_local_server_follows_no_redirect(status: str) -> None:
    async with redirecting(status) as (here, elsewhere):
        await ask("ollama", here.url + "/v1", key=KEY, model="m")

    assert here.came
    assert elsewhere.came == []


async def test_finding_local_servers_sends_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """`keen models` asks whoever listens on the usual ports, and that may be anybody."""
    async with port("404 Not Found") as here:
        settings = Settings.model_validate(
            {
                "providers": {
                    "mine": {"client": "chat", "base_url": f"{here.url}/v1", "api_key": KEY}
                }
            }
        )
        await providers.local_servers(settings, only="mine")

    assert here.came
    assert not any(KEY in head for head in here.came)


@pytest.mark.timeout(60)
async def test_a_proxy_of_the_environment_sees_nothing_of_this_machine(place: Place) -> None:
    """What stands on loopback is never asked through a proxy, which is another host."""
    async with port("404 Not Found") as here, port("502 Bad") as proxy:
        (place.home / "config.toml").write_text(
            f'model = "mine/m"\n[providers.mine]\nclient = "chat"\nbase_url = "{here.url}/v1"\n'
            f'api_key = "{KEY}"\n'
        )
        names = ["HTTP_PROXY", "http_proxy", "ALL_PROXY"]
        variables: dict[str, str] = dict.fromkeys(names, proxy.url)
        await place.run("models", "mine", environment=variables)
        await place.run("run", "hello", environment=variables)

    assert here.came
    assert any("POST" in head and KEY in head for head in here.came)
    assert proxy.came == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "a.example, localhost"}, "a.example,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "a.example", "no_proxy": "b.example"}, "b.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_what_the_person_exempted_stays_exempt(before: dict[str, str], after: str) -> None:
    spare_loopback(before)

    assert before["no_proxy"] == after

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from keen import _files, auth
from keen.auth import CodexSignIn, Tokens
from keen.core.errors import ConfigError, Transient, Unauthorized
from keen.core.messages import JsonObject
from keen.wire.base import FixedKey
from tests.loopback_json import HANG, Asked, JsonServer


def token(claims: dict[str, object]) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.signature"


ID_TOKEN = token({auth.ACCOUNT_CLAIM: {"chatgpt_account_id": "acct-1"}})


@dataclass
class Issuer:
    """A sign-in server that checks PKCE and takes every refresh token once."""

    server: JsonServer = field(init=False)
    challenge: str = ""
    redirect: str = ""
    refreshes: int = 0
    valid_refresh: str = "refresh-0"
    expires_in: int = 3_600

    def __post_init__(self) -> None:
        self.server = JsonServer({"/oauth/token": self.exchange})

    def exchange(self, asked: Asked) -> object:
        form = asked.form
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.valid_refresh:
                return 400
            self.refreshes += 1
            self.valid_refresh = f"refresh-{self.refreshes}"
            return self.granted(f"access-{self.refreshes}", self.valid_refresh)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = (form["code"], challenge) == ("code-1", self.challenge)
        is_right = is_right and form["redirect_uri"] == self.redirect
        return self.granted("access-0", "refresh-0") if is_right else 400

    def granted(self, access: str, refresh: str) -> object:
        return {
            "access_token": access,
            "refresh_token": refresh,
            "id_token": ID_TOKEN,
            "expires_in": self.expires_in,
        }

    def authorize(self, address: str) -> dict[str, str]:
        """What a browser would show: the query keen sent, which the issuer remembers."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        self.challenge, self.redirect = query["code_challenge"], query["redirect_uri"]
        return query


async def browse(address: str) -> tuple[int, str]:
    """GET an address as a browser would. Returns: status and page."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(" ")[1]), answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_signing_in_stores_tokens_and_account(tmp_path: Path) -> None:
    auth_file = tmp_path / "home" / "auth.json"
    issuer = Issuer()
    pages: list[tuple[int, str]] = []

    async def open_page(address: str) -> None:
        query = issuer.authorize(address)
        assert address.startswith(f"{issuer.server.url}/oauth/authorize?")
        assert query["client_id"] == auth.CLIENT_ID
        assert query["scope"] == "openid profile email offline_access"
        assert query["code_challenge_method"] == "S256"
        back = f"{query['redirect_uri']}?code=code-1&state={query['state']}"
        assert urlsplit(back).path == "/auth/callback"
        pages.append(await browse(back))

    async with issuer.server as server:
        tokens = await auth.sign_in(auth_file, open_page, issuer=server.url, port=0)
        found = CodexSignIn(auth_file, issuer=server.url)
        assert (await found.secret(), await found.account()) == ("access-0", "acct-1")

    assert (tokens.access, tokens.account_id) == ("access-0", "acct-1")
    assert pages[0][0] == 200
    assert stat.S_IMODE(auth_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(auth_file.parent.stat().st_mode) == 0o700
    assert "access-0" not in repr(tokens)


async def test_only_this_attempts_answer_counts_and_only_once(tmp_path: Path) -> None:
    issuer = Issuer()
    statuses: list[int] = []

    async def open_page(address: str) -> None:
        query = issuer.authorize(address)
        back, state = query["redirect_uri"], query["state"]
        targets = (
            f"{back}?code=evil&state=forged",
            f"{back}?code=evil",
            back.replace("/auth/callback", "/other") + f"?code=evil&state={state}",
            f"{back}?code=code-1&state={state}",
            f"{back}?code=evil&state={state}",
        )
        statuses.extend([(await browse(target))[0] for target in targets])

    async with issuer.server as server:
        tokens = await auth.sign_in(tmp_path / "a.json", open_page, issuer=server.url, port=0)

    assert statuses == [400, 400, 404, 200, 400]
    assert tokens.access == "access-0"


async def test_a_sign_in_cancelled_in_the_browser_says_so(tmp_path: Path) -> None:
    issuer = Issuer()

    async def open_page(address: str) -> None:
        query = issuer.authorize(address)
        await browse(f"{query['redirect_uri']}?error=access_denied&state={query['state']}")

    async with issuer.server as server:
        with pytest.raises(Unauthorized, match="cancelled in the browser"):
            await auth.sign_in(tmp_path / "a.json", open_page, issuer=server.url, port=0)

    assert not (tmp_path / "a.json").exists()


async def test_a_code_that_the_issuer_refuses_stores_nothing(tmp_path: Path) -> None:
    issuer = Issuer()

    async def open_page(address: str) -> None:
        query = issuer.authorize(address)
        await browse(f"{query['redirect_uri']}?code=wrong&state={query['state']}")

    async with issuer.server as server:
        with pytest.raises(Unauthorized, match=r"refused \(400\)"):
            await auth.sign_in(tmp_path / "a.json", open_page, issuer=server.url, port=0)

    assert not (tmp_path / "a.json").exists()


async def test_nobody_signing_in_ends_by_itself(tmp_path: Path) -> None:
    async def open_page(address: str) -> None:
        return None

    with pytest.raises(ConfigError, match="Nobody signed in"):
        await auth.sign_in(tmp_path / "a.json", open_page, port=0, seconds=0.05)


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async def open_page(address: str) -> None:
        raise AssertionError("there is nothing to open")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is taken"):
            await auth.sign_in(tmp_path / "a.json", open_page, port=port)


async def test_a_cancelled_sign_in_frees_the_port(tmp_path: Path) -> None:
    port, opened = free_port(), asyncio.Event()

    async def open_page(address: str) -> None:
        opened.set()

    attempt = asyncio.create_task(auth.sign_in(tmp_path / "a.json", open_page, port=port))
    await opened.wait()
    attempt.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attempt

    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
    server.close()
    await server.wait_closed()


def stored(auth_file: Path, *, seconds: float, refresh: str = "refresh-0") -> Path:
    entry: JsonObject = {
        "access_token": "stale",
        "refresh_token": refresh,
        "account_id": "acct-1",
        "expires_at": time.time() + seconds,
    }
    others: JsonObject = {"anthropic": {"key": "kept"}}
    _files.write_private(auth_file, json.dumps({"openai-codex": entry} | others))
    return auth_file


async def test_a_token_near_its_end_is_renewed_first(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=60)
    issuer = Issuer()

    async with issuer.server as server:
        found = CodexSignIn(auth_file, issuer=server.url)
        assert await asyncio.gather(*(found.secret() for _ in range(5))) == ["access-1"] * 5

    assert issuer.refreshes == 1
    kept = _files.read_json(auth_file)
    assert kept["anthropic"] == {"key": "kept"}
    assert stat.S_IMODE(auth_file.stat().st_mode) == 0o600


async def test_a_fresh_token_asks_nobody(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=3_600)

    assert await CodexSignIn(auth_file, issuer="http://127.0.0.1:1").secret() == "stale"


async def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=3_600)
    issuer = Issuer()

    async with issuer.server as server:
        found = CodexSignIn(auth_file, issuer=server.url)
        assert await found.secret() == "stale"
        assert await found.renew() is True
        assert await found.secret() == "access-1"

    assert issuer.refreshes == 1


async def test_another_process_that_renewed_is_believed(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=3_600)
    found = CodexSignIn(auth_file, issuer="http://127.0.0.1:1")
    assert await found.secret() == "stale"

    def change(value: JsonObject) -> None:
        value["openai-codex"] = {"access_token": "theirs", "refresh_token": "r"}

    _files.update_json(auth_file, change)

    assert await found.renew() is True
    assert await found.secret() == "theirs"


ONE_PROCESS = """
import asyncio, sys
from pathlib import Path
from keen.auth import CodexSignIn
print(asyncio.run(CodexSignIn(Path(sys.argv[1]), issuer=sys.argv[2]).secret()))
"""


async def test_several_processes_refresh_once(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=-60)
    issuer = Issuer()

    async with issuer.server as server:
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                ONE_PROCESS,
                str(auth_file),
                server.url,
                stdout=subprocess.PIPE,
            )
            for _ in range(3)
        ]
        outputs = await asyncio.gather(*(process.communicate() for process in processes))

    assert [output[0].decode().strip() for output in outputs] == ["access-1"] * 3
    assert issuer.refreshes == 1


async def test_an_ended_sign_in_says_how_to_sign_in_again(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=-60, refresh="used up")

    async with Issuer().server as server:
        found = CodexSignIn(auth_file, issuer=server.url)
        with pytest.raises(Unauthorized, match="has ended: run `keen auth login openai-codex`"):
            await found.secret()
        assert await found.renew() is False


@pytest.mark.parametrize("answer", [500, 503, 429, "no json", {"token_type": "bearer"}])
async def test_an_issuer_in_trouble_is_worth_another_try(tmp_path: Path, answer: object) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=-60)

    async with JsonServer({"/oauth/token": answer}) as server:
        with pytest.raises(Transient):
            await CodexSignIn(auth_file, issuer=server.url).secret()

    entry = _files.read_json(auth_file)["openai-codex"]
    assert isinstance(entry, dict)
    assert entry["refresh_token"] == "refresh-0"


async def test_a_cancelled_turn_does_not_lose_the_refreshed_token(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=-60)
    issuer = Issuer()

    async with issuer.server as server:
        found = CodexSignIn(auth_file, issuer=server.url)
        turn = asyncio.create_task(found.secret())
        await server.arrived.wait()
        turn.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await turn

        assert await found.secret() == "access-1"

    assert issuer.refreshes == 1


async def test_waiting_for_the_issuer_can_be_cancelled_at_once(tmp_path: Path) -> None:
    auth_file = stored(tmp_path / "auth.json", seconds=-60)

    async with JsonServer({"/oauth/token": HANG}) as server:
        turn = asyncio.create_task(CodexSignIn(auth_file, issuer=server.url).secret())
        await server.arrived.wait()
        turn.cancel()
        done, _ = await asyncio.wait([turn], timeout=5)

    assert done


@pytest.mark.parametrize(
    "content",
    ["{}", '{"openai-codex": {}}', '{"openai-codex": []}', '{"openai-codex": {"key": 1}}'],
)
async def test_without_a_sign_in_the_way_to_one_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "auth.json").write_text(content)

    with pytest.raises(Unauthorized, match="keen auth login openai-codex"):
        await CodexSignIn(tmp_path / "auth.json").secret()


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.!!!.c", token({}), "a.W10.c", "sk-plain"])
def test_a_token_without_an_account_has_none(text: str) -> None:
    assert auth.account_of(text) == ""


async def test_a_plain_key_brings_the_account_it_claims() -> None:
    plain = auth.with_account(FixedKey(ID_TOKEN))

    assert await plain.account() == "acct-1"
    assert await plain.secret() == ID_TOKEN


def test_a_token_is_renewed_before_it_ends() -> None:
    now = time.time()

    assert [Tokens("a", "r", "", end).is_fresh() for end in (0, now + 3_600, now + 10)] == [
        True,
        True,
        False,
    ]

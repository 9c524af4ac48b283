"""Signing in to ChatGPT for the Codex backend: browser, loopback callback, tokens kept fresh.

The client id, the scopes and the callback's fixed port are those of the public Codex client
(github.com/openai/codex, codex-rs/login); the issuer accepts no other redirect.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import importlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qs, urlencode, urlsplit

from keen import _files, callback_page
from keen.core.errors import ConfigError, Transient, Unauthorized
from keen.core.messages import JsonObject
from keen.secrets import register
from keen.wire.base import Credential, FixedKey

if TYPE_CHECKING:
    from httpx2 import Response

ISSUER: Final = "https://auth.openai.com"
CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
SCOPES: Final = "openid profile email offline_access"
CALLBACK_PORT: Final = 1455
CALLBACK_PATH: Final = "/auth/callback"
ACCOUNT_CLAIM: Final = "https://api.openai.com/auth"

REFRESH_EARLY_SECONDS: Final = 300
"""A token this close to its end is renewed first, so that it does not end inside a request."""

SIGN_IN_SECONDS: Final = 600.0
HTTP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the issuer gave. `expires_at` in seconds since 1970; 0 when it did not say."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    account_id: str = ""
    expires_at: float = 0.0

    def is_fresh(self) -> bool:
        return not self.expires_at or time.time() < self.expires_at - REFRESH_EARLY_SECONDS


@dataclass(slots=True)
class CodexSignIn:
    """The stored sign-in as a credential. Several processes share it and refresh it once."""

    auth_file: Path
    provider: str = "openai-codex"
    account_id: str = ""
    """Of the settings; beats the one in the token."""
    issuer: str = ISSUER
    _used: str = field(default="", repr=False)
    _refreshing: asyncio.Task[Tokens] | None = field(default=None, repr=False)

    async def secret(self) -> str:
        tokens = await asyncio.to_thread(self._stored)
        if not tokens.is_fresh():
            tokens = await self._refreshed(tokens)
        self._used = tokens.access
        return tokens.access

    async def renew(self) -> bool:
        """After a 401: another process's newer token, else a refresh."""
        try:
            tokens = await asyncio.to_thread(self._stored)
            if self._used in ("", tokens.access):
                tokens = await self._refreshed(tokens)
        except Unauthorized:
            return False
        is_new, self._used = tokens.access != self._used, tokens.access
        return is_new

    async def account(self) -> str:
        if self.account_id:
            return self.account_id
        return (await asyncio.to_thread(self._stored)).account_id

    def _stored(self) -> Tokens:
        entry = _files.read_json(self.auth_file).get(self.provider)
        values = entry if isinstance(entry, dict) else {}
        access, refresh = values.get("access_token"), values.get("refresh_token")
        if not isinstance(access, str) or not isinstance(refresh, str) or not access:
            raise Unauthorized(
                f"You are not signed in to {self.provider}: run `keen auth login {self.provider}`."
            )
        register(access, refresh)
        account, expires = values.get("account_id"), values.get("expires_at")
        return Tokens(
            access,
            refresh,
            account if isinstance(account, str) else "",
            float(expires) if isinstance(expires, int | float) else 0.0,
        )

    async def _refreshed(self, stale: Tokens) -> Tokens:
        """New tokens, asked for once however many wait for them.

        The issuer accepts a refresh token once, so the exchange and the write that follows go on
        when a turn that waits for them is cancelled; cancelling them would end the sign-in.
        """
        task = self._refreshing
        if task is None or task.done():
            task = self._refreshing = asyncio.create_task(self._exchange(stale))
            task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _exchange(self, stale: Tokens) -> Tokens:
        async with _files.locked_async(self.auth_file):
            stored = await asyncio.to_thread(self._stored)
            if stored.access != stale.access:
                return stored  # another process came first; its refresh token is the valid one
            if not stored.refresh:
                raise self._sign_in_again("cannot be renewed")
            answer = await _token_request(
                self.issuer,
                {
                    "grant_type": "refresh_token",
                    "refresh_token": stored.refresh,
                    "client_id": CLIENT_ID,
                    "scope": SCOPES,
                },
            )
            if answer.status_code in (400, 401, 403):
                raise self._sign_in_again("has ended")
            tokens = _tokens(answer, before=stored)
            await asyncio.to_thread(_keep, self.auth_file, self.provider, tokens)
            return tokens

    def _sign_in_again(self, what: str) -> Unauthorized:
        return Unauthorized(
            f"The sign-in to {self.provider} {what}: run `keen auth login {self.provider}`."
        )


@dataclass(frozen=True, slots=True)
class _WithAccount:
    """A plain key for Codex whose account id is read from the token itself, where it is one."""

    inner: Credential

    async def secret(self) -> str:
        return await self.inner.secret()

    async def renew(self) -> bool:
        return await self.inner.renew()

    async def account(self) -> str:
        return account_of(await self.inner.secret())


def with_account(inner: Credential) -> Credential:
    """`inner`, with the account id that its token claims."""
    return (
        FixedKey(inner.key, account_of(inner.key))
        if isinstance(inner, FixedKey)
        else _WithAccount(inner)
    )


async def sign_in(
    auth_file: Path,
    open_page: Callable[[str], Awaitable[None]],
    *,
    provider: str = "openai-codex",
    issuer: str = ISSUER,
    port: int = CALLBACK_PORT,
    seconds: float = SIGN_IN_SECONDS,
) -> Tokens:
    """Sign in through the browser and store the tokens, 0600.

    `open_page` shows the address to the user, in a browser or as text. Only the answer that
    carries this attempt's state counts, and only once.

    Raises:
        ConfigError: the callback's port is taken, or nobody signed in within `seconds`.
        Unauthorized: the issuer or the user said no.
        Transient: the issuer could not be reached.
    """
    verifier = secrets.token_urlsafe(64)
    callback = _Callback(state=secrets.token_urlsafe(32))
    try:
        server = await asyncio.start_server(
            callback.serve, "127.0.0.1", port, limit=callback_page.HEAD_BYTES
        )
    except OSError as error:
        raise ConfigError(
            f"Port {port} on 127.0.0.1 is taken ({_files.reason(error)}), and the sign-in can come "
            "back to no other. Close the program that holds it, often another sign-in, and try "
            "again."
        ) from error
    try:
        redirect = f"http://localhost:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
        await open_page(_authorize_address(issuer, redirect, verifier, callback.state))
        async with asyncio.timeout(seconds):
            code = await callback.code()
    except TimeoutError as error:
        raise ConfigError(f"Nobody signed in within {seconds:.0f} s. Try again.") from error
    finally:
        server.close()
        await server.wait_closed()
    answer = await _token_request(
        issuer,
        {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": CLIENT_ID,
            "code_verifier": verifier,
        },
    )
    if answer.status_code >= 400:
        raise Unauthorized(f"The sign-in was refused ({answer.status_code}). Try again.")
    tokens = _tokens(answer, before=None)
    await asyncio.to_thread(_store, auth_file, provider, tokens)
    return tokens


def account_of(token: str) -> str:
    """The account id that a token of the issuer claims; empty when it is no such token.

    The signature is not checked: the id only goes back to the server that made the token.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims: object = json.loads(base64.urlsafe_b64decode(padded))
    except ValueError:
        return ""
    section = cast("JsonObject", claims).get(ACCOUNT_CLAIM) if isinstance(claims, dict) else None
    account = section.get("chatgpt_account_id") if isinstance(section, dict) else None
    return account if isinstance(account, str) and account.isprintable() else ""


@dataclass(slots=True)
class _Callback:
    """The loopback page that the browser comes back to. It answers one browser, once."""

    state: str
    _answer: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def code(self) -> str:
        return await self._answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await callback_page.serve(reader, writer, self._read)

    def _read(self, head: str) -> tuple[str, str]:
        method, _, rest = head.partition(" ")
        address = urlsplit(rest.partition(" ")[0])
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if method != "GET" or address.path != CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        if not secrets.compare_digest(query.get("state", "").encode(), self.state.encode()):
            return "400 Bad Request", "This is not the sign-in that keen is waiting for."
        if self._answer.done():
            return "400 Bad Request", "This sign-in has been used already."
        if code := query.get("code"):
            self._answer.set_result(code)
            return "200 OK", "You are signed in. You can close this page and go back to keen."
        self._answer.set_exception(Unauthorized("The sign-in was cancelled in the browser."))
        return "200 OK", "You are not signed in. You can close this page."


def _authorize_address(issuer: str, redirect: str, verifier: str, state: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": redirect,
        "scope": SCOPES,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "state": state,
    }
    return f"{issuer}/oauth/authorize?{urlencode(query)}"


async def _token_request(issuer: str, form: dict[str, str]) -> Response:
    await asyncio.to_thread(importlib.import_module, "httpx2")
    from httpx2 import AsyncClient, HTTPError

    try:
        async with AsyncClient(timeout=HTTP_SECONDS, follow_redirects=False) as client:
            answer = await client.post(f"{issuer}/oauth/token", data=form)
    except HTTPError as error:
        raise Transient(f"The sign-in server could not be reached: {error}") from error
    if answer.status_code >= 500 or answer.status_code == 429:
        raise Transient(f"The sign-in server answered {answer.status_code}. Try again later.")
    return answer


def _tokens(answer: Response, *, before: Tokens | None) -> Tokens:
    """Tokens of an answer; what it leaves out stays as it was `before`."""
    try:
        value: object = answer.json()
    except ValueError as error:
        raise Transient("The sign-in server answered no JSON. Try again later.") from error
    fields = cast("JsonObject", value) if isinstance(value, dict) else {}
    access, refresh, identity = (
        word if isinstance(word := fields.get(name), str) else ""
        for name in ("access_token", "refresh_token", "id_token")
    )
    if not access:
        raise Transient("The sign-in server answered without a token. Try again later.")
    register(access, refresh, identity)
    lifetime = fields.get("expires_in")
    seconds = float(lifetime) if isinstance(lifetime, int | float) else _lifetime_of(access)
    return Tokens(
        access,
        refresh or (before.refresh if before else ""),
        account_of(identity) or account_of(access) or (before.account_id if before else ""),
        time.time() + seconds if seconds else 0.0,
    )


def _lifetime_of(token: str) -> float:
    """Seconds until a JSON web token ends, by its own word; 0 when it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return 0.0
    try:
        claims: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return 0.0
    end = cast("JsonObject", claims).get("exp") if isinstance(claims, dict) else None
    return max(0.0, end - time.time()) if isinstance(end, int | float) else 0.0


def _retrieve(task: asyncio.Task[Tokens]) -> None:
    """Look at the outcome, in case everyone who waited for it was cancelled."""
    if not task.cancelled():
        task.exception()


def _store(auth_file: Path, provider: str, tokens: Tokens) -> None:
    with _files.locked(auth_file):
        _keep(auth_file, provider, tokens)


def _keep(auth_file: Path, provider: str, tokens: Tokens) -> None:
    """Write the tokens; the caller holds the file's lock."""
    value = _files.read_json(auth_file)
    value[provider] = {
        "access_token": tokens.access,
        "refresh_token": tokens.refresh,
        "account_id": tokens.account_id,
        "expires_at": tokens.expires_at,
    }
    _files.write_private(auth_file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

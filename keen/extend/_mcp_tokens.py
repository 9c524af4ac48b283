"""Sign-ins to MCP servers: tokens by the server's address, in a private file, refreshed once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import httpx2

from keen import _files
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.secrets import register

LOCAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_EARLY: Final = 30.0
"""Seconds before its end from which a token is not used any more."""
_SECONDS: Final = 30.0
_MOST_BYTES: Final = 1_000_000


class SignInNeeded(Exception):
    """The server wants a sign-in, or a new one; the message is for the person."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """Tokens of one server, and how they are renewed."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    expires_at: float = 0.0
    """Seconds since 1970; 0 where nobody said."""
    token_endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    method: str = ""
    """How the client shows its secret: client_secret_basic, client_secret_post, or not at all."""
    resource: str = ""
    scope: str = ""

    @property
    def is_fresh(self) -> bool:
        return not self.expires_at or time.time() < self.expires_at - _EARLY

    def as_json(self) -> JsonObject:
        """As it is kept."""
        return {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "expires_at": self.expires_at,
            "token_endpoint": self.token_endpoint,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "method": self.method,
            "resource": self.resource,
            "scope": self.scope,
        }


def read(file: Path, url: str) -> SignIn | None:
    """The sign-in for an address; None where there is none. Blocking."""
    try:
        entry = _files.read_json(file).get(url)
    except ConfigError:
        return None
    if not isinstance(entry, dict) or not (access := _word(entry, "access_token")):
        return None
    expires = entry.get("expires_at")
    found = SignIn(
        access,
        _word(entry, "refresh_token"),
        float(expires) if isinstance(expires, int | float) else 0.0,
        _word(entry, "token_endpoint"),
        _word(entry, "client_id"),
        _word(entry, "client_secret"),
        _word(entry, "method"),
        _word(entry, "resource"),
        _word(entry, "scope"),
    )
    register(found.access, found.refresh, found.client_secret)
    return found


def keep(file: Path, url: str, sign_in: SignIn) -> None:
    """Store a sign-in, 0600. Blocking. Raises: ConfigError when it cannot be stored."""
    register(sign_in.access, sign_in.refresh, sign_in.client_secret)
    _files.update_json(file, lambda value: value.update({url: sign_in.as_json()}))


def forget(file: Path, url: str) -> bool:
    """Drop a sign-in; False where there was none. Blocking. Raises: ConfigError."""
    if url not in _files.read_json(file):
        return False

    def remove(value: JsonObject) -> None:
        value.pop(url, None)

    _files.update_json(file, remove)
    return True


def may_carry_tokens(url: str) -> bool:
    """True for https, and for http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)


@dataclass(eq=False)
class Tokens:
    """The stored sign-in of a server that runs. Several processes share it and refresh it once."""

    file: Path
    url: str
    name: str
    _used: str = field(default="", repr=False)
    _refreshing: asyncio.Task[SignIn] | None = field(default=None, repr=False)

    async def access(self) -> str:
        """A token that is not at its end. Raises: SignInNeeded."""
        held = await self._stored()
        if not held.is_fresh:
            held = await self._refreshed(held)
        self._used = held.access
        return held.access

    async def renew(self) -> str:
        """After a 401: another process's newer token, or a refreshed one. Raises: SignInNeeded."""
        held = await self._stored()
        if held.access == self._used:
            held = await self._refreshed(held)
        self._used = held.access
        return held.access

    def ended(self) -> SignInNeeded:
        """The error that says what to do."""
        return SignInNeeded(f"your sign-in has ended: run `keen mcp login {self.name}`")

    async def _stored(self) -> SignIn:
        held = await asyncio.to_thread(read, self.file, self.url)
        if held is None:
            raise self.ended()
        return held

    async def _refreshed(self, stale: SignIn) -> SignIn:
        """Asked for once, and kept even if whoever waits is cancelled: many refresh once only."""
        task = self._refreshing
        if task is None or task.done():
            task = self._refreshing = asyncio.create_task(self._exchange(stale))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _exchange(self, stale: SignIn) -> SignIn:
        async with _files.locked_async(self.file):
            held = await self._stored()
            if held.access != stale.access:
                return held  # another process came first
            if not held.refresh or not may_carry_tokens(held.token_endpoint):
                raise self.ended()
            fields = await self._asked(held)
            access = _word(fields, "access_token")
            if not access:
                raise self.ended()
            renewed = replace(
                held,
                access=access,
                refresh=_word(fields, "refresh_token") or held.refresh,
                expires_at=expiry(fields.get("expires_in")),
            )
            register(renewed.access, renewed.refresh)
            await asyncio.to_thread(_keep_locked, self.file, self.url, renewed)
            return renewed

    async def _asked(self, held: SignIn) -> JsonObject:
        form = {
            "grant_type": "refresh_token",
            "refresh_token": held.refresh,
            "client_id": held.client_id,
        }
        form |= {"resource": held.resource} if held.resource else {}
        headers: dict[str, str] = {"Accept": "application/json", "Accept-Encoding": "identity"}
        basic: tuple[str, str] | None = None
        if held.client_secret and held.method == "client_secret_basic":
            basic = (quote(held.client_id, safe=""), quote(held.client_secret, safe=""))
        elif held.client_secret:
            form["client_secret"] = held.client_secret
        return await self._posted(held.token_endpoint, form, headers, basic)

    async def _posted(
        self,
        address: str,
        form: Mapping[str, str],
        headers: Mapping[str, str],
        basic: tuple[str, str] | None,
    ) -> JsonObject:
        client = await asyncio.to_thread(httpx2.AsyncClient, timeout=_SECONDS)
        content = b""
        try:
            async with (
                client,
                client.stream(
                    "POST", address, data={**form}, headers=headers, auth=basic
                ) as response,
            ):
                if response.status_code >= 500 or response.status_code == 429:
                    raise httpx2.ReadError(f"HTTP {response.status_code}")
                if response.status_code != 200:
                    raise self.ended()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise httpx2.ReadError("an answer without end")
            value: Json = json.loads(content)
        except (httpx2.HTTPError, ValueError) as error:
            raise SignInNeeded(
                f"its sign-in could not be renewed ({error}): try again later, or run "
                f"`keen mcp login {self.name}`"
            ) from error
        return value if isinstance(value, dict) else {}


class SignedIn(httpx2.Auth):
    """Adds the stored token to requests; a refused one is renewed once."""

    def __init__(self, tokens: Tokens, refused: Callable[[str], None]) -> None:
        """`refused` hears why no more requests will be answered."""
        self._tokens = tokens
        self._refused = refused

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        try:
            request.headers["Authorization"] = f"Bearer {await self._tokens.access()}"
            response = yield request
            if response.status_code == 401:
                request.headers["Authorization"] = f"Bearer {await self._tokens.renew()}"
                response = yield request
            if response.status_code == 401:
                raise self._tokens.ended()
        except SignInNeeded as error:
            self._refused(str(error))
            raise httpx2.ReadError(str(error)) from error


def expiry(seconds: Json) -> float:
    """When a token ends that lasts so long from now; 0 where nobody said."""
    return time.time() + seconds if isinstance(seconds, int | float) else 0.0


def _keep_locked(file: Path, url: str, sign_in: SignIn) -> None:
    """Write it; the caller holds the file's lock."""
    value = _files.read_json(file)
    value[url] = sign_in.as_json()
    _files.write_private(file, json.dumps(value, indent=2) + "\n")


def _word(value: JsonObject, name: str) -> str:
    word = value.get(name)
    return word if isinstance(word, str) else ""

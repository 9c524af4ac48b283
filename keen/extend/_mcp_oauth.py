"""Signing in to an MCP server in the browser, and the tokens on each request to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from keen import __version__
from keen.core.errors import KeenError, Transient, Unauthorized
from keen.extend import _mcp_tokens
from keen.extend._mcp_callback import Callback
from keen.extend._mcp_http import client
from keen.extend._mcp_log import ServerLog
from keen.extend._mcp_text import visible
from keen.extend._mcp_tokens import SignIn
from keen.extend.mcp_config import ServerConfig

_CONNECT: Final = 30.0
_MOST_WORDS: Final = 500


class _Kept:
    """What the SDK is given to remember tokens in; written to disk only once all is well."""

    def __init__(self, known: OAuthClientInformationFull | None) -> None:
        self.client = known
        self.tokens: OAuthToken | None = None
        self.has_tokens = asyncio.Event()

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.has_tokens.set()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def sign_in(
    config: ServerConfig,
    file: Path,
    show: Callable[[str], Awaitable[None]],
    *,
    log: ServerLog,
    seconds: float,
    port: int = 0,
    client_id: str = "",
) -> bool:
    """Sign in through the browser and store the tokens; False where the server wants none.

    `show` brings the address to the person. `client_id`: of a client that the server knows;
    empty: keen registers itself.

    Raises:
        ConfigError: the callback's port is taken, or the tokens cannot be stored.
        Unauthorized: the server or the person said no, or nobody signed in within `seconds`.
        Transient: the server could not be reached.
    """
    if not _mcp_tokens.may_carry_tokens(config.url):
        raise Unauthorized(f"{config.url} is no https address: keen sends no tokens there.")
    async with Callback(port) as callback:
        metadata = OAuthClientMetadata(
            client_name="keen",
            redirect_uris=[AnyUrl(callback.address)],
            grant_types=["authorization_code", "refresh_token"],
            token_endpoint_auth_method="none",
        )
        kept = _Kept(_known(client_id, metadata) if client_id else None)

        async def redirect(address: str) -> None:
            _check(address)
            callback.state = parse_qs(urlsplit(address).query).get("state", [""])[0]
            await show(address)

        async def answered() -> AuthorizationCodeResult:
            found = await callback.answer()
            return AuthorizationCodeResult(code=found.code, state=callback.state, iss=found.issuer)

        provider = OAuthClientProvider(config.url, metadata, kept, redirect, answered)
        try:
            async with asyncio.timeout(seconds):
                status = await _ask(config, provider, kept, log)
        except TimeoutError:
            raise Unauthorized(f"Nobody signed in within {seconds:.0f} s. Try again.") from None
        except (OAuthFlowError, ValidationError, ValueError) as error:
            words = visible(str(error))[0][:_MOST_WORDS]
            raise Unauthorized(f"The sign-in to {config.name} failed: {words}") from error
        except httpx2.HTTPError as error:
            raise Transient(f"{config.name} could not be reached: {error}") from error
    if kept.tokens is None:
        if status in (401, 403):
            raise Unauthorized(f"{config.name} refused (HTTP {status}) and offers no sign-in.")
        return False
    await asyncio.to_thread(_mcp_tokens.keep, file, config.url, _found(provider, kept))
    return True


async def _ask(
    config: ServerConfig, provider: OAuthClientProvider, kept: _Kept, log: ServerLog
) -> int:
    """Greet the server, which makes the SDK sign in; the status of the answer, 200 with tokens."""
    headers = {name: text for name, text in config.headers.items() if name.lower() != _HEADER}
    http = await asyncio.to_thread(
        client, config.url, headers, connect=_CONNECT, log=log, auth=provider, is_sign_in=True
    )
    asking = asyncio.create_task(_greeted(http, config))
    waiting = asyncio.create_task(kept.has_tokens.wait())
    try:
        await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        # With tokens at hand nothing depends on how long the greeting itself takes.
        return 200 if kept.tokens is not None else await asking
    finally:
        for task in (asking, waiting):
            task.cancel()
        with suppress(KeenError, OAuthFlowError, ValueError, httpx2.HTTPError):
            await asyncio.gather(asking, waiting, return_exceptions=True)
        await http.aclose()


_HEADER: Final = "authorization"


async def _greeted(http: httpx2.AsyncClient, config: ServerConfig) -> int:
    if config.transport == "sse":
        async with http.stream("GET", config.url, headers=_ACCEPT) as response:
            return response.status_code
    async with http.stream("POST", config.url, headers=_ACCEPT, json=_GREETING) as response:
        return response.status_code


_ACCEPT: Final[Mapping[str, str]] = {"Accept": "application/json, text/event-stream"}
_GREETING: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": mcp_types.LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "keen", "version": __version__},
    },
}


def _known(client_id: str, metadata: OAuthClientMetadata) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=client_id,
        redirect_uris=metadata.redirect_uris,
        token_endpoint_auth_method="none",
    )


def _check(address: str) -> None:
    """Only a page that a browser may be sent to. Raises: Unauthorized."""
    if not _mcp_tokens.may_carry_tokens(address) or not address.isprintable():
        shown = visible(address)[0][:_MOST_WORDS]
        raise Unauthorized(f"The server sends you to {shown} to sign in, which is no https page.")


def _found(provider: OAuthClientProvider, kept: _Kept) -> SignIn:
    tokens, known, context = kept.tokens, kept.client, provider.context
    assert tokens is not None
    metadata = context.oauth_metadata
    base = context.get_authorization_base_url(context.server_url)
    has_resource = context.should_include_resource_param(context.protocol_version)
    return SignIn(
        tokens.access_token,
        tokens.refresh_token or "",
        _mcp_tokens.expiry(tokens.expires_in),
        str(metadata.token_endpoint) if metadata is not None else f"{base}/token",
        known.client_id if known is not None else "",
        (known.client_secret if known is not None else None) or "",
        (known.token_endpoint_auth_method if known is not None else None) or "",
        context.get_resource_url() if has_resource else "",
        tokens.scope or "",
    )

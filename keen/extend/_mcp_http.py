"""An HTTP client for one server: bounded answers, and nothing for any other host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from keen import __version__
from keen.extend._mcp_log import ServerLog
from keen.extend._mcp_tokens import may_carry_tokens

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The longest answer that is no stream of events; of such a stream, the longest event."""
_IDENTITY: Final = ("", "identity")


def client(
    url: str,
    headers: Mapping[str, str],
    *,
    connect: float,
    log: ServerLog,
    auth: httpx2.Auth | None = None,
    is_sign_in: bool = False,
    on_unauthorized: Callable[[], None] | None = None,
) -> httpx2.AsyncClient:
    """Sends `headers` and tokens to the origin of `url` alone. Blocking: it reads certificates.

    `is_sign_in`: `auth` may ask other hosts, by https and without either.
    """
    origin = _origin(httpx2.URL(url))

    async def check(request: httpx2.Request) -> None:
        if _origin(request.url) == origin:
            return
        is_bearer = request.headers.get("Authorization", "").lower().startswith("bearer")
        if not is_sign_in or is_bearer or not may_carry_tokens(str(request.url)):
            raise httpx2.UnsupportedProtocol(f"{request.url.host} is not the server's own host")

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= 300:
            what = f"[HTTP {response.status_code} to {response.request.method}]\n"
            await asyncio.to_thread(log.write, what.encode())
        if response.status_code == 401 and on_unauthorized is not None:
            on_unauthorized()

    return httpx2.AsyncClient(
        headers={"User-Agent": f"keen/{__version__}", **headers, "Accept-Encoding": "identity"},
        auth=auth,
        follow_redirects=False,
        # How long a call may take is the call's own limit.
        timeout=httpx2.Timeout(connect, read=None),
        event_hooks={"request": [check], "response": [note, _bound]},
    )


@asynccontextmanager
async def http_transport(
    url: str, ready_client: httpx2.AsyncClient
) -> AsyncGenerator[TransportStreams, None]:
    """The streams of a session over streamable HTTP; the client is closed at the end."""
    async with (
        ready_client,
        streamable_http_client(
            url, http_client=ready_client, max_sse_event_size=ANSWER_BYTES
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse_transport(
    url: str, ready_client: httpx2.AsyncClient
) -> AsyncGenerator[TransportStreams, None]:
    """The streams of a session over the older HTTP transport; the client is closed at the end.

    Raises: TimeoutError where the server does not say in time where messages go.
    """

    def factory(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return ready_client

    async with (
        asyncio.timeout(ready_client.timeout.connect) as clock,
        sse_client(url, httpx_client_factory=factory) as streams,
    ):
        clock.reschedule(None)
        yield streams


class _Bounded(httpx2.AsyncByteStream):
    """A body that fails instead of growing without end."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ANSWER_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"an answer of more than {ANSWER_BYTES // 1024**2} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound(response: httpx2.Response) -> None:
    """A hook: a packed answer is refused, since what it unpacks to has no bound."""
    if response.headers.get("content-encoding", "").lower() not in _IDENTITY:
        raise httpx2.ReadError("a compressed answer, although none was asked for")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port

"""Failures of the way to a provider, told in words; whatever HTTP stack an SDK stands on.

The stacks are known by the names of their modules and classes and are never imported: openai,
anthropic and google-genai stand on httpx2, google-genai with aiohttp on aiohttp, boto3 on urllib3.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Protocol, TypeVar, cast

from keen import proxies
from keen.core.errors import ConfigError, KeenError, ProviderError, Rejected, Transient
from keen.wire._overflow import refused

Opened = TypeVar("Opened")

CONNECT_SECONDS: Final = 10.0
MAX_REFUSAL_BYTES: Final = 2**20
"""Of an error's body, after decompression: more of it says nothing new."""
_MAX_CHAIN: Final = 12
_TRANSPORTS: Final[Mapping[str, frozenset[str]]] = {
    "openai": frozenset({"APIConnectionError"}),
    "anthropic": frozenset({"APIConnectionError"}),
    "httpx2": frozenset({"RequestError", "StreamError"}),
    "httpx": frozenset({"RequestError", "StreamError"}),
    "httpcore": frozenset({"NetworkError", "TimeoutException", "ProtocolError", "ProxyError"}),
    "httpcore2": frozenset({"NetworkError", "TimeoutException", "ProtocolError", "ProxyError"}),
    "h11": frozenset({"ProtocolError"}),
    "anyio": frozenset({"EndOfStream", "ClosedResourceError", "BrokenResourceError"}),
    "urllib3": frozenset({"HTTPError"}),
    "aiohttp": frozenset({"ClientError"}),
    "botocore": frozenset(
        {
            "ConnectionError",
            "HTTPClientError",
            "ParserError",
            "ResponseParserError",
            "ChecksumMismatch",
            "IncompleteReadError",
        }
    ),
    "zlib": frozenset({"error"}),
    "google": frozenset({"UnknownApiResponseError"}),
    "json": frozenset({"JSONDecodeError"}),
    "ssl": frozenset({"SSLError"}),
    "socket": frozenset({"gaierror"}),
    "builtins": frozenset({"OSError", "EOFError", "UnicodeDecodeError"}),
}
"""By a module's first name: the base classes whose failures are worth another try."""
_MISTAKES: Final = frozenset({"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"})
_UNSENT: Final = frozenset(
    {
        "gaierror",
        "ConnectionRefusedError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "NewConnectionError",
    }
)
"""Failures before there was a connection."""
_UNREACHED: Final = "cannot reach {host} ({why}): is the server running and the base_url right?"
_WORDS: Final = (
    (
        r"gaierror|name or service not known|nodename nor servname|getaddrinfo|dnserror"
        r"|name resolution|nameresolutionerror|no address associated",
        "cannot find the host {host}: check the base_url and the network.",
    ),
    (
        r"certificate|sslerror|ssl:|\btls\b|handshake",
        "cannot make a secure connection to {host} ({why}): check the clock, the certificate "
        "(SSL_CERT_FILE names a private one) and whether the base_url should begin with http://.",
    ),
    (
        r"proxy",
        "cannot get through the proxy to {host} ({why}): check HTTPS_PROXY and NO_PROXY.",
    ),
    (
        r"refused|all connection attempts failed|connect call failed|unreachable|no route to host"
        r"|endpointconnectionerror|connecterror",
        _UNREACHED,
    ),
    (r"connecttimeout", "cannot reach {host}: it did not accept the connection in time."),
    (r"timeout|timed out", "waited too long for {host}: it sent nothing."),
    (
        r"jsondecodeerror|unknownapiresponse|checksummismatch|unicodedecode|decodingerror|zlib"
        r"|parsererror",
        "cannot read what {host} sent ({why}).",
    ),
    (r"", "lost the connection to {host} ({why})."),
)


class HttpRefusal(Exception):
    """An HTTP answer of 300 or more, its body read no further than needed."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.content = content


class _Response(Protocol):
    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def aiter_bytes(self) -> AsyncIterator[bytes]: ...


async def stop_refusal(response: _Response) -> None:
    """A response hook of httpx2 clients: reads a bounded error body before the SDK reads it whole.

    A redirect is refused too: it would take the conversation, or the key, to another place.

    Raises:
        HttpRefusal: the status is 300 or more. `translated` knows it.
    """
    if response.status_code < 300:
        return
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) >= MAX_REFUSAL_BYTES:
            break
    raise HttpRefusal(
        response.status_code, dict(response.headers), bytes(content[:MAX_REFUSAL_BYTES])
    )


@asynccontextmanager
async def begun(
    request: AbstractAsyncContextManager[Opened], idle_seconds: float
) -> AsyncGenerator[Opened]:
    """The response of an SDK's streaming request, connected and with a whole head in bounded time.

    A read timeout alone does not end a head that arrives byte by byte.
    """
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(idle_seconds + min(CONNECT_SECONDS, idle_seconds)):
            response = await stack.enter_async_context(request)
        yield response


def _nothing(_error: Exception) -> ProviderError | None:
    return None


class translated:
    """A context in which an SDK's errors become keen's; cancellation and keen's own pass.

    `refused` turns the SDK's status errors into keen's and answers None to any other. `client` is
    the protocol, by which the variables are chosen that its SDK reads.
    """

    def __init__(
        self,
        provider: str,
        refused: Callable[[Exception], ProviderError | None] = _nothing,
        *,
        client: str = "",
    ) -> None:
        self._provider = provider
        self._refused = refused
        self._client = client

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, KeenError):
            return
        found = (
            _http_refusal(error, self._provider)
            or self._refused(error)
            or self._environment_error()
            or _mistake(error, self._provider)
            or transport_error(error, self._provider)
        )
        if found is not None:
            raise found from error

    def _environment_error(self) -> ConfigError | None:
        """No other try cures a variable with which no connection can be made."""
        fault = next(proxies.faults(os.environ, self._client), None)
        return (
            None if fault is None else ConfigError(f"{self._provider} cannot be reached: {fault}")
        )


def transport_error(error: BaseException, provider: str) -> Transient | None:
    """The failure of the way to the provider, or None when `error` is none."""
    chain = list(_chain(error))
    if not any(map(_is_transport, chain)):
        return None
    return Transient(
        f"{provider}: {_in_words(chain)}",
        is_unsent=any(type(link).__name__ in _UNSENT for link in chain),
    )


def _in_words(chain: list[BaseException]) -> str:
    text = " ".join(f"{type(link).__name__} {link}" for link in chain).lower()
    words = next(words for pattern, words in _WORDS if re.search(pattern, text))
    host = next((found for link in chain if (found := _host(link))), "the provider")
    told = words.format(host=host, why=_why(chain))
    if words == _UNREACHED and (variable := proxies.variable_for(host)):
        told += f" {variable} is set: is that proxy running?"
    return told


def _http_refusal(error: Exception, provider: str) -> ProviderError | None:
    for link in _chain(error):
        if isinstance(link, HttpRefusal):
            if link.status < 400:
                return redirected(link.status, link.headers, provider)
            return refused(link.status, link.headers, link.content, provider)
    return None


def redirected(status: int, headers: Mapping[str, str], provider: str) -> Rejected:
    """The error an HTTP answer from 300 to 399 means."""
    place = _bounded(headers.get("location", "")) or "another place"
    return Rejected(
        f"{provider} does not answer here (HTTP {status}) but sends keen to {place}. "
        "Check the provider's base_url.",
        status=status,
    )


def _mistake(error: Exception, provider: str) -> Rejected | None:
    """What no other try cures: a wrong address, header or certificate, a proxy's 407."""
    for link in _chain(error):
        name = type(link).__name__
        if name == "ProxyError" and "407" in str(link):
            return Rejected(
                f"{provider}: the proxy wants a sign-in ({_bounded(str(link))}). Put user and "
                "password into HTTPS_PROXY (http://user:password@host:port).",
                status=407,
            )
        if "CERTIFICATE_VERIFY_FAILED" in str(link):
            return Rejected(f"{provider}: {_in_words(list(_chain(error)))}")
        if name in _MISTAKES:
            return Rejected(
                f"{provider}: the request cannot be sent ({_bounded(str(link))}). Check the "
                "provider's base_url, headers and key."
            )
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, the outermost first; members of groups included."""
    waiting = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_CHAIN:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting.extend(_causes(link))


def _causes(error: BaseException) -> Iterator[BaseException]:
    # A bare __context__ counts only inside an SDK: keen's own mistakes must not pass for a network.
    is_stack = _is_transport(error)
    own: tuple[object, ...] = (
        error.__cause__,
        error.__context__ if is_stack and not error.__suppress_context__ else None,
        # urllib3 and aiohttp keep the cause in a field of their own.
        getattr(error, "reason", None),
        getattr(error, "os_error", None),
        *error.args,
    )
    for cause in own:
        if isinstance(cause, BaseException):
            yield cause
        elif isinstance(cause, (list, tuple)):  # the members of an exception group
            yield from (m for m in cast(Sequence[object], cause) if isinstance(m, BaseException))


def _is_transport(error: BaseException) -> bool:
    return any(
        kind.__name__ in _TRANSPORTS.get(kind.__module__.partition(".")[0], ())
        for kind in type(error).__mro__
    )


def _host(error: BaseException) -> str:
    """Host and port the failure tells, "" when it tells none."""
    try:
        url = getattr(getattr(error, "request", None), "url", None)
    except RuntimeError:  # httpx2: the request was never set
        url = None
    if url is not None:
        netloc = getattr(url, "netloc", b"")
        text = netloc.decode("ascii", "replace") if isinstance(netloc, bytes) else str(netloc)
        return text.rpartition("@")[2]
    endpoint = re.search(r"https?://([^/\s\"']+)", str(error))
    if endpoint:
        return endpoint.group(1).rpartition("@")[2]
    host, port = getattr(error, "host", None), getattr(error, "port", None)
    if isinstance(host, str) and host:
        return f"{host}:{port}" if isinstance(port, int) else host
    return ""


def _why(chain: list[BaseException]) -> str:
    """The innermost failure's words, which say more than the SDK's."""
    for link in reversed(chain):
        if text := _bounded(str(link)):
            return text
    return type(chain[0]).__name__


def _bounded(text: str) -> str:
    return " ".join(text.split())[:300]

"""The tool `web_fetch`: one public page as text, never anything of this machine or its network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urljoin

from pydantic import Field

from keen import __version__
from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.secrets import masked
from keen.tools._address import Target, addresses, target_of
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._body import Body, markdown, page_text
from keen.tools._images import image
from keen.tools.base import Access, Context, Effect, Outcome, PreparedCall

if TYPE_CHECKING:
    import httpx2

_MOST_SECONDS: Final = 30.0
_MOST_BYTES: Final = 5 * 1024 * 1024
_MOST_REDIRECTS: Final = 5
_MOST_ADDRESSES: Final = 4
_MOST_TEXT: Final = 1_000_000

_HEADERS: Final = {
    "User-Agent": f"keen/{__version__}",
    "Accept": "text/markdown, text/html, text/plain, application/json, */*;q=0.5",
    "Accept-Encoding": "gzip",
}
_TEXT: Final = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-sh", "sql", "csv")


class WebFetchArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"url": "https://docs.python.org/3/library/asyncio.html"}

    url: str = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class _Page:
    status: int
    media_type: str
    charset: str
    location: str
    body: Body
    url: str


class WebFetch:
    """`allow_private` lets it reach loopback and local networks: the user's decision, never the
    model's. Behind a proxy of the environment's the proxy resolves, and the check is ours alone."""

    effect: Effect = "net"

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self.spec: ToolSpec = tool_spec(
            "web_fetch",
            "Fetch a public web page as Markdown or text.",
            WebFetchArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(WebFetchArguments, input, "web_fetch")
        if masked(arguments.url) != arguments.url:
            raise ToolError("This URL holds a key that keen knows. It is never sent anywhere.")
        target = target_of(arguments.url)
        access = Access("web_fetch", target.host, length=len(target.url))

        async def run() -> Outcome:
            try:
                async with asyncio.timeout(_MOST_SECONDS):
                    return await self._follow(target)
            except TimeoutError:
                raise ToolError(
                    f"{target.host} gave no whole answer within {_MOST_SECONDS:.0f} s."
                ) from None

        return PreparedCall((access,), run)

    async def _follow(self, target: Target) -> Outcome:
        for _ in range(_MOST_REDIRECTS + 1):
            page = await self._get(target)
            if not page.location:
                return await _outcome(page)
            following = target_of(urljoin(target.url, page.location))
            if target.scheme == "https" and following.scheme == "http":
                raise ToolError(
                    f"{target.url} redirects to {following.url}, which is not encrypted;"
                    " keen does not follow."
                )
            if following.host != target.host:
                return Outcome(
                    f"{target.url} redirects to another host. To go on, fetch {following.url}"
                )
            target = following
        raise ToolError(f"{target.host} redirects more than {_MOST_REDIRECTS} times; keen stops.")

    async def _get(self, target: Target) -> _Page:
        import httpx2  # 0.2 s

        proxy = await asyncio.to_thread(_proxy, target)
        hosts = await self._hosts(target, has_proxy=proxy is not None)
        failure: httpx2.TransportError | None = None
        for host in hosts[:_MOST_ADDRESSES]:
            try:
                async with _client(proxy) as client:
                    return await _sent(client, target, host)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
            except httpx2.HTTPError as error:
                raise ToolError(f"{target.url} failed: {error or type(error).__name__}.") from error
            except (httpx2.InvalidURL, ImportError) as error:
                raise ToolError(f"{target.url} cannot be fetched: {error}.") from error
        raise ToolError(
            f"{target.host} cannot be reached: {failure or type(failure).__name__}."
        ) from failure

    async def _hosts(self, target: Target, *, has_proxy: bool) -> tuple[str, ...]:
        """What to connect to: checked addresses, or the name itself for a proxy."""
        if not has_proxy:
            return await addresses(target, allow_private=self._allow_private)
        try:
            await asyncio.get_running_loop().getaddrinfo(target.host, target.port)
        except OSError:
            return (target.host,)  # only the proxy can resolve it
        await addresses(target, allow_private=self._allow_private)
        return (target.host,)


def _proxy(target: Target) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # with http.client behind it

    proxies = getproxies()
    found = proxies.get(target.scheme) or proxies.get("all")
    return None if not found or proxy_bypass(target.host) else found


@asynccontextmanager
async def _client(proxy: str | None) -> AsyncGenerator[httpx2.AsyncClient, None]:
    import httpx2  # 0.2 s

    transport = await asyncio.to_thread(httpx2.AsyncHTTPTransport, proxy=proxy)  # reads the CAs
    timeout = httpx2.Timeout(_MOST_SECONDS, connect=10.0)
    async with httpx2.AsyncClient(
        transport=transport, trust_env=False, follow_redirects=False, timeout=timeout
    ) as client:
        yield client


async def _sent(client: httpx2.AsyncClient, target: Target, host: str) -> _Page:
    """One request to `host`, which is the address that was checked; TLS still proves the name."""
    import httpx2  # 0.2 s

    url = httpx2.URL(target.url).copy_with(host=host)
    extensions = {} if target.is_literal else {"sni_hostname": target.host}
    headers = {**_HEADERS, "Host": target.authority}
    async with client.stream("GET", url, headers=headers, extensions=extensions) as response:
        kind = Message()
        kind["content-type"] = response.headers.get("content-type", "")
        location = response.headers.get("location", "") if response.has_redirect_location else ""
        media_type = kind.get_content_type() if kind["content-type"] else ""
        body = Body("" if location else response.headers.get("content-encoding", ""), _MOST_BYTES)
        if not location:
            async for chunk in response.aiter_raw():
                body.feed(chunk)
                if body.is_cut:
                    break
        charset = kind.get_content_charset() or ""
        return _Page(response.status_code, media_type, charset, location, body, target.url)


async def _outcome(page: _Page) -> Outcome:
    content = bytes(page.body.content)
    kind = page.media_type or "unknown type"
    head = f"[{page.status} {kind}, {page.url}]"
    is_error = page.status >= 400
    beginning = content[:200].lstrip().lower()
    is_html = page.media_type in ("text/html", "application/xhtml+xml") or (
        not page.media_type and beginning.startswith((b"<!doctype html", b"<html"))
    )
    picture = None if is_html or page.body.is_cut else image(content)
    if picture is not None:
        size = f"{picture.width}x{picture.height} pixels"
        return Outcome(f"{head}\n[picture, {size}]", is_error, (picture,))
    text = page_text(content, page.charset, is_html) if is_html or _is_text(page) else None
    if text is None:
        more = " or more" if page.body.is_cut else ""
        return Outcome(f"{head}\n[no text: {len(content):,} bytes{more}]", is_error)
    if is_html:
        text = await markdown(text, page.url)
    notes = f"\n[cut: the page is larger than {_MOST_BYTES:,} bytes]" if page.body.is_cut else ""
    if len(text) > _MOST_TEXT:
        notes = f"\n[cut: {len(text) - _MOST_TEXT:,} more characters]"
    return Outcome(f"{head}\n{text[:_MOST_TEXT]}{notes}", is_error)


def _is_text(page: _Page) -> bool:
    if not page.media_type or page.media_type.startswith("text/"):
        return True
    return any(word in page.media_type for word in _TEXT)

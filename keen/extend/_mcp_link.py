"""What keen says to a running server, by way of the SDK."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
import httpx2
import mcp_types
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import FileUrl, ValidationError

from keen import __version__
from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject
from keen.extend import _mcp_tokens
from keen.extend._mcp_connection import LinkEnded, Run, Surroundings
from keen.extend._mcp_http import client, http_transport, sse_transport
from keen.extend._mcp_log import ServerLog
from keen.extend._mcp_process import ServerProcess
from keen.extend._mcp_stdio import StdioTransport
from keen.extend._mcp_text import visible
from keen.extend.mcp_config import ServerConfig

Listed: TypeAlias = Literal["tools", "resources", "prompts"]

_MOST_PAGES: Final = 200
_MOST_WORDS: Final = 2_000
_TICK: Final = 0.1
"""Seconds between two pieces of progress that are shown."""
_NO_SUCH_VERSION: Final = (mcp_types.METHOD_NOT_FOUND, mcp_types.UNSUPPORTED_PROTOCOL_VERSION)


class Link:
    """A server that was greeted. Errors of its own are ToolError; LinkEnded means it is gone."""

    def __init__(
        self, name: str, session: ClientSession, dispatcher: JSONRPCDispatcher[Any]
    ) -> None:
        self._name = name
        self._session = session
        self._dispatcher = dispatcher

    async def listed(self, what: Listed, most: int) -> list[Json]:
        """The entries of a list, all pages, `most` at most; none where it is not offered."""
        found: list[Json] = []
        cursor: str | None = None
        offered = self._session.server_capabilities
        if what != "tools" and offered is not None and getattr(offered, what) is None:
            return found
        for _ in range(_MOST_PAGES):
            page = await self._asked(self._page(what, cursor))
            entries = page.get(what)
            found.extend(entries if isinstance(entries, list) else ())
            following = page.get("nextCursor")
            if not isinstance(following, str) or not following or len(found) >= most:
                break
            cursor = following
        return found[:most]

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        limit: float,
        show: Callable[[str], Awaitable[None]],
    ) -> mcp_types.CallToolResult:
        """Call a tool. Raises: TimeoutError after `limit` seconds without a sign of life."""
        clock = asyncio.timeout(limit)
        shown = 0.0
        is_over = False

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            nonlocal shown
            if is_over or clock.expired():
                return
            clock.reschedule(asyncio.get_running_loop().time() + limit)
            now = time.monotonic()
            if now - shown >= _TICK:
                shown = now
                await show(_progress(progress, total, message))

        request = mcp_types.CallToolRequest(
            params=mcp_types.CallToolRequestParams(name=name, arguments=arguments)
        )
        try:
            async with clock:
                return await self._asked(
                    self._session.send_request(
                        request, mcp_types.CallToolResult, progress_callback=heard
                    )
                )
        finally:
            is_over = True

    async def read_resource(
        self, uri: str
    ) -> list[mcp_types.TextResourceContents | mcp_types.BlobResourceContents]:
        """What a resource holds."""
        parameters = mcp_types.ReadResourceRequestParams(uri=uri)
        request = mcp_types.ReadResourceRequest(params=parameters)
        answer = self._session.send_request(request, mcp_types.ReadResourceResult)
        return (await self._asked(answer)).contents

    async def prompt(
        self, name: str, arguments: Mapping[str, str]
    ) -> list[mcp_types.PromptMessage]:
        """The messages of a prompt, its arguments filled in."""
        parameters = mcp_types.GetPromptRequestParams(name=name, arguments={**arguments})
        request = mcp_types.GetPromptRequest(params=parameters)
        answer = self._session.send_request(request, mcp_types.GetPromptResult)
        return (await self._asked(answer)).messages

    async def _page(self, what: Listed, cursor: str | None) -> JsonObject:
        if self._session.discover_result is None:
            # Thousands of entries take the SDK's own validation longer than the screen can wait.
            params = {"cursor": cursor} if cursor else None
            return await self._dispatcher.send_raw_request(f"{what}/list", params)
        parameters = mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None
        match what:
            case "tools":
                result = await self._session.list_tools(params=parameters)
            case "resources":
                result = await self._session.list_resources(params=parameters)
            case "prompts":
                result = await self._session.list_prompts(params=parameters)
        return cast("JsonObject", result.model_dump(mode="json", by_alias=True))

    async def _asked(self, answer: Awaitable[_Answer]) -> _Answer:
        try:
            return await answer
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED or error.message == "Session terminated":
                raise LinkEnded from error
            words = visible(error.message)[0][:_MOST_WORDS]
            raise ToolError(f"The MCP server {self._name} refused: {words}") from error
        except ValidationError as error:
            where = ", ".join(".".join(map(str, each["loc"])) for each in error.errors()[:3])
            raise ToolError(
                f"The MCP server {self._name} gave an answer that MCP does not know "
                f"(wrong: {where[:200]})."
            ) from error


_Answer = TypeVar("_Answer")


async def serve(config: ServerConfig, around: Surroundings, log: ServerLog, run: Run) -> None:
    """Start a server, greet it, hand it over by `run.ready`, and end it once `run.ended` is set.

    Raises: what went wrong on the way, mostly in a group.
    """

    async def heard(message: IncomingMessage) -> None:
        match message:
            case mcp_types.ToolListChangedNotification():
                run.is_stale = True
            case (
                mcp_types.ResourceListChangedNotification()
                | mcp_types.PromptListChangedNotification()
            ):
                run.has_looked = False
            case _:
                return

    async def roots(context: ClientRequestContext) -> mcp_types.ListRootsResult:
        named = [(FileUrl(root.as_uri()), root.name or str(root)) for root in around.roots]
        return mcp_types.ListRootsResult(
            roots=[mcp_types.Root(uri=uri, name=name) for uri, name in named]
        )

    async with await _transport(config, around, log, run) as (reading, writing):
        dispatcher = JSONRPCDispatcher[Any](reading, writing)
        session = ClientSession(
            dispatcher=dispatcher,
            list_roots_callback=roots,
            message_handler=heard,
            client_info=mcp_types.Implementation(name="keen", version=__version__),
        )
        async with session:
            with anyio.fail_after(around.limits.connect):
                await _greet(session)
            run.ready.set_result(Link(config.name, session, dispatcher))
            await run.ended.wait()


async def _greet(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in _NO_SUCH_VERSION:
            raise
        await session.discover()  # a server of the protocol's later versions alone


async def _transport(
    config: ServerConfig, around: Surroundings, log: ServerLog, run: Run
) -> AbstractAsyncContextManager[TransportStreams]:
    if config.transport == "stdio":
        process = await ServerProcess.start(
            config.command,
            config.cwd or around.cwd,
            {**around.environment, **config.environment},
        )
        return StdioTransport(process, log, run.end)
    ready_client = await asyncio.to_thread(_client, config, around, log, run)
    opened = http_transport if config.transport == "http" else sse_transport
    return opened(config.url, ready_client)


def _client(
    config: ServerConfig, around: Surroundings, log: ServerLog, run: Run
) -> httpx2.AsyncClient:
    """With the tokens of a sign-in, where there is one and the entry has none. Blocking."""
    has_header = any(name.lower() == "authorization" for name in config.headers)
    connect = around.limits.connect
    if not has_header and _mcp_tokens.read(around.sign_ins, config.url) is not None:
        tokens = _mcp_tokens.Tokens(around.sign_ins, config.url, config.name)
        auth = _mcp_tokens.SignedIn(tokens, run.end)
        return client(config.url, config.headers, connect=connect, log=log, auth=auth)
    why = (
        "it refused the Authorization header of its entry"
        if has_header
        else f"it wants you to sign in: run `keen mcp login {config.name}`"
    )
    return client(
        config.url,
        config.headers,
        connect=connect,
        log=log,
        on_unauthorized=lambda: run.end(why),
    )


def _progress(done: float, total: float | None, message: str | None) -> str:
    amount = f"{done:g}/{total:g}" if total is not None else f"{done:g}"
    return f"{amount} {visible(message)[0][:200]}" if message else amount

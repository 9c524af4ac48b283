"""One server by need: started at the first use, again when it died, never in a loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject
from keen.extend._mcp_log import ServerLog
from keen.extend._mcp_text import PromptText, ResourceText, ToolText, visible
from keen.extend.mcp_config import ServerConfig
from keen.wire._sdk import loaded

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from keen.extend._mcp_link import Link

MOST_TOOLS: Final = 10_000
_MOST_OFFERED: Final = 2_000
"""Resources of one server, and as many prompts."""
_LINK: Final = "keen.extend._mcp_link"
"""The module that imports the SDK, which takes most of a second."""
_CLOSING: Final = 3.0
_MOST_WORDS: Final = 600


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server may take."""

    connect: float = 30.0
    """Seconds to start and greet, and as many to list its tools."""
    call: float = 600.0
    """Seconds of a call without an answer or progress."""
    starts: int = 4
    """Starts within `window` seconds, the first included."""
    window: float = 600.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every server of a session is started with."""

    cwd: Path
    roots: tuple[Path, ...]
    environment: Mapping[str, str]
    """The allow list of variables that servers get beside those of their entry."""
    logs: Path
    sign_ins: Path
    """The file of tokens, see `_mcp_tokens`."""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Offers:
    """What a server has beside its tools, as far as it was looked at."""

    resources: tuple[ResourceText, ...] = ()
    prompts: tuple[PromptText, ...] = ()


class LinkEnded(Exception):
    """The server went away before it answered."""


@dataclass(eq=False)
class Run:
    """One life of a server. Its task owns the process or the HTTP client."""

    ready: asyncio.Future[Link] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it ended by itself, or shall end."""
    why: str = ""
    is_stale: bool = True
    """Its tools were not listed, or it said that they changed."""
    has_looked: bool = False
    """Its resources and prompts were listed, and it did not say since that they changed."""

    def end(self, why: str) -> None:
        """No more calls; the first reason counts."""
        self.why = self.why or why
        self.ended.set()


class Connection:
    """A configured server and the process or HTTP client behind it, where there is one."""

    def __init__(self, config: ServerConfig, part: str, around: Surroundings) -> None:
        self.config = config
        self.log = ServerLog(around.logs, part)
        self.failure = ""
        """Why it last ended or did not start."""
        self._around = around
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._tools: tuple[ToolText, ...] = ()
        self._starts: deque[float] = deque()
        self._listing = asyncio.Lock()
        self._is_closed = False
        self.offers = Offers()
        self._looking = asyncio.Lock()

    @property
    def seconds(self) -> float:
        """What a request that is no call may take."""
        return self._around.limits.connect

    @property
    def is_running(self) -> bool:
        """True while calls can be made."""
        run = self._run
        return run is not None and run.ready.done() and not run.ended.is_set()

    @property
    def is_to_look(self) -> bool:
        """True while it runs and was not asked yet for what it has beside tools."""
        return self._run is not None and self.is_running and not self._run.has_looked

    async def tools(self) -> tuple[ToolText, ...]:
        """Its tools; the same object until it says that they changed. Raises: ToolError."""
        async with self._listing:
            link, run = await self._linked()
            if run.is_stale:
                run.is_stale = False
                try:
                    async with asyncio.timeout(self._around.limits.connect):
                        found = await link.listed("tools", MOST_TOOLS)
                except TimeoutError:
                    run.is_stale = True
                    raise ToolError(
                        f"The MCP server {self.config.name} did not list its tools within "
                        f"{self._around.limits.connect:g} seconds."
                    ) from None
                except LinkEnded:
                    raise await self._over(run, "while it listed its tools") from None
                self._tools = await asyncio.to_thread(_texts, found)
            return self._tools

    async def call(
        self, name: str, arguments: JsonObject, progress: Callable[[str], Awaitable[None]]
    ) -> CallToolResult:
        """Call a tool. A cancelled call is cancelled at the server too. Raises: ToolError."""
        link, run = await self._linked()
        limit = self._around.limits.call
        try:
            return await link.call(name, arguments, limit, progress)
        except TimeoutError:
            raise ToolError(
                f"The MCP server {self.config.name} gave neither an answer nor progress for "
                f"{limit:g} seconds. The call was cancelled; it may have done a part."
            ) from None
        except LinkEnded:
            raise await self._over(run, "during the call, which may have done a part") from None

    async def link(self) -> Link:
        """The running server, started where it is not. Raises: ToolError."""
        return (await self._linked())[0]

    async def look(self) -> None:
        """List what a running server offers, once; starts nothing. Raises: ToolError."""
        async with self._looking:
            run = self._run
            if run is None or not self.is_running or run.has_looked:
                return
            run.has_looked = True
            link = run.ready.result()
            try:
                async with asyncio.timeout(self._around.limits.connect):
                    resources = await link.listed("resources", _MOST_OFFERED)
                    prompts = await link.listed("prompts", _MOST_OFFERED)
            except (TimeoutError, LinkEnded):
                name = self.config.name
                raise ToolError(f"The MCP server {name} did not say what it offers.") from None
            self.offers = await asyncio.to_thread(_offers, resources, prompts)

    async def aclose(self) -> None:
        """End it and everything it started. It is never started again."""
        self._is_closed = True
        run, task = self._run, self._task
        if run is None or task is None:
            return
        run.end("keen ends it")
        if run.ready.done():
            await asyncio.wait({task}, timeout=_CLOSING)
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)

    async def _linked(self) -> tuple[Link, Run]:
        if self._is_closed:
            raise ToolError(f"The MCP server {self.config.name} was closed with the session.")
        if self._run is None or self._run.ended.is_set():
            self._start()
        run, task = self._run, self._task
        assert run is not None
        assert task is not None
        await asyncio.wait({run.ready, task}, return_when=asyncio.FIRST_COMPLETED)
        if not run.ready.done():
            raise ToolError(
                f"The MCP server {self.config.name} did not start: {self.failure} "
                f"Its log: {self.log.path}"
            )
        return run.ready.result(), run

    def _start(self) -> None:
        limits, now = self._around.limits, time.monotonic()
        while self._starts and now - self._starts[0] > limits.window:
            self._starts.popleft()
        if len(self._starts) >= limits.starts:
            minutes = max(1, round((limits.window - (now - self._starts[0])) / 60))
            raise ToolError(
                f"The MCP server {self.config.name} ended {len(self._starts)} times within "
                f"{limits.window / 60:g} minutes and is not started again for {minutes} minutes: "
                f"{self.failure} Its log: {self.log.path}"
            )
        self._starts.append(now)
        run, before = Run(), self._task
        task = asyncio.create_task(self._live(run, before))
        task.add_done_callback(lambda done: self._note_end(run, done))
        self._run, self._task = run, task

    async def _live(self, run: Run, before: asyncio.Task[None] | None) -> None:
        """The whole life of one run, in the one task that the SDK's contexts need."""
        if before is not None:
            await asyncio.wait({before})
        if _LINK not in sys.modules:
            await loaded(_LINK)
            # The SDK stays: the collector would go through it whenever thousands of tools come.
            gc.freeze()
        from keen.extend._mcp_link import serve

        await serve(self.config, self._around, self.log, run)

    def _note_end(self, run: Run, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        reasons = [run.why] if run.why else [_reason(leaf) for leaf in _leaves(error)]
        run.end("the connection was closed")
        words = self.log.last_words
        said = f" It said: {words}" if words else ""
        self.failure = f"{visible('; '.join(reasons) or run.why)[0][:_MOST_WORDS]}.{said}"

    async def _over(self, run: Run, when: str) -> ToolError:
        """The error of a server that went away; waits until it is known why."""
        run.ended.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSING)
        return ToolError(
            f"The MCP server {self.config.name} ended {when}: {self.failure} "
            "The next call starts it again."
        )


def _texts(found: Iterable[Json]) -> tuple[ToolText, ...]:
    """The first of each name, and only what is a tool."""
    tools: dict[str, ToolText] = {}
    for value in found:
        tool = ToolText.read(value)
        if tool is not None:
            tools.setdefault(tool.name, tool)
    return tuple(tools.values())


def _offers(resources: Iterable[Json], prompts: Iterable[Json]) -> Offers:
    """What could be read, each name and address once."""
    found = (ResourceText.read(value) for value in resources)
    named = (PromptText.read(value) for value in prompts)
    return Offers(
        tuple({each.uri: each for each in found if each is not None}.values()),
        tuple({each.name: each for each in named if each is not None}.values()),
    )


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for each in group.exceptions for leaf in _leaves(each)]
    return [error] if error is not None else []


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename}"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return str(error).strip().rstrip(".") or type(error).__name__

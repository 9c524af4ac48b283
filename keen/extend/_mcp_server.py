"""One configured server behind its gates: approval before it starts, agreement to what it says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeAlias

from keen.core.errors import ConfigError, ToolError
from keen.core.events import Question
from keen.core.messages import JsonObject
from keen.extend._mcp_connection import Connection, LinkEnded, Surroundings
from keen.extend._mcp_names import tool_names
from keen.extend._mcp_schema import checked
from keen.extend._mcp_store import Store
from keen.extend._mcp_text import PromptText, ResourceText, ToolText, difference, pages, visible
from keen.extend.mcp_config import ServerConfig
from keen.tools.base import Context, Outcome

if TYPE_CHECKING:
    from keen.extend._mcp_link import Link

Ask: TypeAlias = Callable[[tuple[Question, ...]], Awaitable[tuple[str, ...] | None]]

ALWAYS: Final = "Start it, and remember this"
ONCE: Final = "Start it for this session"
USE: Final = "Use the tool as it is now"
USE_ALL: Final = "Use these tools"
MORE: Final = "Show more of them"
NO: Final = "No"
_ALL: Final = "*"
_MOST_NAMED: Final = 20


class Server:
    """A server, and what was agreed to. `part` stands for its name in the names of its tools."""

    def __init__(
        self,
        config: ServerConfig,
        part: str,
        around: Surroundings,
        store: Store,
        *,
        is_interactive: bool,
    ) -> None:
        """Reads what is known of its tools. Blocking."""
        self.config = config
        self.part = part
        self.connection = Connection(config, part, around)
        self._store = store
        self._is_interactive = is_interactive
        self._known = store.listed(config.key)
        self._is_approved = False
        self._asking = asyncio.Lock()
        self._taking = asyncio.Lock()
        self.tell: Callable[[str], None] = _unheard
        """Hears what the person should know."""
        self._refused: set[str] = set()
        """What the person said no to, for this session: "" the server, * all, else `name hash`."""
        self._listed: tuple[ToolText, ...] | None = None
        self._live: dict[str, ToolText] = {}
        self._agreed: dict[str, str] = {}

    @property
    def tools(self) -> Mapping[str, ToolText]:
        """By full name, as far as they are known without starting anything."""
        if self._listed is not None:
            return self._live
        names = tool_names(self.part, [tool.name for tool in self._known])
        texts = {tool.name: tool for tool in self._known}
        return {full: texts[name] for full, name in names.items()}

    @property
    def is_listed(self) -> bool:
        """Whether `tools` is what the server said in this session."""
        return self._listed is not None

    def is_agreed(self, tool: ToolText) -> bool:
        """False for a text that changed since a person agreed to it."""
        return self._agreed.get(tool.name, tool.hash) == tool.hash and (
            tool.name in self._agreed or not self.is_listed
        )

    async def list(self, ask: Ask) -> Mapping[str, ToolText]:
        """Its tools as they are now; starts it where it may be started. Raises: ToolError."""
        if _ALL in self._refused:
            raise self._unwanted()
        await self.approve(ask)
        listed = await self.connection.tools()
        async with self._taking:
            if listed is not self._listed:
                await self._take(listed, ask)
        return self._live

    async def tool(self, full_name: str, ask: Ask) -> ToolText:
        """A tool whose text is agreed to. Raises: ToolError."""
        tools = await self.list(ask)
        tool = tools.get(full_name)
        if tool is None:
            close = get_close_matches(full_name, tools, n=3, cutoff=0.5) or list(tools)[:20]
            raise ToolError(
                f"The MCP server {self.config.name} has no tool {full_name}. "
                f"{'It has: ' + ', '.join(close) if close else 'It has no tools at all'}."
            )
        await self._agree(full_name, tool, ask)
        return tool

    async def looked_over(self) -> Mapping[str, ToolText]:
        """Its tools by full name for somebody who has its entry before them; agrees to nothing.

        Raises: ToolError when it does not start.
        """
        self._is_approved = True
        texts = {tool.name: tool for tool in await self.connection.tools()}
        names = await asyncio.to_thread(tool_names, self.part, texts)
        return {full: texts[name] for full, name in names.items()}

    async def agree_to_all(self) -> tuple[str, ...]:
        """The user's yes to the entry and to every text as it is now; the tools that had changed.

        Raises: ToolError when it does not start, or that cannot be stored.
        """
        before = await asyncio.to_thread(self._store.hashes, self.config.key)
        offered = await self.looked_over()
        if self.config.scope == "project":
            await asyncio.to_thread(_told, self._store.approve, self.config)
        hashes = {tool.name: tool.hash for tool in offered.values()}
        await asyncio.to_thread(_told, self._store.pin, self.config.key, hashes)
        self._agreed |= hashes
        tools = await self.list(_nobody)
        await self._keep()
        known = before if before is not None else hashes
        return tuple(
            sorted(full for full, tool in tools.items() if known.get(tool.name) != tool.hash)
        )

    async def call(self, full_name: str, arguments: JsonObject, context: Context) -> Outcome:
        """Run a call. Raises: ToolError."""
        tool = await self.tool(full_name, context.ask)
        given = await asyncio.to_thread(checked, full_name, tool, arguments)
        result = await self.connection.call(tool.name, given, context.progress)
        from keen.extend._mcp_results import outcome  # the SDK is there by now

        return await asyncio.to_thread(outcome, result, context.scratch)

    async def read_resource(self, uri: str, context: Context) -> Outcome:
        """What a resource of the server holds. Raises: ToolError."""
        link = await self._link(context.ask)
        async with _within(self.connection.seconds, self.config.name):
            parts = await link.read_resource(uri)
        from keen.extend._mcp_results import contents  # the SDK is there by now

        return await asyncio.to_thread(contents, parts, context.scratch)

    @property
    def mention(self) -> str:
        """What stands for it behind an @: its name, where that has no blank or colon."""
        name = self.config.name
        return name if not re.search(r'[\s:"]', name) else self.part

    @property
    def resources(self) -> tuple[ResourceText, ...]:
        """As far as it was looked at."""
        return self.connection.offers.resources

    @property
    def prompts(self) -> Mapping[str, PromptText]:
        """By full name, as far as it was looked at."""
        texts = {prompt.name: prompt for prompt in self.connection.offers.prompts}
        return {full: texts[name] for full, name in tool_names(self.part, texts).items()}

    async def prompt(self, full_name: str, ask: Ask) -> PromptText:
        """A prompt that it offers, looked up at the server. Raises: ToolError."""
        await self._link(ask)
        await self.connection.look()
        found = self.prompts.get(full_name)
        if found is None:
            names = ", ".join(f"/{name}" for name in sorted(self.prompts)[:_MOST_NAMED])
            raise ToolError(
                f"The MCP server {self.config.name} has no prompt {full_name}. "
                f"{'It has: ' + names if names else 'It has no prompts at all'}."
            )
        return found

    async def render(
        self, prompt: PromptText, arguments: Mapping[str, str], context: Context
    ) -> Outcome:
        """A prompt with its arguments filled in. Raises: ToolError."""
        link = await self._link(context.ask)
        async with _within(self.connection.seconds, self.config.name):
            messages = await link.prompt(prompt.name, arguments)
        from keen.extend import _mcp_results  # the SDK is there by now

        return await asyncio.to_thread(_mcp_results.prompt, messages, context.scratch)

    async def _link(self, ask: Ask) -> Link:
        await self.approve(ask)
        return await self.connection.link()

    async def approve(self, ask: Ask) -> None:
        """See to it that it may be started. Raises: ToolError when it may not."""
        async with self._asking:
            if self._is_approved:
                return
            if not await asyncio.to_thread(self._store.is_approved, self.config):
                await self._ask_to_start(ask)
            self._is_approved = True

    async def _ask_to_start(self, ask: Ask) -> None:
        name, origin = self.config.name, self.config.origin
        if not self._is_interactive or "" in self._refused:
            raise ToolError(
                f"The MCP server {name} of {origin} was not started: nobody has approved it. "
                f"The user can do that with `keen mcp approve {name}`. Go on without it."
            )
        question = Question(
            f"The project's {origin} wants to start the MCP server {name}, which can do anything "
            f"you can do:\n\n{visible(self.config.shown)[0]}\n\n"
            f"in {self.config.cwd}. You are asked again when this entry changes.",
            (ALWAYS, ONCE, NO),
        )
        answers = await ask((question,))
        answer = answers[0] if answers else ""
        if answer == ALWAYS:
            await asyncio.to_thread(_told, self._store.approve, self.config)
        elif answer != ONCE:
            if answers is not None:
                self._refused.add("")
            raise ToolError(f"The user did not want the MCP server {name} started.")

    async def _take(self, listed: tuple[ToolText, ...], ask: Ask) -> None:
        """Hold a new list against what was agreed to; what is first seen is agreed to.

        A person is asked before that for a project's server, and told for one of their own.
        """
        texts = {tool.name: tool for tool in listed}
        names = await asyncio.to_thread(tool_names, self.part, texts)
        agreed = await asyncio.to_thread(self._store.hashes, self.config.key)
        before = {**(agreed or {}), **self._agreed}
        is_first = agreed is None and not self._agreed
        if is_first and texts:
            await self._show_first({full: texts[name] for full, name in names.items()}, ask)
        # The user chose a server of their own with all it will ever have; a project's file did not.
        takes_new = is_first or self.config.scope != "project"
        fresh = {
            name: tool.hash for name, tool in texts.items() if name not in before and takes_new
        }
        if fresh or is_first:
            await asyncio.to_thread(_told, self._store.pin, self.config.key, fresh)
        self._agreed = before | fresh
        self._live = {full: texts[name] for full, name in names.items()}
        self._listed = listed
        await self._keep()

    async def _show_first(self, tools: Mapping[str, ToolText], ask: Ask) -> None:
        """Show all that a server says of its tools before the model hears it. Raises: ToolError."""
        name = self.config.name
        if self.config.scope != "project":
            names = ", ".join(sorted(tools)[:_MOST_NAMED]) + (
                "…" if len(tools) > _MOST_NAMED else ""
            )
            self.tell(
                f"The MCP server {name} offers {names}. They are used as they are now; "
                f"`keen mcp test {name}` shows what they say."
            )
            return
        if not self._is_interactive:
            raise ToolError(
                f"Nobody has looked at the tools of the MCP server {name} of {self.config.origin}. "
                f"The user can do that with `keen mcp approve {name}`. Go on without it."
            )
        texts = await asyncio.to_thread(pages, tools)
        for number, page in enumerate(texts, 1):
            count = f", {number} of {len(texts)}" if len(texts) > 1 else ""
            question = Question(
                f"The MCP server {name} of {self.config.origin} tells the model of its "
                f"{len(tools):,} tools{count}:\n\n{page}",
                (USE_ALL, MORE, NO) if number < len(texts) else (USE_ALL, NO),
            )
            answers = await ask((question,))
            if answers and answers[0] == USE_ALL:
                return
            if not answers or answers[0] != MORE:
                if answers is not None:
                    self._refused.add(_ALL)
                raise self._unwanted()

    def _unwanted(self) -> ToolError:
        return ToolError(
            f"The user did not agree to the tools of the MCP server {self.config.name}. "
            "Go on without it."
        )

    async def _keep(self) -> None:
        agreed = [tool for tool in self._live.values() if self.is_agreed(tool)]
        await asyncio.to_thread(self._store.keep_texts, self.config.key, agreed)

    async def _agree(self, full_name: str, tool: ToolText, ask: Ask) -> None:
        async with self._asking:
            if self.is_agreed(tool):
                return
            mark = f"{tool.name} {tool.hash}"
            before = await asyncio.to_thread(self._store.text, self.config.key, tool.name)
            what = "changed" if tool.name in self._agreed else "is new"
            if not self._is_interactive or mark in self._refused:
                raise ToolError(
                    f"{full_name} was not called: the tool {what} since the user agreed to the "
                    f"MCP server {self.config.name}. The user can look at it with `keen mcp test "
                    f"{self.config.name}` and agree with `keen mcp approve {self.config.name}`."
                )
            question = Question(
                f"The tool {full_name} of the MCP server {self.config.name} {what} since you "
                f"agreed to the server. What the model is told of it:\n\n"
                f"{difference(before, tool)}",
                (USE, NO),
            )
            answers = await ask((question,))
            if not answers or answers[0] != USE:
                if answers is not None:
                    self._refused.add(mark)
                raise ToolError(f"The user did not agree to {full_name} as it is now.")
            await asyncio.to_thread(_told, self._store.pin, self.config.key, {tool.name: tool.hash})
            self._agreed[tool.name] = tool.hash
        await self._keep()


@asynccontextmanager
async def _within(seconds: float, name: str) -> AsyncGenerator[None, None]:
    """A request that is no call of a tool. Raises: ToolError when it is not answered in time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ToolError(f"The MCP server {name} did not answer in {seconds:g} seconds.") from None
    except LinkEnded:
        raise ToolError(f"The MCP server {name} ended before it answered.") from None


async def _nobody(_questions: tuple[Question, ...]) -> tuple[str, ...] | None:
    return None


def _unheard(_text: str) -> None:
    return None


def _told(write: Callable[..., None], *what: object) -> None:
    """Write; a store that fails is told to the model, since it must not look like a refusal."""
    try:
        write(*what)
    except ConfigError as error:
        raise ToolError(
            f"The agreement could not be stored, so nothing was run: {error}"
        ) from error

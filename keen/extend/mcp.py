"""MCP servers for the model: two small tools that find and call all of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import Field

from keen import secrets
from keen.core.errors import ToolError
from keen.core.events import Question
from keen.core.messages import JsonObject, ToolSpec
from keen.extend._mcp_connection import Limits, Surroundings
from keen.extend._mcp_names import PREFIX, server_names, split
from keen.extend._mcp_server import Ask, Server
from keen.extend._mcp_store import Store
from keen.extend._mcp_text import PromptText, ToolText, catalogue, first_words, full_text
from keen.extend.mcp_config import ServerConfig
from keen.paths import Paths
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._environment import command_environment
from keen.tools.base import Access, Context, Effect, Outcome, PreparedCall, Tool
from keen.wire._sdk import loaded

__all__ = ["Limits", "McpServers", "ServerStatus"]

SIGN_INS: Final = "mcp-auth.json"
"""Beside auth.json: tokens by the server's address."""
_SIGN_IN_SECONDS: Final = 600.0
_MOST_NAMES: Final = 20
_MOST_FOUND: Final = 300
_NONE: Final = "There are no MCP tools."
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server as `/mcp` shows it."""

    name: str
    scope: str
    origin: str
    shown: str
    state: Literal["not started", "running", "ended", "not approved"]
    reason: str
    """Why it ended; empty otherwise."""
    tools: tuple[str, ...]
    """Full names, as far as known."""
    log: Path
    resources: int = 0
    """As far as it was asked for them."""
    prompts: int = 0


class McpServers:
    """The servers of a session. None is started before a call or a question needs it."""

    def __init__(
        self,
        configs: Iterable[ServerConfig],
        *,
        paths: Paths,
        cwd: Path,
        roots: tuple[Path, ...],
        environment: Mapping[str, str],
        is_interactive: bool,
        is_trusted: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """`environment`: keen's own, of which servers get an allow list. Blocking, quick."""
        self._store = Store.of(paths)
        self._sign_ins = paths.auth_file.with_name(SIGN_INS)
        around = Surroundings(
            cwd,
            roots,
            command_environment(environment, roots, is_trusted=is_trusted),
            paths.logs,
            self._sign_ins,
            limits or Limits(),
        )
        found = {config.name: config for config in configs}
        for config in found.values():
            secrets.register(*config.headers.values(), *_secret_values(config.environment))
        self._servers = {
            part: Server(found[name], part, around, self._store, is_interactive=is_interactive)
            for part, name in server_names(sorted(found)).items()
        }
        self._tools: tuple[Tool, ...] = ()
        if self._servers:
            self._tools = (_Describe(self._servers, self._catalogue()), _Call(self._servers))

    def tools(self) -> tuple[Tool, ...]:
        """What requests declare: the same values for the whole session, none without servers."""
        return self._tools

    def undeclared(self, name: str) -> Tool | None:
        """A tool by its full name, `mcp__server__tool`; whether it exists is known by the call."""
        part, tool = split(name)
        server = self._servers.get(part)
        return _McpTool(server, name) if server is not None and tool else None

    def status(self) -> tuple[ServerStatus, ...]:
        """Every server, by name. Blocking, quick."""
        return tuple(self._status(server) for server in self._servers.values())

    def server(self, name: str) -> Server | None:
        """A server by the name it is configured under, or by the part that stands for it."""
        named = (each for each in self._servers.values() if each.config.name == name)
        return next(named, self._servers.get(name))

    def listen(self, tell: Callable[[str], None]) -> None:
        """Hand what the person should know to `tell`, one line each, from now on."""
        for server in self._servers.values():
            server.tell = tell

    def server_of(self, part: str) -> Server | None:
        """A server by the part that stands for it in the names of its tools and prompts."""
        return self._servers.get(part)

    @property
    def names(self) -> tuple[str, ...]:
        """As they are configured."""
        return tuple(server.config.name for server in self._servers.values())

    @property
    def is_to_look(self) -> bool:
        """True where `look` would ask somebody."""
        return any(server.connection.is_to_look for server in self._servers.values())

    async def look(self) -> None:
        """Learn what running servers offer beside tools; starts none, and fails silently."""

        async def one(server: Server) -> None:
            with contextlib.suppress(ToolError):
                await server.connection.look()

        async with asyncio.TaskGroup() as tasks:
            for server in self._servers.values():
                if server.connection.is_to_look:
                    tasks.create_task(one(server))

    def resources(self) -> tuple[tuple[str, str], ...]:
        """What can be named in a message, `server:address`, and a few words on each."""
        return tuple(
            (f"{server.mention}:{each.uri}", each.description or each.name)
            for server in self._servers.values()
            for each in server.resources
        )

    def prompts(self) -> tuple[tuple[str, PromptText, ServerConfig], ...]:
        """What can be called, as `/` and the full name, with the server that has it."""
        return tuple(
            (name, prompt, server.config)
            for server in self._servers.values()
            for name, prompt in sorted(server.prompts.items())
        )

    async def sign_in(
        self,
        name: str,
        show: Callable[[str], Awaitable[None]],
        *,
        port: int = 0,
        client_id: str = "",
        seconds: float = _SIGN_IN_SECONDS,
    ) -> bool:
        """Sign in to a server in the browser, `show` brings the address there; False: no need to.

        Raises: KeenError: it is not to be started, is no address, or somebody said no.
        """
        server = self.server(name)
        if server is None or not server.config.url:
            what = "has no address to sign in to" if server is not None else "is not configured"
            raise ToolError(f"The MCP server {name} {what}.")
        await server.approve(_no_answer)
        await loaded("keen.extend._mcp_oauth")
        from keen.extend._mcp_oauth import sign_in

        return await sign_in(
            server.config,
            self._sign_ins,
            show,
            log=server.connection.log,
            seconds=seconds,
            port=port,
            client_id=client_id,
        )

    async def sign_out(self, name: str) -> bool:
        """Forget the tokens of a server; False where there were none. Raises: KeenError."""
        server = self.server(name)
        if server is None:
            raise ToolError(f"The MCP server {name} is not configured.")
        await loaded("keen.extend._mcp_tokens")
        from keen.extend._mcp_tokens import forget

        return await asyncio.to_thread(forget, self._sign_ins, server.config.url)

    async def aclose(self) -> None:
        """End every server and all they started, side by side."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers.values():
                tasks.create_task(server.connection.aclose())

    def _catalogue(self) -> str:
        return catalogue(
            [(part, sorted(server.tools.items())) for part, server in self._servers.items()]
        )

    def _status(self, server: Server) -> ServerStatus:
        config, connection = server.config, server.connection
        state = "running" if connection.is_running else "ended" if connection.failure else None
        if state is None:
            is_approved = self._store.is_approved(config)
            state = "not started" if is_approved else "not approved"
        return ServerStatus(
            config.name,
            config.scope,
            config.origin,
            config.shown,
            state,
            connection.failure if state == "ended" else "",
            tuple(server.tools),
            connection.log.path,
            len(server.resources),
            len(server.prompts),
        )


async def _no_answer(_questions: tuple[Question, ...]) -> tuple[str, ...] | None:
    return None


def _secret_values(environment: Mapping[str, str]) -> Iterable[str]:
    """Values that must not reach a log or a screen, by the names of their variables."""
    return (value for name, value in environment.items() if _SECRET.search(name))


@dataclass(frozen=True, slots=True)
class _McpTool:
    """One tool of a server, called by its full name."""

    server: Server
    name: str
    effect: Effect = "net"

    @property
    def spec(self) -> ToolSpec:
        tool = self.server.tools.get(self.name)
        if tool is None:
            return ToolSpec(self.name, "", {"type": "object"})
        return ToolSpec(self.name, tool.description, tool.schema)

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        async def run() -> Outcome:
            return await self.server.call(self.name, input, context)

        return PreparedCall((Access("mcp", self.name),), run)


class _CallArguments(Arguments):
    """What the model sends to `mcp_call`."""

    example: ClassVar[JsonObject] = {"tool": "mcp__server__tool", "arguments": {}}

    tool: str = Field(description="full name")
    arguments: dict[str, object] = Field(default={}, description="as its schema says")


class _Call:
    """The way to a server's tool for models that can only call what a request declares."""

    effect: Effect = "net"

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self.spec = tool_spec(
            "mcp_call", "Call a tool of an MCP server. mcp_describe names them.", _CallArguments
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        wanted = parse(_CallArguments, input, "mcp_call")
        part, tool = split(wanted.tool)
        server = self._servers.get(part)
        if server is None or not tool:
            servers = ", ".join(f"{PREFIX}{name}__…" for name in self._servers)
            raise ToolError(f"There is no MCP tool {wanted.tool!r}. The servers: {servers}.")
        arguments = input.get("arguments")
        given = arguments if isinstance(arguments, dict) else {}
        return _McpTool(server, wanted.tool).prepare(given, context)


class _DescribeArguments(Arguments):
    """What the model sends to `mcp_describe`."""

    example: ClassVar[JsonObject] = {"names": ["mcp__server__tool"]}

    names: tuple[str, ...] = Field(
        default=(), max_length=_MOST_NAMES, description="full names: gives text and schema"
    )
    search: str = Field(default="", description="words to look for; empty lists all")


class _Describe:
    """Finds tools by words, and says how one is called."""

    effect: Effect = "net"

    def __init__(self, servers: Mapping[str, Server], known: str) -> None:
        self._servers = servers
        self.spec = tool_spec(
            "mcp_describe",
            "Look up tools of MCP servers before calling them by mcp_call or by name.\n" + known,
            _DescribeArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        wanted = parse(_DescribeArguments, input, "mcp_describe")

        async def run() -> Outcome:
            if wanted.names:
                return await self._described(wanted.names, context.ask)
            return await self._found(wanted.search, context.ask)

        return PreparedCall((), run)

    async def _described(self, names: tuple[str, ...], ask: Ask) -> Outcome:
        parts: list[str] = []
        failures = 0
        for name in names:
            server = self._servers.get(split(name)[0])
            try:
                if server is None:
                    raise ToolError(f"There is no MCP tool {name!r}.")
                parts.append(full_text(name, await server.tool(name, ask)))
            except ToolError as error:
                failures += 1
                parts.append(str(error))
        return Outcome("\n\n".join(parts), is_error=failures == len(names))

    async def _found(self, search: str, ask: Ask) -> Outcome:
        troubles = await self._list(ask)
        # Thousands of tools take longer than the screen can wait.
        lines = await asyncio.to_thread(self._lines, search.lower().split())
        nothing = f"No MCP tool has the words {search!r}." if search.split() else _NONE
        return Outcome("\n".join([*(lines or [nothing]), *sorted(troubles)]))

    def _lines(self, words: list[str]) -> list[str]:
        found = [
            (server, name, tool)
            for server in self._servers.values()
            for name, tool in sorted(server.tools.items())
            if all(word in f"{name} {tool.description}".lower() for word in words)
        ]
        lines = [_line(*each) for each in found[:_MOST_FOUND]]
        more = len(found) - len(lines)
        return [*lines, f"and {more} more: search for words"] if more else lines

    async def _list(self, ask: Ask) -> list[str]:
        """List what is not listed yet, side by side; one question at a time. What went wrong."""
        troubles: list[str] = []
        allowed: list[Server] = []
        for server in self._servers.values():
            try:
                await server.approve(ask)
                allowed.append(server)
            except ToolError as error:
                troubles.append(str(error))

        async def look(server: Server) -> None:
            try:
                await server.list(ask)
            except ToolError as error:
                troubles.append(str(error))

        async with asyncio.TaskGroup() as tasks:
            for server in allowed:
                if not server.is_listed:
                    tasks.create_task(look(server))
        return troubles


def _line(server: Server, name: str, tool: ToolText) -> str:
    if not server.is_agreed(tool):
        return f"{name}: (the user has not agreed to this tool as it is now)"
    return f"{name}: {first_words(tool)}"

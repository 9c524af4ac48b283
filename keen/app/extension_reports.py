"""What `/mcp` and `/agents` show: what the person and the project added."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from keen.app.reports import listed
from keen.app.screens.opening import Opening
from keen.app.units import several

if TYPE_CHECKING:
    from keen.engine import Engine
    from keen.extend.mcp import McpServers, ServerStatus


async def mcp(screen: Opening, _argument: str) -> None:
    """Configured MCP servers, how they are, and what they offer."""
    held = _servers(screen.engine)
    if held is not None:
        await held.look()
    servers = await asyncio.to_thread(held.status) if held is not None else ()
    rows = [(server.name, _told(server)) for server in servers]
    listed(screen, "MCP servers", rows, "No MCP server is configured: keen mcp add NAME -- COMMAND")


def _told(server: ServerStatus) -> str:
    state = f"{server.state}: {server.reason}" if server.reason else server.state
    parts = (
        (len(server.tools), "tool"), (server.resources, "resource"), (server.prompts, "prompt"),
    )  # fmt: skip
    offered = "".join(f"{several(count, what)}, " for count, what in parts if count)
    return f"{state}, {offered}{server.shown}  ({server.origin})"


def resources(engine: Engine | None) -> tuple[tuple[str, str], ...]:
    """What can be named behind an @ beside files, and a few words on each."""
    held = _servers(engine)
    return held.resources() if held is not None else ()


def is_to_look(engine: Engine | None) -> bool:
    """True where a server runs that was not asked yet for its resources and prompts."""
    held = _servers(engine)
    return held is not None and held.is_to_look


async def look(engine: Engine | None) -> bool:
    """Ask servers that run what they offer; true where something came."""
    held = _servers(engine)
    if held is None:
        return False
    await held.look()
    return bool(held.resources() or held.prompts())


def _servers(engine: Engine | None) -> McpServers | None:
    extensions = engine.extensions if engine is not None else None
    return extensions.mcp if extensions is not None else None


def agents(screen: Opening, _argument: str) -> None:
    """The profiles that subagents can have."""
    rows: list[tuple[str, str]] = []
    if screen.engine is not None and (extensions := screen.engine.extensions) is not None:
        rows = [
            (name, f"{each.description}  ({each.path or 'built in'})")
            for name, each in extensions.profiles.profiles.items()
        ]
    listed(screen, "Agents", rows, "There are no agents before a model is set up.")

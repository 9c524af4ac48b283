"""What `/mcp`, `/agents` and `/hooks` show: what the person and the project added."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from keen.app.reports import listed
from keen.app.screens.opening import Opening
from keen.app.units import several

if TYPE_CHECKING:
    from keen.extend.mcp import ServerStatus


async def mcp(screen: Opening, _argument: str) -> None:
    """Configured MCP servers, how they are, and what they offer."""
    extensions = screen.engine.extensions if screen.engine is not None else None
    held = extensions.mcp if extensions is not None else None
    servers = await asyncio.to_thread(held.status) if held is not None else ()
    rows = [(server.name, _told(server)) for server in servers]
    listed(screen, "MCP servers", rows, "No MCP server is configured: keen mcp add NAME -- COMMAND")


def _told(server: ServerStatus) -> str:
    state = f"{server.state}: {server.reason}" if server.reason else server.state
    tools = f"{several(len(server.tools), 'tool')}, " if server.tools else ""
    return f"{state}, {tools}{server.shown}  ({server.origin})"


def agents(screen: Opening, _argument: str) -> None:
    """The profiles that subagents can have."""
    rows: list[tuple[str, str]] = []
    if screen.engine is not None and (extensions := screen.engine.extensions) is not None:
        rows = [
            (name, f"{each.description}  ({each.path or 'built in'})")
            for name, each in extensions.profiles.profiles.items()
        ]
    listed(screen, "Agents", rows, "There are no agents before a model is set up.")


def hooks(screen: Opening, _argument: str) -> None:
    """Configured hooks."""
    settings = screen.desk.settings()
    table = settings.hooks if settings is not None else {}
    rows = [
        (event, " ".join(hook.command) + (f"  for {hook.matcher}" if hook.matcher else ""))
        for event, hooks in table.items()
        for hook in hooks
    ]
    listed(screen, "Hooks", rows, "No hook is configured: [[hooks.EVENT]] in config.toml.")

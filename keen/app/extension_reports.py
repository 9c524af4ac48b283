"""What `/mcp` and `/agents` show: what the person and the project added."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from keen import sanitize
from keen.app.reports import listed
from keen.app.screens.opening import Opening
from keen.app.units import several

if TYPE_CHECKING:
    from keen.engine import Engine
    from keen.extend.mcp import McpServers, ServerStatus


async def mcp(screen: Opening, argument: str) -> None:
    """Configured MCP servers, how they are, and what they offer; sign in to one, or out."""
    held = _servers(screen.engine)
    word, _, name = argument.strip().partition(" ")
    if held is not None and name.strip() and word in ("login", "logout"):
        await (_login if word == "login" else _logout)(screen, held, name.strip())
        return
    if word:
        screen.notify_person("/mcp [login NAME|logout NAME]", "warning")
        return
    if held is not None:
        await held.look()
    servers = await asyncio.to_thread(held.status) if held is not None else ()
    rows = [(server.name, _told(server)) for server in servers]
    listed(screen, "MCP servers", rows, "No MCP server is configured: keen mcp add NAME -- COMMAND")


async def _login(screen: Opening, held: McpServers, name: str) -> None:
    from keen.browser import open_page

    async def show(address: str) -> None:
        engine = screen.engine
        cwd = engine.working_directory if engine is not None else Path.cwd()
        opened = await asyncio.to_thread(open_page, address, cwd, dict(os.environ))
        what = "Your browser opens" if opened else "Open"
        screen.say(f"{what} this page to sign in to {sanitize.line(name)}:", "muted")
        screen.say(sanitize.line(address), gap=0)

    is_new = await held.sign_in(name, show)
    shown = sanitize.line(name)
    screen.say(f"Signed in to {shown}." if is_new else f"{shown} needs no sign-in.", "muted")


async def _logout(screen: Opening, held: McpServers, name: str) -> None:
    was = await held.sign_out(name)
    shown = sanitize.line(name)
    screen.say(f"Signed out of {shown}." if was else f"You were not signed in to {shown}.", "muted")


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

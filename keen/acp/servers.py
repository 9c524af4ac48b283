"""MCP servers of an editor in the form that files give them in."""

from __future__ import annotations

from collections.abc import Sequence

from acp.schema import HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from keen import sanitize
from keen.core.messages import Json, JsonObject


def entries(servers: Sequence[object]) -> tuple[JsonObject, tuple[str, ...]]:
    """The servers as `mcpServers` has them, and a sentence for each that keen cannot use."""
    found: JsonObject = {}
    notices: list[str] = []
    for server in servers:
        match server:
            case McpServerStdio():
                env: dict[str, Json] = {one.name: one.value for one in server.env}
                args: list[Json] = [*server.args]
                found[server.name] = {"command": server.command, "args": args, "env": env}
            case HttpMcpServer() | SseMcpServer():
                found[server.name] = {
                    "type": server.type,
                    "url": server.url,
                    "headers": _headers(server.headers),
                }
            case _:
                name = sanitize.line(str(getattr(server, "name", "")))
                notices.append(f"The editor's MCP server {name} is of a kind that keen cannot use.")
    return found, tuple(notices)


def _headers(headers: Sequence[HttpHeader]) -> dict[str, Json]:
    return {header.name: header.value for header in headers}

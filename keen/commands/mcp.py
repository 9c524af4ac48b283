"""`keen mcp`: the configured servers, which are added, tried and approved here."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from keen import _files, sanitize, trust
from keen.browser import open_page
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.parsing import Parser, filled, filled_path
from keen.commands.saying import err, out
from keen.core.errors import ConfigError, ToolError, Transient, Unauthorized, UsageError
from keen.core.events import Question
from keen.core.messages import Json, JsonObject
from keen.extend._mcp_server import Server
from keen.extend._mcp_text import first_words, full_text
from keen.extend.mcp import McpServers
from keen.extend.mcp_config import USER_FILE, ServerConfig, Servers, read_entries, servers

_Work: TypeAlias = Callable[[Server], Awaitable[int]]
_MOST_WHOLE: Final = 200
"""Tools whose whole text is shown; of others the beginning."""
_WEB: Final = ("http://", "https://")


class _ActionParser(Parser):
    """Keeps the words of a command behind `--` as they are, another `--` among them too."""

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        words: list[str] = [*(given[0] if given else named.pop("args", None) or ())]
        # The first word of the command stays, so that it is there is seen as it ever was.
        end = words.index("--") + 2 if "--" in words else len(words)
        found, unknown = super().parse_known_args(words[:end], *given[1:], **named)
        found.behind = words[end:]
        return found, unknown


def add_parser(subparsers: Subparsers) -> None:
    """Add `mcp` with its actions to a parser."""
    parser = subparsers.add_parser("mcp", help="MCP servers")
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_ActionParser
    )
    place = _ActionParser(add_help=False)
    add_place(place)
    place.add_argument("--mcp-config", type=filled_path, metavar="FILE", help="more servers")
    actions.add_parser("list", parents=[place], help="the configured servers")
    named = _ActionParser(add_help=False, parents=[place])
    named.add_argument("name", metavar="NAME", type=filled, help="the server's name")
    added = actions.add_parser("add", parents=[named], help="add a server to your mcp.json")
    added.add_argument(
        "target", nargs="+", metavar="URL | -- COMMAND", help="an address, or a command to start"
    )
    pairs: dict[str, Any] = {"action": "append", "default": []}
    added.add_argument("-e", "--env", metavar="NAME=VALUE", help="a variable for it", **pairs)
    added.add_argument("--header", metavar="NAME: VALUE", help="a header for it", **pairs)
    added.add_argument("--sse", action="store_true", help="the address speaks the older protocol")
    actions.add_parser("remove", parents=[named], help="take a server out of your mcp.json")
    actions.add_parser("test", parents=[named], help="start it and show all the model is told")
    login = actions.add_parser("login", parents=[named], help="sign in to it in the browser")
    login.add_argument("--client-id", default="", help="of a client that the server knows")
    login.add_argument(
        "--port", type=int, default=0, help="the browser comes back to this one; else any"
    )
    actions.add_parser("logout", parents=[named], help="forget its sign-in")
    actions.add_parser("approve", parents=[named], help="allow a project's server, as it is now")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code. Raises: UsageError, ConfigError."""
    place = place_of(arguments)
    match arguments.action:
        case "add":
            return _add(place, arguments)
        case "remove":
            return _remove(place, arguments.name)
        case _:
            pass
    file: Path | None = arguments.mcp_config
    found = _found(place, file.expanduser().absolute() if file is not None else None)
    for notice in found.notices:
        err(f"keen mcp: {notice}")
    if arguments.action == "list":
        return _list(place, found)
    config = next((each for each in found.configs if each.name == arguments.name), None)
    if config is None:
        names = ", ".join(each.name for each in found.configs) or "none"
        raise UsageError(f"There is no MCP server {arguments.name!r} here. Configured: {names}.")
    match arguments.action:
        case "test":
            return asyncio.run(_with_server(place, config, _test))
        case "login":
            port, client_id = arguments.port, arguments.client_id
            return asyncio.run(_login(place, config, port=port, client_id=client_id))
        case "logout":
            return asyncio.run(_logout(place, config))
        case _:
            return asyncio.run(_with_server(place, config, _approve))


def _found(place: Place, file: Path | None) -> Servers:
    root = trust.project_root(place.cwd) if place.is_trusted else None
    return servers(
        place.load().settings,
        root,
        file,
        place.environment,
        user_file=place.paths.config / USER_FILE,
    )


def _list(place: Place, found: Servers) -> int:
    if not found.configs:
        err("No MCP servers. Add one: keen mcp add NAME -- COMMAND, or keen mcp add NAME URL")
        return 0
    for status in _servers(place, found.configs).status():
        state = "not approved" if status.state == "not approved" else status.scope
        known = f"{len(status.tools)} tools" if status.tools else "tools not known yet"
        out(sanitize.line(f"{status.name}  {state}  {known}  {status.shown}  ({status.origin})"))
    return 0


def _add(place: Place, arguments: argparse.Namespace) -> int:
    target: list[str] = [*arguments.target, *arguments.behind]
    environment: JsonObject = {**_pairs(arguments.env, "=", "--env NAME=VALUE")}
    headers: JsonObject = {**_pairs(arguments.header, ":", "--header 'NAME: VALUE'")}
    entry: JsonObject
    if len(target) == 1 and target[0].startswith(_WEB):
        entry = {"type": "sse" if arguments.sse else "http", "url": target[0]}
        if environment:
            raise UsageError("--env is for servers that are started; an address takes --header.")
        entry |= {"headers": headers} if headers else {}
    elif not target or headers or arguments.sse:
        raise UsageError("--header and --sse are for an address. A command stands after --.")
    else:
        words: list[Json] = [*target[1:]]
        entry = {"command": target[0], "args": words}
        entry |= {"env": environment} if environment else {}
    name: str = arguments.name

    def change(value: JsonObject) -> None:
        entries = value.get("mcpServers", {})
        if not isinstance(entries, dict):
            raise ConfigError(f"{file}: mcpServers is no table. Mend or delete it.")
        if name in entries:
            raise ConfigError(f"{file} has a server {name} already. keen mcp remove {name} first.")
        value["mcpServers"] = {**entries, name: entry}

    file = place.paths.config / USER_FILE
    _files.update_json(file, change)
    shown = target[0] if "url" in entry else shlex.join(target)
    out(f"Added {name} to {file}: {shown}\nTry it: keen mcp test {name}")
    return 0


def _remove(place: Place, name: str) -> int:
    file = place.paths.config / USER_FILE
    entries, wrong = read_entries(file)
    if wrong:
        raise ConfigError(wrong)
    if name not in entries:
        raise UsageError(
            f"{file} has no server {name!r}. Servers of config.toml and of a project's .mcp.json "
            "are taken out there."
        )

    def change(value: JsonObject) -> None:
        kept = value.get("mcpServers")
        if isinstance(kept, dict):
            kept.pop(name, None)

    _files.update_json(file, change)
    out(f"Removed {name} from {file}.")
    return 0


def _pairs(texts: Sequence[str], separator: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, middle, value = text.partition(separator)
        if not middle or not name.strip():
            raise UsageError(f"{text.partition(separator)[0]!r} should read {form}.")
        found[name.strip()] = value.strip() if separator == ":" else value
    return found


def _servers(place: Place, configs: Sequence[ServerConfig]) -> McpServers:
    return McpServers(
        configs,
        paths=place.paths,
        cwd=place.cwd,
        roots=(place.cwd,),
        environment=place.environment,
        is_interactive=False,
        is_trusted=place.is_trusted,
    )


async def _with_server(place: Place, config: ServerConfig, work: _Work) -> int:
    held = await asyncio.to_thread(_servers, place, [config])
    server = held.server(config.name)
    assert server is not None
    try:
        return await work(server)
    except ToolError as error:
        err(f"keen mcp: {error}")
        return 1
    finally:
        await held.aclose()


async def _login(place: Place, config: ServerConfig, *, port: int, client_id: str) -> int:
    held = await asyncio.to_thread(_servers, place, [config])

    async def show(address: str) -> None:
        opened = await asyncio.to_thread(open_page, address, place.cwd, place.environment)
        what = "Your browser opens" if opened else "Open"
        err(f"{what} this page to sign in to {config.name}:\n\n  {sanitize.line(address)}\n")

    try:
        is_new = await held.sign_in(config.name, show, port=port, client_id=client_id)
    except (ToolError, Unauthorized, Transient) as error:
        err(f"keen mcp: {error}")
        return 1
    finally:
        await held.aclose()
    name = config.name
    out(f"Signed in to {name}. Try it: keen mcp test {name}" if is_new else f"{name} needs none.")
    return 0


async def _logout(place: Place, config: ServerConfig) -> int:
    held = await asyncio.to_thread(_servers, place, [config])
    was = await held.sign_out(config.name)
    out(f"Signed out of {config.name}." if was else f"You were not signed in to {config.name}.")
    return 0


async def _test(server: Server) -> int:
    tools = await server.list(_nobody)
    for name, tool in sorted(tools.items()):
        mark = "" if server.is_agreed(tool) else "[changed since you agreed] "
        out(f"{mark}{full_text(name, tool)}\n")
    out(f"{server.config.name} works: {len(tools)} tools.")
    return 0


async def _approve(server: Server) -> int:
    name = server.config.name
    out(f"{name} ({server.config.origin}): {server.config.shown}\n")
    tools = await server.looked_over()
    for number, (full, tool) in enumerate(sorted(tools.items())):
        whole = number < _MOST_WHOLE
        out(f"{full_text(full, tool)}\n" if whole else f"{full}: {first_words(tool)}")
    if sys.stdin is not None and sys.stdin.isatty():
        err(f"Use {name} with what it says of its {len(tools)} tools? [y/N]")
        said = await asyncio.to_thread(sys.stdin.readline)
        if said.strip().lower() not in ("y", "yes"):
            err(f"{name} is not approved.")
            return 1
    for full in await server.agree_to_all():
        out(f"agreed to {full} as it is now")
    out(f"Approved {name}. You are asked again when the entry or a tool changes.")
    return 0


async def _nobody(_questions: tuple[Question, ...]) -> tuple[str, ...] | None:
    return None

"""What a message of the person's asks of MCP servers: resources it names, a prompt it calls."""

from __future__ import annotations

import asyncio
import html
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from keen.core.errors import ToolError
from keen.core.events import Emit, Question, QuestionAsked
from keen.core.messages import Image, User
from keen.extend._mcp_names import PREFIX, split
from keen.extend._mcp_server import Ask, Server
from keen.extend._mcp_text import PromptText, visible
from keen.extend.slash import typed
from keen.tools.base import Context
from keen.tools.spill import RESULT_BYTES, bounded

if TYPE_CHECKING:
    from keen.extend.mcp import McpServers

_MOST_RESOURCES: Final = 10
_MOST_TITLE: Final = 200
_MENTION: Final = re.compile(r'(?<![^\s(\[])@(?:"([^"\n]+)"|(\S+))')
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BEHIND: Final = ".,;:!?)]}>'\""
"""Of a sentence around an address, not of the address."""
_END: Final = re.compile(r"<(?=/mcp_resource)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mention:
    """`@server:address` in a message. `server` is None where no server has that name."""

    typed: str
    server: Server | None
    uri: str


def mentions(text: str, servers: McpServers | None) -> tuple[Mention, ...]:
    """The resources that a text names, each of them once."""
    found = {one.typed: one for one in _mentions(text, servers)}
    return tuple({(id(one.server), one.uri): one for one in found.values()}.values())


def _mentions(text: str, servers: McpServers | None) -> Iterator[Mention]:
    for match in _MENTION.finditer(text):
        quoted: str | None = match[1]
        words = quoted if quoted is not None else match[2]
        name, _, uri = words.partition(":")
        server = servers.server(name) if servers is not None and name else None
        if quoted is None and not (server is not None and _is_offered(server, uri)):
            uri = uri.rstrip(_BEHIND)
        # A line of a file (`@a.py:12`) or an address (`@http://…`) names no server.
        if uri and (server is not None or (name and _ADDRESS.match(uri))):
            yield Mention(f"@{name}:{uri}", server, uri)


def is_prompt(text: str, servers: McpServers | None) -> bool:
    """True for a text that calls a prompt of a configured server, whether it exists or not."""
    call = typed(text)
    if servers is None or call is None or not call[0].startswith(PREFIX):
        return False
    return servers.server_of(split(call[0])[0]) is not None


def asking(emit: Emit) -> Ask:
    """Asks the person of a turn that tells its events to `emit`."""

    async def ask(questions: tuple[Question, ...]) -> tuple[str, ...] | None:
        answer: asyncio.Future[tuple[str, ...] | None] = asyncio.Future()

        def reply(value: tuple[str, ...] | None) -> None:
            if not answer.done():
                answer.set_result(value)

        await emit(QuestionAsked(questions, reply))
        return await answer

    return ask


async def with_prompt(user: User, servers: McpServers, context: Context) -> User:
    """The message that a call of a prompt stands for. Raises: ToolError where it cannot be had."""
    call = typed(user.text)
    server = servers.server_of(split(call[0])[0]) if call is not None else None
    if call is None or server is None:
        return user
    name, words = call
    prompt = await server.prompt(name, context.ask)
    said = await server.render(prompt, filled(name, prompt, words), context)
    body = await asyncio.to_thread(_clean, said.output, context)
    if words and not prompt.arguments:
        body = f"{body}\n\nARGUMENTS: {words}"
    first, _, rest = user.text.strip().partition("\n")
    title = first[:_MOST_TITLE] + ("…" if rest or len(first) > _MOST_TITLE else "")
    return replace(user, text=f"[Command: {title}]\n\n{body}", images=(*user.images, *said.images))


def filled(name: str, prompt: PromptText, words: str) -> Mapping[str, str]:
    """Arguments by position, the last one with all that is left. Raises: ToolError."""
    names = [each for each, _ in prompt.arguments]
    values = _words(words)
    if len(values) > len(names) > 0:
        values = [*values[: len(names) - 1], " ".join(values[len(names) - 1 :])]
    missing = [each for each, is_needed in prompt.arguments[len(values) :] if is_needed]
    if missing:
        raise ToolError(
            f"/{name} needs {' and '.join(missing)}. Type: /{name} {prompt.hint} "
            "(quote what has blanks)."
        )
    return dict(zip(names, values, strict=False))


async def with_resources(
    user: User, text: str, servers: McpServers | None, context: Context
) -> tuple[User, tuple[str, ...]]:
    """The message with the resources that `text` names behind it, and what the person should know.

    What cannot be read stays as it was typed.
    """
    found = mentions(text, servers)
    blocks: list[str] = []
    images: list[Image] = []
    notices: list[str] = []
    for one in found[:_MOST_RESOURCES]:
        try:
            block, pictures = await _read(one, servers, context)
        except ToolError as error:
            notices.append(f"{one.typed} was not attached: {error}")
            continue
        blocks.append(block)
        images += pictures
    if left := found[_MOST_RESOURCES:]:
        names = ", ".join(one.typed for one in left)
        notices.append(f"A message takes {_MOST_RESOURCES} resources; not attached: {names}")
    whole = "\n\n".join([user.text, *blocks])
    return replace(user, text=whole, images=(*user.images, *images)), tuple(notices)


async def _read(
    one: Mention, servers: McpServers | None, context: Context
) -> tuple[str, tuple[Image, ...]]:
    if one.server is None:
        name = one.typed[1:].partition(":")[0]
        names = ", ".join(servers.names) if servers is not None else ""
        configured = f"Configured: {names}." if names else "None is configured: see keen mcp add."
        raise ToolError(f"there is no MCP server {name}. {configured}")
    read = await one.server.read_resource(one.uri, context)
    text = await asyncio.to_thread(_clean, read.output, context)
    server, uri = html.escape(one.server.config.name), html.escape(one.uri)
    # What it holds cannot end the part that says where it comes from.
    body = _END.sub("&lt;", text)
    return f'<mcp_resource server="{server}" uri="{uri}">\n{body}\n</mcp_resource>', read.images


def _clean(text: str, context: Context) -> str:
    """Bounded as a file that is read, and without what no person sees."""
    seen, hidden = visible(text)
    note = f"\n[{hidden} invisible characters were left out]" if hidden else ""
    return bounded(seen, RESULT_BYTES, context.scratch, "resource") + note


def _is_offered(server: Server, uri: str) -> bool:
    return any(each.uri == uri for each in server.resources)


def _words(arguments: str) -> list[str]:
    """Arguments parted as a shell parts words; an open quote is a letter like others."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()

"""Asking a wire and keeping what it says: the few lines every wire test needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from keen.core.errors import ProviderError
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import Assistant, Json, Message, Results, ToolResult, ToolSpec, tool_calls
from keen.core.models import Effort, ModelSpec
from keen.wire.base import Delta, Reply, Request, Wire
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider
from tests.fakes.transcripts import Transcript

TOOLS = tuple(
    ToolSpec(
        name,
        f"Use {name}.",
        {
            "type": "object",
            "properties": {field: {"type": "string", "description": f"The {field}."}},
            "required": [field],
            "additionalProperties": False,
        },
    )
    for name, field in (("read_file", "path"), ("glob", "pattern"))
)


@dataclass
class Heard:
    """What a wire said in answer to one request."""

    text: str = ""
    reasoning: str = ""
    deltas: list[Delta] = field(default_factory=list[Delta])
    replies: list[Reply] = field(default_factory=list[Reply])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first delta."""

    @property
    def reply(self) -> Reply:
        """The only reply."""
        (reply,) = self.replies
        return reply

    @property
    def message(self) -> Assistant:
        return self.reply.message

    def hear(self, event: Delta | Reply) -> None:
        """Keep one event. A reply is the last thing a wire says."""
        assert not self.replies, f"{event} came behind the reply"
        self.begun.set()
        match event:
            case TextDelta(text):
                self.text += text
                self.deltas.append(event)
            case ReasoningDelta(text):
                self.reasoning += text
                self.deltas.append(event)
            case Reply():
                self.replies.append(event)


def asking(
    dialect: Dialect,
    *messages: Message,
    system: str = "Be brief.",
    tools: tuple[ToolSpec, ...] = TOOLS,
    output_tokens: int = 8_192,
    effort: Effort | None = None,
    cache_key: str = "session-1",
    model: ModelSpec | None = None,
) -> Request:
    """A request to the dialect's model."""
    return Request(
        model or dialect.model(), system, messages, tools, output_tokens, effort, cache_key
    )


async def hear(wire: Wire, request: Request, heard: Heard | None = None) -> Heard:
    """Send a request and listen to the end. `heard` keeps what came before an error."""
    heard = Heard() if heard is None else heard
    events: AsyncGenerator[Delta | Reply, None] = wire.stream(wire.encode(request))
    async with aclosing(events):
        async for event in events:
            heard.hear(event)
    return heard


async def outcome(
    wire: Wire, request: Request, heard: Heard | None = None
) -> Reply | ProviderError:
    """How a request ends: one of the two ways a wire may end, anything else is raised."""
    try:
        return (await hear(wire, request, heard)).reply
    except ProviderError as error:
        return error


@asynccontextmanager
async def open_wire(
    dialect: Dialect,
    url: str,
    *,
    provider: str = "fake",
    quirks: frozenset[str] = frozenset(),
    idle_seconds: float = 300.0,
) -> AsyncGenerator[Wire]:
    """A wire that is closed at the end."""
    wire = dialect.wire(url, provider=provider, quirks=quirks, idle_seconds=idle_seconds)
    try:
        yield wire
    finally:
        await wire.aclose()


async def sent(
    dialect: Dialect, *messages: Message, tools: tuple[ToolSpec, ...] = TOOLS
) -> Transcript:
    """How the provider reads a history, which it must find nothing wrong with."""
    async with FakeProvider(dialect.says("ok")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            await hear(wire, asking(dialect, *messages, tools=tools))
        assert provider.violations == []
        return dialect.read(provider.requests[0])


async def all_of(attempts: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all of them to their end, then raise the first failure, if there was one."""
    ended = await asyncio.gather(*attempts, return_exceptions=True)
    for failure in filter(None, ended):
        raise failure


def results_of(message: Assistant, *outputs: str) -> Results:
    """One result for each call of an answer, its output from `outputs` or its own id."""
    calls = tool_calls(message)
    said = outputs or tuple(f"output of {call.id}" for call in calls)
    return Results(
        tuple(
            ToolResult(call.id, call.name, output) for call, output in zip(calls, said, strict=True)
        )
    )


def leaves(value: Json | tuple[Json, ...]) -> list[str]:
    """All strings of a JSON value, the two base64 alphabets as one."""
    match value:
        case str():
            return [value.replace("-", "+").replace("_", "/")]
        case dict():
            return [leaf for item in value.values() for leaf in leaves(item)]
        case list() | tuple():
            return [leaf for item in value for leaf in leaves(item)]
        case _:
            return []

"""A turn to play against a fake provider, and what was seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keen.agent.compaction import CheckpointStrategy, Compactor, Summariser
from keen.agent.conversation import Conversation
from keen.agent.sampling import Sampler
from keen.agent.stream import events
from keen.agent.toolbox import Toolbox
from keen.agent.turn import Turn
from keen.core.errors import ToolError
from keen.core.events import Event
from keen.core.messages import JsonObject, ToolSpec, User
from keen.core.models import ModelSpec
from keen.tools.base import Access, Context, Effect, Outcome, PreparedCall, Tool
from keen.tools.permission import Policy
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

SYSTEM = "You are a careful agent in a test."
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


@dataclass
class FakeTool:
    """A tool that answers with fixed output, or runs what it is given."""

    name: str = "read_file"
    output: str = "contents"
    effect: Effect = "read"
    accesses: tuple[Access, ...] = ()
    act: Callable[[JsonObject], Awaitable[Outcome]] | None = None
    ran: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, f"The test tool {self.name}.", SCHEMA)

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        if "path" not in input:
            raise ToolError('path is missing: send {"path": "…"}.')

        async def run() -> Outcome:
            self.ran.append(input)
            return await self.act(input) if self.act else Outcome(self.output)

        return PreparedCall(self.accesses, run)


_OPENED: list[Sampler] = []


def a_sampler(dialect: Dialect, provider: FakeProvider, model: ModelSpec | None = None) -> Sampler:
    """A sampler whose connections `close_all` closes."""
    sampler = Sampler(dialect.wire(provider.url), model or dialect.model())
    _OPENED.append(sampler)
    return sampler


async def close_all() -> None:
    """Close what the samplers of a test opened; unclosed sockets are warnings, and those errors."""
    while _OPENED:
        await _OPENED.pop().wire.aclose()


def a_toolbox(scratch: Path, *tools: Tool, policy: Policy | None = None) -> Toolbox:
    here = scratch.resolve()
    context = Context(cwd=here, roots=(here,), scratch=here / "scratch")
    by_name: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools or (FakeTool(),)}
    return Toolbox(by_name, policy or Policy(context, mode="yolo"), context)


def a_conversation(
    dialect: Dialect,
    provider: FakeProvider,
    scratch: Path,
    *tools: Tool,
    model: ModelSpec | None = None,
    compactor: Callable[[Sampler], Compactor] | None = None,
    policy: Policy | None = None,
) -> Conversation:
    sampler = a_sampler(dialect, provider, model)
    make = compactor or _checkpoints
    return Conversation(
        sampler=sampler,
        toolbox=a_toolbox(scratch, *tools, policy=policy),
        system=SYSTEM,
        compactor=make(sampler),
        cache_key="test",
    )


def _checkpoints(sampler: Sampler) -> Compactor:
    return CheckpointStrategy(Summariser(sampler, "test-compact"))


def a_turn(
    dialect: Dialect,
    provider: FakeProvider,
    scratch: Path,
    *tools: Tool,
    text: str = "fix the parser",
    **model: Any,
) -> Turn:
    conversation = a_conversation(dialect, provider, scratch, *tools, model=dialect.model(**model))
    return conversation.turn(User(text))


Reaction = Callable[[Any], object]


async def play(turn: Turn, on: Mapping[Any, Reaction] | None = None) -> list[Event]:
    """Every event of the turn in order. `on` reacts to the events of a type as they come."""
    seen: list[Event] = []
    async with aclosing(events(turn.run)) as stream:
        async for event in stream:
            seen.append(event)
            reaction = (on or {}).get(type(event))
            if reaction is not None:
                reaction(event)
    return seen


def names(seen: list[Event]) -> list[str]:
    """The events' names, neighbouring deltas as one."""
    found: list[str] = []
    for event in seen:
        name = type(event).__name__
        if not (name.endswith("Delta") and found[-1:] == [name]):
            found.append(name)
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds; the test's own timeout is the limit."""
    while not condition():
        await asyncio.sleep(0)


def small(dialect: Dialect, window: int = 20_000, reserve: int = 2_000) -> ModelSpec:
    """A model whose window a few tool results fill."""
    return replace(dialect.model(window=window, asked_output=reserve), max_output=reserve)

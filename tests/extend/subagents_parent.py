"""A conversation that can start subagents, and a provider that plays all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keen.agent.compaction import CheckpointStrategy, Compactor, Summariser
from keen.agent.conversation import Conversation
from keen.agent.sampling import Sampler
from keen.agent.stream import events
from keen.agent.toolbox import Toolbox
from keen.agent.turn import Limits, Turn
from keen.core.events import Event, SubagentProgress
from keen.core.messages import Json, JsonObject, Results, User
from keen.core.models import ModelSpec
from keen.extend.profiles import BUILT_IN, Profile, Profiles
from keen.extend.subagents import Parts, Subagents
from keen.tools.base import Context, Tool
from keen.tools.file_memory import FileMemory
from keen.tools.jobs import Jobs
from keen.tools.permission import Mode, Policy
from keen.tools.permission.rules import Kind, parse_rule
from keen.toolset import built_in_tools
from tests.agent.playing import SYSTEM, a_sampler
from tests.fakes.dialects import Dialect
from tests.fakes.script import Recorded, Scripted, json_reply
from tests.fakes.server import FakeProvider
from tests.fakes.transcripts import Transcript

CHILD = "You are the subagent"
SUMMARISER = "You write the checkpoint"


@dataclass
class Cast:
    """Answers the conversation from one list, and each subagent from the list of its prompt.

    `children`: a word of a prompt, and the answers to whoever was given that prompt.
    """

    dialect: Dialect
    parent: list[Scripted]
    children: dict[str, list[Scripted]]
    summaries: list[Scripted] = field(default_factory=list[Scripted])
    seen: dict[str, list[Transcript]] = field(default_factory=dict[str, list[Transcript]])

    def __call__(self, request: Recorded) -> Scripted:
        asked = self.dialect.read(request)
        if asked.system.startswith(SUMMARISER):
            self.seen.setdefault("summary", []).append(asked)
            return self.summaries.pop(0)
        if CHILD not in asked.system:
            self.seen.setdefault("", []).append(asked)
            return self.parent.pop(0)
        word = next(word for word in self.children if word in asked.messages[0].text)
        self.seen.setdefault(word, []).append(asked)
        answers = self.children[word]
        return answers.pop(0) if answers else json_reply(401, f"{word} asks too often")


@dataclass
class Parent:
    """The conversation and its subagents."""

    talk: Conversation
    subagents: Subagents

    @property
    def sampler(self) -> Sampler:
        return self.talk.sampler

    @property
    def policy(self) -> Policy:
        return self.talk.toolbox.policy

    def turn(self, limits: Limits | None = None) -> Turn:
        self.subagents.parts.limits = lambda: limits
        return self.talk.turn(User("share this out"), limits)


def a_policy(
    place: Path,
    *,
    mode: Mode = "build",
    rules: Sequence[tuple[str, Kind]] = (),
    is_interactive: bool = True,
) -> Policy:
    here = place.resolve()
    context = Context(cwd=here, roots=(here,), scratch=here / "scratch", environment=_ENVIRONMENT)
    made = [parse_rule(text, kind, "user") for text, kind in rules]
    return Policy(context, mode=mode, rules=made, is_interactive=is_interactive)


_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def tools_of(policy: Policy, jobs: Jobs) -> Mapping[str, Tool]:
    """The built-in tools, without a sandbox."""
    return built_in_tools(
        FileMemory(),
        jobs,
        is_left_out=policy.is_unreadable,
        is_interactive=policy.is_interactive,
    )


def checkpoints(sampler: Sampler, other: Sampler | None) -> tuple[Compactor, bool]:
    payer = sampler if other is not None else None
    return CheckpointStrategy(Summariser(other or sampler, "child", payer=payer)), True


def a_parent(
    dialect: Dialect,
    provider: FakeProvider,
    policy: Policy,
    *profiles: Profile,
    model: ModelSpec | None = None,
    make_tools: Callable[[Policy, Jobs], Mapping[str, Tool]] = tools_of,
    make_sampler: Callable[[str], Awaitable[Sampler]] | None = None,
    summariser: Sampler | None = None,
) -> Parent:
    sampler = a_sampler(dialect, provider, model)
    parts = Parts(
        sampler=sampler,
        policy=policy,
        make_tools=make_tools,
        strategy=checkpoints,
        system=lambda _tools: SYSTEM,
        summariser=summariser,
        cache_key="session",
    )
    if make_sampler is not None:
        parts.make_sampler = make_sampler
    known = {profile.name: profile for profile in (*BUILT_IN, *profiles)}
    subagents = Subagents(parts, Profiles(known))
    toolbox = Toolbox({"task": subagents.tool()}, policy, policy.context)
    talk = Conversation(
        sampler=sampler, toolbox=toolbox, system=SYSTEM, scratch=policy.context.scratch
    )
    return Parent(talk, subagents)


def tasks(dialect: Dialect, *wanted: tuple[str, str]) -> Scripted:
    """A call of `task` with these agents and prompts."""
    given: list[Json] = [
        {"agent": agent, "prompt": prompt} if agent else {"prompt": prompt}
        for agent, prompt in wanted
    ]
    arguments: JsonObject = {"tasks": given}
    return dialect.calls("task", **arguments)


@dataclass
class Played:
    """The events of a turn, and what the model read of its `task` call."""

    events: list[Event]
    turn: Turn

    @property
    def result(self) -> str:
        return self._results()[0].output

    @property
    def is_error(self) -> bool:
        return self._results()[0].is_error

    def _results(self) -> Any:
        return next(m for m in self.turn.history if isinstance(m, Results)).results

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def events_of_rows(self, number: int) -> list[SubagentProgress]:
        """Everything that was said of one subagent."""
        return [row for row in self.of(SubagentProgress) if row.number == number]

    @property
    def last_rows(self) -> dict[int, SubagentProgress]:
        """What was said last of each subagent."""
        return {row.number: row for row in self.of(SubagentProgress)}


async def played(
    turn: Turn, on: Mapping[Any, Callable[[Any], object]] | None = None, into: Played | None = None
) -> Played:
    """Play a turn to its end; `into` is filled while it goes on."""
    played = into or Played([], turn)
    async with aclosing(events(turn.run)) as stream:
        async for event in stream:
            played.events.append(event)
            reaction = (on or {}).get(type(event))
            if reaction is not None:
                reaction(event)
    return played

"""One subagent: a conversation of its own, in memory alone, of which only the end is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from keen.agent.compaction import Compactor
from keen.agent.conversation import Conversation
from keen.agent.gate import OPEN, Gate
from keen.agent.sampling import Sampler
from keen.agent.toolbox import Toolbox
from keen.agent.turn import Limits
from keen.core.errors import ConfigError
from keen.core.events import (
    CompactionStarted,
    Event,
    PermissionRequested,
    QuestionAsked,
    ReasoningDelta,
    Rewound,
    Stop,
    SubagentProgress,
    SubagentState,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import (
    Assistant,
    History,
    JsonObject,
    ToolCall,
    ToolSpec,
    Usage,
    User,
    visible_text,
)
from keen.core.models import ModelSpec
from keen.extend._subagents_ledger import Ledger
from keen.extend._subagents_result import Report, Status
from keen.extend.profiles import Profile
from keen.tools.base import Context, Effect, PreparedCall, Tool
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.wire.base import Wire

MakeTools: TypeAlias = Callable[[Policy, Jobs], Mapping[str, Tool]]
"""The tools of one subagent under its policy, their commands in its jobs."""
FindTool: TypeAlias = Callable[[str], Tool | None]

_NEVER: Final = frozenset({"task", "recall", "todo"})
"""Tools of the conversation alone: its subagents, its log, the list that the person sees."""
_MOST_DOING: Final = 200
_MOST_KEY: Final = 24
_ROLE: Final = """\
You are the subagent {name}. Another agent gave you the one task in the message below; you know \
nothing else of its conversation, and nobody reads what you write on the way. Only your last \
answer goes back to it: let it stand on its own, say what you found or did, with path:line, and \
what failed, was refused or is open. You start no subagents."""
_STOPS: Final[Mapping[Stop, tuple[Status, str]]] = {
    "done": ("done", ""),
    "length": ("failed", "its answer was cut at the output limit"),
    "refused": ("failed", "its model declined to go on"),
    "max_turns": ("interrupted", "the limit of answers was reached"),
    "budget": ("interrupted", "the budget of this run was reached"),
}


def _no_limits() -> Limits | None:
    return None


def _open_gate(_label: str) -> Gate:
    return OPEN


def _no_tool(_name: str) -> Tool | None:
    return None


async def _no_other_model(name: str) -> Sampler:
    raise ConfigError(f"its model {name} cannot be used here")


@dataclass
class Parts:
    """What the subagents of one conversation are made of."""

    sampler: Sampler
    """The conversation's own: its model is theirs, and what they spend is booked on it."""
    policy: Policy
    """The conversation's own: theirs are made of it, never wider."""
    make_tools: MakeTools
    strategy: Callable[[Sampler, Sampler | None], tuple[Compactor, bool]]
    """The compactor of a sampler and whether it acts by itself; the other one, where there is one,
    writes the summaries."""
    system: Callable[[Collection[str]], str]
    """The conversation's system prompt as it would be with the tools of these names."""
    summariser: Sampler | None = None
    """Another model that writes the summaries; each subagent asks it on its own account."""
    make_sampler: Callable[[str], Awaitable[Sampler]] = _no_other_model
    """A sampler for PROVIDER/MODEL[:EFFORT] with a wire of its own. Raises: ConfigError."""
    gate: Callable[[str], Gate] = _open_gate
    """Who watches the subagent of this label."""
    undeclared: FindTool = _no_tool
    """Finds tools of the conversation that its requests leave out."""
    limits: Callable[[], Limits | None] = _no_limits
    """What the run may spend, at present."""
    cache_key: str = ""
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A tool whose calls are judged in the mode that holds when they are made."""

    tool: Tool
    settle: Callable[[], None]

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    @property
    def effect(self) -> Effect:
        return self.tool.effect

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        self.settle()
        return self.tool.prepare(input, context)


@dataclass
class Child:
    """One task and the conversation that carries it out. It is `Limits` to its own turn."""

    parts: Parts
    profile: Profile
    number: int
    """Its place in the call, from 1."""
    label: str
    """What it is called where several have the same profile."""
    context: Context
    """Of the call that started it."""
    state: SubagentState = "queued"
    doing: str = ""
    tools: int = 0
    _began: float | None = None
    _sampler: Sampler | None = None
    _summariser: Sampler | None = None
    _booked: Usage = field(default_factory=Usage)
    _booked_requests: int = 0
    _booked_summaries: Usage = field(default_factory=Usage)
    _origin: tuple[Wire, ModelSpec] | None = None
    """Wire and model of the conversation when it started."""
    _end: tuple[Status, str] = ("interrupted", "")

    async def run(self, prompt: str) -> Report:
        """Carry the task out. When this returns or raises, nothing of it is left running.

        Raises: ConfigError for a model that is not set up.
        """
        jobs = Jobs()
        self._began = time.monotonic()
        self.state = "running"
        await self.tell()
        sampler, is_own = await self._open_sampler()
        try:
            talk = self._conversation(sampler, jobs)
            text = await asyncio.to_thread(talk.sendable, prompt)
            turn = talk.turn(User(text), self)
            await talk.run(turn, self._watch)
            return self._report(turn.history)
        finally:
            self._book()
            if not is_own:
                self._teach(sampler)
            await jobs.aclose()
            if is_own:
                await sampler.wire.aclose()

    async def tell(self) -> None:
        """Say where it stands."""
        sampler = self._sampler
        await self.context.forward(
            SubagentProgress(
                self.number,
                self.label,
                self.state,
                self.doing,
                self.tools,
                sampler.spent.total_tokens if sampler is not None else 0,
                time.monotonic() - self._began if self._began is not None else 0.0,
            )
        )

    async def end(self, report: Report) -> None:
        """Say how it ended."""
        self.state = report.status
        self.doing = report.reason
        await self.tell()

    def reached(self, answers: int, spent: Usage) -> Stop | None:
        """Why no further request may be sent: what it spends is spent of the whole run's budget."""
        del answers, spent
        self._book()
        limits = self.parts.limits()
        return limits.reached(0, self.parts.sampler.spent) if limits is not None else None

    async def _open_sampler(self) -> tuple[Sampler, bool]:
        """A sampler of its own, and whether its wire is its own too."""
        parent = self.parts.sampler
        self._origin = (parent.wire, parent.model)
        is_own = bool(self.profile.model)
        if is_own:
            sampler = await self.parts.make_sampler(self.profile.model)
        else:
            sampler = parent.beside()
        self._sampler = sampler
        if (other := self.parts.summariser) is not None:
            self._summariser = other.beside()
        return sampler, is_own

    def _conversation(self, sampler: Sampler, jobs: Jobs) -> Conversation:
        policy = self.parts.policy.restricted(mode=self.profile.mode)

        def settle() -> None:
            """The person may switch the mode meanwhile; a profile that only reads stays so."""
            policy.set_mode(self.profile.mode or self.parts.policy.mode)

        def bound(tool: Tool | None) -> Tool | None:
            if tool is None or tool.spec.name in _NEVER or not self.profile.has(tool.spec.name):
                return None
            return _Bound(tool, settle)

        given = dict(self.parts.make_tools(policy, jobs))
        for name in self.profile.tools or ():
            if name not in given and (found := self.parts.undeclared(name)) is not None:
                given[name] = found
        tools = {name: kept for name, tool in given.items() if (kept := bound(tool)) is not None}
        gate = self.parts.gate(self.label)
        toolbox = Toolbox(
            tools,
            policy,
            replace(self.context, search=None),
            lambda name: bound(self.parts.undeclared(name)),
            gate=gate,
        )
        compactor, is_automatic = self.parts.strategy(sampler, self._summariser)
        key = self.parts.cache_key
        return Conversation(
            sampler=sampler,
            toolbox=toolbox,
            system=self._system(tools),
            compactor=compactor,
            is_automatic=is_automatic,
            cache_key=f"{key}-{self.profile.name[:_MOST_KEY]}" if key else "",
            scratch=self.context.scratch,
            gate=gate,
        )

    def _system(self, tools: Collection[str]) -> str:
        words = (self.parts.system(tools), _ROLE.format(name=self.profile.name), self.profile.body)
        return "\n\n".join(filter(None, words))

    async def _watch(self, event: Event) -> None:
        """Sees what happens in the conversation; of it, only questions are told as they are."""
        match event:
            case TextDelta() | ReasoningDelta():
                await self._does("writes" if isinstance(event, TextDelta) else "thinks")
                return
            case PermissionRequested() | QuestionAsked():
                await self._does(_asked(event))
                await self.context.forward(replace(event, agent=self.label))
            case ToolStarted(call=call):
                await self._does(_in_a_line(call))
            case ToolFinished():
                self.tools += 1
                await self.tell()
            case Rewound(delay=delay, detail=detail):
                await self._does(f"tries again in {delay:.0f} s: {detail}")
            case CompactionStarted():
                await self._does("compacts its conversation")
            case TurnFinished(stop=stop):
                self._end = _STOPS[stop]
            case TurnFailed(error=error):
                self._end = ("failed", str(error))
            case _:
                pass
        self._book()

    async def _does(self, what: str) -> None:
        if (what := what[:_MOST_DOING]) != self.doing:
            self.doing = what
            await self.tell()

    def _report(self, history: History) -> Report:
        status, reason = self._end
        return Report(self.label, status, _last_words(history), reason)

    def _teach(self, sampler: Sampler) -> None:
        """Let the conversation know what refusals taught, unless it has learned since."""
        parent = self.parts.sampler
        if self._origin is None:
            return
        wire, model = self._origin
        if parent.wire is wire and parent.model is model:
            parent.wire, parent.model = sampler.wire, sampler.model

    def _book(self) -> None:
        """Put what was spent since the last time on the conversation's account."""
        sampler, parent = self._sampler, self.parts.sampler
        if sampler is None:
            return
        spent = sampler.spent - self._booked
        parent.spent += spent
        parent.requests += sampler.requests - self._booked_requests
        self._booked, self._booked_requests = sampler.spent, sampler.requests
        if (other := self._summariser) is not None:
            summaries = other.spent - self._booked_summaries
            self._booked_summaries = other.spent
            self.parts.ledger.add(other.model, summaries)
            spent -= summaries
        if sampler.model.name != parent.model.name:
            self.parts.ledger.add(sampler.model, spent)


def _asked(event: PermissionRequested | QuestionAsked) -> str:
    if isinstance(event, QuestionAsked):
        return "asks a question"
    return f"asks: {_in_a_line(event.call)}"


def _in_a_line(call: ToolCall) -> str:
    """A call by its name and its first argument that is text."""
    about = next((value for value in call.input.values() if isinstance(value, str)), "")
    return " ".join(f"{call.name} {about[:_MOST_DOING]}".split())


def _last_words(history: History) -> str:
    """The last answer with visible text; an earlier one where the last says nothing."""
    answers = (message for message in reversed(history) if isinstance(message, Assistant))
    return next((text for answer in answers if (text := visible_text(answer)).strip()), "")

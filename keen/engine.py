"""A conversation with its session and its limits: what the app and `keen run` drive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

from keen._settings import Settings
from keen.agent.conversation import Conversation
from keen.agent.turn import Stop, Turn
from keen.core.events import Emit, Event, TurnFailed
from keen.core.messages import Usage, User
from keen.core.models import Price
from keen.session.checkpoint import Recorder
from keen.tools.jobs import Jobs


@dataclass(frozen=True, slots=True)
class RunLimits:
    """--max-turns, --max-tokens and --max-budget-usd; None is no limit."""

    answers: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    price: Price | None = None

    def reached(self, answers: int, spent: Usage) -> Stop | None:
        """Why no further request may be sent, or None."""
        if self.answers is not None and answers >= self.answers:
            return "max_turns"
        if self.tokens is not None and spent.total_tokens >= self.tokens:
            return "budget"
        if self.dollars is not None and self.price is not None:
            return "budget" if self.price.cost(spent) >= self.dollars else None
        return None


@dataclass
class Engine:
    """A conversation with its session, as the app and `keen run` drive it."""

    conversation: Conversation
    recorder: Recorder | None
    settings: Settings
    working_directory: Path
    jobs: Jobs
    notices: tuple[str, ...] = ()
    """What the person should know before the first turn, one line each."""
    limits: RunLimits | None = None
    turn: Turn | None = field(default=None)
    """The running turn: steering goes there."""

    @property
    def session_id(self) -> str | None:
        return self.recorder.session_id if self.recorder is not None else None

    @property
    def cwd(self) -> str:
        return str(self.working_directory)

    @property
    def model(self) -> str:
        return self.conversation.sampler.model.name

    @property
    def requests(self) -> int:
        return self.conversation.sampler.requests

    @property
    def usage(self) -> Usage:
        return self.conversation.sampler.spent

    @property
    def cost_usd(self) -> float | None:
        price = self.conversation.sampler.model.price
        return round(price.cost(self.usage), 6) if price is not None else None

    async def run(self, user: User, emit: Emit) -> None:
        """One turn, recorded; however it ends, session and history are whole afterwards."""
        text = await asyncio.to_thread(self.conversation.sendable, user.text)
        user = replace(user, text=text)
        before = self.usage
        turn = self.turn = self.conversation.turn(user, self.limits)
        if self.recorder is None:
            await self.conversation.run(turn, emit)
            return
        await self.recorder.user_message(user)
        failed: list[str] = []

        async def watch(event: Event) -> None:
            if isinstance(event, TurnFailed):
                failed.append(str(event.error))
            await emit(event)

        is_interrupted = True
        try:
            await self.conversation.run(turn, self.recorder.tap(watch))
            is_interrupted = False
        finally:
            self.turn = None
            await self.recorder.finish(
                is_interrupted,
                failed[0] if failed else None,
                self.usage - before,
                self.conversation.sampler.meter.reported or 0,
                turn.history,
            )

    async def aclose(self) -> None:
        """Stop background commands, let connections and session go. Idempotent."""
        try:
            await self.jobs.aclose()
            await self.conversation.sampler.wire.aclose()
        finally:
            if self.recorder is not None:
                await self.recorder.aclose()

"""One request, sent until it is answered or refused for good: each refusal has its one reaction.

What a refusal for size means is the turn's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from keen.agent.measure import Meter
from keen.agent.retry import Schedule
from keen.agent.view import View
from keen.core.budget import Budget, output_reserve
from keen.core.errors import (
    BadImage,
    ConfigError,
    ContextOverflow,
    KeenError,
    MalformedHistory,
    OutputReserve,
    ProviderError,
    Quirk,
    Rejected,
    TooMany,
    TooManyBytes,
    Transient,
    Unauthorized,
)
from keen.core.events import Emit, Rewound
from keen.core.messages import History, Usage, is_empty, visible_text
from keen.core.models import Effort, ModelSpec
from keen.wire.base import Body, Reply, Request, Wire

LEAST_LEARNED: Final = 16_384
"""A refused request smaller than this teaches nothing about the window."""
_LEAST_OUTPUT: Final = 1_024
"""Output tokens under which an answer would only be cut off: then the input is too large."""
_LIKELY_OVERFLOW: Final = 80
"""Percent of the effective budget from which an unexplained 400 is taken for an overflow."""


@dataclass
class Sampler:
    """One wire and one model, and what refusals taught about them in this session."""

    wire: Wire
    model: ModelSpec
    threshold: int = 90
    effort: Effort | None = None
    meter: Meter = field(default_factory=Meter)
    view: View = field(default_factory=View)
    requests: int = 0
    """Model requests sent, retries and compactions included."""
    spent: Usage = field(default_factory=Usage)
    """Tokens of everything sent, compactions included."""
    summarises_with: str = ""
    """The model that writes the summaries, as PROVIDER/MODEL; empty: this one."""
    _last: tuple[Wire, Request, Body] | None = None

    @property
    def reserve(self) -> int:
        """Output tokens each request asks for, and the budget keeps free."""
        asked = self.wire.asked_output(self.model)
        if self.model.max_output is not None:
            asked = min(asked, self.model.max_output)
        return output_reserve(self.model.window, asked)

    @property
    def budget(self) -> Budget:
        return Budget(self.model.window, self.reserve, self.model.max_input, self.threshold)

    def beside(self) -> Sampler:
        """The same wire and model for requests of its own, measured and counted apart."""
        return replace(
            self, meter=Meter(self.meter.ratio), view=View(), requests=0, spent=Usage(), _last=None
        )

    def book(self, other: Sampler) -> None:
        """Count what `other` sent as sent here too."""
        self.requests += other.requests
        self.spent += other.spent

    def request(self, request: Request) -> Request:
        """`request` as this sampler sends it: its model, its output cap, its reductions."""
        return replace(
            request,
            model=self.model,
            effort=self.effort,
            output_tokens=min(request.output_tokens, self.reserve),
            messages=self.view.apply(request.messages),
        )

    def encode(self, request: Request) -> Body:
        """The body of `request`; the last one is kept, since a step measures before it sends."""
        made = self.request(request)
        if self._last is not None:
            wire, before, body = self._last
            # The same history is the same object: comparing its messages would walk all of them.
            is_same = wire is self.wire and before.messages is made.messages
            if is_same and before == made:
                return body
        body = self.wire.encode(made)
        self._last = (self.wire, made, body)
        return body

    def measure(self, request: Request) -> int:
        """Tokens of `request` as it would be sent."""
        return self.meter.measure(self.encode(request))

    def size_of(self, request: Request) -> int:
        """Tokens of `request`, nothing reduced and no report used."""
        return Meter(self.meter.ratio).measure(self.wire.encode(request))

    def prune(self, calls: set[str]) -> None:
        """Send a line in place of these calls' results from now on."""
        self.view.prune(calls)
        self.meter.recount()

    def forget_history(self) -> None:
        """Nothing that was measured or reduced so far holds for the next request."""
        self.meter.reset()
        self.view.reset()

    async def sample(self, request: Request, emit: Emit) -> Reply:
        """One answer.

        Raises:
            ContextOverflow: refused for its size, `actual` being at least our own measure.
            ProviderError: refused for good, or not answered within the retry schedule.
        """
        reactions = _Reactions(self, request)
        schedule = Schedule()
        empties = 0
        while True:
            body = self.encode(reactions.request)
            try:
                return await self._read(body, emit)
            except Transient as error:
                empties += error.is_empty
                if self.model.is_local and empties > 1:
                    # llama.cpp's server says so when a streamed request exceeds its context.
                    raise ContextOverflow(str(error), status=error.status) from error
                delay = schedule.delay(error)
                if delay is None:
                    raise
                await emit(Rewound("transient", schedule.attempt, delay, str(error)))
                await asyncio.sleep(delay)
            except ProviderError as error:
                await reactions.to(error, body)

    async def _read(self, body: Body, emit: Emit) -> Reply:
        self.requests += 1
        try:
            async with aclosing(self.wire.stream(body)) as stream:
                async for item in stream:
                    if isinstance(item, Reply):
                        return self._checked(item, body)
                    await emit(item)
        except KeenError as error:
            self.requests -= not _has_left(error)
            raise
        raise Transient("The stream ended without an answer.")

    def _checked(self, reply: Reply, body: Body) -> Reply:
        """The reply, booked; or the refusal that it really was."""
        if reply.usage is None or not reply.usage.input_tokens:
            # Counts of zero are a server's way of not counting.
            return replace(reply, usage=None)
        self.spent += reply.usage
        reported = reply.usage.input_tokens
        if self._is_silently_cut(reported, body):
            raise ContextOverflow(
                f"The local server kept only {reported:,} tokens of the prompt: its context is "
                "smaller than configured. Start it with a larger context, or set context_window.",
                limit=reported,
            )
        if is_empty(reply.message) and reply.finish == "length":
            # Some servers answer an overflow with an empty, successful "length".
            if reported * 100 >= self.model.window * 99:
                raise ContextOverflow("The prompt fills the model's window.", actual=reported)
        elif reply.finish == "overflow" and not visible_text(reply.message):
            raise ContextOverflow("The answer filled the model's window.", actual=reported)
        self.meter.report(body, reported)
        return reply

    def _is_silently_cut(self, reported: int, body: Body) -> bool:
        """True when a local server counted less than last time although the history only grew."""
        before = self.meter.reported
        return (
            self.model.is_local
            and before is not None
            and 0 < reported < before
            and reported < self.meter.measure(body)
        )

    def learn_from(self, refusal: ContextOverflow, request: Request) -> None:
        """A refusal for size teaches the window for the rest of the session.

        The limit the provider named; else 95 % of what was refused. Both count as a window, so that
        margin and reserve shrink with it.
        """
        body = self.encode(request)
        self.meter.raise_to(body, refusal.actual or refusal.limit or 0)
        measured = self.meter.measure(body)
        if measured < LEAST_LEARNED and refusal.limit is None:
            return
        window = refusal.limit
        if window is None or window >= self.model.window:
            window = measured * 95 // 100 + self.reserve
        window = max(LEAST_LEARNED, window)
        if window < self.model.window:
            self.model = replace(self.model, window=window, max_input=None)


def _has_left(error: KeenError) -> bool:
    """False when no request went out: no key, no connection, no way there."""
    match error:
        case ConfigError() | Unauthorized(status=None) | Transient(is_unsent=True):
            return False
        case _:
            return True


@dataclass
class _Reactions:
    """The reactions to the refusals of one request, each at most once."""

    sampler: Sampler
    request: Request
    done: set[str] = field(default_factory=set[str])

    async def to(self, error: ProviderError, body: Body) -> None:
        """Change what is sent next, or raise what the turn has to deal with."""
        match error:
            case Quirk():
                self._once(f"quirk {error.field}", error)
                self.sampler.wire = self.sampler.wire.without(error.field)
            case OutputReserve():
                self._lower_output(error, body)
            case TooManyBytes():
                self._reduce("bytes", self.sampler.view.shrink, error)
            case BadImage():
                self._drop_images(error)
            case MalformedHistory():
                self._reduce("malformed", self.sampler.view.drop_natives, error)
            case TooMany():
                raise ContextOverflow(str(error), status=error.status) from error
            case Unauthorized():
                self._once("renew", error)
                if not await self.sampler.wire.endpoint.credential.renew():
                    raise error
            case Rejected() if self._is_likely_overflow(error, body):
                raise ContextOverflow(str(error), status=error.status) from error
            case _:
                raise error

    def _once(self, reaction: str, error: ProviderError) -> None:
        if reaction in self.done:
            raise error
        self.done.add(reaction)

    def _lower_output(self, error: OutputReserve, body: Body) -> None:
        """Ask for less output; refused again, an output that does not fit is an input too large."""
        if "output" in self.done:
            if error.is_range:
                raise Rejected(str(error), status=error.status) from error
            raise ContextOverflow(str(error), status=error.status) from error
        self.done.add("output")
        asked = self.sampler.request(self.request).output_tokens
        lowered = min(error.limit or asked // 2, asked - 1)
        if lowered < (1 if error.is_range else _LEAST_OUTPUT):
            raise ContextOverflow(str(error), status=error.status) from error
        if error.is_range:
            self.sampler.model = replace(self.sampler.model, max_output=lowered)
        self.request = replace(self.request, output_tokens=lowered)

    def _reduce(
        self, name: str, reduction: Callable[[History], bool], error: ProviderError
    ) -> None:
        """Send less of the history, once; bytes refused again are a matter of compaction."""
        is_bytes = isinstance(error, TooManyBytes)
        if name in self.done or not (reduction(self.request.messages) or name == "malformed"):
            if is_bytes:
                raise ContextOverflow(str(error), status=error.status) from error
            raise error
        self.done.add(name)
        self.sampler.meter.recount()

    def _drop_images(self, error: BadImage) -> None:
        if not self.sampler.view.drop_images(self.request.messages):
            raise error
        self.sampler.meter.recount()

    def _is_likely_overflow(self, error: Rejected, body: Body) -> bool:
        """An unexplained 400 for a nearly full request; the classifier knows no wording for it."""
        if error.status not in (400, 413, 422):
            return False
        measured = self.sampler.meter.measure(body)
        return measured * 100 >= self.sampler.budget.effective * _LIKELY_OVERFLOW

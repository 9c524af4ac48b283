"""From a history that grew too large to the one that replaces it; nothing is changed on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, TypeAlias

from keen.agent import prompts
from keen.agent.flatten import flattened
from keen.agent.sampling import Sampler
from keen.core.errors import CompactionError, ContextOverflow
from keen.core.estimate import image_tokens, text_tokens
from keen.core.events import Emit, Event
from keen.core.messages import (
    Assistant,
    Checkpoint,
    History,
    Message,
    Reasoning,
    Results,
    Text,
    User,
    tool_calls,
    visible_text,
)
from keen.wire.base import Request

Strategy: TypeAlias = Literal["checkpoint", "recent", "window", "off"]

_REQUESTS: Final = 6
"""Summary requests at most, each at most half the size of the one refused before."""


@dataclass(frozen=True, slots=True)
class Job:
    """One compaction to be done. `live` are the user messages of the running turn, in order.

    `emit` sees the deltas of the summary request: a manual compaction shows them, an automatic one
    keeps them private.
    """

    history: History
    live: tuple[User, ...]
    is_automatic: bool = True
    focus: str = ""
    emit: Emit | None = None


class Compactor(Protocol):
    """One strategy. The loop does not know which it has."""

    async def replacement(self, job: Job) -> History:
        """The history that takes the place of `job.history`.

        Raises:
            CompactionError: nothing valid came out; the message is the reason.
            ProviderError: the summary request failed.
        """
        ...


def has_something_to_summarise(history: History, live: Sequence[User]) -> bool:
    """False for a history of live messages and an earlier replacement alone: nothing is new."""
    kept = {id(user) for user in live}
    return any(
        not isinstance(message, User) or (message.checkpoint is None and id(message) not in kept)
        for message in history
    )


def checkpoint_message(summary: str, live: Sequence[User], *, is_automatic: bool) -> User:
    """The one message that replaces a history; images of live messages stay attached."""
    said = tuple(text for user in live for text in user_texts(user))
    images = tuple(image for user in live for image in user.images)
    text = prompts.wrapped(summary, said, is_automatic=is_automatic)
    return User(text, images=images, checkpoint=Checkpoint(summary, said))


def user_texts(user: User) -> tuple[str, ...]:
    """What the person said in a message: a replacement's own user messages, never its wrapper."""
    return user.checkpoint.user_messages if user.checkpoint is not None else (user.text,)


@dataclass
class Summariser:
    """Asks a model for the summary of a history in a private request of its own.

    What it costs is booked also when the request fails: on `sampler`, and on `payer`, the
    conversation's own sampler, where that is another one.
    """

    sampler: Sampler
    cache_key: str = ""
    payer: Sampler | None = None

    async def summary(self, job: Job) -> str:
        """The summary text.

        Raises:
            CompactionError: empty, cut, refused or too large in every form.
            ProviderError: the request failed for another reason than its size.
        """
        sampler = self.sampler
        nested = sampler.beside()
        nested.effort = sampler.effort if self.payer is not None else None
        try:
            return await self._asked(nested, job)
        finally:
            for account in filter(None, (sampler, self.payer)):
                account.book(nested)
            sampler.wire, sampler.model = nested.wire, nested.model

    async def _asked(self, nested: Sampler, job: Job) -> str:
        system = prompts.compaction_system(is_automatic=job.is_automatic)
        limit = _room(nested, system, job.focus)
        for _ in range(_REQUESTS):
            transcript = flattened(job.history, limit)
            if transcript is None:
                break
            text = prompts.compaction_request(
                transcript, is_automatic=job.is_automatic, focus=job.focus
            )
            request = Request(
                model=nested.model,
                system=system,
                messages=(User(text),),
                output_tokens=nested.reserve,
                cache_key=self.cache_key,
            )
            try:
                reply = await nested.sample(request, job.emit or _ignore)
            except ContextOverflow:
                limit = min(limit, text_tokens(transcript)) // 2
                continue
            return _valid(visible_text(reply.message), reply.finish, reply.message)
        raise CompactionError(
            "The conversation is too long for the summarising model even in its shortest form."
        )


async def _ignore(_event: Event) -> None:
    return


def _room(nested: Sampler, system: str, focus: str) -> int:
    """Estimated tokens that the flattened conversation may have."""
    words = text_tokens(system) + text_tokens(focus) + 256
    return max(512, round(nested.budget.effective / nested.meter.ratio) - words)


def _valid(text: str, finish: str, message: Assistant) -> str:
    text = text.strip()
    if tool_calls(message):
        raise CompactionError("The model called a tool where a summary was asked for.")
    if finish == "length":
        raise CompactionError("The summary was cut at the output limit.")
    if finish != "stop":
        raise CompactionError("The model refused to write a summary.")
    if not text:
        raise CompactionError("The model returned no summary.")
    return text


@dataclass
class CheckpointStrategy:
    """The whole history becomes one message: summary and live user messages."""

    summariser: Summariser

    async def replacement(self, job: Job) -> History:
        summary = await self.summariser.summary(job)
        return (checkpoint_message(summary, job.live, is_automatic=job.is_automatic),)


@dataclass
class RecentStrategy:
    """The oldest part is summarised, the newest `keep_tokens` stay verbatim behind the summary."""

    summariser: Summariser
    keep_tokens: int

    async def replacement(self, job: Job) -> History:
        conversing = self.summariser.payer or self.summariser.sampler
        keep = min(self.keep_tokens, conversing.budget.effective // 3)
        cut = safe_cut(job.history, keep)
        older, tail = job.history[:cut], job.history[cut:]
        if not has_something_to_summarise(older, job.live):
            older, tail = job.history, ()
        summary = await self.summariser.summary(replace(job, history=older))
        kept = {id(message) for message in tail}
        live = tuple(user for user in job.live if id(user) not in kept)
        message = checkpoint_message(summary, live, is_automatic=job.is_automatic)
        return (message, *tail)


@dataclass
class WindowStrategy:
    """No model call: the oldest part is dropped and counted, the live messages and a tail stay."""

    sampler: Sampler
    keep_tokens: int = field(default=20_000)

    async def replacement(self, job: Job) -> History:
        keep = min(self.keep_tokens, self.sampler.budget.effective // 3)
        cut = safe_cut(job.history, keep)
        tail = job.history[cut:]
        kept = {id(message) for message in tail}
        live = tuple(user for user in job.live if id(user) not in kept)
        line = f"{cut} earlier messages were dropped to fit the model's window."
        earlier = [
            message.checkpoint.summary
            for message in job.history[:cut]
            if isinstance(message, User) and message.checkpoint is not None
        ]
        summary = "\n\n".join([line, *earlier])
        return (checkpoint_message(summary, live, is_automatic=job.is_automatic), *tail)


def safe_cut(history: History, keep_tokens: int) -> int:
    """Index from which the newest messages fit in `keep_tokens`, results never without their call.

    The length of the history when even the newest batch is too big.
    """
    cut = len(history)
    room = keep_tokens
    for index in range(len(history) - 1, -1, -1):
        room -= message_tokens(history[index])
        if room < 0:
            break
        if not isinstance(history[index], Results):
            cut = index
    return cut


def message_tokens(message: Message) -> int:
    """Estimated tokens of one canonical message."""
    match message:
        case User(text=text, images=images):
            return text_tokens(text) + sum(image_tokens(i.width, i.height) for i in images)
        case Results(results=results):
            return sum(
                text_tokens(r.output) + sum(image_tokens(i.width, i.height) for i in r.images) + 8
                for r in results
            )
        case Assistant(parts=parts):
            total = 0
            for part in parts:
                match part:
                    case Text(text=text) | Reasoning(text=text):
                        total += text_tokens(text)
                    case _:
                        total += text_tokens(part.malformed or str(part.input)) + 16
            return total

"""The messages of a turn and the request they make: appended to, measured, replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace

from keen.agent.sampling import Sampler
from keen.agent.toolbox import Toolbox
from keen.agent.view import pruned_tokens
from keen.core.messages import History, Message, User
from keen.wire.base import Request


@dataclass
class Dialogue:
    """A growing history, and what stands around it in every request.

    `live` are the user messages of the running turn, oldest first: no compaction summarises them.
    """

    sampler: Sampler
    toolbox: Toolbox
    system: str
    history: History = ()
    live: tuple[User, ...] = ()
    cache_key: str = ""
    replaced: tuple[History, History] | None = None
    """The last compaction: the history before it and the one it left."""

    @property
    def request(self) -> Request:
        """The next request, before the sampler's reductions."""
        return Request(
            model=self.sampler.model,
            system=self.system,
            messages=self.history,
            tools=self.toolbox.specs,
            output_tokens=self.sampler.reserve,
            effort=self.sampler.effort,
            cache_key=self.cache_key,
        )

    @property
    def size(self) -> int:
        """Tokens of the next request as it would be sent."""
        return self.sampler.measure(self.request)

    @property
    def unpruned_size(self) -> int:
        """Tokens of the next request if no result were pruned from it."""
        pruned = pruned_tokens(self.history, self.sampler.view.pruned)
        return self.size + round(pruned * self.sampler.meter.ratio)

    def size_of(self, history: History) -> int:
        """Tokens of a request with this history, nothing reduced and no report used."""
        return self.sampler.size_of(replace(self.request, messages=history))

    def append(self, *messages: Message) -> None:
        """Go on with these messages of the model's or its tools'."""
        self.history = (*self.history, *messages)

    def hear(self, user: User) -> None:
        """Go on with a message of the person's."""
        self.append(user)
        self.live = (*self.live, user)

    def adopt(self, replacement: History) -> None:
        """Go on from what a compaction left; of it, live is what was, and the replacement."""
        alive = {id(user) for user in self.live}
        self.replaced = (self.history, replacement)
        self.history = replacement
        self.live = tuple(
            message
            for message in replacement
            if isinstance(message, User)
            and (message.checkpoint is not None or id(message) in alive)
        )
        self.sampler.forget_history()

"""Room in the model's window: a turn's requests are made to fit before they are sent.

In this order: a request that is tight is preceded by a compaction; one that is still too large is
pruned; one that pruning cannot make fit, or that the provider refused for its size, forces a
compaction. After two attempts that failed, or one that freed too little, nothing is compacted
before a refusal until the person's next message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keen.agent.compaction import Compactor, Job, has_something_to_summarise
from keen.agent.dialogue import Dialogue
from keen.agent.gate import OPEN, Gate
from keen.agent.transaction import Commit, Transaction, no_commit
from keen.agent.view import prune, pruned_tokens
from keen.core.errors import ContextOverflow
from keen.core.events import CompactionSuspended, Emit, Rewound, Trigger
from keen.core.messages import History

_STRIKES: Final = 2
"""Proactive attempts of one turn that may fail or be cancelled."""
_WORTHWHILE: Final = 80
"""Percent of the trigger under which the first request after a compaction must be."""


@dataclass
class Headroom:
    """What one turn does for room. `compactor` None: nothing is compacted by itself."""

    dialogue: Dialogue
    compactor: Compactor | None = None
    commit: Commit = no_commit
    gate: Gate = OPEN
    _settled: History | None = None
    """What the last attempt left: until it grows there is no other one."""
    _strikes: int = 0
    _is_suspended: bool = False

    async def ensure(self, emit: Emit) -> None:
        """Make the next request fit.

        Raises: ContextOverflow, with advice, when that is known to be impossible.
        """
        await self._compact_if_tight(emit)
        if (overflow := self._pruned()) is not None:
            await self.force(overflow, emit)

    async def recover(self, refusal: ContextOverflow, emit: Emit) -> None:
        """Learn from a refusal for size and make room. Raises: `refusal`, with advice."""
        self.dialogue.sampler.learn_from(refusal, self.dialogue.request)
        if self._possible_compactor() is None:
            raise self.advised(refusal) from refusal  # nothing is sent again: what was said stands
        await emit(Rewound("overflow", 2, 0.0, str(refusal)))
        await self.force(refusal, emit)

    async def force(self, overflow: ContextOverflow, emit: Emit) -> None:
        """Compact because nothing else helps. Raises: `overflow`, with advice, when it fails."""
        compactor = self._possible_compactor()
        if compactor is None or not await self._compact(compactor, "forced", emit):
            raise self.advised(overflow) from overflow

    def advised(self, overflow: ContextOverflow) -> ContextOverflow:
        """The same error with the sizes and what helps."""
        budget, model = self.dialogue.sampler.budget, self.dialogue.sampler.model
        return ContextOverflow(
            f"{overflow} The request measures about {self.dialogue.unpruned_size:,} tokens; "
            f"{model.name} leaves {budget.effective:,} of its {budget.window:,} for input. What "
            "helps: /compact with a focus, a new session (/new), a larger window, fewer tools.",
            status=overflow.status,
            actual=overflow.actual,
            limit=overflow.limit,
        )

    async def _compact_if_tight(self, emit: Emit) -> None:
        size = self.dialogue.unpruned_size
        is_settled = self._settled is self.dialogue.history
        if self._is_suspended or is_settled or not self.dialogue.sampler.budget.is_tight(size):
            return
        if (compactor := self._possible_compactor()) is None:
            return
        if not await self._compact(compactor, "proactive", emit):
            self._strikes += 1
            if self._strikes >= _STRIKES:
                await self._suspend(size, emit)

    def _possible_compactor(self) -> Compactor | None:
        """None too when nothing of the history could be summarised."""
        is_useful = has_something_to_summarise(self.dialogue.history, self.dialogue.live)
        return self.compactor if is_useful else None

    async def _compact(self, compactor: Compactor, trigger: Trigger, emit: Emit) -> bool:
        """Replace the history by its summary; False leaves it untouched and settled."""
        dialogue = self.dialogue
        transaction = Transaction(dialogue, compactor, self.commit, dialogue.adopt, self.gate)
        job = Job(dialogue.history, dialogue.live)
        is_applied = await transaction.run(trigger, job, dialogue.unpruned_size, emit)
        self._settled = dialogue.history
        if is_applied:
            await self._suspend_if_futile(emit)
        return is_applied

    async def _suspend_if_futile(self, emit: Emit) -> None:
        """Where a request is still large after a compaction, the next one would free no more."""
        size = self.dialogue.unpruned_size
        if size * 100 >= self.dialogue.sampler.budget.trigger * _WORTHWHILE:
            await self._suspend(size, emit)

    async def _suspend(self, size: int, emit: Emit) -> None:
        if not self._is_suspended:
            self._is_suspended = True
            await emit(CompactionSuspended(size, self.dialogue.sampler.budget.trigger))

    def _pruned(self) -> ContextOverflow | None:
        """Prune what keeps the request from fitting; why that is not enough, else None.

        Where nothing can be compacted, a request that only our own margin forbids is tried.
        """
        sampler, history = self.dialogue.sampler, self.dialogue.history
        budget, size = sampler.budget, self.dialogue.size
        if size <= budget.effective:
            return None
        excess = round((size - budget.effective) / sampler.meter.ratio)
        chosen = prune(history, sampler.view.pruned, excess)
        if pruned_tokens(history, chosen) >= excess:
            sampler.prune(chosen)
            return None
        if self._possible_compactor() is None and size <= budget.window:
            return None
        return ContextOverflow("The next request does not fit the model's window.")

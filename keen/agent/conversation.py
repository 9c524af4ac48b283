"""What the next turn starts from: history, measure and what refusals taught. No screen, no disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_
from pathlib import Path

from keen.agent.compaction import Compactor, Job, has_something_to_summarise
from keen.agent.dialogue import Dialogue
from keen.agent.gate import OPEN, Gate
from keen.agent.headroom import Headroom
from keen.agent.sampling import Sampler
from keen.agent.toolbox import Toolbox
from keen.agent.transaction import Commit, Transaction, no_commit
from keen.agent.turn import Limits, Turn
from keen.core.errors import CompactionError
from keen.core.events import Emit
from keen.core.messages import History, User
from keen.tools.spill import bounded

_LIVE_SHARE = 3
"""A user message may fill one part in this many of the budget; the rest of it goes to a file."""
_BYTES_A_TOKEN = 3


def as_it_is(history: History) -> History:
    """Keeps raw tool outputs for later turns (`tool_history = "full"`)."""
    return history


@dataclass
class Conversation:
    """The long-lived side of a session. One turn runs at a time; between turns `history` is here.

    `remember` turns the messages of finished turns into turn memory: texts, calls and their status,
    no raw outputs and no native state.
    """

    sampler: Sampler
    toolbox: Toolbox
    system: str
    history: History = ()
    compactor: Compactor | None = None
    is_automatic: bool = True
    """False: compaction happens only by hand."""
    commit: Commit = no_commit
    remember: Callable[[History], History] = as_it_is
    cache_key: str = ""
    scratch: Path = field(default_factory=Path)
    gate: Gate = OPEN
    replaced: tuple[History, History] | None = None
    """The last compaction: the history before it and the one it left."""
    _is_running: bool = False

    def dialogue(self, *said: User) -> Dialogue:
        """The conversation as it goes on with these messages of a turn."""
        return Dialogue(
            self.sampler,
            self.toolbox,
            self.system,
            history=(*self.history, *said),
            live=said,
            cache_key=self.cache_key,
        )

    def turn(self, user: User, limits: Limits | None = None) -> Turn:
        """A turn that starts with this message."""
        dialogue = self.dialogue(user)
        compactor = self.compactor if self.is_automatic else None
        headroom = Headroom(dialogue, compactor, self.commit, self.gate)
        return Turn(dialogue, headroom, limits, self.gate)

    def size_of(self, history: History) -> int:
        """Tokens of a request with this history, nothing reduced and no report used."""
        return self.dialogue().size_of(history)

    async def run(self, turn: Turn, emit: Emit) -> None:
        """Drive `turn`; however it ends, the conversation goes on from what it left.

        A turn that ended by itself becomes turn memory; after an interrupt or a failure the
        finished results stay raw for the next turn.
        """
        is_finished, self._is_running = False, True
        try:
            is_finished = await turn.run(emit)
        finally:
            self._is_running = False
            self.history = turn.history
            self.replaced = turn.dialogue.replaced or self.replaced
            if is_finished:
                self._settle()

    def _settle(self) -> None:
        remembered = self.remember(self.history)
        if remembered is not self.history:
            self.replaced = None
            self.adopt(remembered)

    def sendable(self, text: str) -> str:
        """`text` as it is sent: beyond a third of the budget the rest is in a file. Blocking."""
        tokens = max(1, self.sampler.budget.effective) // _LIVE_SHARE
        return bounded(text, tokens * _BYTES_A_TOKEN, self.scratch, "message")

    async def compact(self, focus: str, emit: Emit) -> bool:
        """Compact by hand; between turns only. The summary's deltas go to `emit`.

        Raises: CompactionError when there is nothing to compact, or a turn is running.
        """
        if self._is_running:
            raise CompactionError("A turn is running: it compacts by itself when it has to.")
        if self.compactor is None or not has_something_to_summarise(self.history, ()):
            raise CompactionError("There is nothing to compact yet.")
        transaction = Transaction(
            self.dialogue(), self.compactor, self.commit, self._replace, self.gate
        )
        job = Job(self.history, (), is_automatic=False, focus=focus, emit=emit)
        return await transaction.run("manual", job, self.size_of(self.history), emit)

    def before_compaction(self) -> History | None:
        """The raw conversation as it would be without the last compaction; between turns only.

        None when its raw part is no longer in memory.
        """
        if self.replaced is None:
            return None
        before, left = self.replaced
        kept, since = self.history[: len(left)], self.history[len(left) :]
        is_whole = len(kept) == len(left) and all(map(is_, kept, left))
        return (*before, *since) if is_whole else None

    def adopt(self, history: History) -> None:
        """Go on from `history`: nothing that was measured or reduced before holds for it."""
        self.history = history
        self.sampler.forget_history()

    def _replace(self, history: History) -> None:
        self.replaced = (self.history, history)
        self.adopt(history)

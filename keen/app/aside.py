"""Turns beside the conversation: a question aside, a review. They leave no trace in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keen.agent.conversation import Conversation
from keen.agent.flatten import flattened
from keen.agent.toolbox import Toolbox
from keen.core.errors import CompactionError
from keen.core.events import Emit, Event, UsageReported
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.agent.sampling import Sampler
    from keen.engine import Engine

QUESTION: Final = (
    "Above is a conversation between a person and an agent. Answer the person's question about it "
    "or beside it, briefly. You have no tools.\n\nThe question: "
)
REVIEW: Final = (
    "Above is a conversation between a person and an agent that works in this directory. Be its "
    "adversary: find what is wrong, missing, unproven or dangerous in what was done and claimed. "
    "Check against the files with your tools, which only read. Report findings by weight, each "
    "with its evidence; say so if there is nothing to find. Focus: "
)
_SHARE: Final = 70
"""Percent of the budget that the conversation may take."""


async def aside(
    engine: Engine,
    instruction: str,
    emit: Emit,
    *,
    may_read: bool,
    other: Sampler | None = None,
) -> None:
    """One turn over the conversation as text; nothing of it is kept but what it cost.

    `other` answers in place of the conversation's model, and keeps its own account.

    Raises: CompactionError when the conversation cannot be made to fit.
    """
    talk = engine.conversation
    own = talk.sampler.beside()
    sampler = other or own
    limit = sampler.budget.effective * _SHARE // 100
    transcript = flattened(talk.history, limit) if talk.history else "(Nothing was said yet.)"
    if transcript is None:
        raise CompactionError("The conversation is too long for this; /compact first.")
    user = User(f"<conversation>\n{transcript}\n</conversation>\n\n{instruction}")
    tools = {
        name: tool
        for name, tool in talk.toolbox.tools.items()
        if may_read and tool.effect == "read" and name != "todo"
    }
    beside = Conversation(
        sampler,
        Toolbox(tools, talk.toolbox.policy, talk.toolbox.context, gate=talk.toolbox.gate),
        talk.system,
        cache_key=f"{talk.cache_key}-aside",
    )

    async def without_usage(event: Event) -> None:
        # The meter of the conversation itself must not show this request.
        if not isinstance(event, UsageReported):
            await emit(event)

    try:
        await beside.turn(user).run(without_usage)
    finally:
        talk.sampler.book(own)  # nothing, where the other one answered

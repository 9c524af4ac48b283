"""How a conversation's next request divides the window."""

from __future__ import annotations

from collections.abc import Sequence

from keen.agent.compaction import message_tokens
from keen.agent.conversation import Conversation
from keen.core.estimate import json_tokens, text_tokens
from keen.core.messages import Assistant, Message, Results, User


def shares(conversation: Conversation, history: Sequence[Message]) -> dict[str, int]:
    """Estimated tokens by kind, corrected by what the provider's reports have taught."""
    sizes: dict[str, int] = {
        "system prompt": text_tokens(conversation.system),
        "tools": sum(
            json_tokens(spec.schema) + text_tokens(spec.description)
            for spec in conversation.toolbox.specs
        ),
        "your messages": 0,
        "summaries": 0,
        "answers": 0,
        "tool results": 0,
    }
    for message in history:
        sizes[_kind(message)] += message_tokens(message)
    ratio = conversation.sampler.meter.ratio
    return {kind: round(size * ratio) for kind, size in sizes.items()}


def _kind(message: Message) -> str:
    match message:
        case User(checkpoint=None):
            return "your messages"
        case User():
            return "summaries"
        case Assistant():
            return "answers"
        case Results():
            return "tool results"

"""Content that other programs show: text as Markdown, titles as one line, chunks of a message."""

from __future__ import annotations

import re
from typing import Final

from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ContentToolCallContent,
    TextContentBlock,
    UserMessageChunk,
)

from keen import sanitize

_TICKS: Final = re.compile(r"`{3,}")
_MOST_TITLE: Final = 200
_MOST_VERBATIM: Final = 16 * 1024


def text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def said(text: str) -> AgentMessageChunk:
    """A piece of the answer."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def thought(text: str) -> AgentThoughtChunk:
    """A piece of reasoning, or what keen itself is doing."""
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def asked(text: str) -> UserMessageChunk:
    """A piece of the person's own message, when a session is replayed."""
    return UserMessageChunk(session_update="user_message_chunk", content=text_block(text))


def content(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=text_block(text))


def fenced(text: str) -> str:
    """Output as a code block that nothing in it can close."""
    return _block(sanitize.plain(text))


def verbatim(text: str) -> str:
    """What somebody decides about, as a code block: nothing of it is hidden or dropped unsaid."""
    left_out = len(text) - _MOST_VERBATIM
    if left_out > 0:
        half = _MOST_VERBATIM // 2
        note = f"\n[… {left_out:,} characters are not shown here …]\n"
        text = f"{text[:half]}{note}{text[-half:]}"
    return _block(sanitize.block(text))


def title(text: str) -> str:
    """One harmless line, not too long."""
    shown = sanitize.line(" ".join(text.split()))
    return shown if len(shown) <= _MOST_TITLE else shown[: _MOST_TITLE - 1] + "…"


def _block(shown: str) -> str:
    shown = shown.strip("\n")
    if not shown.strip():
        return ""
    longest = max((len(run) for run in _TICKS.findall(shown)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{shown}\n{fence}"

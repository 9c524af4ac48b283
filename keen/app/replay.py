"""A saved session as the blocks that were on the screen when it was had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from keen import sanitize
from keen.app.blocks import Block, Mine, Prose, Thinking, Words
from keen.app.screens.turn_view import INTERRUPTED
from keen.app.tool_cards import READING, Card, Reads
from keen.core.messages import ToolCall
from keen.session.projection import (
    Compacted,
    Ended,
    Reverted,
    Said,
    Shown,
    last_usage,
    transcript,
)
from keen.session.records import (
    Compaction,
    ReasoningItem,
    Record,
    SessionRenamed,
    TextItem,
    ToolItem,
)


@dataclass
class Replay:
    """What a resumed session shows, and what the screen knows of it."""

    blocks: list[Block] = field(default_factory=list[Block])
    prompts: list[str] = field(default_factory=list[str])
    last_answer: str = ""
    compactions: int = 0
    context_tokens: int | None = None
    name: str = ""
    todo: ToolCall | None = None
    """The last list of what is to be done."""

    def show(self, shown: Shown) -> None:
        match shown:
            case Said(text=text, images=images, steering=is_steering):
                more = f" [{images} pictures]" if images else ""
                self.blocks.append(Mine(sanitize.block(text) + more, is_steering=is_steering))
                self.prompts.append(text)
                self.last_answer = ""
            case TextItem(content=text):
                self.last_answer += "\n\n" * bool(self.last_answer) + text
                self.blocks.append(Prose(sanitize.block(text)))
            case ReasoningItem(content=text):
                self.blocks.append(Thinking(sanitize.block(text), is_done=True))
            case ToolItem():
                self._tool(shown)
            case Ended(interrupted=is_interrupted, error=error):
                words = INTERRUPTED if is_interrupted else sanitize.block(error or "")
                self.blocks.append(Words(words, "warning" if is_interrupted else "error"))
            case Compacted(summary=summary, status=status):
                self.blocks += [
                    Prose(sanitize.block(summary)),
                    Words(sanitize.line(status), "muted"),
                ]
            case Reverted():
                self.blocks.append(Words("The last compaction was taken back.", "muted"))

    def _tool(self, item: ToolItem) -> None:
        call = ToolCall(item.id, item.name, dict(item.input))
        if item.name == "todo" and not item.is_error:
            self.todo = call
        card = Card(call)
        card.end(item.output, is_error=item.is_error, seconds=item.seconds)
        last = self.blocks[-1] if self.blocks else None
        if item.name in READING and isinstance(last, Reads):
            last.cards.append(card)
        else:
            self.blocks.append(Reads([card]) if item.name in READING else card)


def replayed(records: Sequence[Record]) -> Replay:
    """All of a session, oldest first."""
    replay = Replay()
    for shown in transcript(records):
        replay.show(shown)
    for record in records:
        match record.payload:
            case Compaction():
                replay.compactions += 1
            case SessionRenamed(name=name):
                replay.name = name
            case _:
                pass
    measured = last_usage(records)
    replay.context_tokens = measured.context_tokens if measured else None
    return replay


def preview(records: Iterable[Record]) -> list[Block]:
    """The same, for a look at a session."""
    return replayed(list(records)).blocks

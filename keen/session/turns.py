"""Items of a turn, as they were seen, made into the one record that remembers the turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from keen.core.messages import ToolCall, ToolResult, interrupted
from keen.session.records import (
    AssistantTurn,
    Compaction,
    Item,
    Record,
    Remembered,
    Spent,
    Status,
    TextItem,
    ToolItem,
    TurnSegment,
    UserMessage,
)

GAP: Final = "\n\n"
"""Between the texts of two answers of one turn."""

_INTERRUPTED: Final = interrupted(ToolCall("", "", {})).output


def composed(
    items: Sequence[Item],
    memory: Iterable[Remembered],
    *,
    interrupted: bool = False,
    error: str | None = None,
    usage: Spent | None = None,
) -> AssistantTurn:
    """The turn record of these items; `memory` has one entry for each tool item, in order."""
    entries = iter(memory)
    texts: list[str] = []
    length = 0
    answer: list[str] = []
    placed: list[Remembered] = []

    def close_answer() -> None:
        nonlocal length
        text = "".join(answer)
        answer.clear()
        if text.strip():
            text = GAP + text if texts else text
            texts.append(text)
            length += len(text)

    for item in items:
        if isinstance(item, TextItem):
            answer.append(item.content)
        elif isinstance(item, ToolItem):
            close_answer()
            entry = next(entries, None) or _of_item(item)
            placed.append(entry.model_copy(update={"text_offset": length}))
    close_answer()
    return AssistantTurn(
        transcript=tuple(items),
        message="".join(texts),
        turn_memory=tuple(placed),
        interrupted=interrupted,
        error=error,
        usage=usage or Spent(),
    )


def _of_item(item: ToolItem) -> Remembered:
    status = "error" if item.is_error else "success"
    return Remembered(tool=item.name, input=item.input, status=status)


def settled(records: Iterable[Record]) -> list[Record]:
    """The records without segments: superseded ones dropped, left-over ones made a turn."""
    result: list[Record] = []
    segments: list[tuple[Record, TurnSegment]] = []
    for record in records:
        match record.payload:
            case TurnSegment() as segment:
                segments.append((record, segment))
                continue
            case AssistantTurn() | Compaction():
                segments.clear()
            case UserMessage() if segments:
                result.append(_crashed(segments))
                segments.clear()
            case _:
                pass
        result.append(record)
    if segments:
        result.append(_crashed(segments))
    return result


def _crashed(segments: Sequence[tuple[Record, TurnSegment]]) -> Record:
    """What a turn left behind whose process died; stands at the place of its last segment."""
    last, latest = segments[-1]
    turn = composed(
        [item for _, segment in segments for item in segment.transcript],
        [entry for _, segment in segments for entry in segment.turn_memory],
        interrupted=True,
        usage=latest.usage,
    )
    return Record(last.seq, last.ts, AssistantTurn.kind, turn)


def status_of(result: ToolResult) -> Status:
    """How a call ended, as turn memory tells it."""
    if result.is_error and result.output == _INTERRUPTED:
        return "interrupted"
    return "error" if result.is_error else "success"

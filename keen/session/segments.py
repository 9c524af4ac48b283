"""What a running turn has shown since its last record."""

from __future__ import annotations

from dataclasses import dataclass, field

from keen.core.events import (
    Event,
    ReasoningDelta,
    Rewound,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from keen.core.messages import ToolCall, ToolResult
from keen.core.messages import interrupted as interrupted_result
from keen.session.bounds import bounded, bounded_input, clean
from keen.session.records import (
    AssistantTurn,
    Item,
    ReasoningItem,
    Remembered,
    Spent,
    TextItem,
    ToolItem,
    TurnSegment,
)
from keen.session.turns import composed, status_of


@dataclass(slots=True)
class _Call:
    call: ToolCall
    result: ToolResult | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class _Words:
    is_reasoning: bool
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Segments:
    """What a turn has shown since its last record, in order; free of asyncio and of the disk."""

    _parts: list[_Words | _Call] = field(default_factory=list["_Words | _Call"])
    _boundary: int = 0
    _saved: int = 0
    _open: int = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, event: Event) -> None:
        """Take in one event; those that show nothing of the answer change nothing."""
        match event:
            case TextDelta(text=text):
                self._say(text, is_reasoning=False)
            case ReasoningDelta(text=text):
                self._say(text, is_reasoning=True)
            case ToolStarted(call=call):
                self._parts.append(_Call(call))
                self._open += 1
            case ToolFinished():
                self._finish(event)
            case Rewound():
                self.rewind()
            case _:
                pass

    def rewind(self) -> None:
        """Forget the words since the last finished tool: they are void."""
        self._parts[self._boundary :] = [
            part for part in self._parts[self._boundary :] if isinstance(part, _Call)
        ]

    def has_seen(self, call_id: str) -> bool:
        return any(isinstance(part, _Call) and part.call.id == call_id for part in self._parts)

    def segment(self) -> TurnSegment | None:
        """What was added since the last segment, None while a call runs or nothing was."""
        new = self._parts[self._saved :]
        if self._open or not new:
            return None
        self._saved = len(self._parts)
        items, memory = _stored(new)
        return TurnSegment(transcript=tuple(items), turn_memory=tuple(memory))

    def turn(
        self, *, interrupted: bool = False, error: str | None = None, usage: Spent | None = None
    ) -> AssistantTurn:
        """The turn so far as one record; calls that still run are told as interrupted."""
        items, memory = _stored(self._parts)
        return composed(items, memory, interrupted=interrupted, error=error, usage=usage)

    def take(
        self, *, interrupted: bool = False, error: str | None = None, usage: Spent | None = None
    ) -> AssistantTurn:
        """`turn`, and forget it: nothing can be written twice."""
        turn = self.turn(interrupted=interrupted, error=error, usage=usage)
        self.clear()
        return turn

    def clear(self) -> None:
        self._parts.clear()
        self._boundary = self._saved = self._open = 0

    def _say(self, text: str, *, is_reasoning: bool) -> None:
        if len(self._parts) > self._boundary:
            last = self._parts[-1]
            if isinstance(last, _Words) and last.is_reasoning == is_reasoning:
                last.pieces.append(text)
                return
        self._parts.append(_Words(is_reasoning, [text]))

    def _finish(self, event: ToolFinished) -> None:
        for part in reversed(self._parts):
            if isinstance(part, _Call) and not part.result and part.call.id == event.result.call_id:
                part.result, part.seconds = event.result, event.seconds
                self._open -= 1
                break
        self._boundary = len(self._parts)


def _stored(parts: list[_Words | _Call]) -> tuple[list[Item], list[Remembered]]:
    items: list[Item] = []
    memory: list[Remembered] = []
    for part in parts:
        if isinstance(part, _Words):
            text = clean("".join(part.pieces))
            items.append(
                ReasoningItem(content=text) if part.is_reasoning else TextItem(content=text)
            )
            continue
        call, result = part.call, part.result or interrupted_result(part.call)
        arguments = bounded_input(call.input)
        items.append(
            ToolItem(
                id=clean(call.id),
                name=clean(call.name),
                input=arguments,
                output=bounded(result.output),
                is_error=result.is_error,
                seconds=round(part.seconds, 3),
            )
        )
        memory.append(
            Remembered(
                tool=clean(call.name),
                input=arguments,
                status=status_of(result),
                exit_code=result.exit_code,
            )
        )
    return items, memory

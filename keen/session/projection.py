"""From a session's records to the conversation a model sees, and to what a screen replays.

A past turn is told to the model as text and turn memory: which tools were called with what, and
how they ended. Raw results and natives live only in the running turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from keen.core.messages import (
    Assistant,
    Checkpoint,
    History,
    JsonObject,
    Message,
    Part,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
    interrupted,
    tool_calls,
    visible_text,
)
from keen.session.bounds import bounded_input, clean
from keen.session.records import (
    AssistantTurn,
    Attachment,
    Compaction,
    CompactionReverted,
    Item,
    KeptMessage,
    ModelChanged,
    Record,
    Remembered,
    SessionStarted,
    Spent,
    Status,
    TextItem,
    UserMessage,
)
from keen.session.turns import GAP, settled, status_of

MAX_CALLS: Final = 32
"""Calls of one rebuilt answer: some APIs refuse a message with more than 128."""
_RESULT: Final = re.compile(
    r"(Succeeded|Failed|Interrupted before it finished)(?: with exit code (-?\d+))?\. "
    r"Its output is no longer kept; call the tool again if you need it\."
)
_WORDS: Final[dict[str, Status]] = {
    "Succeeded": "success",
    "Failed": "error",
    "Interrupted before it finished": "interrupted",
}


def turn_memory_result(status: str, exit_code: int | None) -> str:
    """What a later turn is told in place of a call's output."""
    word = next((word for word, known in _WORDS.items() if known == status), "Failed")
    code = "" if exit_code is None else f" with exit code {exit_code}"
    return f"{word}{code}. Its output is no longer kept; call the tool again if you need it."


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Called:
    name: str
    input: JsonObject
    status: Status
    exit_code: int | None


_Piece: TypeAlias = User | _Said | _Called


def conversation(records: Iterable[Record]) -> History:
    """What the model is to remember of a session."""
    records = settled(records)
    return _Fold().rebuilt(piece for record in _in_force(records) for piece in _pieces(record))


def remembered(history: History, start: int) -> History:
    """The history with its messages from `start` on as a resumed session would have them.

    Same texts, no natives, no reasoning, no raw outputs. Idempotent: turn memory stays as it is,
    so a `start` that is too early does no harm.
    """
    while start and not isinstance(history[start - 1], Results):
        start -= 1  # a neighbour of the same role is merged with what follows
    fold = _Fold(sum(len(tool_calls(m)) for m in history[:start] if isinstance(m, Assistant)))
    fold.messages.extend(history[:start])
    return fold.rebuilt(_pieces_of(history[start:]))


def kept_messages(replacement: History) -> tuple[KeptMessage, ...]:
    """A compaction's replacement as its record stores it: without raw outputs."""
    kept: list[KeptMessage] = []
    for piece in _pieces_of(replacement):
        match piece:
            case User():
                kept.append(_kept_user(piece))
            case _Said(text=text, interrupted=is_cut):
                kept.append(KeptMessage(role="assistant", content=text, interrupted=is_cut))
            case _Called():
                entry = Remembered(
                    tool=piece.name,
                    input=piece.input,
                    status=piece.status,
                    exit_code=piece.exit_code,
                )
                kept.append(KeptMessage(role="assistant", content="", turn_memory=(entry,)))
    return tuple(kept)


def _kept_user(user: User) -> KeptMessage:
    return KeptMessage(
        role="user",
        content=user.text,
        attachments=tuple(map(Attachment.of, user.images)),
        steering=user.steering,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """The last prompt size a provider reported: where a resumed session's measure starts."""

    context_tokens: int
    model: str


def last_usage(records: Iterable[Record]) -> Measured | None:
    """The report that still holds, None after a compaction or an undo of one."""
    model, measured = "", None
    for record in records:
        match record.payload:
            case SessionStarted(model=name) | ModelChanged(model=name):
                model = name
            case AssistantTurn(usage=Spent(context_tokens=tokens)) if tokens > 0:
                measured = Measured(tokens, model)
            case Compaction() | CompactionReverted():
                measured = None
            case _:
                pass
    return measured


def total_usage(records: Iterable[Record]) -> Usage:
    """All tokens the session's records tell of, compactions included."""
    total = Usage()
    for record in records:
        match record.payload:
            case AssistantTurn(usage=spent) | Compaction(usage=Spent() as spent):
                total += spent.usage()
            case _:
                pass
    return total


def last_compaction(records: Iterable[Record]) -> Record | None:
    """The latest compaction that was not taken back."""
    in_force = _in_force(list(records))
    return next((r for r in reversed(in_force) if isinstance(r.payload, Compaction)), None)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the person's, as the transcript shows it."""

    text: str
    images: int = 0
    steering: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn ended otherwise than well."""

    interrupted: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Compacted:
    """A manual compaction: its summary and its line."""

    summary: str
    status: str


@dataclass(frozen=True, slots=True)
class Reverted:
    """A compaction was taken back here."""

    seq: int


Shown: TypeAlias = Said | Item | Ended | Compacted | Reverted


def transcript(records: Iterable[Record]) -> tuple[Shown, ...]:
    """Everything a person saw, in order; an automatic compaction draws nothing."""
    return tuple(shown for record in settled(records) for shown in _shown(record))


def _shown(record: Record) -> Iterator[Shown]:
    match record.payload:
        case UserMessage() as message:
            yield Said(message.content, len(message.attachments), message.steering)
        case AssistantTurn() as turn:
            yield from turn.transcript
            if turn.interrupted or turn.error is not None:
                yield Ended(turn.interrupted, turn.error)
        case Compaction() as compaction if compaction.status or compaction.transcript:
            texts = [item.content for item in compaction.transcript if isinstance(item, TextItem)]
            yield Compacted("".join(texts), compaction.status)
        case CompactionReverted(seq=seq):
            yield Reverted(seq)
        case _:
            return


def _in_force(records: Sequence[Record]) -> list[Record]:
    """The records a conversation is made of: from the last compaction that counts on."""
    reverted = {
        record.payload.seq for record in records if isinstance(record.payload, CompactionReverted)
    }
    result: list[Record] = []
    for record in records:
        if isinstance(record.payload, Compaction):
            if record.seq in reverted:
                continue
            result.clear()
        result.append(record)
    return result


def _pieces(record: Record) -> Iterator[_Piece]:
    match record.payload:
        case UserMessage() as message if message.content.strip() or message.attachments:
            yield message.user()
        case AssistantTurn() as turn:
            is_cut = turn.interrupted or turn.error is not None
            yield from _turn_pieces(turn.message, turn.turn_memory, is_cut=is_cut)
        case Compaction() as compaction:
            checkpoint: Checkpoint | None = compaction.checkpoint()
            for message in compaction.messages:
                if message.role == "user":
                    yield message.user(checkpoint)
                    checkpoint = None
                else:
                    yield from _turn_pieces(
                        message.content, message.turn_memory, is_cut=message.interrupted
                    )
        case _:
            return


def _turn_pieces(message: str, memory: Sequence[Remembered], *, is_cut: bool) -> Iterator[_Piece]:
    """The texts and calls of a turn; text is cut at the calls' offsets, without the gaps."""
    position = 0
    for entry in memory:
        end = min(max(entry.text_offset, position), len(message))
        if text := _slice(message, position, end):
            yield _Said(text)
        position = end
        yield _Called(entry.tool, entry.input, entry.status, entry.exit_code)
    if text := _slice(message, position, len(message)):
        yield _Said(text, is_cut)


def _slice(message: str, start: int, end: int) -> str:
    text = message[start:end]
    return text.removeprefix(GAP) if start else text


def _pieces_of(messages: Sequence[Message]) -> Iterator[_Piece]:
    """Raw messages as pieces; a call without its result counts as interrupted."""
    for index, message in enumerate(messages):
        match message:
            case User():
                yield replace(message, text=clean(message.text))
            case Assistant():
                calls = tool_calls(message)
                if text := clean(visible_text(message)):
                    yield _Said(text, message.interrupted and not calls)
                following = messages[index + 1] if index + 1 < len(messages) else None
                results = following.results if isinstance(following, Results) else ()
                yield from _called(calls, {result.call_id: result for result in results})
            case Results():
                pass


def _called(calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> Iterator[_Called]:
    for call in calls:
        result = results.get(call.id) or interrupted(call)
        status, code = status_of(result), result.exit_code
        if told := _RESULT.fullmatch(result.output):
            status, code = _WORDS[told[1]], int(told[2]) if told[2] else None
        yield _Called(clean(call.name), bounded_input(call.input), status, code)


@dataclass(slots=True)
class _Fold:
    """Builds a valid history: roles alternate, every call has its result, nothing is empty."""

    number: int = 0
    """Calls before this history, whose ids are taken."""
    messages: list[Message] = field(default_factory=list[Message])
    said: list[_Said] = field(default_factory=list[_Said])
    called: list[_Called] = field(default_factory=list[_Called])

    def rebuilt(self, pieces: Iterable[_Piece]) -> History:
        """The history with these pieces behind what it has."""
        for piece in pieces:
            self.add(piece)
        self.flush()
        return tuple(self.messages)

    def add(self, piece: _Piece) -> None:
        match piece:
            case User():
                self.flush()
                self._user(piece)
            case _Said():
                if not piece.text.strip():
                    return  # a record keeps no blank text, so it must not part the calls here
                if self.called:
                    self.flush()
                self.said.append(piece)
            case _Called():
                if len(self.called) == MAX_CALLS:
                    self.flush()
                self.called.append(piece)

    def flush(self) -> None:
        """Close the answer that is being built."""
        parts: list[Part] = []
        if self.said:
            parts.append(Text(GAP.join(said.text for said in self.said)))
        results: list[ToolResult] = []
        for piece in self.called:
            self.number += 1
            call = ToolCall(f"past-{self.number}", piece.name, piece.input)
            parts.append(call)
            output = turn_memory_result(piece.status, piece.exit_code)
            is_error = piece.status != "success"
            results.append(
                ToolResult(call.id, call.name, output, is_error, exit_code=piece.exit_code)
            )
        if parts:
            is_cut = not results and self.said[-1].interrupted
            self.messages.append(Assistant(tuple(parts), interrupted=is_cut))
        if results:
            self.messages.append(Results(tuple(results)))
        self.said.clear()
        self.called.clear()

    def _user(self, user: User) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, User) and not (last.checkpoint or user.checkpoint):
            self.messages[-1] = User(
                last.text + GAP + user.text,
                last.images + user.images,
                last.steering and user.steering,
            )
        else:
            self.messages.append(user)

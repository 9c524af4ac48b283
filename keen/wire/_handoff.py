"""Makes any history acceptable to the provider it goes to next, whoever answered in it before."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

from keen.core.messages import (
    Assistant,
    History,
    Message,
    Part,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    interrupted,
    tool_calls,
    visible_text,
)
from keen.wire._encoded import Remembered

NO_IMAGES: Final = "[An image was left out: this model takes none.]"
"""What a model that takes no images reads in the place of one."""
_LONGEST: Final = 64
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")
_rewritten: Final = Remembered[Message]()
"""Rewrites made before: the same message gives the same object, so encodings of it stay valid."""


def sendable_name(name: str) -> str:
    """A tool's name as strict servers take it back, whatever the model made up."""
    return _REFUSED.sub("_", name)[:_LONGEST] or "unnamed"


@dataclass(slots=True)
class HandOff:
    """Hands off what one wire sends; of a history that grew, only what is new is looked at.

    Afterwards a `native` is this wire's own and may be spliced in; every answer has text or calls;
    each answer with calls is followed by its `Results`, one a call, in call order, and there are
    no other `Results`. An earlier message is never rewritten because of a later one, except that
    an answer's results move to it. A message that needs no change is returned as it is.
    """

    _owner: tuple[str, str, str] = ("", "", "")
    _messages: History = ()
    _kept: list[Message] = field(default_factory=list[Message])
    _ids: _Ids = field(default_factory=lambda: _Ids())
    _is_settled: bool = True
    """No call of `_messages` waits for its result."""

    def of(self, messages: History, *, provider: str, dialect: str, model: str) -> History:
        """The history as this provider, dialect and model may see it."""
        owner = (provider, dialect, model)
        known = len(self._messages)
        goes_on = self._is_settled and owner == self._owner and messages[:known] == self._messages
        if not goes_on:
            known, self._owner, self._ids = 0, owner, _Ids()
            self._kept.clear()
            _rewritten.sweep()
        self._is_settled = _hand_off(messages[known:], owner, self._ids, self._kept)
        self._messages = messages
        return tuple(self._kept)


def _hand_off(
    messages: History, owner: tuple[str, str, str], ids: _Ids, kept: list[Message]
) -> bool:
    """Append the messages as they are sent to `kept`; True when no call among them is open."""
    answered = _answered(messages)
    for position, message in enumerate(messages):
        match message:
            case Results():
                continue
            case Assistant():
                kept.extend(_answer(message, answered.get(position), owner, ids))
            case _:
                kept.append(message)
    return all(None not in answer.results for answer in answered.values())


@dataclass(slots=True)
class _Answered:
    """The results found for one answer: a place a call, and the message most of them stand in."""

    results: list[ToolResult | None]
    source: Results | None = None


def _answered(messages: History) -> dict[int, _Answered]:
    """By position of the answer. A result belongs to the nearest earlier open call of its id."""
    found: dict[int, _Answered] = {}
    open_calls: dict[str, deque[tuple[_Answered, int]]] = {}
    for position, message in enumerate(messages):
        match message:
            case Assistant():
                calls = tool_calls(message)
                answer = found[position] = _Answered([None] * len(calls))
                open_calls.update((call.id, deque()) for call in calls)
                for place, call in enumerate(calls):
                    open_calls[call.id].append((answer, place))
            case Results():
                for result in message.results:
                    if waiting := open_calls.get(result.call_id):
                        answer, place = waiting.popleft()
                        answer.results[place] = result
                        answer.source = answer.source or message
            case _:
                pass
    return found


@dataclass(slots=True)
class _Ids:
    """Call ids of the history so far, and new ones that differ from all of them."""

    taken: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def normal(self, call_id: str) -> str:
        """At most 64 characters of A-Z, a-z, 0-9, _ and -, and unlike any id before."""
        base = _REFUSED.sub("_", call_id)[:_LONGEST] or "call"
        chosen = base
        while chosen in self.taken:
            count = self.counts[base] = self.counts.get(base, 1) + 1
            suffix = f"_{count}"
            chosen = base[: _LONGEST - len(suffix)] + suffix
        self.taken.add(chosen)
        return chosen


def _answer(
    message: Assistant,
    answered: _Answered | None,
    owner: tuple[str, str, str],
    ids: _Ids,
) -> tuple[Message, ...]:
    """The answer as it is sent and, where it has calls, its results; nothing if it is empty."""
    calls = tool_calls(message)
    if _is_own(message, calls, owner):
        sent = message
        new_ids = tuple(call.id for call in calls)
        ids.taken.update(new_ids)
    else:
        new_ids = tuple(ids.normal(call.id) for call in calls)
        sent = _foreign(message, calls, new_ids)
    if sent is None:
        return ()
    if not calls or answered is None:
        return (sent,)
    return (sent, _paired(message, calls, new_ids, answered))


def _is_own(message: Assistant, calls: tuple[ToolCall, ...], owner: tuple[str, str, str]) -> bool:
    """True when the native may go back: ours, with something in it, its calls told apart."""
    native = message.native
    if native is None or (native.provider, native.dialect, native.model) != owner:
        return False
    call_ids = {call.id for call in calls}
    if len(call_ids) < len(calls) or "" in call_ids:
        return False
    if any(call.name != sendable_name(call.name) for call in calls):
        return False
    # Reasoning alone is refused: OpenAI wants the item that follows it, others want content.
    return bool(calls) or not _is_blank(message)


def _foreign(
    message: Assistant, calls: tuple[ToolCall, ...], new_ids: tuple[str, ...]
) -> Message | None:
    """The answer without native and reasoning, its calls under their new ids."""
    if not calls and _is_blank(message):
        thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if not thought.strip():
            return None
        return _rewritten.of(
            message, lambda: Assistant((Text(thought),), interrupted=message.interrupted)
        )
    is_same = (
        message.native is None
        and new_ids == tuple(call.id for call in calls)
        and not any(isinstance(part, Reasoning) for part in message.parts)
        and not any(call.malformed and call.input for call in calls)
        and all(call.name == sendable_name(call.name) for call in calls)
    )
    if is_same:
        return message
    return _rewritten.of(message, lambda: _without_native(message, new_ids), new_ids)


def _without_native(message: Assistant, new_ids: tuple[str, ...]) -> Assistant:
    parts: list[Part] = []
    waiting = deque(new_ids)
    for part in message.parts:
        match part:
            case Reasoning():
                continue
            case ToolCall():
                arguments = {} if part.malformed else part.input
                name = sendable_name(part.name)
                parts.append(replace(part, id=waiting.popleft(), name=name, input=arguments))
            case Text():
                parts.append(part)
    return Assistant(tuple(parts), interrupted=message.interrupted)


def _paired(
    message: Assistant,
    calls: tuple[ToolCall, ...],
    new_ids: tuple[str, ...],
    answered: _Answered,
) -> Message:
    """One result a call, in call order; the message they stood in where nothing had to change."""
    found = tuple(answered.results)
    paired = tuple(map(_result, calls, new_ids, found))
    source = answered.source
    if source is not None and _are_same(source.results, paired):
        return source
    return _rewritten.of(message, lambda: Results(paired), (new_ids, found))


def _are_same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _result(call: ToolCall, new_id: str, found: ToolResult | None) -> ToolResult:
    result = found or interrupted(call)
    name = sendable_name(call.name)
    if (result.call_id, result.name) == (new_id, name):
        return result
    return replace(result, call_id=new_id, name=name)


def _is_blank(message: Assistant) -> bool:
    return not visible_text(message).strip()

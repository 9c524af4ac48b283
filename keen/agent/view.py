"""What of the history is really sent: results pruned, images dropped, natives left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from keen.core.estimate import text_tokens
from keen.core.messages import Assistant, History, Message, Results, ToolResult, User

REMOVED: Final = "Tool result removed to fit context."
IMAGE_REMOVED: Final = "[An image was removed: the provider refused it.]"
BYTES_KEPT: Final = 4_096
"""Bytes of a result that survive a refusal for the size of the request in bytes."""
_WORTH_PRUNING: Final = 256
"""Tokens below which removing a result frees too little to lose it."""


@dataclass
class View:
    """Reductions of a canonical history, which itself is never touched.

    A reduced message is made once and then stays the same object, so that encodings of it are
    cached; a reduction stays until `reset`, so that the provider's cached prefix stays too.
    """

    pruned: set[str] = field(default_factory=set[str])
    """Ids of calls whose results are replaced by a line."""
    small: set[str] = field(default_factory=set[str])
    """Ids of calls whose results are cut to BYTES_KEPT."""
    imageless: dict[int, Message] = field(default_factory=dict[int, Message])
    """Messages sent without their images, by identity."""
    nativeless: dict[int, Message] = field(default_factory=dict[int, Message])
    """Answers sent without their native form, by identity."""
    _made: dict[int, tuple[Message, Message]] = field(
        default_factory=dict[int, tuple[Message, Message]]
    )

    def apply(self, history: History) -> History:
        """The history as it is to be encoded."""
        if not (self.pruned or self.small or self.imageless or self.nativeless):
            return history
        return tuple(self._reduced(message) for message in history)

    def reset(self) -> None:
        """The history was replaced: nothing of the old one needs reducing."""
        self.pruned.clear()
        self.small.clear()
        self.imageless.clear()
        self.nativeless.clear()
        self._made.clear()

    def prune(self, calls: set[str]) -> None:
        """Send a line in place of these calls' results from now on."""
        self.pruned |= calls
        self._made.clear()

    def shrink(self, history: History) -> bool:
        """Send no images and cut big results; False when nothing is left to take away."""
        big = big_results(history) - self.small - self.pruned
        images = [m for m in history if _images(m) and id(m) not in self.imageless]
        self.small |= big
        self.imageless |= {id(m): m for m in images}
        self._made.clear()
        return bool(big or images)

    def drop_images(self, history: History) -> bool:
        """Drop the images of the newest message that has any, then of all; False when none is left.

        A refusal seldom says which image it means, and the newest is the one not accepted before.
        """
        shown = [m for m in history if _images(m) and id(m) not in self.imageless]
        dropped = shown if self.imageless else shown[-1:]
        self.imageless |= {id(m): m for m in dropped}
        self._made.clear()
        return bool(dropped)

    def drop_natives(self, history: History) -> bool:
        """Send every answer so far from its canonical parts; False when all of them are already."""
        native = [
            m
            for m in history
            if isinstance(m, Assistant) and m.native is not None and id(m) not in self.nativeless
        ]
        self.nativeless |= {id(m): m for m in native}
        self._made.clear()
        return bool(native)

    def _reduced(self, message: Message) -> Message:
        known = self._made.get(id(message))
        if known is not None:
            return known[1]
        match message:
            case User():
                reduced: Message = self._user(message)
            case Assistant():
                dropped = id(message) in self.nativeless
                reduced = replace(message, native=None) if dropped else message
            case Results():
                reduced = self._results(message)
        self._made[id(message)] = (message, reduced)
        return reduced

    def _user(self, message: User) -> User:
        if id(message) not in self.imageless:
            return message
        return replace(message, images=(), text=f"{message.text}\n\n{IMAGE_REMOVED}")

    def _results(self, message: Results) -> Results:
        imageless = id(message) in self.imageless
        results = tuple(self._result(result, imageless) for result in message.results)
        unchanged = all(new is old for new, old in zip(results, message.results, strict=True))
        return message if unchanged else Results(results)

    def _result(self, result: ToolResult, imageless: bool) -> ToolResult:
        if result.call_id in self.pruned:
            return replace(result, output=REMOVED, images=())
        if result.call_id in self.small:
            head = result.output[: BYTES_KEPT // 2]
            tail = result.output[-BYTES_KEPT // 2 :]
            result = replace(result, output=f"{head}\n[…]\n{tail}")
        if imageless and result.images:
            output = f"{result.output}\n{IMAGE_REMOVED}".strip()
            return replace(result, output=output, images=())
        return result


def pruned_tokens(history: History, pruned: Iterable[str]) -> int:
    """Estimated tokens that pruning these calls' results keeps out of the request."""
    ids = set(pruned)
    if not ids:
        return 0
    return sum(_size(result) for result in _results(history) if result.call_id in ids)


def prune(history: History, already: set[str], excess: int) -> set[str]:
    """Ids of the oldest big results whose removal frees `excess` tokens; fewer when there are none.

    One sweep, since every change breaks the provider's cached prefix. The newest batch is spared:
    the model has not seen it yet.
    """
    chosen: set[str] = set()
    newest = next((m for m in reversed(history) if isinstance(m, Results)), None)
    for message in history:
        if not isinstance(message, Results) or message is newest:
            continue
        for result in message.results:
            if excess <= 0:
                return chosen
            size = _size(result)
            if result.call_id not in already and size >= _WORTH_PRUNING:
                chosen.add(result.call_id)
                excess -= size
    return chosen


def big_results(history: History) -> set[str]:
    """Ids of the calls whose results are larger than BYTES_KEPT."""
    return {r.call_id for r in _results(history) if len(r.output) > BYTES_KEPT}


def _images(message: Message) -> bool:
    match message:
        case User(images=images):
            return bool(images)
        case Results(results=results):
            return any(result.images for result in results)
        case Assistant():
            return False


def _results(history: History) -> Iterable[ToolResult]:
    for message in history:
        if isinstance(message, Results):
            yield from message.results


def _size(result: ToolResult) -> int:
    return text_tokens(result.output) + 1_000 * len(result.images)

"""The size of the next request: the last report, plus an estimate of what was appended since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast

from keen.core.estimate import json_tokens
from keen.core.messages import Json
from keen.wire.base import Body

_LEAST_RATIO: Final = 0.5
_MOST_RATIO: Final = 2.0


@dataclass
class Meter:
    """Measures encoded requests of one model. Costs what was appended, never the whole history.

    `ratio` is the model's own tokens by our estimate's, kept over compactions and in the session.
    """

    ratio: float = 1.0
    reported: int | None = None
    """Prompt tokens of the last answer; None when there is none since the last replacement."""
    _items: list[Json] = field(default_factory=list["Json"])
    _totals: list[int] = field(default_factory=list[int])
    _reported_total: int = 0
    """Estimate of the reported request's items."""

    def measure(self, body: Body) -> int:
        """Tokens this request will be counted as."""
        total = self._count(body)
        if self.reported is None:
            return round(self.ratio * (self._head(body) + total))
        return max(0, self.reported + round(self.ratio * (total - self._reported_total)))

    def report(self, body: Body, tokens: int) -> None:
        """`body` was answered and the provider counted `tokens` of prompt, cached ones included."""
        total = self._count(body)
        estimated = self._head(body) + total
        if estimated > 0 and tokens > 0:
            self.ratio = min(_MOST_RATIO, max(_LEAST_RATIO, tokens / estimated))
        self.reported = tokens
        self._reported_total = total

    def raise_to(self, body: Body, actual: int) -> None:
        """The provider refused `body` and counted `actual` tokens: never believe less again."""
        measured = self.measure(body)
        if actual > measured > 0:
            self.ratio = min(_MOST_RATIO, self.ratio * actual / measured)
            self.reported = None

    def reset(self) -> None:
        """The history was replaced: the last report says nothing about it. The ratio stays."""
        self.reported = None
        self.recount()

    def recount(self) -> None:
        """Messages in the middle were reduced: the next measure walks the whole body once."""
        self._items.clear()
        self._totals.clear()

    def _head(self, body: Body) -> int:
        rest: dict[str, Json] = {k: v for k, v in body.json.items() if k != body.items}
        return json_tokens(rest)

    def _count(self, body: Body) -> int:
        """Estimated tokens of the body's items. Totals of unchanged ones are kept.

        Histories only grow at the end between two resets, so the unchanged prefix is found by
        walking back from the end of what was counted.
        """
        items = cast("list[Json]", body.json[body.items])
        known = min(len(self._items), len(items))
        while known and self._items[known - 1] is not items[known - 1]:
            known -= 1
        del self._items[known:], self._totals[known:]
        total = self._totals[-1] if known else 0
        for item in items[known:]:
            total += json_tokens(item)
            self._items.append(item)
            self._totals.append(total)
        return total

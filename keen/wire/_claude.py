"""What Claude's two protocols share: how to ask for thinking, and whose blocks stand together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from keen.core.messages import Json, JsonObject
from keen.core.models import Effort, ModelSpec

_NEW_NAME: Final = re.compile(
    r"claude-(opus|sonnet|haiku|fable|mythos)-(?:(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)|preview)"
)
REFUSED_LINE: Final = "The provider declined to answer this request."
"""Shown where a refusal comes without a word."""
_LEAST_BUDGET: Final = 1_024
"""The smallest thinking budget the API takes."""
_BUDGETS: Final[Mapping[Effort, int]] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 10_240,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 65_536,
}


@dataclass(frozen=True, slots=True)
class _Version:
    """What one model takes. The source is the maker's pages on thinking and effort, 2026-11."""

    family: str
    number: tuple[int, int]

    @property
    def adapts(self) -> bool:
        """4.6 and later decide for themselves how long to think; 4.7 refuses a budget."""
        return self.number >= (4, 6)

    @property
    def is_silent(self) -> bool:
        """4.7 and later hide their thinking unless a summary is asked for."""
        return self.number >= (4, 7)

    @property
    def thinks_unasked(self) -> bool:
        return self.number >= (5, 0)

    @property
    def off(self) -> JsonObject | None:
        """The value that turns thinking off where it is on unasked; None where nothing does."""
        if self.family in {"fable", "mythos"}:
            return None
        if self.number >= (5, 5) and self.family != "haiku":
            return {"type": "between_tools"} if self.family == "sonnet" else None
        return {"type": "disabled"}


def output_asked(model: ModelSpec) -> int:
    """Output tokens a request asks for before the budget caps them."""
    return model.asked_output or min(64_000, model.max_output or 64_000)


def thinking(
    model: ModelSpec,
    effort: Effort | None,
    output_tokens: int,
    *,
    is_possible: Callable[[], bool],
) -> JsonObject:
    """The fields `thinking` and `output_config` of a request, where the model takes them.

    `is_possible` says False when the running turn's last call came without thinking of this model:
    models with a thinking budget refuse to think then, the others are left to their default.
    """
    version = _version(model.id)
    if not model.reasoning:
        return {}
    if version is None or not version.adapts:
        fields = _by_budget(effort, output_tokens)
        return fields if fields and is_possible() else {}
    if effort == "none":
        return _switched_off(version)
    fields: JsonObject = {}
    if is_possible():
        fields["thinking"] = _adaptive(version)
    if effort is not None:
        fields["output_config"] = {"effort": _level(version, effort)}
    return fields


def _version(model_id: str) -> _Version | None:
    """None for older Claude models and for everything else, which take a plain budget."""
    found = _NEW_NAME.search(model_id.lower())
    if found is None:
        return None
    family, major, minor = found.groups()
    if major is None:
        return _Version(family, (5, 0))
    return _Version(family, (int(major), int(minor or 0)))


def _by_budget(effort: Effort | None, output_tokens: int) -> JsonObject:
    if effort is None or effort == "none":
        return {}
    answer = max(1_024, output_tokens // 4)
    budget = min(_BUDGETS[effort], output_tokens - answer)
    if budget < _LEAST_BUDGET:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _adaptive(version: _Version) -> JsonObject:
    chosen: dict[str, Json] = {"type": "adaptive"}
    if version.is_silent:
        chosen["display"] = "summarized"
    return chosen


def _switched_off(version: _Version) -> JsonObject:
    if not version.thinks_unasked:
        return {}
    if (off := version.off) is not None:
        return {"thinking": off}
    return {"thinking": _adaptive(version), "output_config": {"effort": "low"}}


def _level(version: _Version, effort: Effort) -> str:
    if effort == "minimal":
        return "low"
    if effort == "xhigh" and version.number < (4, 7):
        return "high"
    return effort


def content(message: JsonObject) -> list[JsonObject]:
    """The blocks of an encoded message."""
    return cast("list[JsonObject]", message["content"])


def joined(
    before: JsonObject, message: JsonObject, is_result: Callable[[JsonObject], bool]
) -> JsonObject | None:
    """Neighbours of one role as one message: results before what the person said beside them."""
    if before["role"] != message["role"]:
        return None
    blocks = [*content(before), *content(message)]
    if message["role"] == "user":
        blocks.sort(key=lambda block: not is_result(block))
    return {"role": message["role"], "content": cast(Json, blocks)}


def thought_itself(
    messages: list[JsonObject],
    is_result: Callable[[JsonObject], bool],
    is_thought: Callable[[JsonObject], bool],
) -> bool:
    """False when the running turn goes on from a call that came without this model's thinking.

    With a thinking budget the API refuses an assistant turn that does not begin with thinking
    ("Expected `thinking` or `redacted_thinking`, but found `tool_use`"). Later calls of the same
    turn need none of their own.
    """
    has_answered = False
    for message in reversed(messages):
        if message["role"] == "assistant":
            has_answered = True
            if any(map(is_thought, content(message))):
                return True
        elif not any(map(is_result, content(message))):
            break
    return not has_answered

"""How a Gemini model is told to think: by version, effort and room."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from keen.core.messages import JsonObject
from keen.core.models import Effort, ModelSpec

_VERSION: Final = re.compile(r"gemini-(\d+)(?:[.-](\d+)(?!\d))?")
_BUDGETS: Final[Mapping[Effort, int]] = {
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 32_768,
}


def version(model_id: str) -> tuple[int, int]:
    """(0, 0) for what is no Gemini model; an alias like gemini-flash-latest is a recent one."""
    name = model_id.lower()
    if found := _VERSION.search(name):
        return int(found.group(1)), int(found.group(2) or 0)
    return (3, 0) if "gemini" in name and name.endswith("latest") else (0, 0)


def thinking(model: ModelSpec, effort: Effort | None, output_tokens: int) -> JsonObject:
    """2.5 takes a budget, later models a level; earlier ones do not think."""
    known = version(model.id)
    if known < (2, 5) or not model.reasoning:
        return {}
    config: JsonObject = {"includeThoughts": True}
    if effort is None:
        return config
    is_pro = "pro" in model.id.lower()
    if known < (3, 0):
        return config | {"thinkingBudget": _budget(effort, output_tokens, is_pro)}
    return config | {"thinkingLevel": _level(effort, is_pro, known)}


def _budget(effort: Effort, output_tokens: int, is_pro: bool) -> int:
    """Thoughts count as output: at most half of it. Pro thinks at least 128, Flash up to 24,576."""
    least, most = (128, 32_768) if is_pro else (0, 24_576)
    if effort == "none":
        return least
    return max(least, min(_BUDGETS[effort], most, output_tokens // 2))


def _level(effort: Effort, is_pro: bool, known: tuple[int, int]) -> str:
    if effort in {"none", "minimal"}:
        return "LOW" if is_pro else "MINIMAL"
    if effort == "medium" and is_pro and known == (3, 0):
        return "HIGH"
    return effort.upper() if effort in {"low", "medium"} else "HIGH"

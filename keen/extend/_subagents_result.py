"""What comes back from subagents: one text for the model, shared fairly between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.tools.spill import RESULT_BYTES, bounded

Status: TypeAlias = Literal["done", "failed", "interrupted"]

_NOTHING: Final = "(It said nothing.)"
_BESIDES: Final = 512
"""Bytes that a heading, the blanks around it and the line about what was left out may take."""
_MOST_REASON: Final = 400


@dataclass(frozen=True, slots=True)
class Report:
    """How one subagent ended. `text` is its last answer, `reason` why it is not done."""

    agent: str
    status: Status
    text: str = ""
    reason: str = ""


def is_failure(reports: Sequence[Report]) -> bool:
    """True when none of them is done."""
    return all(report.status != "done" for report in reports)


def told(reports: Sequence[Report], scratch: Path) -> str:
    """Each report under its own heading, all together within what a tool result may be.

    Blocking: of a text that is too long the whole goes to a file in `scratch`.
    """
    texts = [report.text.strip() or _NOTHING for report in reports]
    heads = [_heading(number, report) for number, report in enumerate(reports, 1)]
    sizes = [len(text.encode("utf-8", "replace")) for text in texts]
    besides = sum(len(head.encode("utf-8", "replace")) + _BESIDES for head in heads)
    besides += len(str(scratch)) * len(texts)
    room = fair_shares(sizes, RESULT_BYTES - besides)
    parts = [
        f"{head}\n\n{bounded(text, share, scratch, 'task') if size > share else text}"
        for head, text, size, share in zip(heads, texts, sizes, room, strict=True)
    ]
    return "\n\n".join(parts)


def fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """Bytes for each: what is small stays whole, what is big gets the same."""
    shares = [0] * len(sizes)
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    for place, index in enumerate(smallest_first):
        shares[index] = min(sizes[index], room // (len(sizes) - place))
        room -= shares[index]
    return shares


def _heading(number: int, report: Report) -> str:
    reason = " ".join(report.reason.split())
    if len(reason) > _MOST_REASON:
        reason = f"{reason[: _MOST_REASON - 1]}…"
    status = f"{report.status}: {reason}" if reason else report.status
    return f"## {number}. {report.agent} ({status})"

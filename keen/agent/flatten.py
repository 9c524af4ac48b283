"""A history as labelled text for the summary request, in ever smaller forms.

Text instead of native calls and results, so that no provider's pairing or signature rule can refuse
the request; the current sizes decide how much of it is left out, oldest and bulkiest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from keen.core.estimate import text_tokens
from keen.core.messages import (
    Assistant,
    History,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
)

Stage: TypeAlias = Literal["full", "trimmed", "dropped"]

_STAGES: Final[tuple[Stage, ...]] = ("full", "trimmed", "dropped")
_TRIMMED: Final = 1_500
"""Characters of a trimmed result, head and tail together; of a trimmed input too."""
_LEAST: Final = 256
"""Tokens of a limit under which cutting texts leaves nothing worth reading."""
_SHORT: Final = 400
"""Characters of an input where results are dropped altogether."""


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    is_kept: bool = False
    """An earlier checkpoint and the newest message stay when the oldest are dropped."""

    @property
    def tokens(self) -> int:
        return text_tokens(self.text) + 4


def flattened(history: History, limit: int) -> str | None:
    """The conversation as text of at most `limit` estimated tokens; None when nothing fits."""
    for stage in _STAGES:
        pieces = _pieces(history, stage)
        if sum(piece.tokens for piece in pieces) <= limit:
            return "\n\n".join(piece.text for piece in pieces)
    pieces = _pieces(history, "dropped")
    return _newest(pieces, limit) or _newest(_cut(pieces, limit), limit)


def _cut(pieces: Sequence[_Piece], limit: int) -> Sequence[_Piece]:
    """Long texts as head and tail: one that fills the window must not stop the rescue."""
    if limit < _LEAST:
        return ()
    return [replace(piece, text=clipped(piece.text, limit // 3)) for piece in pieces]


def _newest(pieces: Sequence[_Piece], limit: int) -> str | None:
    """Earlier checkpoints, then as many of the newest pieces as fit, and how many are missing."""
    room = limit - 32 - sum(piece.tokens for piece in pieces if piece.is_kept)
    cut = len(pieces)
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if not piece.is_kept:
            room -= piece.tokens
            if room < 0:
                break
        cut = index
    kept = [piece for piece in pieces[:cut] if piece.is_kept]
    dropped = cut - len(kept)
    if cut == len(pieces):
        return None
    line = f"[{dropped} older messages were left out here to fit.]"
    return "\n\n".join([*(p.text for p in kept), line, *(p.text for p in pieces[cut:])])


def _pieces(history: History, stage: Stage) -> list[_Piece]:
    pieces: list[_Piece] = []
    for message in history:
        match message:
            case User(checkpoint=None):
                label = "USER (while the agent worked)" if message.steering else "USER"
                note = f"\n[{len(message.images)} images]" if message.images else ""
                pieces.append(_Piece(f"[{label}]\n{message.text}{note}"))
            case User(checkpoint=checkpoint) if checkpoint is not None:
                said = "\n\n".join(checkpoint.user_messages)
                pieces.append(
                    _Piece(f"[EARLIER CHECKPOINT: merge it]\n{checkpoint.summary}", is_kept=True)
                )
                if said:
                    pieces.append(_Piece(f"[USER]\n{said}"))
            case Assistant():
                pieces.extend(_answer(message, stage))
            case Results(results=results):
                pieces.extend(_Piece(_result(result, stage)) for result in results)
            case _:
                pass
    return pieces


def _answer(message: Assistant, stage: Stage) -> Iterable[_Piece]:
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                mark = " (interrupted)" if message.interrupted else ""
                yield _Piece(f"[AGENT{mark}]\n{text}")
            case ToolCall():
                yield _Piece(f"[AGENT CALLS {part.name}]\n{_input(part, stage)}")
            case _:
                pass


def _input(call: ToolCall, stage: Stage) -> str:
    text = call.malformed or json.dumps(call.input, ensure_ascii=False)
    match stage:
        case "full":
            return text
        case "trimmed":
            return clipped(text, _TRIMMED)
        case "dropped":
            return clipped(text, _SHORT)


def _result(result: ToolResult, stage: Stage) -> str:
    status = "failed" if result.is_error else "ok"
    if result.exit_code is not None:
        status += f", exit code {result.exit_code}"
    if result.images:
        status += f", {len(result.images)} images"
    label = f"[RESULT OF {result.name}: {status}]"
    match stage:
        case "full":
            return f"{label}\n{result.output}"
        case "trimmed":
            return f"{label}\n{clipped(result.output, _TRIMMED)}"
        case "dropped":
            return f"{label} ({len(result.output):,} characters left out)"


def clipped(text: str, limit: int) -> str:
    """Head and tail of a text longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[-half:]}"

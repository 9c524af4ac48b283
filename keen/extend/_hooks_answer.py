"""What a hook said, from its exit code and its output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, cast

from keen import sanitize
from keen.core.messages import JsonObject
from keen.extend._hooks_process import Ended

EVENTS: Final = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "SubagentStop",
    "Notification",
    "PreCompact",
    "PostCompact",
)

TEXT_LENGTH: Final = 10_000
"""Characters of a hook's text that reach the model."""
_NOTICE_LENGTH: Final = 300

_CAN_BLOCK: Final = frozenset(
    {"PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact"}
)
_PLAIN_IS_CONTEXT: Final = frozenset({"UserPromptSubmit", "SessionStart", "PreCompact"})
"""Events of which plain output, no JSON object, is for the model."""
_NO_REASON: Final = "it gave no reason"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one hook wants, every text harmless and bounded; empty texts want nothing.

    `blocked` and `asks` are reasons, `context` is for the model, `notices` are for the person.
    """

    blocked: str = ""
    asks: str = ""
    context: str = ""
    ends: bool = False
    """No further request of this turn, also where another hook wants it to go on."""
    notices: tuple[str, ...] = ()
    hook: str = ""
    """The hook by its command, short."""


def answer(event: str, ended: Ended, seconds: float) -> Answer:
    """The hook's answer. What is broken never blocks."""
    if ended.how == "timed out":
        return Answer(notices=(f"was ended: it took longer than {seconds:g} s",))
    if ended.how == "flooded":
        return Answer(notices=("was ended: it wrote without end",))
    if ended.code == 2:
        return _blocked(event, tidy(ended.stderr) or _NO_REASON)
    if ended.code:
        how = f"was ended by signal {-ended.code}" if ended.code < 0 else f"failed ({ended.code})"
        said = noticed(ended.stderr) or noticed(ended.stdout)
        return Answer(notices=(f"{how}: {said}" if said else how,))
    said = _object(ended.stdout)
    if said is None:
        return Answer(context=tidy(ended.stdout) if event in _PLAIN_IS_CONTEXT else "")
    return _spoken(event, said)


def unknown_event(event: str) -> str:
    """What is wrong with an event's name; "" where nothing is."""
    if event in EVENTS:
        return ""
    near = get_close_matches(event, EVENTS, n=1, cutoff=0.6)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"hooks.{event}: there is no such event{hint}, so it never runs."


def tidy(text: str, length: int = TEXT_LENGTH) -> str:
    """Harmless text without known secrets, cut to `length` characters."""
    harmless = sanitize.plain(text).strip()
    return harmless if len(harmless) <= length else f"{harmless[:length].rstrip()} […]"


def noticed(text: str) -> str:
    """The first line, short, for the person."""
    first = tidy(text).partition("\n")[0]
    return sanitize.line(first if len(first) <= _NOTICE_LENGTH else f"{first[:_NOTICE_LENGTH]}…")


def _object(text: str) -> JsonObject | None:
    """The JSON object that an output is; None for anything else."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _spoken(event: str, said: JsonObject) -> Answer:
    specific = said.get("hookSpecificOutput")
    if not isinstance(specific, dict):
        specific = {}
    context = _text(specific, "additionalContext")
    notices = tuple(filter(None, (noticed(_text(said, "systemMessage")),)))
    decision = specific.get("permissionDecision")
    reason = _text(specific, "permissionDecisionReason") or _text(said, "reason") or _NO_REASON
    if said.get("continue") is False:
        stopped = _blocked(event, _text(said, "stopReason") or _NO_REASON)
        return Answer(stopped.blocked, ends=True, notices=(*stopped.notices, *notices))
    if said.get("decision") == "block" or decision == "deny":
        blocked = _blocked(event, reason)
        return Answer(blocked.blocked, context=context, notices=(*blocked.notices, *notices))
    asks = reason if decision == "ask" else ""
    return Answer(asks=asks, context=context, notices=notices)


def _blocked(event: str, reason: str) -> Answer:
    """A block, or where nothing can be blocked the reason for the person."""
    return Answer(reason) if event in _CAN_BLOCK else Answer(notices=(noticed(reason),))


def _text(said: JsonObject, name: str) -> str:
    value = said.get(name)
    return tidy(value) if isinstance(value, str) else ""

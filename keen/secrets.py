"""Secret values keen came across in this process, and texts without them.

Whoever resolves a key registers it; whoever writes to a log, a session, a terminal or a pipe asks
for the masked text. What goes to the model is not masked: it is the person's own content.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from keen.core.messages import Json, JsonObject

LEAST_LENGTH: Final = 8
"""Shorter values are words that occur by themselves."""
_WORDS: Final = re.compile(r"[a-z]+([-_. ][a-z]+)*|[A-Z]+([-_. ][A-Z]+)*")
_MOST_WORDS: Final = 24
"""Letters alone up to this length are words too: "not-needed" is what local servers are sent."""
MASK: Final = "***"


@dataclass(frozen=True, slots=True)
class _Known:
    """The values as they may stand in a text, and a pattern of them all, longest first."""

    forms: frozenset[str] = frozenset()
    pattern: re.Pattern[str] = re.compile(r"(?!)")


class _Registry:
    known = _Known()
    changing = threading.Lock()


def register(*values: str) -> None:
    """Mask these from now on, also where JSON or a URL spells them with escapes.

    What reads like a word is not masked: sessions would lose it wherever it is meant as one.
    """
    new = {form for value in values if not _is_word(value) for form in _forms(value)}
    with _Registry.changing:
        forms = new | _Registry.known.forms
        if len(forms) > len(_Registry.known.forms):
            longest_first = sorted(forms, key=len, reverse=True)
            pattern = re.compile("|".join(map(re.escape, longest_first)))
            _Registry.known = _Known(frozenset(forms), pattern)


def forget() -> None:
    """Start anew with nothing registered."""
    _Registry.known = _Known()


def masked(text: str) -> str:
    """The text with every registered value replaced by `***`."""
    known = _Registry.known
    if not any(form in text for form in known.forms):
        return text
    return known.pattern.sub(MASK, text)


def masked_object(value: JsonObject) -> JsonObject:
    """The object with all its texts masked, names included."""
    return {masked(name): _masked(field) for name, field in value.items()}


@dataclass(slots=True)
class Veil:
    """Masks a text that comes in pieces; what may be the beginning of a value waits."""

    _held: str = ""

    def feed(self, piece: str) -> str:
        """What can be shown by now."""
        text = masked(self._held + piece)
        start = min((_beginning(text, form) for form in _Registry.known.forms), default=len(text))
        self._held = text[start:]
        return text[:start]

    def rest(self) -> str:
        """What was held back: the text is over."""
        rest, self._held = self._held, ""
        return rest


def _beginning(text: str, form: str) -> int:
    """Where at the end of `text` a beginning of `form` starts; its length when none does."""
    start = text.find(form[0], max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            return start
        start = text.find(form[0], start + 1)
    return len(text)


def _masked(value: Json) -> Json:
    match value:
        case str():
            return masked(value)
        case list():
            return [_masked(element) for element in value]
        case dict():
            return masked_object(value)
        case _:
            return value


def _is_word(value: str) -> bool:
    if len(value) < LEAST_LENGTH:
        return True
    return len(value) < _MOST_WORDS and _WORDS.fullmatch(value) is not None


def _forms(value: str) -> tuple[str, ...]:
    return (value, json.dumps(value)[1:-1], quote(value, safe=""))

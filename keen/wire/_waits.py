"""How long a provider asks to wait, wherever it says so."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from keen.core.messages import Json

_ASKED: Final = re.compile(
    r"\b(?:try again|retry|retrying|wait|resets?|available again)(?: again)?(?: in| after| for)?:? "
    r"(?:about |approximately )?(\d[^,;|]{0,60})"
)
_MOMENT: Final = re.compile(
    r"\b(?:on|until|at) (\d{4}-\d\d-\d\d)(?:(?: at |t| )(\d\d:\d\d))?.{0,8}utc"
)
_DURATION: Final = re.compile(
    r"\s*(?:and )?(\d+(?:\.\d+)?) ?"
    r"(milliseconds?|ms|minutes?|mins?|m|seconds?|secs?|s|hours?|hrs?|h|days?|d)(?![a-z])"
)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_KEYS: Final = frozenset(
    {"retry_after", "retry_after_seconds", "resets_in_seconds", "retrydelay", "retry-after"}
)
_LONGEST: Final = 10 * 365 * 86_400.0
"""Seconds; a longer wait is a mistake of the server's and no date that can be written."""
_MAX_DEPTH: Final = 8
_MAX_ITEMS: Final = 64


def retry_after(headers: Mapping[str, str], body: Json = None) -> float | None:
    """Seconds until another try, never negative; None when nobody said. `headers` in any case."""
    lower = {name.lower(): value for name, value in headers.items()}
    milliseconds = _seconds(lower.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1_000
    header = lower.get("retry-after", "").strip()
    said = _seconds(header)
    if said is None and header:
        said = _until(header)
    return said if said is not None else said_wait(body, "")


def said_wait(body: Json, text: str) -> float | None:
    """The wait an error body names in a field of its own or in words; `text` in lower case."""
    named = _named(body, 0)
    if named is not None:
        return named
    return spoken_wait(text)


def spoken_wait(text: str) -> float | None:
    """Seconds of "try again in 6m0.5s", "access on 2026-11-01 at 00:00 utc"; lower case."""
    asked = _ASKED.search(text)
    wait = _duration(asked.group(1)) if asked else None
    return _moment(text) if wait is None else wait


def come_back(wait: float) -> str:
    """`Come back in 3 h 12 min (2026-01-31 14:05 UTC).`, rounded up to minutes."""
    wait = min(wait, _LONGEST)
    moment = datetime.fromtimestamp(time.time() + wait, UTC)
    hours, minutes = divmod(max(1, math.ceil(wait / 60)), 60)
    days, hours = divmod(hours, 24)
    named = ((days, "d"), (hours, "h"), (minutes, "min"))
    duration = " ".join(f"{count} {unit}" for count, unit in named if count)
    return f"Come back in {duration} ({moment:%Y-%m-%d %H:%M} UTC)."


def _moment(text: str) -> float | None:
    named = _MOMENT.search(text)
    if named is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{named.group(1)}T{named.group(2) or '00:00'}+00:00")
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _duration(text: str) -> float | None:
    total, position, is_found = 0.0, 0, False
    while found := _DURATION.match(text, position):
        unit = found.group(2)
        key = "ms" if unit.startswith(("ms", "milli")) else unit[0]
        total += float(found.group(1)) * _SECONDS[key]
        position, is_found = found.end(), True
    return total if is_found else None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())


def _named(value: Json, depth: int) -> float | None:
    """A wait in a field: seconds, Google's "12.5s", or the moment of a reset in Unix seconds."""
    if depth > _MAX_DEPTH:
        return None
    inner: list[Json] = []
    match value:
        case dict():
            for key, item in value.items():
                found = _field(key.lower(), item)
                if found is not None:
                    return found
            inner = list(value.values())
        case list():
            inner = value[:_MAX_ITEMS]
        case _:
            pass
    waits = (_named(item, depth + 1) for item in inner)
    return next((wait for wait in waits if wait is not None), None)


def _field(key: str, value: Json) -> float | None:
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        return None
    if key in ("resets_at", "reset_at"):
        moment = _seconds(str(value))
        return None if moment is None else max(0.0, moment - time.time())
    if key not in _KEYS:
        return None
    said = _seconds(str(value))
    return said if said is not None else _duration(str(value).lower())

"""What enters a session file, made storable: valid Unicode, bounded, without keys."""

from __future__ import annotations

import json
import math
from typing import Final

from keen.core.messages import Json, JsonObject
from keen.core.unicode import writable
from keen.secrets import masked

FIELD_BYTES: Final = 4_096
"""Bytes of UTF-8 that one field of a call's input, or one shown output, keeps."""
FIELDS: Final = 64
INPUT_BYTES: Final = 32 * 1024
"""Once a call's fields have taken this much, those that follow keep `SMALL_FIELD_BYTES`."""
SMALL_FIELD_BYTES: Final = 128
DEPTH: Final = 32
_INTEGER_BITS: Final = 256
_MARK: Final = "\n[… {} bytes left out …]\n"


def clean(text: str) -> str:
    """The text without known keys, writable as UTF-8."""
    return writable(masked(text))


def bounded(text: str, limit: int = FIELD_BYTES) -> str:
    """The text, or its head and tail with a line between that says what is missing."""
    text = clean(text)
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - len(_MARK.format(len(data)).encode())
    head = data[: room - room // 3].decode(errors="ignore")
    tail = data[len(data) - room // 3 :].decode(errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return head + _MARK.format(left_out) + tail


def bounded_input(arguments: JsonObject) -> JsonObject:
    """A call's arguments with every field at most 4 KiB; a longer one is a shortened text.

    Idempotent.
    """
    pairs = list(arguments.items())
    kept = pairs if len(pairs) <= FIELDS else pairs[: FIELDS - 1]
    fields: JsonObject = {}
    room = INPUT_BYTES
    for key, value in kept:
        limit = FIELD_BYTES if room > 0 else SMALL_FIELD_BYTES
        fields[bounded(key, SMALL_FIELD_BYTES)], size = _field(value, limit)
        room -= size
    if len(pairs) > len(kept):
        fields["…"] = f"{len(pairs) - len(kept)} more fields"
    return fields


def _field(value: Json, limit: int) -> tuple[Json, int]:
    """A field within the limit, and its size in bytes."""
    value = _storable(value, DEPTH)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    size = len(text.encode())
    if size <= limit:
        return value, size
    short = bounded(text, limit)
    return short, len(short.encode())


def _storable(value: Json, depth: int) -> Json:
    """The value without what JSON readers choke on: NaN, huge integers, deep nesting."""
    match value:
        case str():
            return clean(value)
        case float() if not math.isfinite(value):
            return str(value)
        case bool() | None | float():
            return value
        case int():
            return value if value.bit_length() <= _INTEGER_BITS else bounded(hex(value), 256)
        case _ if depth == 0:
            return "[…]"
        case list():
            return [_storable(element, depth - 1) for element in value]
        case dict():
            return {clean(key): _storable(field, depth - 1) for key, field in value.items()}

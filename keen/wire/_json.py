"""JSON from outside, read strictly: what comes out can be sent back as UTF-8 JSON."""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn, cast

from keen.core.messages import Json, JsonObject
from keen.core.unicode import writable


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def decoded(text: str) -> Json:
    """The JSON value in `text`; lone surrogates become U+FFFD.

    Raises:
        ValueError: no JSON, NaN or an infinity, digits without end, or nesting too deep to read.
    """
    try:
        value = cast(Json, _DECODER.decode(text))
        # Only an escape can bring a lone surrogate in: text was decoded from UTF-8.
        return _without_surrogates(value) if "\\ud" in text.lower() else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def call_input(arguments: str) -> tuple[JsonObject, str]:
    """A call's input and, when `arguments` is no JSON object, the raw text that is none.

    An empty string is a call without arguments: some servers send nothing in place of `{}`.
    """
    if not arguments.strip():
        return {}, ""
    try:
        value = decoded(arguments)
    except ValueError:
        return {}, arguments
    return (value, "") if isinstance(value, dict) else ({}, arguments)


def as_object(value: Json) -> JsonObject:
    """`value`, or an empty object in place of anything else."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Json) -> list[JsonObject]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_string(value: Json) -> str:
    """`value`, or "" in place of anything else."""
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    """`value` as a number of tokens, or 0 in place of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return 0
    return int(value)


def as_index(value: Json) -> int | None:
    """`value` as a place in a list, or None in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cleaned(fields: JsonObject) -> JsonObject:
    """`fields` without lone surrogates, at any depth."""
    return {writable(key): _without_surrogates(item) for key, item in fields.items()}


def _without_surrogates(value: Json) -> Json:
    match value:
        case str():
            return writable(value)
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {writable(key): _without_surrogates(item) for key, item in value.items()}
        case _:
            return value

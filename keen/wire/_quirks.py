"""What one server refuses or wants that another does not: the words of `Endpoint.quirks`.

Two kinds of words, in providers.toml and in what a `Quirk` refusal taught:

`no:FIELD` leaves FIELD out. FIELD is a request field (`stream_options`, `max_tokens`,
`max_completion_tokens`, `prompt_cache_key`, `reasoning_effort`, `reasoning`, `thinking`,
`temperature`, `include`, `store`, `cachePoint`, `cache_control`, …), a field of replayed answers
(`reasoning_content`, `reasoning_details`), or a freedom that a strict server does not give:
`consecutive_messages` (two user messages in a row) and `long_call_ids` (other than nine letters and
digits).

A plain FIELD asks for what an unknown server is not sent. The chat wire knows
`max_completion_tokens` (in place of `max_tokens`), `prompt_cache_key`, `reasoning` (the effort as
`reasoning: {"effort": …}`), `thinking` (the effort as a switch, `thinking: {"type": …}`) and
`transforms` (sent empty, so that a router does not drop the middle of a conversation).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from keen.wire.base import Endpoint

OPTIONAL: Final = frozenset(
    {
        "cachePoint",
        "cache_control",
        "consecutive_messages",
        "context_management",
        "effort",
        "include",
        "include_usage",
        "long_call_ids",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "metadata",
        "output_config",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "strict",
        "temperature",
        "thinking",
        "thinkingConfig",
        "tool_choice",
        "top_p",
        "transforms",
        "truncation",
        "verbosity",
    }
)
"""Fields without which a request still means the same: the only ones a refusal may take away."""


def allows(quirks: frozenset[str], field: str) -> bool:
    """True unless this server refuses `field`."""
    return f"no:{field}" not in quirks


def wants(quirks: frozenset[str], field: str) -> bool:
    """True when this server is known to want `field` and has not refused it since."""
    return field in quirks and allows(quirks, field)


def without(endpoint: Endpoint, field: str) -> Endpoint:
    """The same endpoint, `field` left out from now on."""
    return replace(endpoint, quirks=endpoint.quirks | {f"no:{field}"})


_NAMES: Final = {field.lower(): field for field in OPTIONAL}
_FIELD: Final = (
    r"[\"'`\[]?(?:[\w.\[\]]{0,80}?[.\]/])??\b(?P<field>"
    + "|".join(sorted(_NAMES, key=len, reverse=True))
    + r")(?:\.\w+)*\b[\"'`\]]?"
)
_WORDINGS: Final = (
    # "Unsupported parameter: 'x'", "Unrecognized request argument supplied: x", "extra key [x]"
    r"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|invalid|extra|extraneous|additional)"
    r"(?: request)? (?:parameter|argument|field|property|properties|key|name|input|body field"
    r"|keyword argument)s?(?: supplied| found| provided)?(?: \w+)?:? " + _FIELD,
    r"unsupported value:? " + _FIELD,
    # "'x' is not supported with this model", "property 'x' is unsupported"
    _FIELD + r" (?:parameter )?(?:(?:is|are|was|were) )?(?:currently )?(?:not |un)"
    r"(?:supported|allowed|permitted|recogni[sz]ed|available|known)",
    _FIELD + r":? .{0,20}extra inputs are not permitted",
    r"additional properties are not allowed \(" + _FIELD,
    r"(?:does not|doesn't|do not|cannot) (?:support|accept|recogni[sz]e|allow|take)"
    r"(?: the)?(?: request)?(?: setting| parameter| field| argument| option)?:? " + _FIELD,
)
_FORMS: Final = {
    "consecutive_messages": r"roles must alternate|alternate between user and assistant",
    "long_call_ids": r"must be a-z, a-z, 0-9,? with a length of 9",
    "cachePoint": r"did not allow prompt caching|does not support prompt caching",
}
_REFUSING_CODES: Final = frozenset(
    {"extra_forbidden", "unsupported_parameter", "unknown_parameter", "unsupported_value"}
)


def refused_form(text: str) -> str | None:
    """The freedom a server does not give; `text` in lower case. Templates answer it with a 500."""
    return next((name for name, pattern in _FORMS.items() if re.search(pattern, text)), None)


def refused_field(text: str, codes: Iterable[str], params: Iterable[str]) -> str | None:
    """The optional field a refusal names; `text` and `codes` in lower case."""
    for wording in _WORDINGS:
        if found := re.search(wording, text):
            return _NAMES[found.group("field")]
    if _REFUSING_CODES.isdisjoint(codes) and "extra inputs are not permitted" not in text:
        return None
    names = (part for param in params for part in reversed(re.split(r"[.\[\]]+", param.lower())))
    return next((_NAMES[name] for name in names if name in _NAMES), None)

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
        "text",
        "thinking",
        "thinkingConfig",
        "tool_choice",
        "top_p",
        "transforms",
        "truncation",
        "user",
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

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from keen.core.errors import (
    BadImage,
    ContextOverflow,
    MalformedHistory,
    OutputReserve,
    ProviderError,
    Quirk,
    Rejected,
    TooMany,
    TooManyBytes,
    Transient,
    Unauthorized,
)
from keen.core.messages import Json
from keen.wire._overflow import classified, refused, retry_after
from keen.wire._phrases import REFUSALS, UNMISTAKABLE, VETOES, Kind

CLASSES: dict[Kind, tuple[type[ProviderError], ...]] = {
    "window": (ContextOverflow, OutputReserve),  # a split decides, tested below one by one
    "reserve": (OutputReserve,),
    "range": (OutputReserve,),
    "bytes": (TooManyBytes,),
    "count": (TooMany,),
    "image": (BadImage,),
    "history": (MalformedHistory,),
    "rate": (Transient,),
    "spent": (Transient,),
    "entitlement": (Unauthorized,),
    "key": (Unauthorized,),
    "rejected": (Rejected,),
}
SIZE_ROWS = [
    pytest.param(kind, example, id=f"{kind}-{example[:50]}")
    for groups in (UNMISTAKABLE, REFUSALS)
    for kind, rows in groups.items()
    for _, example in rows
]
LOOK_ALIKES = [
    pytest.param(kind, example, id=f"{kind}-{example[:50]}")
    for kind, rows in VETOES.items()
    for _, example in rows
]


def judged(status: int | None, message: str, **fields: Json) -> ProviderError:
    return classified(
        status=status, body={"error": {"message": message, **fields}}, provider="acme"
    )


@pytest.mark.parametrize(("kind", "example"), SIZE_ROWS)
def test_each_wording_means_what_its_row_says(kind: Kind, example: str) -> None:
    for status in (400, 413, 422, 200, None):
        error = judged(status, example)
        assert type(error) in CLASSES[kind], status
        assert error.status == status
        assert "acme" in str(error)
        assert len(str(error)) <= 2_000


@pytest.mark.parametrize(("kind", "example"), LOOK_ALIKES)
def test_a_look_alike_is_never_an_overflow(kind: Kind, example: str) -> None:
    for status in (400, 413, 429, 503, None):
        error = judged(status, example)
        assert type(error) in CLASSES[kind], status
        if isinstance(error, Transient):
            assert error.is_spent == (kind == "spent")


@pytest.mark.parametrize(("kind", "example"), SIZE_ROWS)
def test_a_wording_of_size_behind_a_429_is_a_rate(kind: Kind, example: str) -> None:
    is_unmistakable = any(example == row[1] for row in UNMISTAKABLE.get(kind, ()))
    assert isinstance(judged(429, example), Transient) or is_unmistakable


def maximum(limit: int, rest: str) -> str:
    return f"This model's maximum context length is {limit} tokens. However, {rest}"


@pytest.mark.parametrize(
    ("message", "actual", "limit"),
    [
        (maximum(8192, "your messages resulted in 10000 tokens."), 10_000, 8_192),
        (maximum(8192, "you requested 9500 tokens (9000 in the messages, 500 in the completion)."),
         9_000, 8_192),
        (maximum(8192, "you requested 9,500 tokens (8,000 in the messages, 1,000 in the functions, "
         "500 in the completion)."), 9_000, 8_192),
        ("This endpoint's maximum context length is 131072 tokens. However, you requested about "
         "200000 tokens (150000 of text input, 2000 of tool input, 48000 in the output). Please "
         "reduce the length", 152_000, 131_072),
        (maximum(3, "your request has 25 input tokens."), 25, None),
        (maximum(4096, "your request has 5000 input tokens."), 5_000, None),
        ("You passed 4097 input tokens and requested 0 output tokens. However, the model's context "
         "length is only 4096 tokens", 4_097, 4_096),
        ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
         "300000 tokens.", 300_000, 272_000),
        ("request (40000 tokens) exceeds the available context size (32768 tokens)", 40_000,
         32_768),
        ("The number of tokens is greater than the context length (n_keep: 12000>= n_ctx: 4096)",
         12_000, 4_096),
        ("Your request exceeded model token limit: 262144 (requested: 270000)", 270_000, 262_144),
        ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
         "context length", 40_000, 32_768),
        ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
         140_000, 131_072),
        ("The input (40000 tokens) is longer than the model's context length (32768 tokens).",
         40_000, 32_768),
        ("exceeds the model's maximum context length of 128,000 tokens", None, 128_000),
        ("prompt token count of 140000 exceeds the limit of 128000", 140_000, 128_000),
        ("prompt is too long: 213462 tokens > 200000 maximum", 213_462, 200_000),
        ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
         1_196_265, 1_048_575),
        ("Requested input length 40000 exceeds maximum input length 32768", 40_000, 32_768),
        ("Input length 140000 exceeds the maximum allowed input length of 131040 tokens.",
         140_000, 131_040),
        ("Range of input length should be [1, 129024]", None, 129_024),
        ("max_tokens must be at least 1, got -1024.", None, None),
        ("Please reduce the length of the messages or completion.", None, None),
    ],
)  # fmt: skip
def test_an_overflow_carries_the_numbers_it_names(
    message: str, actual: int | None, limit: int | None
) -> None:
    error = judged(400, message)
    assert isinstance(error, ContextOverflow)
    assert (error.actual, error.limit) == (actual, limit)


@pytest.mark.parametrize(
    ("message", "limit", "is_range"),
    [
        (maximum(8192, "you requested 9000 tokens (5000 in the messages, 4000 in the completion)."),
         3_192, False),
        ("This endpoint's maximum context length is 131072 tokens. However, you requested about "
         "140000 tokens (90000 of text input, 2000 of tool input, 48000 in the output).",
         39_072, False),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
         10_000, False),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3800 `inputs` tokens and 1000 "
         "`max_new_tokens`", 296, False),
        ("'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context "
         "length is 4096 tokens and your request has 25 input tokens (4096 > 4096 - 25).",
         4_071, False),
        ("You passed 4000 input tokens and requested 500 output tokens. However, the model's "
         "context length is only 4096 tokens", 96, False),
        (maximum(131072, "you requested 32000 output tokens and your prompt contains at least "
         "99073 input tokens"), None, False),
        ("max_tokens must be less than or equal to 16384", 16_384, True),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value", 8_192, True),
        ("max_tokens is too large: 200000. This model supports at most 16384 completion tokens",
         16_384, True),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192, True),
        ("maxOutputTokens value of 80000 but the supported range is from 1 (inclusive) to 65537 "
         "(exclusive).", 65_536, True),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for m",
         64_000, True),
        ("The maximum tokens you requested exceeds the model limit of 8192. Try again",
         8_192, True),
    ],
)  # fmt: skip
def test_an_output_that_does_not_fit_says_how_much_would(
    message: str, limit: int | None, is_range: bool
) -> None:
    error = judged(400, message)
    assert isinstance(error, OutputReserve)
    assert (error.limit, error.is_range) == (limit, is_range)


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (400, {"code": "context_length_exceeded", "message": ""}, ContextOverflow),
        (None, {"code": "context_length_exceeded", "message": None}, ContextOverflow),
        (429, {"code": "context_length_exceeded", "message": "too big"}, ContextOverflow),
        (500, {"type": "exceed_context_size_error", "message": "x"}, ContextOverflow),
        (400, {"code": "model_max_prompt_tokens_exceeded"}, ContextOverflow),
        (400, {"code": "model_context_exceeded"}, ContextOverflow),
        (400, {"code": "prompt_too_long"}, ContextOverflow),
        (400, {"code": "1261", "message": "Prompt exceeds max length"}, ContextOverflow),
        (422, {"code": "max_tokens_exceeded", "message": "cut at max_tokens"}, Rejected),
        (413, {"type": "request_too_large", "message": "Request exceeds"}, TooManyBytes),
        (400, {"code": "array_above_max_length", "message": "array too long"}, TooMany),
        (400, {"code": "invalid_image_url", "message": "bad picture"}, BadImage),
        (None, {"code": "insufficient_quota", "message": "quota"}, Transient),
        (None, {"code": "usage_not_included", "message": "upgrade"}, Unauthorized),
        (None, {"code": "rate_limit_exceeded", "message": "try again in 3s"}, Transient),
        (None, {"code": "server_error", "message": "oops"}, Transient),
        (200, {"type": "overloaded_error", "message": "Overloaded"}, Transient),
        (401, {"code": "invalid_api_key", "message": "Incorrect API key"}, Unauthorized),
        (400, {"status": "INVALID_ARGUMENT", "message": "API key not valid.",
               "details": [{"reason": "API_KEY_INVALID"}]}, Unauthorized),
        (403, {"code": "UnrecognizedClientException", "message": "bad token"}, Unauthorized),
        (403, {"message": "Project has no access to the model"}, Unauthorized),
        (402, {"message": "Pay first"}, Transient),
        (404, {"message": "no such model"}, Rejected),
        (407, {"message": "proxy"}, Rejected),
        (408, {"message": "slow"}, Transient),
        (413, {"message": "too large for this proxy"}, TooManyBytes),
        (400, {"message": "Request contains an invalid argument."}, Rejected),
        (400, {"message": "unknown model: the context of length"}, Rejected),
        (500, {"message": "llama-server process has terminated"}, Transient),
        (502, {"message": "bad gateway"}, Transient),
        (529, {"message": "Overloaded"}, Transient),
        (None, {"message": "something"}, Transient),
    ],
)  # fmt: skip
def test_codes_and_statuses_decide(
    status: int | None, fields: dict[str, Json], expected: type[ProviderError]
) -> None:
    assert type(classified(status=status, body={"error": fields}, provider="acme")) is expected


def test_a_code_and_a_message_do_without_a_body() -> None:
    error = classified(status=None, code="context_length_exceeded", message="too much")
    assert type(error) is ContextOverflow
    error = classified(status=400, code="ValidationException", message="Input is too long for "
                       "requested model.", provider="bedrock")  # fmt: skip
    assert type(error) is ContextOverflow


def test_llama_cpp_numbers_come_from_its_fields() -> None:
    error = judged(
        400, "too big", type="exceed_context_size_error", n_prompt_tokens=40_000, n_ctx=32_768
    )
    assert isinstance(error, ContextOverflow)
    assert (error.actual, error.limit) == (40_000, 32_768)


def test_a_status_inside_a_stream_counts_as_one() -> None:
    assert type(judged(200, "slow down a little", code=429)) is Transient
    assert type(judged(None, "no key", code=401)) is Unauthorized
    assert type(judged(200, "maximum context length is 9000 tokens", code=400)) is ContextOverflow


def test_a_single_request_over_the_rate_limit_is_not_a_wait() -> None:
    words = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested {}"
    assert type(judged(413, words.format(7_000), code="rate_limit_exceeded")) is TooMany
    assert type(judged(429, words.format("7,000"))) is TooMany
    used = "tokens per min (TPM): Limit 6000, Used 5900, Requested 400. Try again in 3s."
    error = judged(429, used)
    assert isinstance(error, Transient)
    assert error.retry_after == 3


def test_a_spent_quota_says_when_it_is_renewed_if_the_provider_did() -> None:
    spent = "You exceeded your current quota, please check your plan and billing details."
    assert "Come back in 2 d (" in str(
        judged(429, spent, code="insufficient_quota", retry_after=172_800)
    )
    assert "Come back in 3650 d (" in str(
        judged(429, spent, code="insufficient_quota", retry_after=1e30)
    )
    assert "add credit" in str(judged(429, spent, code="insufficient_quota"))


def test_a_quota_that_comes_back_in_a_moment_is_waited_for() -> None:
    spent = "You exceeded your current quota, please check your plan and billing details."
    minute: Json = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
    error = judged(429, spent, code=429, details=minute)

    assert isinstance(error, Transient)
    assert (error.is_spent, error.retry_after) == (False, 34)


INNER = "prompt is too long: 213462 tokens > 200000 maximum"


def nested(depth: int) -> Json:
    body: Json = INNER
    for _ in range(depth):
        body = {"error": body}
    return body


def stringified(depth: int) -> str:
    text = INNER
    for _ in range(depth):
        text = json.dumps({"error": {"message": text}})
    return text


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "error": {"type": "invalid_request_error", "message": INNER}},
        {"detail": INNER},
        {"message": INNER},
        INNER,
        nested(8),
        [{"error": {"code": 400, "message": INNER, "status": "INVALID_ARGUMENT"}}],
        {"error": {"message": "Provider returned error", "code": 400,
                   "metadata": {"provider_name": "X", "raw": stringified(1)}}},
        {"error": {"message": f"litellm.BadRequestError: AnthropicException - {stringified(1)}. "
                   "Received Model Group=m"}},
        {"error": {"message": stringified(2)}},
    ],
)  # fmt: skip
def test_an_overflow_is_found_however_a_gateway_wrapped_it(body: Json) -> None:
    error = classified(status=400, body=body, provider="acme")
    assert isinstance(error, ContextOverflow)
    assert (error.actual, error.limit) == (213_462, 200_000)
    assert INNER in str(error)


def test_a_body_nested_without_end_is_given_up() -> None:
    assert type(classified(status=400, body=nested(2_000))) is Rejected
    wide: list[Json] = ["x" for _ in range(100_000)]
    assert type(classified(status=400, body={"error": wide})) is Rejected


@pytest.mark.parametrize("status", [400, 413])
@pytest.mark.parametrize("content", [b"", b"  ", b"{}", b'{"error": null}'])
def test_an_empty_refusal_is_left_to_the_estimate(status: int, content: bytes) -> None:
    error = refused(status, {}, content, "acme")
    assert type(error) is Rejected
    assert error.status == status


@pytest.mark.parametrize(
    ("status", "expected"),
    [(413, TooManyBytes), (403, Rejected), (502, Transient), (520, Transient), (400, Rejected)],
)
def test_a_page_of_a_gateway_is_told_by_its_title(
    status: int, expected: type[ProviderError]
) -> None:
    page = b"<!DOCTYPE html><html><head><title>Gateway says no</title></head>x</html>"
    error = refused(status, {}, page, "acme")
    assert type(error) is expected
    assert "Gateway says no" in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unsupported parameter: 'prompt_cache_key'", "prompt_cache_key"),
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
        ("Unrecognized request arguments supplied: reasoning_effort, store", "reasoning_effort"),
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
         "'max_completion_tokens' instead.", "max_tokens"),
        ("max_tokens is not supported with this model. Use max_completion_tokens", "max_tokens"),
        ("Unsupported value: 'temperature' does not support 0.2 with this model.", "temperature"),
        ("Unknown parameter: 'reasoning.effort'.", "reasoning"),
        ("Unsupported parameter: max_output_tokens", "max_output_tokens"),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
        ("tools.0.custom.cache_control.ttl: Extra inputs are not permitted", "cache_control"),
        ("context_management: Extra inputs are not permitted", "context_management"),
        ('Invalid JSON payload received. Unknown name "stream_options": Cannot find field.',
         "stream_options"),
        ("'messages.2' : for 'role:assistant' the following must be satisfied"
         "[('messages.2.reasoning_content' : property 'reasoning_content' is unsupported)]",
         "reasoning_content"),
        ("Malformed input request: #: extraneous key [cachePoint] is not permitted", "cachePoint"),
        ("You invoked an unsupported model or your request did not allow prompt caching.",
         "cachePoint"),
        ("This model does not support the effort parameter.", "effort"),
        ('"gemma3" does not support thinking', "thinking"),
        ("After the optional system message, conversation roles must alternate user/assistant",
         "consecutive_messages"),
        ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
         "long_call_ids"),
    ],
)  # fmt: skip
def test_an_optional_field_refused_by_name_is_a_quirk(message: str, field: str) -> None:
    error = judged(400, message)
    assert isinstance(error, Quirk)
    assert error.field == field


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"],
                     "msg": "Extra inputs are not permitted", "input": {"include_usage": True}}]},
        {"error": {"message": "Not on this model", "code": "unsupported_parameter",
                   "param": "stream_options"}},
    ],
)  # fmt: skip
def test_a_refused_field_is_found_beside_the_words(body: Json) -> None:
    error = classified(status=422, body=body)
    assert isinstance(error, Quirk)
    assert error.field == "stream_options"


@pytest.mark.parametrize(
    "message",
    ["Unsupported parameter: 'messages'", 'Unknown name "model"', "Invalid value: 'text'."],
)
def test_a_field_that_is_not_optional_is_no_quirk(message: str) -> None:
    assert type(judged(400, message)) is Rejected


def test_a_refused_key_names_the_provider_and_the_command_and_hides_the_key() -> None:
    error = judged(401, "Incorrect API key provided: sk-abcdefghijklmnopqrstuv.")
    assert "keen auth login acme" in str(error)
    assert "abcdefghij" not in str(error)


def test_messages_are_bounded() -> None:
    for message in ("x" * 100_000, "prompt is too long " + "y" * 100_000, "é" * 50_000):
        assert len(str(judged(400, message))) <= 2_000


HEADERS: list[tuple[dict[str, str], float | None]] = [
    ({"Retry-After": "12"}, 12.0),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "-5"}, 0.0),
    ({"retry-after": "1000000000"}, 1e9),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ({}, None),
]


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
def test_headers_say_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, None) == seconds


def test_a_date_to_come_is_a_wait() -> None:
    wait = retry_after({"retry-after": formatdate(time.time() + 90, usegmt=True)}, None)
    assert wait is not None
    assert 60 < wait <= 90


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"error": {"details": [{"@type": "RetryInfo", "retryDelay": "12.5s"}]}}, 12.5),
        ({"error": {"message": "Please try again in 1.5s."}}, 1.5),
        ({"error": {"message": "Please try again in 20ms."}}, 0.02),
        ({"error": {"message": "Please try again in 6m0.5s. Visit"}}, 360.5),
        ({"error": {"message": "try again in 1h2m3s"}}, 3_723),
        ({"error": {"message": "Try again in 3 hours 12 minutes."}}, 11_520),
        ({"error": {"message": "try again in about 2 days"}}, 172_800),
        ({"error": {"message": "rate limited", "resets_in_seconds": 77}}, 77),
        ({"error": {"message": "try again later"}}, None),
    ],
)
def test_bodies_say_how_long_to_wait(body: Json, seconds: float | None) -> None:
    error = classified(status=429, body=body)
    assert isinstance(error, Transient)
    assert error.retry_after == seconds


def test_a_moment_named_in_words_is_a_wait() -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86_400))
    words = f"Reached your specified API usage limits. Regain access on {day} at 00:00 UTC."
    error = judged(400, words)
    assert isinstance(error, Transient)
    assert error.is_spent
    assert error.retry_after is not None
    assert 86_400 < error.retry_after <= 3 * 86_400
    assert retry_after({}, {"error": {"message": "on 2026-99-99 at 00:00 UTC"}}) is None

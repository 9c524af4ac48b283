"""How the six protocols refuse: one table of wordings, one envelope for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from keen.core.messages import Json, JsonObject
from tests.fakes.frames import aws, sse
from tests.fakes.script import Scripted, json_reply

Kind: TypeAlias = Literal[
    "overflow",
    "output_reserve",
    "output_range",
    "too_many_bytes",
    "malformed_history",
    "bad_image",
    "quirk",
    "rate_limited",
    "overloaded",
    "spent",
    "unauthorized",
]


@dataclass(frozen=True, slots=True)
class Wording:
    """Status, code (or type, or status word) and message of one refusal."""

    status: int
    code: str
    message: str
    param: str | None = None


_HTML = "<html><head><title>413 Request Entity Too Large</title></head></html>"
_OPENAI_LIMIT = "This model's maximum context length is {limit} tokens. However, "
_ANTHROPIC_RESERVE = (
    "input length and `max_tokens` exceed context limit: {input} + {asked} > {limit}, "
    "decrease input length or `max_tokens` and try again"
)
_BEDROCK_MODEL = "The model returned the following errors: "
_INVALID: Final = "invalid_request_error"

WORDINGS: Final[Mapping[Kind, Mapping[str, Wording]]] = {
    "overflow": {
        "chat": Wording(
            400,
            "context_length_exceeded",
            _OPENAI_LIMIT + "your messages resulted in {actual} tokens. "
            "Please reduce the length of the messages.",
            "messages",
        ),
        "responses": Wording(
            400,
            "context_length_exceeded",
            "Your input exceeds the context window of this model. "
            "Please adjust your input and try again.",
            "input",
        ),
        "codex": Wording(
            400,
            "context_length_exceeded",
            "Your input exceeds the context window of this model. "
            "Please adjust your input and try again.",
        ),
        "anthropic": Wording(
            400, _INVALID, "prompt is too long: {actual} tokens > {limit} maximum"
        ),
        "google": Wording(
            400,
            "INVALID_ARGUMENT",
            "The input token count ({actual}) exceeds the maximum number of tokens "
            "allowed ({limit}).",
        ),
        "bedrock": Wording(
            400,
            "ValidationException",
            _BEDROCK_MODEL + "prompt is too long: {actual} tokens > {limit} maximum",
        ),
    },
    "output_reserve": {
        "chat": Wording(
            400,
            "context_length_exceeded",
            _OPENAI_LIMIT + "you requested {total} tokens ({input} in the messages, "
            "{asked} in the completion). Please reduce the length of the messages or completion.",
            "messages",
        ),
        "responses": Wording(
            400,
            "context_length_exceeded",
            "This endpoint's maximum context length is {limit} tokens. However, you requested "
            "about {total} tokens ({input} of text input, {asked} in the output). "
            "Please reduce the length of either one.",
        ),
        "anthropic": Wording(400, _INVALID, _ANTHROPIC_RESERVE),
        "bedrock": Wording(400, "ValidationException", _BEDROCK_MODEL + _ANTHROPIC_RESERVE),
    },
    "output_range": {
        "chat": Wording(
            400,
            _INVALID,
            "Invalid max_tokens value, the valid range of max_tokens is [1, {limit}]",
        ),
        "responses": Wording(
            400,
            "integer_above_max_value",
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value "
            "<= {limit}, but got {above} instead.",
            "max_output_tokens",
        ),
        "anthropic": Wording(
            400,
            _INVALID,
            "max_tokens: {above} > {limit}, which is the maximum allowed number of output tokens "
            "for this model",
        ),
        "google": Wording(
            400,
            "INVALID_ARGUMENT",
            "Unable to submit request because it has a maxOutputTokens value of {above} but the "
            "supported range is from 1 (inclusive) to {over} (exclusive).",
        ),
        "bedrock": Wording(
            400,
            "ValidationException",
            _BEDROCK_MODEL + "max_tokens: {above} > {limit}, which is the maximum allowed number "
            "of output tokens for this model",
        ),
    },
    "too_many_bytes": {
        "chat": Wording(400, _INVALID, "total message size 4718592 exceeds limit 4194304"),
        "responses": Wording(413, "", _HTML),
        "codex": Wording(413, "", _HTML),
        "anthropic": Wording(413, "request_too_large", "Request exceeds the maximum size"),
        "google": Wording(
            400,
            "INVALID_ARGUMENT",
            "Request payload size exceeds the limit: 20971520 bytes.",
        ),
        "bedrock": Wording(
            400,
            "ValidationException",
            "Value at 'body' failed to satisfy constraint: Member must have length less than "
            "or equal to 25000000",
        ),
    },
    "malformed_history": {
        "chat": Wording(
            400,
            _INVALID,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            "{detail}",
            "messages",
        ),
        "responses": Wording(
            400, _INVALID, "No tool output found for function call {detail}.", "input"
        ),
        "codex": Wording(400, _INVALID, "No tool output found for function call {detail}."),
        "anthropic": Wording(
            400,
            _INVALID,
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately "
            "after: {detail}. Each `tool_use` block must have a corresponding `tool_result` "
            "block in the next message.",
        ),
        "google": Wording(
            400,
            "INVALID_ARGUMENT",
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn. {detail}",
        ),
        "bedrock": Wording(
            400,
            "ValidationException",
            "Expected toolResult blocks at messages.2.content for the following Ids: {detail}",
        ),
    },
    "bad_image": {
        "chat": Wording(
            400,
            "invalid_image_format",
            "You uploaded an unsupported image. Please make sure your image has of one the "
            "following formats: ['png', 'jpeg', 'gif', 'webp'].",
        ),
        "responses": Wording(
            400,
            "invalid_value",
            "The image data you provided does not represent a valid image. "
            "Please check your input and try again.",
            "input",
        ),
        "codex": Wording(
            400,
            "invalid_value",
            "The image data you provided does not represent a valid image. "
            "Please check your input and try again.",
        ),
        "anthropic": Wording(
            400,
            _INVALID,
            "messages.0.content.1.image.source.base64.data: At least one of the image dimensions "
            "exceed max allowed size: 8000 pixels",
        ),
        "google": Wording(400, "INVALID_ARGUMENT", "Unable to process input image."),
        "bedrock": Wording(
            400,
            "ValidationException",
            _BEDROCK_MODEL + "messages.0.content.1.image.source.base64: image exceeds 5 MB "
            "maximum: 5316852 bytes > 5242880 bytes",
        ),
    },
    "quirk": {
        "chat": Wording(
            400,
            "unsupported_parameter",
            "Unsupported parameter: '{field}' is not supported with this model.",
            "{field}",
        ),
        "responses": Wording(400, "unknown_parameter", "Unknown parameter: '{field}'.", "{field}"),
        "codex": Wording(400, "", "Unsupported parameter: {field}"),
        "anthropic": Wording(400, _INVALID, "{field}: Extra inputs are not permitted"),
        "google": Wording(
            400,
            "INVALID_ARGUMENT",
            'Invalid JSON payload received. Unknown name "{field}" at '
            "'generation_config': Cannot find field.",
        ),
        "bedrock": Wording(
            400,
            "ValidationException",
            "The model returned the following errors: {field}: Extra inputs are not permitted",
        ),
    },
    "rate_limited": {
        "chat": Wording(429, "rate_limit_exceeded", "Rate limit reached for this model."),
        "responses": Wording(429, "rate_limit_exceeded", "Rate limit reached for this model."),
        "codex": Wording(429, "rate_limit_exceeded", "Rate limit reached for this model."),
        "anthropic": Wording(
            429,
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 40,000 input tokens "
            "per minute.",
        ),
        "google": Wording(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
        "bedrock": Wording(
            429,
            "ThrottlingException",
            "Too many tokens, please wait before trying again.",
        ),
    },
    "overloaded": {
        "chat": Wording(503, "server_error", "The server is overloaded."),
        "responses": Wording(503, "server_error", "The server is overloaded."),
        "codex": Wording(503, "server_is_overloaded", "The server is overloaded."),
        "anthropic": Wording(529, "overloaded_error", "Overloaded"),
        "google": Wording(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        "bedrock": Wording(
            503, "ServiceUnavailableException", "Bedrock is unable to process your request."
        ),
    },
    "spent": {
        "chat": Wording(
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        "responses": Wording(
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        "codex": Wording(429, "usage_limit_reached", "The usage limit has been reached"),
        "anthropic": Wording(
            400,
            _INVALID,
            "You have reached your specified API usage limits. You will regain access on "
            "2099-01-01 at 00:00 UTC.",
        ),
        "google": Wording(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        "bedrock": Wording(
            429,
            "ThrottlingException",
            "Too many tokens per day, please wait before trying again.",
        ),
    },
    "unauthorized": {
        "chat": Wording(401, "invalid_api_key", "Incorrect API key provided."),
        "responses": Wording(401, "invalid_api_key", "Incorrect API key provided."),
        "codex": Wording(401, "", "Provided authentication token is expired."),
        "anthropic": Wording(401, "authentication_error", "invalid x-api-key"),
        "google": Wording(
            400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."
        ),
        "bedrock": Wording(
            403,
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
        ),
    },
}


def server_error_wording(protocol: str, status: int) -> Wording:
    """A failure of the server itself."""
    codes = {
        "anthropic": "api_error",
        "google": "INTERNAL",
        "bedrock": "InternalServerException",
    }
    return Wording(status, codes.get(protocol, "server_error"), "An internal error has occurred.")


def _openai(wording: Wording) -> JsonObject:
    kind = _INVALID if wording.status < 429 else wording.code
    code: Json = wording.code if wording.code != _INVALID else None
    inner: JsonObject = {"message": wording.message, "type": kind, "code": code}
    return {"error": inner | {"param": wording.param}}


def _codex(wording: Wording) -> JsonObject:
    if wording.status < 429:
        return {"detail": wording.message}
    inner: JsonObject = {"type": wording.code, "code": wording.code, "message": wording.message}
    if wording.code == "usage_limit_reached":
        inner |= {"plan_type": "plus", "resets_in_seconds": 5_400}
    return {"error": inner}


def _anthropic(wording: Wording) -> JsonObject:
    inner: JsonObject = {"type": wording.code, "message": wording.message}
    return {"type": "error", "error": inner, "request_id": "req_fake"}


def _google(wording: Wording) -> JsonObject:
    inner: JsonObject = {
        "code": wording.status,
        "status": wording.code,
        "message": wording.message,
    }
    if "API key" in wording.message:
        info = "type.googleapis.com/google.rpc.ErrorInfo"
        inner["details"] = [{"@type": info, "reason": "API_KEY_INVALID"}]
    if "quota" in wording.message:
        failure = "type.googleapis.com/google.rpc.QuotaFailure"
        day = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
        inner["details"] = [{"@type": failure, "violations": [{"quotaId": day}]}]
    return {"error": inner}


def _bedrock(wording: Wording) -> JsonObject:
    return {"message": wording.message}


_ENVELOPES: Final[Mapping[str, Callable[[Wording], JsonObject]]] = {
    "chat": _openai,
    "responses": _openai,
    "codex": _codex,
    "anthropic": _anthropic,
    "google": _google,
    "bedrock": _bedrock,
}


def wording(kind: Kind, protocol: str, **facts: int | str) -> Wording | None:
    """The protocol's words for this refusal with the facts in place; None where it has none."""
    found = WORDINGS[kind].get(protocol)
    if found is None:
        return None
    param = found.param and found.param.format(**facts)
    return Wording(found.status, found.code, found.message.format(**facts), param)


def refusal(protocol: str, words: Wording, headers: Mapping[str, str] | None = None) -> Scripted:
    """The refusal as an HTTP answer."""
    if words.message == _HTML:
        return Scripted(words.status, content_type="text/html", frames=(_HTML.encode(),))
    more = dict(headers or {})
    if protocol == "bedrock":
        more["x-amzn-errortype"] = f"{words.code}:http://internal.amazon.com/coral/"
    body = _ENVELOPES[protocol](words)
    retry_after = more.get("retry-after")
    if protocol == "google" and retry_after is not None:
        del more["retry-after"]
        info = "type.googleapis.com/google.rpc.RetryInfo"
        inner = body["error"]
        assert isinstance(inner, dict)
        inner["details"] = [{"@type": info, "retryDelay": f"{retry_after}s"}]
    if protocol == "bedrock":
        more.pop("retry-after", None)
    return json_reply(words.status, body, more)


def refusal_frame(protocol: str, words: Wording) -> bytes:
    """The refusal in the middle of a stream whose status was 200."""
    match protocol:
        case "responses" | "codex":
            error: JsonObject = {"code": words.code, "message": words.message}
            response: JsonObject = {"id": "resp_failed", "status": "failed", "error": error}
            return sse({"type": "response.failed", "response": response}, "response.failed")
        case "anthropic":
            return sse(_anthropic(words), "error")
        case "google":
            return sse(_google(words), end="\r\n")
        case "bedrock":
            code = words.code[0].lower() + words.code[1:]
            return aws(code, {"message": words.message}, is_exception=True)
        case _:
            return sse(_openai(words))

"""What each protocol refuses in a request, checked as the real servers do."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from keen.core.messages import Json, JsonObject
from tests.fakes.frames import google_call
from tests.fakes.script import Recorded
from tests.fakes.shapes import at, entries, fields, objects, words
from tests.fakes.signing import is_signature, issued
from tests.fakes.transcripts import Transcript, pairing_faults, read

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHAT_KEYS: Final = frozenset(
    [
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    ]
)
SKIPPED_SIGNATURES: Final = (
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
)
"""Values Gemini documents for calls that another model made."""


def violations(request: Recorded) -> list[str]:
    """All that the request's protocol refuses, in plain words; [] for a good request."""
    transcript = read(request)
    return [
        *pairing_faults(transcript),
        *_shared(transcript),
        *_RULES[request.protocol](request.json),
    ]


def _shared(transcript: Transcript) -> list[str]:
    faults: list[str] = []
    if not transcript.model:
        faults.append("no model is named")
    if not transcript.messages:
        faults.append("there are no messages")
    elif transcript.messages[-1].role != "user":
        faults.append("the last message is not the user's")
    if len(set(transcript.tools)) != len(transcript.tools):
        faults.append("a tool is declared twice")
    return faults


def _ids(values: list[str]) -> list[str]:
    return [f"the id {value!r} is not allowed" for value in values if not _ID.fullmatch(value)]


def _chat(body: JsonObject) -> list[str]:
    faults: list[str] = []
    open_calls: list[str] = []
    for index, message in enumerate(objects(body.get("messages"))):
        where = f"messages[{index}]"
        if extra := sorted(set(message) - _CHAT_KEYS):
            faults.append(f"{where} has the keys {extra}")
        role = message.get("role")
        if role == "tool":
            call_id = words(message.get("tool_call_id"))
            if not open_calls or open_calls.pop(0) != call_id:
                faults.append(f"{where} answers {call_id!r}, which is not the next open call")
            continue
        if open_calls:
            faults.append(f"{where} stands before the answers to {open_calls}")
        calls = objects(message.get("tool_calls"))
        open_calls = [words(call.get("id")) for call in calls]
        faults += _ids(open_calls)
        if "tool_calls" in message and not calls:
            faults.append(f"{where} has an empty list of calls")
        if not calls and _is_blank(message.get("content")):
            faults.append(f"{where} is empty")
    if "tools" in body and not entries(body["tools"]):
        faults.append("tools is an empty list")
    if "tool_choice" in body and "tools" not in body:
        faults.append("tool_choice without tools")
    if "max_tokens" in body and "max_completion_tokens" in body:
        faults.append("two output caps")
    return faults + _streams(body)


def _is_blank(content: Json) -> bool:
    """True for a content that says nothing, and for one with an empty text part in it."""
    if isinstance(content, str):
        return not content
    parts = objects(content)
    return not parts or any(part.get("text") == "" for part in parts)


def _streams(body: JsonObject) -> list[str]:
    return [] if body.get("stream") is True else ["the request does not stream"]


def _responses(body: JsonObject) -> list[str]:
    faults = _response_items(body, "responses")
    if body.get("truncation", "disabled") != "disabled":
        faults.append("truncation is not disabled")
    items = objects(body.get("input"))
    for before, item in zip([{}, *items], items, strict=False):
        call_id = words(item.get("call_id"))
        if item.get("type") == "function_call" and item.get("id") and call_id in issued:
            seen = [words(i.get("id")) for i in items if i.get("type") == "reasoning"]
            if issued[call_id] not in seen:
                faults.append(f"{item['id']} came without its reasoning item {issued[call_id]}")
        if before.get("type") == "reasoning" and item.get("type") == "function_call_output":
            faults.append("a reasoning item without the item that followed it")
    if items and items[-1].get("type") == "reasoning":
        faults.append("a reasoning item without the item that followed it")
    return faults


def _codex(body: JsonObject) -> list[str]:
    faults = _response_items(body, "codex")
    faults += [
        f"an item has the id {item['id']!r}" for item in objects(body.get("input")) if "id" in item
    ]
    if "max_output_tokens" in body:
        faults.append("max_output_tokens is not supported")
    if not isinstance(body.get("instructions"), str):
        faults.append("instructions are required")
    if not isinstance(body.get("input"), list):
        faults.append("input must be a list")
    return faults


def _response_items(body: JsonObject, account: str) -> list[str]:
    faults = _streams(body)
    if body.get("store") is not False:
        faults.append("store is not false")
    if "previous_response_id" in body:
        faults.append("previous_response_id in a request that stores nothing")
    for index, item in enumerate(objects(body.get("input"))):
        where = f"input[{index}]"
        match item.get("type", "message"):
            case "reasoning":
                sealed = words(item.get("encrypted_content"))
                summary = objects(item.get("summary"))
                thought = "".join(words(part.get("text")) for part in summary)
                if "summary" not in item or not is_signature(account, thought, sealed):
                    faults.append(f"{where}: the encrypted content could not be verified")
            case "function_call" | "function_call_output":
                faults += _ids([words(item.get("call_id"))])
            case "message":
                if _is_blank(item.get("content")):
                    faults.append(f"{where} is empty")
            case kind:
                faults.append(f"{where} has the type {kind!r}")
    if "tools" in body and not entries(body["tools"]):
        faults.append("tools is an empty list")
    return faults


def _anthropic(body: JsonObject) -> list[str]:
    faults = _streams(body)
    if not isinstance(body.get("max_tokens"), int):
        faults.append("max_tokens is required")
    breakpoints = _count_keys(body, "cache_control")
    if breakpoints > 4:
        faults.append(f"a maximum of 4 blocks with cache_control, found {breakpoints}")
    system = body.get("system")
    if isinstance(system, list) and any(_is_space(block) for block in objects(system)):
        faults.append("system has an empty text block")
    messages = objects(body.get("messages"))
    if messages and messages[0].get("role") != "user":
        faults.append("first message must use the user role")
    for index, message in enumerate(messages):
        faults += [f"messages.{index}: {fault}" for fault in _anthropic_message(message)]
    thinking = words(at(body, "thinking", "type"))
    budget = at(body, "thinking", "budget_tokens")
    cap = body.get("max_tokens")
    if isinstance(budget, int) and isinstance(cap, int) and not 1024 <= budget < cap:
        faults.append(f"thinking.budget_tokens {budget} does not fit max_tokens {cap}")
    if thinking in ("enabled", "adaptive"):
        faults += _thinking_faults(messages, _anthropic_kind, is_enabled=thinking == "enabled")
    return faults


def _is_space(block: JsonObject) -> bool:
    return "text" in block and not words(block.get("text")).strip()


def _count_keys(value: Json, key: str) -> int:
    match value:
        case dict():
            return (key in value) + sum(_count_keys(item, key) for item in value.values())
        case list():
            return sum(_count_keys(item, key) for item in value)
        case _:
            return 0


def _anthropic_message(message: JsonObject) -> list[str]:
    content = message.get("content")
    blocks: list[JsonObject] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
    )
    faults = [] if blocks else ["the content is empty"]
    kinds = [words(block.get("type")) for block in blocks]
    if "tool_result" in kinds and "text" in kinds[: kinds.index("tool_result")]:
        faults.append("tool_result blocks must come before text")
    for block in blocks:
        faults += _anthropic_block(block)
    return faults


def _anthropic_block(block: JsonObject) -> list[str]:
    faults: list[str] = []
    match block.get("type"):
        case "text" if _is_space(block):
            faults.append("text content blocks must contain non-whitespace text")
        case "thinking":
            thought = words(block.get("thinking"))
            if not is_signature("anthropic", thought, words(block.get("signature"))):
                faults.append("Invalid `signature` in `thinking` block")
            if "cache_control" in block:
                faults.append("cache_control on a thinking block")
        case "tool_use":
            faults += _ids([words(block.get("id"))])
        case "tool_result":
            if block.get("is_error") is True and _is_blank(block.get("content")):
                faults.append("content cannot be empty if is_error is true")
        case "text" | "image" | "redacted_thinking" | "document":
            pass
        case kind:
            faults.append(f"a block of type {kind!r}")
    return faults


def _thinking_faults(
    messages: list[JsonObject],
    kind_of: Callable[[JsonObject], tuple[str, str, str]],
    *,
    is_enabled: bool,
) -> list[str]:
    """Thinking that was signed for a call of the running turn must stand before that call.

    `kind_of` gives a block's kind ("thinking", "call", "result", ""), its call id and its thought.
    """
    faults: list[str] = []
    for message in _running_turn(messages, kind_of):
        if message.get("role") != "assistant":
            continue
        thoughts: list[str] = []
        blocks = [kind_of(block) for block in objects(message.get("content"))]
        for kind, call_id, thought in blocks:
            if kind == "thinking":
                thoughts.append(thought)
            elif kind == "call":
                wanted = issued.get(call_id)
                if wanted is not None and wanted not in thoughts:
                    faults.append(f"the thinking before {call_id} is missing or was changed")
    last = messages[-2] if len(messages) > 1 else {}
    first = kind_of(next(iter([*objects(last.get("content")), last])))[0]
    has_call = any(kind_of(block)[0] == "call" for block in objects(last.get("content")))
    if is_enabled and last.get("role") == "assistant" and has_call and first != "thinking":
        faults.append("Expected `thinking` or `redacted_thinking`, but found `tool_use`")
    return faults


def _running_turn(
    messages: list[JsonObject], kind_of: Callable[[JsonObject], tuple[str, str, str]]
) -> list[JsonObject]:
    """What came after the user's last own message."""
    for index in range(len(messages) - 1, -1, -1):
        blocks = objects(messages[index].get("content"))
        if messages[index].get("role") == "user" and not any(
            kind_of(block)[0] == "result" for block in blocks
        ):
            return messages[index + 1 :]
    return messages


def _anthropic_kind(block: JsonObject) -> tuple[str, str, str]:
    match block.get("type"):
        case "thinking":
            return "thinking", "", words(block.get("thinking"))
        case "redacted_thinking":
            return "thinking", "", ""
        case "tool_use":
            return "call", words(block.get("id")), ""
        case "tool_result":
            return "result", "", ""
        case _:
            return "", "", ""


def _google(body: JsonObject) -> list[str]:
    faults: list[str] = []
    contents = objects(body.get("contents"))
    before = ""
    for index, content in enumerate(contents):
        where = f"contents[{index}]"
        parts = objects(content.get("parts"))
        role = words(content.get("role"))
        if role not in ("user", "model"):
            faults.append(f"{where} has the role {role!r}")
        if not parts:
            faults.append(f"{where} is empty")
        if any("functionCall" in part for part in parts) and before == "model":
            faults.append(f"{where}: a call turn must follow a user or a response turn")
        before = role
        for part in parts:
            faults += [f"{where}: {fault}" for fault in _google_part(part)]
    faults += _google_signatures(contents)
    for tool in objects(body.get("tools")):
        if "functionDeclarations" in tool and not entries(tool["functionDeclarations"]):
            faults.append("functionDeclarations is an empty list")
    return faults


def _google_part(part: JsonObject) -> list[str]:
    call = fields(part.get("functionCall"))
    signature = words(part.get("thoughtSignature"))
    if call:
        if not signature or signature in SKIPPED_SIGNATURES or _skips(signature):
            return []
        if not is_signature(
            "google", google_call(words(call.get("name")), call.get("args")), signature
        ):
            return ["the thought signature of a call is not valid"]
        return []
    if "text" in part:
        text = words(part.get("text"))
        if not text and not signature:
            return ["an empty text part"]
        if signature and not is_signature("google", f"text\0{text}", signature):
            return ["the thought signature of a text is not valid"]
    return []


def _skips(signature: str) -> bool:
    """True for a documented skip value that was sent as base64 of its text."""
    plain = signature.replace("-", "+").replace("_", "/")
    return any(base64.b64encode(v.encode()).decode() == plain for v in SKIPPED_SIGNATURES)


def _google_signatures(contents: list[JsonObject]) -> list[str]:
    """The first call of each step of the running turn needs a signature."""
    start = 0
    for index, content in enumerate(contents):
        parts = objects(content.get("parts"))
        if content.get("role") == "user" and not any("functionResponse" in p for p in parts):
            start = index
    faults: list[str] = []
    for content in contents[start:]:
        calls = [part for part in objects(content.get("parts")) if "functionCall" in part]
        if calls and not words(calls[0].get("thoughtSignature")):
            name = words(at(calls[0], "functionCall", "name"))
            faults.append(f"Function call is missing a thought_signature: {name}")
    return faults


def _bedrock(body: JsonObject) -> list[str]:
    faults: list[str] = []
    messages = objects(body.get("messages"))
    if messages and messages[0].get("role") != "user":
        faults.append("A conversation must start with a user message")
    roles = [message.get("role") for message in messages]
    if any(role == after for role, after in pairwise(roles)):
        faults.append("A conversation must alternate between user and assistant roles")
    has_tools = False
    for index, message in enumerate(messages):
        blocks = objects(message.get("content"))
        if not blocks:
            faults.append(f"messages.{index} is empty")
        for block in blocks:
            has_tools = has_tools or "toolUse" in block or "toolResult" in block
            faults += [f"messages.{index}: {fault}" for fault in _bedrock_block(block)]
    config = fields(body.get("toolConfig"))
    if has_tools and not entries(config.get("tools")):
        faults.append("toolConfig must be defined when using toolUse and toolResult blocks")
    if "toolConfig" in body and not entries(config.get("tools")):
        faults.append("toolConfig.tools is an empty list")
    if any(_is_space(block) for block in objects(body.get("system"))):
        faults.append("system has an empty text block")
    thinking = words(at(body, "additionalModelRequestFields", "thinking", "type"))
    if thinking in ("enabled", "adaptive"):
        faults += _thinking_faults(messages, _bedrock_kind, is_enabled=thinking == "enabled")
    return faults


def _bedrock_block(block: JsonObject) -> list[str]:
    if _is_space(block):
        return ["the text field in the ContentBlock object is blank"]
    if reasoning := fields(at(block, "reasoningContent", "reasoningText")):
        thought, signature = words(reasoning.get("text")), words(reasoning.get("signature"))
        if not is_signature("bedrock", thought, signature):
            return ["Invalid `signature` in `thinking` block"]
    if use := fields(block.get("toolUse")):
        return _ids([words(use.get("toolUseId"))])
    if result := fields(block.get("toolResult")):
        content = objects(result.get("content"))
        if not content or any(_is_space(part) for part in content):
            return ["the content of a toolResult is blank"]
    return []


def _bedrock_kind(block: JsonObject) -> tuple[str, str, str]:
    if "reasoningContent" in block:
        return "thinking", "", words(at(block, "reasoningContent", "reasoningText", "text"))
    if "toolUse" in block:
        return "call", words(at(block, "toolUse", "toolUseId")), ""
    return ("result", "", "") if "toolResult" in block else ("", "", "")


_RULES: Final[Mapping[str, Callable[[JsonObject], list[str]]]] = {
    "chat": _chat,
    "responses": _responses,
    "codex": _codex,
    "anthropic": _anthropic,
    "google": _google,
    "bedrock": _bedrock,
}

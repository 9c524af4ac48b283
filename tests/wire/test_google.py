from __future__ import annotations

import base64
import importlib
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast

import pytest

from keen.core.errors import (
    ContextOverflow,
    MalformedHistory,
    ProviderError,
    Transient,
    Unauthorized,
)
from keen.core.estimate import json_tokens
from keen.core.events import ReasoningDelta, TextDelta
from keen.core.messages import (
    Assistant,
    Image,
    Json,
    JsonObject,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from keen.core.models import Effort, ModelSpec
from keen.wire._google import Decoder
from keen.wire.base import Endpoint, FixedKey, Reply, Request
from keen.wire.google import GoogleWire
from tests.wire.loopback import Answer, Loopback, a_request, heard, serving

GEMINI = "gemini-3.1-pro-preview"

importlib.import_module("google.genai")  # before the time limit of a test runs


def wire(url: str = "http://127.0.0.1:1", **fields: Any) -> GoogleWire:
    return GoogleWire(Endpoint("g", FixedKey("k"), base_url=url, **fields))


def request(*messages: Any, name: str = GEMINI, **fields: Any) -> Request:
    return a_request(ModelSpec("g", name, "google", max_output=64_000), *messages, **fields)


def served(
    *answers: Answer, **fields: Any
) -> AbstractAsyncContextManager[tuple[Loopback, GoogleWire]]:
    return serving(lambda url: wire(url, **fields), *answers)


async def ask(client: GoogleWire, asked: Request | None = None) -> list[Any]:
    return await heard(client, asked or request())


def chunk(*parts: dict[str, Any], reason: str = "", **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], **fields}


def streams(*chunks: dict[str, Any], **fields: Any) -> Answer:
    return Answer([b"data: %s\r\n\r\n" % json.dumps(c).encode() for c in chunks], **fields)


def counted(**counts: int) -> dict[str, Any]:
    return {"usageMetadata": {"promptTokenCount": 120, "candidatesTokenCount": 5} | counts}


SIGNED = base64.b64encode(b"\xfb\xff signature \xfe").decode()
SAYS_HI = (chunk({"text": "h"}), chunk({"text": "i"}), chunk(reason="STOP"))
THINKS_AND_CALLS = (
    chunk({"text": "Let me ", "thought": True}),
    chunk({"text": "see.", "thought": True}),
    chunk({"text": "Read"}),
    chunk({"text": "ing."}),
    chunk(
        {
            "functionCall": {"name": "read_file", "args": {"path": "a.py"}},
            "thoughtSignature": SIGNED,
        },
        {"functionCall": {"name": "read_file", "args": {}, "id": "given"}},
    ),
    chunk(
        {"text": "", "thoughtSignature": SIGNED},
        reason="STOP",
        **counted(cachedContentTokenCount=100, thoughtsTokenCount=40),
    ),
)
NATIVE_ITEMS: tuple[Json, ...] = (
    {"text": "Reading."},
    {
        "functionCall": {"name": "read_file", "args": {"path": "a.py"}},
        "thoughtSignature": SIGNED,
    },
    {"functionCall": {"id": "given", "name": "read_file"}},
    {"text": "", "thoughtSignature": SIGNED},
)
OWN = Native("g", "google", GEMINI, NATIVE_ITEMS)
CALLS = (ToolCall("call-4-0", "read_file", {}), ToolCall("given", "read_file", {}))
RESULTS = Results(
    (ToolResult("call-4-0", "read_file", "x"), ToolResult("given", "read_file", "y", is_error=True))
)


def decoded(*chunks: Any) -> Reply:
    decoder = Decoder("g", "m", 4)
    for item in chunks:
        list(decoder.feed(cast(JsonObject, item)))
    return decoder.reply()


def contents(asked: Request) -> list[Any]:
    return cast("list[Any]", wire().encode(asked).json["contents"])


def same_bytes(one: str, other: str) -> bool:
    return base64.urlsafe_b64decode(one.translate(str.maketrans("+/", "-_"))) == (
        base64.urlsafe_b64decode(other.translate(str.maketrans("+/", "-_")))
    )


async def test_an_answer_with_thoughts_and_two_calls_comes_whole() -> None:
    async with served(streams(*THINKS_AND_CALLS)) as (server, client):
        *deltas, reply = await ask(client)

    assert deltas == [
        ReasoningDelta("Let me "),
        ReasoningDelta("see."),
        TextDelta("Read"),
        TextDelta("ing."),
    ]
    *said, first, second = reply.message.parts
    assert said == [Reasoning("Let me see."), Text("Reading.")]
    assert first.id.startswith("call-")
    assert (first.name, first.input) == ("read_file", {"path": "a.py"})
    assert second == ToolCall("given", "read_file", {})
    assert reply.usage == Usage(120, 100, 0, 45, 40)
    assert reply.finish == "stop"
    seen = server.requests[0]
    assert seen.path == f"/v1beta/models/{GEMINI}:streamGenerateContent?alt=sse"
    assert seen.headers["x-goog-api-key"] == "k"
    assert "x-server-timeout" not in seen.headers


async def test_a_signature_comes_back_with_the_same_bytes_on_the_same_part() -> None:
    async with served(streams(*THINKS_AND_CALLS), streams(*SAYS_HI)) as (server, client):
        reply = (await ask(client))[-1]
        results = Results(
            tuple(
                ToolResult(part.id, part.name, "x")
                for part in reply.message.parts
                if isinstance(part, ToolCall)
            )
        )
        await ask(client, request(User("go"), reply.message, results))

    _, answer, answered = server.requests[1].body["contents"]
    assert [sorted(part) for part in answer["parts"]] == [
        sorted(cast(Any, i)) for i in NATIVE_ITEMS
    ]
    for place in (1, 3):
        assert same_bytes(answer["parts"][place]["thoughtSignature"], SIGNED)
    first, second = (part["functionResponse"] for part in answered["parts"])
    assert "id" not in first
    assert second["id"] == "given"


async def test_what_is_sent_is_the_body_as_encoded() -> None:
    picture = Image("image/png", b"\xff\xd8pic", 10, 10)
    asked = request(User("näher", (picture,)), Assistant(CALLS, OWN), RESULTS, effort="low")
    async with served(streams(*SAYS_HI)) as (server, client):
        await ask(client, asked)
        body = client.encode(asked).json

    expected = json.loads(json.dumps({k: v for k, v in body.items() if k != "model"}))
    assert server.requests[0].body == expected


def test_results_name_their_function_and_what_the_person_adds_comes_after_them() -> None:
    steering = User("and hurry", steering=True)
    sent = contents(request(User("go"), Assistant(CALLS, OWN), RESULTS, steering))

    assert [content["role"] for content in sent] == ["user", "model", "user"]
    assert tuple(sent[1]["parts"]) == NATIVE_ITEMS
    assert sent[2]["parts"] == [
        {"functionResponse": {"name": "read_file", "response": {"output": "x"}}},
        {"functionResponse": {"name": "read_file", "response": {"error": "y"}, "id": "given"}},
        {"text": "and hurry"},
    ]


def test_images_of_a_result_follow_all_responses() -> None:
    picture = Image("image/png", b"\0" * 90_000, 750, 100)
    results = Results((ToolResult("given", "read_file", "seen", images=(picture,)),))
    sent = contents(request(User("go"), Assistant(CALLS[1:]), results))
    kinds = [next(iter(part)) for part in sent[2]["parts"]]
    assert kinds == ["functionResponse", "text", "inlineData"]
    assert json_tokens(sent) < 300


def test_the_prefix_of_a_step_stands_byte_for_byte_in_the_next() -> None:
    client = wire()
    one = client.encode(request(User("go"))).json
    two = client.encode(request(User("go"), Assistant(CALLS, OWN), RESULTS)).json
    three = client.encode(
        request(User("go"), Assistant(CALLS, OWN), RESULTS, Assistant((Text("so"),)), User("on"))
    ).json

    def prefix(body: JsonObject, count: int) -> str:
        return json.dumps(body | {"contents": cast("list[Json]", body["contents"])[:count]})

    assert prefix(one, 1) == prefix(two, 1)
    assert prefix(two, 3) == prefix(three, 3)
    again = wire().encode(request(User("go"), Assistant(CALLS, OWN), RESULTS)).json
    assert json.dumps(again) == json.dumps(two)


@pytest.mark.parametrize(
    ("name", "signatures"),
    [(GEMINI, 1), ("gemini-flash-latest", 1), ("gemini-2.5-pro", 0), ("gemma-3", 0)],
)
def test_the_first_call_of_a_foreign_answer_skips_the_validator(name: str, signatures: int) -> None:
    asked = request(User("go"), Assistant((Text("so"), *CALLS)), RESULTS, name=name)
    sent = json.dumps(contents(asked))
    assert sent.count('"thoughtSignature": "skip_thought_signature_validator"') == signatures
    if signatures:
        assert "thoughtSignature" in contents(asked)[1]["parts"][1]


def test_text_with_a_signature_is_never_joined() -> None:
    reply = decoded(
        chunk({"text": "a"}, {"text": "b"}),
        chunk({"text": "c", "thoughtSignature": "c2ln"}),
        chunk({"text": "d"}),
        chunk({"text": "e"}, reason="STOP"),
    )
    assert reply.message.native is not None
    assert reply.message.native.items == (
        {"text": "ab"},
        {"text": "c", "thoughtSignature": "c2ln"},
        {"text": "de"},
    )


@pytest.mark.parametrize(
    ("name", "effort", "expected"),
    [
        (GEMINI, None, {"includeThoughts": True}),
        (GEMINI, "none", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        (GEMINI, "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-3.8-flash", "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", "none", {"includeThoughts": True, "thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "max", {"includeThoughts": True, "thinkingBudget": 4_096}),
        ("gemini-2.0-flash", "high", None),
        ("gemma-3-27b-it", "high", None),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    name: str, effort: Effort | None, expected: JsonObject | None
) -> None:
    body = wire().encode(request(name=name, effort=effort)).json
    generation = cast(JsonObject, body["generationConfig"])
    assert generation["maxOutputTokens"] == 8_192
    assert generation.get("thinkingConfig") == expected


def test_a_server_that_refuses_the_thinking_config_gets_none() -> None:
    body = wire().without("thinkingConfig").encode(request(effort="high")).json
    assert body["generationConfig"] == {"maxOutputTokens": 8_192}


@pytest.mark.parametrize(
    ("asked", "most", "expected"),
    [(None, None, 8_192), (None, 65_536, 8_192), (None, 4_096, 4_096), (30_000, 65_536, 30_000)],
)
def test_the_output_asked_for(asked: int | None, most: int | None, expected: int) -> None:
    spec = ModelSpec("g", "m", "google", max_output=most, asked_output=asked)
    assert wire().asked_output(spec) == expected


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
        ("BLOCKLIST", "refused"),
        ("PROHIBITED_CONTENT", "refused"),
        ("SPII", "refused"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    reply = decoded(*SAYS_HI[:2], chunk(reason=reason))
    assert reply.finish == finish
    assert reply.message.parts == (Text("hi"),)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("MALFORMED_FUNCTION_CALL", Transient),
        ("UNEXPECTED_TOOL_CALL", Transient),
        ("MISSING_THOUGHT_SIGNATURE", MalformedHistory),
    ],
)
def test_a_garbled_answer_is_an_error(reason: str, expected: type[ProviderError]) -> None:
    with pytest.raises(expected):
        decoded(chunk(reason=reason))


@pytest.mark.parametrize(
    "refusal",
    [{"promptFeedback": {"blockReason": "SAFETY"}}, chunk(reason="SAFETY")],
    ids=["prompt", "answer"],
)
async def test_a_refusal_without_words_is_one_line_to_show(refusal: dict[str, Any]) -> None:
    async with served(streams(refusal)) as (_, client):
        *shown, reply = await ask(client)
    assert [TextDelta(part.text) for part in reply.message.parts] == shown
    assert "SAFETY" in shown[0].text
    assert (reply.finish, reply.message.native) == ("refused", None)


def test_odd_chunks_change_nothing() -> None:
    odd: list[Any] = [
        {},
        {"candidates": None},
        {"candidates": []},
        {"candidates": [None]},
        {"candidates": [{"content": None, "finishReason": None}]},
        {"candidates": [{"content": {"parts": None}}]},
        {"candidates": [{"content": {"parts": [None, {}, {"text": None}, {"text": ""}]}}]},
        {"candidates": [{"content": {"parts": [{"executableCode": {}}]}}]},
        {"candidates": [{"finishReason": "FINISH_REASON_UNSPECIFIED"}]},
        {"promptFeedback": None, "usageMetadata": None},
        {"promptFeedback": {}, "usageMetadata": {"promptTokenCount": None}},
        {"usageMetadata": {"trafficType": "x"}},
    ]
    reply = decoded(*odd, SAYS_HI[0], *odd, *SAYS_HI[1:], *odd, chunk(reason="MAX_TOKENS"))
    assert reply.message.parts == (Text("hi"),)
    assert reply.finish == "stop"
    usage = reply.usage
    assert usage is None or usage.total_tokens == 0


def test_arguments_that_are_no_object_make_the_call_malformed() -> None:
    reply = decoded(chunk({"functionCall": {"name": "f", "args": [1]}}, reason="STOP"))
    assert reply.message.parts == (ToolCall("call-4-0", "f", {}, malformed="[1]"),)


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "clean end"])
@pytest.mark.parametrize("count", [0, 2], ids=lambda n: f"after {n} chunks")
async def test_a_stream_without_finish_reason_is_transient(count: int, cut: bool) -> None:
    async with served(streams(*SAYS_HI[:count], cut=cut)) as (_, client):
        with pytest.raises(Transient):
            await ask(client)


async def test_a_chunk_that_is_no_answer_is_transient() -> None:
    async with served(streams({"candidates": [{"content": {"parts": "x"}}]})) as (_, client):
        with pytest.raises(Transient):
            await ask(client)


async def test_a_finish_reason_newer_than_the_sdk_prints_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async with served(streams(*SAYS_HI[:2], chunk(reason="FROM_THE_FUTURE"))) as (_, client):
        assert (await ask(client))[-1].finish == "refused"
    assert recwarn.list == []


def error(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


@pytest.mark.parametrize(
    ("body", "expected", "wait"),
    [
        (
            error(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed "
                "(1048575).",
            ),
            ContextOverflow,
            None,
        ),
        (
            error(400, "INVALID_ARGUMENT", "API key not valid.", {"reason": "API_KEY_INVALID"}),
            Unauthorized,
            None,
        ),
        (
            error(
                429,
                "RESOURCE_EXHAUSTED",
                "slow down",
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"},
            ),
            Transient,
            17.0,
        ),
        (error(503, "UNAVAILABLE", "overloaded"), Transient, None),
        (error(500, "INTERNAL", "oops"), Transient, None),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "mid-stream"])
async def test_refusals(
    body: dict[str, Any], expected: type[ProviderError], wait: float | None, is_late: bool
) -> None:
    raw = json.dumps(body).encode()
    code = body["error"]["code"]
    answer = streams(*SAYS_HI[:1], body) if is_late else Answer([raw], code, "application/json")
    async with served(answer) as (server, client):
        with pytest.raises(expected) as caught:
            await ask(client)
    assert len(server.requests) == 1
    assert getattr(caught.value, "retry_after", None) == wait


async def test_one_connection_serves_all_steps_and_one_request_each() -> None:
    async with served(*[streams(*THINKS_AND_CALLS)] * 3) as (server, client):
        replies = [(await ask(client))[-1] for _ in range(3)]
    assert server.connections == 1
    assert len(server.requests) == 3
    ids = [part.id for reply in replies for part in reply.message.parts[2:3]]
    assert len(set(ids)) == 3


async def test_the_usage_behind_the_finish_reason_is_counted() -> None:
    behind: dict[str, Any] = {"candidates": [], **counted()}
    async with served(streams(*SAYS_HI, behind)) as (_, client):
        assert (await ask(client))[-1].usage == Usage(120, output_tokens=5)


def test_a_model_without_images_is_told_that_one_was_left_out() -> None:
    picture = Image("image/png", b"1")
    results = Results((ToolResult("c", "read_file", "seen", images=(picture,)),))
    asked = request(User("go", (picture,)), Assistant((ToolCall("c", "read_file", {}),)), results)
    blind = replace(asked, model=replace(asked.model, images=False))
    client = wire()
    assert json.dumps(client.encode(asked).json).count("left out") == 0
    assert json.dumps(client.encode(blind).json).count("left out") == 2

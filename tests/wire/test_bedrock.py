from __future__ import annotations

import asyncio
import base64
import importlib
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast
from urllib.parse import unquote

import pytest

from keen.core.errors import (
    ContextOverflow,
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
from keen.core.models import ModelSpec
from keen.wire._bedrock import Decoder, with_bytes
from keen.wire.base import Endpoint, FixedKey, Reply, Request
from keen.wire.bedrock import BedrockWire
from tests.wire.loopback import AWS, Answer, Loopback, a_request, aws_event, heard, serving

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"

importlib.import_module("boto3")  # before the time limit of a test runs


def wire(url: str = "http://127.0.0.1:1", *, key: str = "AKIA:secret:token", **fields: Any) -> Any:
    fields = {"region": "us-east-1"} | fields
    return BedrockWire(Endpoint("aws", FixedKey(key), base_url=url, **fields))


def request(*messages: Any, name: str = CLAUDE, **fields: Any) -> Request:
    return a_request(ModelSpec("aws", name, "bedrock", max_output=64_000), *messages, **fields)


def served(
    *answers: Answer, **fields: Any
) -> AbstractAsyncContextManager[tuple[Loopback, BedrockWire]]:
    return serving(lambda url: wire(url, **fields), *answers)


def frames(*events: tuple[str, dict[str, Any]]) -> list[bytes]:
    return [aws_event(name, payload) for name, payload in events]


def streams(*events: tuple[str, dict[str, Any]], **fields: Any) -> Answer:
    return Answer(frames(*events), content_type=AWS, **fields)


async def ask(client: BedrockWire, asked: Request | None = None) -> list[Any]:
    return await heard(client, asked or request())


def delta(index: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": fields}


def thought(index: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return delta(index, reasoningContent=fields)


def tool(index: int, call_id: str) -> tuple[str, dict[str, Any]]:
    start = {"toolUse": {"toolUseId": call_id, "name": "read_file"}}
    return "contentBlockStart", {"contentBlockIndex": index, "start": start}


def stop(reason: str = "end_turn") -> tuple[str, dict[str, Any]]:
    return "messageStop", {"stopReason": reason}


def usage(**counts: int) -> tuple[str, dict[str, Any]]:
    counts = {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12} | counts
    return "metadata", {"usage": counts, "metrics": {"latencyMs": 1}}


BEGUN = ("messageStart", {"role": "assistant"})
SAYS_HI = (BEGUN, delta(0, text="hi"), ("contentBlockStop", {"contentBlockIndex": 0}), stop())
SECRET = base64.b64encode(b"\x00\xffsecret").decode()
THINKS_AND_CALLS = (
    BEGUN,
    thought(0, text="Let me "),
    thought(0, text="see."),
    thought(0, signature="EqQB+/="),
    thought(1, redactedContent=SECRET),
    delta(2, text="Reading."),
    tool(3, "tooluse_1"),
    delta(3, toolUse={"input": '{"pa'}),
    delta(3, toolUse={"input": 'th": "a.py"}'}),
    tool(4, "tooluse_2"),
    stop("tool_use"),
    usage(cacheReadInputTokens=100, cacheWriteInputTokens=20),
)
NATIVE_ITEMS: tuple[Json, ...] = (
    {"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "EqQB+/="}}},
    {"reasoningContent": {"redactedContent": SECRET}},
    {"text": "Reading."},
    {"toolUse": {"toolUseId": "tooluse_1", "name": "read_file", "input": {"path": "a.py"}}},
    {"toolUse": {"toolUseId": "tooluse_2", "name": "read_file", "input": {}}},
)
OWN = Native("aws", "bedrock", CLAUDE, NATIVE_ITEMS)
CALLS = (ToolCall("tooluse_1", "read_file", {}), ToolCall("tooluse_2", "read_file", {}))
RESULTS = Results(
    (ToolResult("tooluse_1", "read_file", "x"), ToolResult("tooluse_2", "read_file", "y"))
)


def decoded(*events: tuple[str, Any]) -> Reply:
    decoder = Decoder("aws", "m")
    for name, payload in events:
        list(decoder.feed({name: payload}))
    return decoder.reply()


def messages(asked: Request) -> list[Any]:
    return cast("list[Any]", wire().encode(asked).json["messages"])


def without_cache_points(value: Any) -> str:
    text = json.dumps(value)
    return text.replace(', {"cachePoint": {"type": "default"}}', "")


async def test_an_answer_with_reasoning_and_two_calls_comes_whole() -> None:
    async with served(streams(*THINKS_AND_CALLS)) as (server, client):
        *deltas, reply = await ask(client)

    assert deltas == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Reading.")]
    assert reply.message.parts == (
        Reasoning("Let me see."),
        Text("Reading."),
        ToolCall("tooluse_1", "read_file", {"path": "a.py"}),
        ToolCall("tooluse_2", "read_file", {}),
    )
    assert reply.message.native == OWN
    assert reply.usage == Usage(127, 100, 20, 5)
    assert reply.finish == "stop"
    assert unquote(server.requests[0].path) == f"/model/{CLAUDE}/converse-stream"


async def test_what_is_sent_is_the_body_as_encoded() -> None:
    picture = Image("image/jpg", b"\xff\xd8pic", 10, 10)
    asked = request(User("näher", (picture,)), Assistant(CALLS, OWN), RESULTS, effort="low")
    async with served(streams(*SAYS_HI)) as (server, client):
        await ask(client, asked)
        body = client.encode(asked).json

    assert server.requests[0].body == json.loads(
        json.dumps({k: v for k, v in body.items() if k != "modelId"})
    )


def test_keys_called_bytes_inside_a_tools_input_stay_as_they_are() -> None:
    use: JsonObject = {"toolUseId": "t", "name": "n", "input": {"bytes": "no base64", "a": [1]}}
    body: JsonObject = {"messages": [{"role": "assistant", "content": [{"toolUse": use}]}]}
    assert with_bytes(body) == body


def test_an_answer_is_replayed_exactly_and_its_results_share_a_message() -> None:
    steering = User("and hurry", steering=True)
    sent = messages(request(User("go"), Assistant(CALLS, OWN), RESULTS, steering))

    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert tuple(sent[1]["content"]) == NATIVE_ITEMS
    kinds = [next(iter(part)) for part in sent[2]["content"]]
    assert kinds == ["toolResult", "toolResult", "text", "cachePoint"]


def test_the_prefix_of_a_step_stands_byte_for_byte_in_the_next() -> None:
    client = wire()
    one = client.encode(request(User("go"))).json
    two = client.encode(request(User("go"), Assistant(CALLS, OWN), RESULTS)).json
    short = two | {"messages": cast("list[Json]", two["messages"])[:1]}
    assert without_cache_points(one) == without_cache_points(short)
    again = wire().encode(request(User("go"), Assistant(CALLS, OWN), RESULTS)).json
    assert json.dumps(two) == json.dumps(again)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        (CLAUDE, 3),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", 3),
        ("anthropic.claude-3-haiku-20240307-v1:0", 0),
        ("eu.amazon.nova-pro-v1:0", 2),
        ("meta.llama3-1-70b-instruct-v1:0", 0),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", 0),
    ],
)
def test_cache_points_go_only_to_models_known_to_take_them(name: str, points: int) -> None:
    body = wire().encode(request(name=name)).json
    assert json.dumps(body).count("cachePoint") == points
    assert "cachePoint" not in json.dumps(wire().without("cachePoint").encode(request()).json)


def test_a_server_known_to_want_cache_points_gets_them() -> None:
    client = wire(quirks=frozenset({"cachePoint"}))
    assert "cachePoint" in json.dumps(client.encode(request(name="arn:x")).json)


def test_tool_blocks_always_bring_a_tool_config() -> None:
    with_calls = request(User("go"), Assistant(CALLS), RESULTS, tools=())
    assert json.dumps(wire().encode(with_calls).json["toolConfig"]).count("toolSpec") == 1
    assert "toolConfig" not in wire().encode(request(tools=())).json


def test_thinking_goes_to_claude_alone_and_not_after_a_call_without_it() -> None:
    def fields(asked: Request) -> Any:
        return wire().encode(asked).json.get("additionalModelRequestFields")

    assert fields(request(effort="low"))["thinking"]["budget_tokens"] == 4_096
    assert fields(request(effort="low", name="amazon.nova-pro-v1:0")) is None
    assert fields(request(User("go"), Assistant(CALLS, OWN), RESULTS, effort="low"))
    assert fields(request(User("go"), Assistant(CALLS), RESULTS, effort="low")) is None
    adaptive = fields(request(effort="high", name="anthropic.claude-opus-4-6-v1"))
    assert adaptive == {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}


def test_empty_output_and_errors_of_a_tool() -> None:
    failed = Results((ToolResult("c", "read_file", " ", is_error=True),))
    history = (User("go"), Assistant((Text(" "), ToolCall("c", "read_file", {}))), failed)
    sent = messages(request(*history))
    assert sent[1]["content"] == [{"toolUse": {"toolUseId": "c", "name": "read_file", "input": {}}}]
    assert sent[2]["content"][0]["toolResult"] == {
        "toolUseId": "c",
        "content": [{"text": "(no output)"}],
        "status": "error",
    }
    other = messages(request(*history, name="mistral.mistral-large-2402-v1:0"))
    assert "status" not in json.dumps(other)


def test_images_and_signatures_cost_no_tokens_as_text() -> None:
    heavy = Native(
        "aws",
        "bedrock",
        CLAUDE,
        (
            {"reasoningContent": {"redactedContent": "A" * 40_000}},
            {"reasoningContent": {"reasoningText": {"text": "a", "signature": "B" * 40_000}}},
            {"text": "x"},
        ),
    )
    picture = Image("image/png", b"\0" * 90_000, 750, 100)
    sent = messages(request(User("go", (picture,)), Assistant((Text("x"),), heavy), User("on")))
    assert json_tokens(sent) < 250


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("tool_use", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("guardrail_intervened", "refused"),
        ("content_filtered", "refused"),
        ("model_context_window_exceeded", "overflow"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    assert decoded(*SAYS_HI[:-1], stop(reason)).finish == finish


@pytest.mark.parametrize("reason", ["malformed_tool_use", "malformed_model_output"])
def test_a_garbled_answer_is_worth_another_try(reason: str) -> None:
    with pytest.raises(Transient):
        decoded(*SAYS_HI[:-1], stop(reason))


def test_a_refusal_without_words_gets_a_line_to_show() -> None:
    decoder = Decoder("aws", "m")
    shown = [
        d
        for name, payload in (BEGUN, stop("content_filtered"))
        for d in decoder.feed({name: cast(Json, payload)})
    ]
    reply = decoder.reply()
    assert [TextDelta(cast(Text, part).text) for part in reply.message.parts] == shown
    assert reply.message.native is None


def test_odd_events_change_nothing() -> None:
    odd: list[tuple[str, Any]] = [
        ("SDK_UNKNOWN_MEMBER", {"name": "new"}),
        ("contentBlockDelta", None),
        ("contentBlockDelta", {"delta": None, "contentBlockIndex": 0}),
        ("contentBlockDelta", {"delta": {"text": None}, "contentBlockIndex": 0}),
        ("contentBlockDelta", {"delta": {"citation": {}}, "contentBlockIndex": None}),
        ("contentBlockStart", {"start": {}, "contentBlockIndex": 0}),
        ("contentBlockStart", {"start": {"toolUse": None}, "contentBlockIndex": "x"}),
        ("metadata", {"usage": None}),
        ("metadata", {"usage": {}}),
        ("messageStop", None),
    ]
    late = [delta(0, text="!"), stop("max_tokens")]
    reply = decoded(*odd, *SAYS_HI[:2], *odd, *SAYS_HI[2:], *odd, usage(), *odd, *late)
    assert reply.message.parts == (Text("hi"),)
    assert reply.finish == "stop"


def test_blocks_stand_in_the_order_of_their_index() -> None:
    reply = decoded(
        delta(2, toolUse={"input": '{"a"'}),
        tool(2, "two"),
        delta(2, toolUse={"input": ": 1}"}),
        delta(0, text="first"),
        tool(1, "one"),
        tool(1, "one again"),
        stop("tool_use"),
    )
    assert reply.message.parts == (
        Text("first"),
        ToolCall("one", "read_file", {}),
        ToolCall("one again", "read_file", {}),
        ToolCall("two", "read_file", {"a": 1}),
    )
    assert reply.usage is None


@pytest.mark.parametrize("arguments", ['{"path": ', "[1]", '"text"', "NaN"])
def test_arguments_that_are_no_object_make_the_call_malformed(arguments: str) -> None:
    reply = decoded(tool(0, "t"), delta(0, toolUse={"input": arguments}), stop("tool_use"))
    assert reply.message.parts == (ToolCall("t", "read_file", {}, malformed=arguments),)


def test_reasoning_without_a_signature_is_shown_and_not_replayed() -> None:
    reply = decoded(thought(0, text="hm"), delta(1, text="hi"), stop())
    assert reply.message.parts == (Reasoning("hm"), Text("hi"))
    assert reply.message.native is not None
    assert reply.message.native.items == ({"text": "hi"},)


def test_redacted_reasoning_in_pieces_is_joined_as_bytes() -> None:
    pieces = [base64.b64encode(piece).decode() for piece in (b"a", b"bc", b"d")]
    reply = decoded(*(thought(0, redactedContent=p) for p in pieces), delta(1, text="x"), stop())
    assert reply.message.native is not None
    joined = base64.b64encode(b"abcd").decode()
    assert reply.message.native.items[0] == {"reasoningContent": {"redactedContent": joined}}


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "clean end"])
@pytest.mark.parametrize("count", [0, 1, 3], ids=lambda n: f"after {n} events")
async def test_a_stream_without_message_stop_is_transient(count: int, cut: bool) -> None:
    async with served(streams(*SAYS_HI[:count], cut=cut)) as (_, client):
        with pytest.raises(Transient):
            await ask(client)


async def test_an_answer_stands_when_the_connection_breaks_behind_it() -> None:
    async with served(streams(*SAYS_HI, cut=True)) as (_, client):
        reply = (await ask(client))[-1]
    assert (reply.finish, reply.usage) == ("stop", None)


def refuses(status: int, code: str, message: str) -> Answer:
    body = json.dumps({"message": message}).encode()
    headers = {"x-amzn-ErrorType": code}
    return Answer([body], status, "application/json", headers)


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        (400, "ValidationException", "Input is too long for requested model.", ContextOverflow),
        (
            400,
            "ValidationException",
            "The model returned the following errors: prompt is too "
            "long: 213462 tokens > 200000 maximum",
            ContextOverflow,
        ),
        (
            429,
            "ThrottlingException",
            "Too many tokens, please wait before trying again.",
            Transient,
        ),
        (503, "ServiceUnavailableException", "busy", Transient),
        (500, "InternalServerException", "oops", Transient),
        (403, "UnrecognizedClientException", "The security token is invalid.", Unauthorized),
        (403, "AccessDeniedException", "You don't have access to the model.", Unauthorized),
    ],
)
async def test_refusals_by_status(
    status: int, code: str, message: str, expected: type[ProviderError]
) -> None:
    async with served(refuses(status, code, message)) as (server, client):
        with pytest.raises(expected):
            await ask(client)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("serviceUnavailableException", "busy", Transient),
        ("throttlingException", "Too many tokens, please wait", Transient),
        ("modelStreamErrorException", "the model failed", Transient),
        ("internalServerException", "oops", Transient),
        ("validationException", "Input is too long for requested model.", ContextOverflow),
    ],
)
async def test_an_exception_in_mid_stream_goes_by_its_name(
    name: str, message: str, expected: type[ProviderError]
) -> None:
    end = aws_event(name, {"message": message}, kind="exception")
    answer = Answer([*frames(*SAYS_HI[:2]), end], content_type=AWS)
    async with served(answer) as (_, client):
        with pytest.raises(expected):
            await ask(client)


async def test_a_broken_frame_is_transient() -> None:
    broken = bytearray(frames(SAYS_HI[1])[0])
    broken[-6] ^= 1
    answer = Answer([*frames(BEGUN), bytes(broken)], content_type=AWS)
    async with served(answer) as (_, client):
        with pytest.raises(Transient):
            await ask(client)


@pytest.mark.parametrize("key", ["ABSK-a-bearer-token", "only:", ":x"])
async def test_a_key_of_another_form_is_told_what_to_do(key: str) -> None:
    with pytest.raises(Unauthorized, match="AWS_BEARER_TOKEN_BEDROCK"):
        await ask(wire(key=key))


async def test_without_any_access_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(Unauthorized, match="AWS_ACCESS_KEY_ID"):
        await ask(wire(key=""))
    with pytest.raises(Unauthorized, match="AWS_REGION"):
        await ask(wire(key="a:b", region=""))
    with pytest.raises(Unauthorized, match="AWS_PROFILE"):
        await ask(wire(key="", profile="nobody"))


async def test_keys_region_and_headers_reach_the_request() -> None:
    async with served(streams(*SAYS_HI), headers={"x-team": "keen"}) as (server, client):
        await ask(client)
    seen = server.requests[0].headers
    assert "Credential=AKIA/" in seen["authorization"]
    assert "/us-east-1/bedrock/" in seen["authorization"]
    assert seen["x-amz-security-token"] == "token"
    assert seen["x-team"] == "keen"


async def test_cancelling_before_the_head_returns_while_the_connection_hangs() -> None:
    async with served(Answer(hangs_before_head=True)) as (server, client):
        task = asyncio.create_task(ask(client))
        await server.arrived.wait()
        task.cancel()
        async with asyncio.timeout(2):
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_one_connection_serves_all_steps() -> None:
    async with served(*[streams(*SAYS_HI, usage())] * 3) as (server, client):
        for _ in range(3):
            assert (await ask(client))[-1].usage == Usage(7, output_tokens=5)
    assert server.connections == 1


def test_a_model_without_images_is_told_that_one_was_left_out() -> None:
    picture = Image("image/png", b"1")
    results = Results((ToolResult("c", "read_file", "seen", images=(picture,)),))
    asked = request(User("go", (picture,)), Assistant((ToolCall("c", "read_file", {}),)), results)
    blind = replace(asked, model=replace(asked.model, images=False))
    client = wire()
    assert json.dumps(client.encode(asked).json).count("left out") == 0
    assert json.dumps(client.encode(blind).json).count("left out") == 2

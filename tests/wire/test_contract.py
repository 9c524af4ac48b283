"""What every wire does, one table over the six protocols, on real sockets."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from keen.core.messages import (
    Assistant,
    Image,
    Json,
    Message,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
    tool_calls,
    visible_text,
)
from tests.fakes.asking import TOOLS, Heard, asking, hear, leaves, open_wire, results_of, sent
from tests.fakes.dialects import DIALECTS, USAGE, Dialect
from tests.fakes.frames import Answer, Called
from tests.fakes.script import Script
from tests.fakes.server import FakeProvider

HELLO = User("hello")
CALLS = (ToolCall("c1", "read_file", {"path": "a"}), ToolCall("c2", "glob", {"pattern": "b"}))
FIRST, SECOND = ToolResult("c1", "read_file", "one"), ToolResult("c2", "glob", "two")


async def heard_from(dialect: Dialect, *script: Script, **asked: Any) -> Heard:
    """The answer to one request, from a provider that found nothing wrong with it."""
    async with FakeProvider(*script) as provider, open_wire(dialect, provider.url) as wire:
        heard = await hear(wire, asking(dialect, HELLO, **asked))
        assert provider.violations == []
    return heard


async def test_says_text(dialect: Dialect) -> None:
    text = "Grüße, 世界 🦜\n\n- one\n- two  "
    heard = await heard_from(dialect, dialect.says(text))

    assert heard.text == text
    assert visible_text(heard.message) == text
    assert heard.reply.finish == "stop"
    assert heard.reply.usage == USAGE
    assert tool_calls(heard.message) == ()


async def test_streams_every_delta_of_the_text(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.says("", pieces=("a", "b", " ", "c")))

    assert [delta.text for delta in heard.deltas] == ["a", "b", " ", "c"]


async def test_streams_reasoning(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.reasons("let me think", then="done"), effort="high")

    assert heard.reasoning == "let me think"
    assert heard.text == "done"
    assert heard.message.parts == (Reasoning("let me think"), Text("done"))


async def test_tells_the_request_whole(dialect: Dialect) -> None:
    told = await sent(dialect, User("hello"), Assistant((Text("hi"),)), User("more"))

    assert told.system == "Be brief."
    assert told.tools == ("read_file", "glob")
    assert told.model == dialect.model_id
    assert [(entry.role, entry.text) for entry in told.messages] == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("user", "more"),
    ]


async def test_calls_one_tool(dialect: Dialect) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a.txt"), dialect.says("done")
    ) as provider:
        async with open_wire(dialect, provider.url) as wire:
            asked = await hear(wire, asking(dialect, HELLO))
            (call,) = tool_calls(asked.message)
            assert (call.name, call.input, call.malformed) == ("read_file", {"path": "a.txt"}, "")

            history = (HELLO, asked.message, results_of(asked.message, "what stood there"))
            answered = await hear(wire, asking(dialect, *history))

        assert answered.text == "done"
        assert provider.violations == []
        told = dialect.read(provider.requests[1])
        assert [result.output for result in told.results] == ["what stood there"]


async def test_calls_two_in_parallel(dialect: Dialect) -> None:
    both = dialect.calls_many(
        ("read_file", {"path": "a"}), ("read_file", {"path": "b"}), text="Both."
    )
    async with FakeProvider(both, dialect.says("done")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            asked = await hear(wire, asking(dialect, HELLO))
            first, second = tool_calls(asked.message)
            assert (first.input, second.input) == ({"path": "a"}, {"path": "b"})
            assert first.id != second.id
            assert asked.text == "Both."

            await hear(wire, asking(dialect, HELLO, asked.message, results_of(asked.message)))

        assert provider.violations == []
        told = dialect.read(provider.requests[1])
        assert [call.input for call in told.calls] == [{"path": "a"}, {"path": "b"}]
        assert [r.output for r in told.results] == [f"output of {c.id}" for c in (first, second)]


async def test_ids_of_two_answers_differ(dialect: Dialect) -> None:
    async with FakeProvider(
        dialect.calls("glob", pattern="a"), dialect.calls("glob", pattern="a"), dialect.says("x")
    ) as provider:
        history: tuple[Message, ...] = (HELLO,)
        async with open_wire(dialect, provider.url) as wire:
            for _ in range(2):
                asked = await hear(wire, asking(dialect, *history))
                history = (*history, asked.message, results_of(asked.message))
            await hear(wire, asking(dialect, *history))

        assert provider.violations == []
        answers = [message for message in history if isinstance(message, Assistant)]
        ids = [call.id for answer in answers for call in tool_calls(answer)]
        assert len(set(ids)) == 2


async def test_call_arguments_split_across_chunks(dialect: Dialect) -> None:
    arguments = json.dumps({"path": 'ein/Pfad/日本 \\ "q"\n', "deep": {"a": [1, None, True, 1.5]}})
    call = Called("call_split" if dialect.call_id else "", "read_file", tuple(arguments))
    heard = await heard_from(dialect, dialect.answers(Answer(calls=(call,))))

    (made,) = tool_calls(heard.message)
    assert made.input == json.loads(arguments)


async def test_a_call_without_arguments_has_an_empty_input(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.calls("list_all"))

    (made,) = tool_calls(heard.message)
    assert (made.input, made.malformed) == ({}, "")


async def test_replays_its_own_natives_byte_for_byte(dialect: Dialect) -> None:
    odd = Called("call_odd" if dialect.call_id else "", "read_file", ('{ "path" :', ' "ä" }'))
    answer = Answer(("Look ", "here. "), ("I must ", "look. "), (odd,), USAGE)
    async with FakeProvider(dialect.answers(answer), dialect.says("done")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            asked = await hear(wire, asking(dialect, HELLO, effort="high"))
            native = asked.message.native
            assert native is not None
            history = (HELLO, asked.message, results_of(asked.message))
            await hear(wire, asking(dialect, *history, effort="high"))

        assert provider.violations == []
        replayed = leaves(provider.requests[1].json)
        assert [leaf for leaf in leaves(native.items) if leaf not in replayed] == []


async def test_replays_reasoning_of_earlier_turns_as_it_was(dialect: Dialect) -> None:
    async with FakeProvider(
        dialect.says("first", reasoning="one thought"),
        dialect.says("second", reasoning="another"),
        dialect.says("third"),
    ) as provider:
        history: tuple[Message, ...] = (HELLO,)
        async with open_wire(dialect, provider.url) as wire:
            for _ in range(3):
                heard = await hear(wire, asking(dialect, *history, effort="high"))
                history = (*history, heard.message, User("go on"))

        assert provider.violations == []
        told = dialect.read(provider.requests[2])
        assert [e.text for e in told.messages if e.role == "assistant"] == ["first", "second"]


async def history_of(other: Dialect, *, provider_name: str = "elsewhere") -> tuple[Message, ...]:
    """A turn in the middle, made by another provider: reasoning, text, two calls, results."""
    both = other.calls_many(
        ("read_file", {"path": "a"}),
        ("glob", {"pattern": "*"}),
        text="Looking.",
        reasoning="secret thoughts",
    )
    async with (
        FakeProvider(both) as provider,
        open_wire(other, provider.url, provider=provider_name) as wire,
    ):
        model = other.model(provider=provider_name)
        asked = await hear(wire, asking(other, HELLO, effort="high", model=model))
    assert asked.message.native is not None
    return (HELLO, asked.message, results_of(asked.message, "one", "two"))


@pytest.mark.parametrize("other", DIALECTS, ids=lambda other: f"from-{other.name}")
async def test_drops_foreign_natives(dialect: Dialect, other: Dialect) -> None:
    history = await history_of(other)
    async with FakeProvider(dialect.says("done")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            await hear(wire, asking(dialect, *history, effort="high"))

        assert provider.violations == []
        told = dialect.read(provider.requests[0])
        assert [(call.name, call.input) for call in told.calls] == [
            ("read_file", {"path": "a"}),
            ("glob", {"pattern": "*"}),
        ]
        assert [result.output for result in told.results] == ["one", "two"]
        assert "Looking." in "".join(told.texts)
        answer = history[1]
        assert isinstance(answer, Assistant)
        assert answer.native is not None
        signatures = {leaf for leaf in leaves(answer.native.items) if len(leaf) > 100}
        assert signatures.isdisjoint(leaves(provider.requests[0].json))


async def test_drops_natives_of_another_model(dialect: Dialect) -> None:
    history = await history_of(dialect, provider_name="fake")
    answer = history[1]
    assert isinstance(answer, Assistant)
    assert answer.native is not None
    async with FakeProvider(dialect.says("done")) as provider:
        async with open_wire(dialect, provider.url) as wire:
            other = dialect.model(id=f"{dialect.model_id}-2")
            await hear(wire, asking(dialect, *history, model=other, effort="high"))

        assert provider.violations == []
        signatures = {leaf for leaf in leaves(answer.native.items) if len(leaf) > 100}
        assert signatures.isdisjoint(leaves(provider.requests[0].json))


async def test_a_truncated_answer_has_finish_length(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.truncated("as far as it"))

    assert heard.reply.finish == "length"
    assert visible_text(heard.message) == "as far as it"


async def test_a_truncated_call_has_finish_length_and_is_not_whole(dialect: Dialect) -> None:
    heard = await heard_from(
        dialect, dialect.truncated("I write", ("read_file", '{"path": "/a/very/long'))
    )

    assert heard.reply.finish == "length"
    assert [call for call in tool_calls(heard.message) if not call.malformed] == []


async def test_a_filtered_answer_has_finish_refused(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.refused("I had beg"))

    assert heard.reply.finish == "refused"
    assert "I had beg" in visible_text(heard.message)


async def test_an_answer_that_filled_the_window_has_finish_overflow(dialect: Dialect) -> None:
    filled = dialect.filled_window("valid until here")
    if filled is None:
        pytest.skip("the protocol cannot say so")
    heard = await heard_from(dialect, filled)

    assert heard.reply.finish == "overflow"
    assert visible_text(heard.message) == "valid until here"


async def test_usage_counts_cached_tokens_once(dialect: Dialect) -> None:
    usage = Usage(
        input_tokens=10_000,
        cached_tokens=7_000,
        cache_write_tokens=2_000 if dialect.counts_cache_writes else 0,
        output_tokens=300,
        reasoning_tokens=200,
    )
    heard = await heard_from(dialect, dialect.says("ok", usage=usage))

    assert heard.reply.usage == dialect.reported(usage)


async def test_usage_that_was_not_reported_is_none_or_empty(dialect: Dialect) -> None:
    heard = await heard_from(dialect, dialect.says("ok", usage=None))

    assert heard.reply.usage in (None, Usage(output_tokens=0), Usage(output_tokens=1))


async def test_reserve_equals_what_the_body_asks_for(dialect: Dialect) -> None:
    async with FakeProvider(*[dialect.says("ok")] * 2) as provider:
        async with open_wire(dialect, provider.url) as wire:
            told: list[int] = []
            for model in (dialect.model(), dialect.model(asked_output=5_000)):
                told.append(wire.asked_output(model))
                request = asking(dialect, HELLO, model=model, output_tokens=told[-1])
                await hear(wire, request)

        assert provider.violations == []
        first, second = (dialect.read(request).output_tokens for request in provider.requests)
        assert told[1] == 5_000
        assert first in (None, told[0])
        assert second == (5_000 if dialect.has_output_cap else None)


def unmarked(value: Json) -> Json:
    """A JSON value without the cache breakpoints, which move from step to step."""
    match value:
        case dict():
            return {k: unmarked(item) for k, item in value.items() if k != "cache_control"}
        case list():
            return [unmarked(item) for item in value if item != {"cachePoint": {"type": "default"}}]
        case _:
            return value


async def test_prefix_of_step_two_equals_step_one(dialect: Dialect) -> None:
    items = ""
    calls = dialect.calls_many(("glob", {"pattern": "*"}), reasoning="hm", text="Looking.")
    async with FakeProvider(calls, calls, dialect.says("ok")) as provider:
        history: tuple[Message, ...] = (HELLO,)
        async with open_wire(dialect, provider.url) as wire:
            for _ in range(3):
                request = asking(dialect, *history, effort="high")
                items = wire.encode(request).items
                heard = await hear(wire, request)
                history = (*history, heard.message, results_of(heard.message))
        assert provider.violations == []
        bodies = [request.json for request in provider.requests]

    for before, after in pairwise(bodies):
        first, second = unmarked(before.pop(items)), unmarked(after[items])
        assert isinstance(first, list)
        assert isinstance(second, list)
        assert json.dumps(second[: len(first)]) == json.dumps(first)
        rest = {key: value for key, value in after.items() if key != items}
        assert json.dumps(rest) == json.dumps(before)


def test_equal_requests_give_equal_bytes(dialect: Dialect) -> None:
    history = (
        HELLO,
        Assistant((Reasoning("r"), Text("t"), *CALLS)),
        Results((FIRST, SECOND)),
        User("more", (Image("image/png", b"\x89PNG", 1, 1),)),
    )

    def encoded() -> str:
        wire = dialect.wire("http://127.0.0.1:1")
        request = asking(dialect, *history, effort="medium")
        bodies = {json.dumps(wire.encode(request).json) for _ in range(2)}
        (body,) = bodies
        return body

    assert encoded() == encoded()


def test_encoding_leaves_the_history_and_the_tools_alone(dialect: Dialect) -> None:
    wire = dialect.wire("http://127.0.0.1:1")
    before = json.dumps([tool.schema for tool in TOOLS])
    calls = ToolCall("c1", "read_file", {"path": {"deep": ["a"]}})
    history = (HELLO, Assistant((calls,)), Results((FIRST,)))

    body = wire.encode(asking(dialect, *history))
    list_of_items = body.json[body.items]

    assert isinstance(list_of_items, list)
    assert json.dumps([tool.schema for tool in TOOLS]) == before
    assert calls.input == {"path": {"deep": ["a"]}}


async def test_sends_key_and_headers(dialect: Dialect) -> None:
    async with FakeProvider(dialect.says("ok")) as provider:
        wire = dialect.wire(provider.url, headers={"X-Team": "a"})
        await hear(wire, asking(dialect, HELLO))
        await wire.aclose()
        await wire.aclose()

        headers = provider.requests[0].headers
        assert headers["x-team"] == "a"
        key = dialect.key.partition(":")[0]
        assert any(key in value for value in headers.values())

"""Any history keen can hold becomes a request that each protocol accepts."""

from __future__ import annotations

import base64
import json

import pytest

from keen.core.estimate import json_tokens
from keen.core.messages import (
    Assistant,
    Image,
    Message,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
)
from tests.fakes.asking import asking, sent
from tests.fakes.dialects import Dialect

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
PICTURE = Image("image/png", PIXEL, 1, 1)
HELLO = User("hello")
CALLS = (ToolCall("c1", "read_file", {"path": "a"}), ToolCall("c2", "glob", {"pattern": "b"}))
FIRST, SECOND = ToolResult("c1", "read_file", "one"), ToolResult("c2", "glob", "two")
ORPHANS: dict[str, tuple[tuple[Message, ...], list[str]]] = {
    "no result at all": ((HELLO, Assistant(CALLS), User("and?")), ["", ""]),
    "one result is missing": ((HELLO, Assistant(CALLS), Results((FIRST,))), ["one", ""]),
    "the first is missing": ((HELLO, Assistant(CALLS), Results((SECOND,))), ["", "two"]),
    "the order is wrong": ((HELLO, Assistant(CALLS), Results((SECOND, FIRST))), ["one", "two"]),
    "a result too many": (
        (HELLO, Assistant(CALLS[:1]), Results((FIRST, SECOND))),
        ["one"],
    ),
    "a result twice": ((HELLO, Assistant(CALLS[:1]), Results((FIRST, FIRST))), ["one"]),
    "results without a call": ((HELLO, Results((FIRST,)), User("and?")), []),
    "the calls are the last": ((HELLO, Assistant(CALLS)), ["", ""]),
    "a message between": (
        (HELLO, Assistant(CALLS), User("wait"), Results((FIRST, SECOND))),
        ["", ""],
    ),
}


@pytest.mark.parametrize("case", ORPHANS)
async def test_answers_orphan_calls(dialect: Dialect, case: str) -> None:
    history, outputs = ORPHANS[case]
    told = await sent(dialect, *history)

    assert len(told.results) == len(outputs)
    for result, output in zip(told.results, outputs, strict=True):
        assert output in result.output
        assert output or "nterrupted" in result.output or result.output in ("one", "two")


HISTORIES: dict[str, tuple[Message, ...]] = {
    "two messages in a row": (HELLO, User("and more")),
    "an answer of nothing": (HELLO, Assistant(()), User("well?")),
    "an answer of blanks": (HELLO, Assistant((Text(" \n"),)), User("well?")),
    "an empty piece of text": (HELLO, Assistant((Text(""), Text("hi"))), User("well?")),
    "only reasoning": (HELLO, Assistant((Reasoning("hm"),)), User("well?")),
    "an interrupted answer": (HELLO, Assistant((Text("I wa"),), interrupted=True), User("go on")),
    "text behind the call": (
        HELLO,
        Assistant((CALLS[0], Text("I called."))),
        Results((FIRST,)),
    ),
    "an empty output": (HELLO, Assistant(CALLS[:1]), Results((ToolResult("c1", "read_file", ""),))),
    "an empty error": (
        HELLO,
        Assistant(CALLS[:1]),
        Results((ToolResult("c1", "read_file", "", is_error=True),)),
    ),
    "steering behind results": (
        HELLO,
        Assistant(CALLS[:1]),
        Results((FIRST,)),
        User("rather not", steering=True),
    ),
    "the same id in two answers": (
        HELLO,
        Assistant(CALLS[:1]),
        Results((FIRST,)),
        Assistant(CALLS[:1]),
        Results((FIRST,)),
    ),
    "an id no protocol allows": (
        HELLO,
        Assistant((ToolCall("functions.read file:0|" + "x" * 80, "read_file", {}),)),
        Results((ToolResult("functions.read file:0|" + "x" * 80, "read_file", "one"),)),
    ),
    "lone surrogates and control characters": (
        User("a\udce4b\x00c\x1b[31m"),
        Assistant((Text("x\ud800"), ToolCall("c1", "read_file", {"path": "\udcff"}))),
        Results((ToolResult("c1", "read_file", "out\udc80put\x00"),)),
    ),
    "a malformed call": (
        HELLO,
        Assistant((ToolCall("c1", "read_file", {}, malformed='{"path": '),)),
        Results((ToolResult("c1", "read_file", "no JSON", is_error=True),)),
    ),
}


@pytest.mark.parametrize("case", HISTORIES)
async def test_any_history_is_accepted(dialect: Dialect, case: str) -> None:
    told = await sent(dialect, *HISTORIES[case])

    assert told.messages


async def test_a_history_with_calls_is_accepted_without_tools(dialect: Dialect) -> None:
    told = await sent(
        dialect, HELLO, Assistant(CALLS), Results((FIRST, SECOND)), User("Sum up."), tools=()
    )

    assert "Sum up." in told.messages[-1].text
    assert "one" in str(told)


async def test_text_beside_results_reaches_the_model(dialect: Dialect) -> None:
    told = await sent(
        dialect, HELLO, Assistant(CALLS[:1]), Results((FIRST,)), User("rather not", steering=True)
    )

    assert told.messages[-1].text == "rather not"
    assert [result.output for result in told.results] == ["one"]


async def test_sends_images_of_messages_and_results(dialect: Dialect) -> None:
    told = await sent(
        dialect,
        User("what is this?", (PICTURE, PICTURE)),
        Assistant(CALLS[:1]),
        Results((ToolResult("c1", "read_file", "a picture", images=(PICTURE,)),)),
    )

    assert told.messages[0].images == 2
    assert sum(e.images for e in told.messages[1:]) + sum(r.images for r in told.results) == 1


async def test_an_image_alone_is_a_message(dialect: Dialect) -> None:
    told = await sent(dialect, User("", (PICTURE,)))

    assert told.messages[0].images == 1


def test_an_image_costs_its_pixels_and_not_its_bytes(dialect: Dialect) -> None:
    wire = dialect.wire("http://127.0.0.1:1")
    large = Image("image/png", PIXEL + b"\0" * 400_000, 100, 100)

    body = wire.encode(asking(dialect, User("look", (large,))))

    assert json_tokens(body.json[body.items]) < 1_000


def test_a_history_that_grew_is_encoded_as_one_that_came_whole(dialect: Dialect) -> None:
    wire = dialect.wire("http://127.0.0.1:1")
    history = (
        HELLO,
        User("and this", steering=True),
        Assistant(CALLS[:1]),
        Results((FIRST,)),
        User("rather not", steering=True),
        User("and hurry", steering=True),
        Assistant((Text("done"),)),
    )
    for size in range(1, len(history) + 1):
        grown = wire.encode(asking(dialect, *history[:size])).json
        fresh = dialect.wire("http://127.0.0.1:1").encode(asking(dialect, *history[:size])).json

        assert json.dumps(grown) == json.dumps(fresh)

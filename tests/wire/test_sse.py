from __future__ import annotations

import itertools
import random
from collections.abc import AsyncGenerator, Iterable

import pytest

from keen.core.errors import Rejected, Transient
from keen.core.messages import JsonObject
from keen.core.unicode import writable
from keen.wire import _sse
from keen.wire._json import call_input, decoded


async def arriving(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece


async def objects(*pieces: bytes) -> list[JsonObject]:
    return [value async for value in _sse.json_events(arriving(pieces))]


async def named(*pieces: bytes) -> list[tuple[str, str]]:
    return [event async for event in _sse.events(arriving(pieces))]


MIXED = (
    b"\xef\xbb\xbf: a comment\r\n"
    b'event: first\ndata: {"text":\rdata: "gr\xc3\xbc\xc3\x9fe \xf0\x9f\x8c\x8d"}\r\n\r\n'
    b"id: 7\nretry: 10\nunknown: field\n\n"
    b'data:{"n":1}\n\n\n\n'
    b'event: last\r\ndata: {"n":2}'
)
MIXED_EVENTS = [
    ("first", '{"text":\n"grüße 🌍"}'),
    ("", '{"n":1}'),
    ("last", '{"n":2}'),
]


async def test_a_stream_reads_the_same_wherever_it_is_cut_into_two_chunks() -> None:
    for cut in range(len(MIXED) + 1):
        assert await named(MIXED[:cut], MIXED[cut:]) == MIXED_EVENTS, cut


async def test_a_stream_reads_the_same_in_any_pieces() -> None:
    chance = random.Random(7)
    for _ in range(200):
        cuts = sorted(chance.sample(range(len(MIXED)), chance.randrange(1, 40)))
        bounds = [0, *cuts, len(MIXED)]
        pieces = [MIXED[a:b] for a, b in itertools.pairwise(bounds)]
        assert await named(*pieces) == MIXED_EVENTS, cuts
    assert await named(*(bytes([byte]) for byte in MIXED)) == MIXED_EVENTS


async def test_done_ends_the_stream_and_is_told() -> None:
    seen: list[str] = []
    stream = arriving([b'data: {"n":1}\n\ndata: [DONE]\n\n', b"data: {garbage\n\n"])
    values = [
        value async for value in _sse.json_events(stream, on_done=lambda: seen.append("done"))
    ]
    assert values == [{"n": 1}]
    assert seen == ["done"]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'"text"',
        b"[1]",
        b"null",
        b'{"a": "\xff"',
    ],
)
async def test_a_broken_event_is_worth_another_try(data: bytes) -> None:
    with pytest.raises(Transient, match="stream is broken"):
        await objects(b"data: " + data + b"\n\n")


async def test_invalid_utf8_inside_a_string_becomes_a_replacement_character() -> None:
    assert await objects(b'data: {"a": "x\xffy"}\n\n') == [{"a": "x\ufffdy"}]


async def test_a_lone_surrogate_cannot_enter() -> None:
    (value,) = await objects(b'data: {"a": ["\\ud83d"], "b": "\\ud83d\\ude00"}\n\n')
    assert value == {"a": ["\ufffd"], "b": "😀"}
    str(value).encode()


async def test_an_event_over_the_cap_is_refused_while_it_arrives() -> None:
    taken = 0

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal taken
        yield b'data: "'
        while True:
            taken += 1
            yield b"x" * 65_536

    with pytest.raises(Transient, match="8 MiB"):
        async for _ in _sse.json_events(endless()):
            pass
    assert taken * 65_536 <= _sse.MAX_EVENT_BYTES + 2 * 65_536


async def test_an_event_of_many_lines_is_capped_too() -> None:
    with pytest.raises(Transient, match="8 MiB"):
        await objects(*[b"data: " + b"x" * 65_000 + b"\n"] * 200)


async def test_a_stream_over_the_cap_is_refused() -> None:
    block = b'data: {"n":1}\n\n' + b": " + b"x" * 1_000_000 + b"\n\n"

    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield block

    with pytest.raises(Transient, match="64 MiB"):
        async for _ in _sse.json_events(endless()):
            pass


async def test_plain_json_in_place_of_a_stream_is_one_object() -> None:
    assert await objects(b' \n{"error":', b'\n\n {"code": 400}\n}\n') == [{"error": {"code": 400}}]
    assert await objects(b'[{"error": 1}, 2, {"x": 3}]') == [{"error": 1}, {"x": 3}]


async def test_bare_json_behind_the_events_is_read() -> None:
    assert await objects(b'data: {"n":1}\n\n{"error":\n', b'"x"}') == [{"n": 1}, {"error": "x"}]


async def test_a_web_page_is_refused_with_the_place_to_look() -> None:
    with pytest.raises(Rejected, match="base_url"):
        await objects(b"<!doctype html><html>", b"<title>Welcome</title></html>")


async def test_text_that_is_no_stream_says_nothing() -> None:
    assert await objects(b"upstream timed out") == []
    with pytest.raises(Transient, match="neither"):
        await objects(b"{not json")


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert call_input(arguments) == ({}, "")


@pytest.mark.parametrize(
    "arguments",
    ['{"path": ', "[1]", '"text"', "null", '{"n": NaN}', '{"a": 1} trailing', "[" * 9_999],
)
def test_arguments_that_are_no_object_are_malformed(arguments: str) -> None:
    assert call_input(arguments) == ({}, arguments)
    assert call_input('{"path": "a"}') == ({"path": "a"}, "")


def test_what_was_read_can_always_be_sent_again() -> None:
    assert decoded('"\\uDC80"') == "\ufffd"
    assert writable("a\udc80b") == "a\ufffdb"
    assert writable("grüße 😀") == "grüße 😀"

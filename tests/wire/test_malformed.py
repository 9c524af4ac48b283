"""Streams nobody should send: the answer comes whole or as a typed error, in bounded memory."""

from __future__ import annotations

import asyncio
import json
import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from keen.core.errors import ProviderError, Transient
from keen.core.messages import Json, User, tool_calls, visible_text
from keen.wire.base import Reply
from tests.fakes.asking import Heard, all_of, asking, hear, open_wire, outcome
from tests.fakes.dialects import USAGE, Dialect, split
from tests.fakes.frames import Answer, Called, aws, aws_message, sse
from tests.fakes.script import Recorded, Scripted, json_reply
from tests.fakes.server import FakeProvider

HELLO = User("hello")
TEXT = "Grüße 世界, 🦜 done"
MEGABYTE = 1024 * 1024


async def ended(dialect: Dialect, scripted: Scripted) -> tuple[Heard, Reply | ProviderError]:
    """What was heard and how it ended; any other exception fails the test."""
    heard = Heard()
    async with (
        FakeProvider(scripted) as provider,
        open_wire(dialect, provider.url, idle_seconds=2.0) as wire,
    ):
        return heard, await outcome(wire, asking(dialect, HELLO, effort="high"), heard)


def rewritten(scripted: Scripted, change: Callable[[bytes], bytes]) -> Scripted:
    """The same answer, its bytes changed as a whole."""
    return replace(scripted, frames=(change(scripted.body),))


def only_lf(body: bytes) -> bytes:
    return body.replace(b"\r\n", b"\n")


SAME: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "lines end with CR": lambda body: only_lf(body).replace(b"\n", b"\r"),
    "lines end with CRLF": lambda body: only_lf(body).replace(b"\n", b"\r\n"),
    "lines end with LF": only_lf,
    "comments everywhere": lambda body: only_lf(body).replace(b"data:", b": keep-alive\ndata:"),
    "comments as events": lambda body: b": hello\n\n" + body,
    "no space behind data": lambda body: body.replace(b"data: ", b"data:"),
    "ids and retries": lambda body: only_lf(body).replace(b"data:", b"id: 7\nretry: 10\ndata:"),
    "unknown fields": lambda body: only_lf(body).replace(b"data:", b"flavour: mint\ndata:"),
    "many blank lines": lambda body: b"\n\n\n" + only_lf(body).replace(b"\n\n", b"\n\n\n\n"),
    "garbage behind the end": lambda body: body + b"and then some garbage {{{\n\n",
    "another event behind the end": lambda body: body + b'data: {"type": "surprise"}\n\n',
}


@pytest.mark.parametrize("name", SAME)
async def test_every_legal_form_of_an_event_stream_is_read(dialect: Dialect, name: str) -> None:
    if dialect.name == "bedrock":
        pytest.skip("no event stream of lines")
    heard, end = await ended(dialect, rewritten(dialect.says(TEXT), SAME[name]))

    assert isinstance(end, Reply)
    assert heard.text == visible_text(end.message) == TEXT
    assert end.usage == USAGE


async def test_an_answer_in_chunks_of_one_byte_is_read(dialect: Dialect) -> None:
    scripted = dialect.calls_many(("read_file", {"path": "ä"}), text=TEXT, reasoning="hm 🦜")
    body = scripted.body
    bytes_of_it = tuple(body[place : place + 1] for place in range(len(body)))
    heard, end = await ended(dialect, replace(scripted, frames=bytes_of_it))

    assert isinstance(end, Reply)
    assert heard.text == TEXT
    assert [call.input for call in tool_calls(end.message)] == [{"path": "ä"}]


def unknown_event(dialect: Dialect, number: int = 0) -> bytes:
    """An event of a kind that does not exist yet."""
    if dialect.name == "bedrock":
        return aws("somethingNew", {"number": number})
    event: Json = {"type": "something.new", "number": number}
    return sse(event, "something.new" if dialect.name == "anthropic" else "")


async def test_unknown_events_are_passed_over(dialect: Dialect) -> None:
    scripted = dialect.says(TEXT)
    frames = [part for frame in scripted.frames for part in (unknown_event(dialect), frame)]
    heard, end = await ended(dialect, replace(scripted, frames=tuple(frames)))

    assert isinstance(end, Reply)
    assert heard.text == TEXT


async def test_many_tiny_events_are_read_or_refused(dialect: Dialect) -> None:
    await many_tiny_events(dialect, 20_000)


@pytest.mark.campaign
@pytest.mark.timeout(300)
async def test_a_million_tiny_events_are_read_or_refused(dialect: Dialect) -> None:
    await many_tiny_events(dialect, 1_000_000)


async def many_tiny_events(dialect: Dialect, count: int) -> None:
    scripted = dialect.says("fine")
    flood = (unknown_event(dialect) * 1_000,) * (count // 1_000)
    frames = (*scripted.frames[:1], *flood, *scripted.frames[1:])
    with bounded_memory(64):
        heard, end = await ended(dialect, replace(scripted, frames=frames))

    assert heard.text == "fine" if isinstance(end, Reply) else "fine".startswith(heard.text)


ARGUMENTS = {
    "empty": "",
    "truncated": '{"path": "a',
    "no JSON": "path=a",
    "a list": '["a"]',
    "a string": '"a"',
    "null": "null",
    "two objects": '{"path": "a"}{"path": "b"}',
    "NaN": '{"path": NaN}',
    "very deep": '{"path": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "a number too long": '{"path": ' + "9" * 10_000 + "}",
    "a lone surrogate": '{"path": "\\ud800"}',
}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_arguments_that_are_no_object_make_a_malformed_call(
    dialect: Dialect, name: str
) -> None:
    if dialect.name == "google":
        pytest.skip("arguments are JSON, not text")
    call = Called("call_bad", "read_file", tuple(split_in(ARGUMENTS[name], 5_000)))
    heard = Heard()
    async with FakeProvider(
        dialect.answers(Answer(calls=(call,), usage=USAGE)), dialect.says("ok")
    ) as provider:
        async with open_wire(dialect, provider.url) as wire:
            end = await outcome(wire, asking(dialect, HELLO), heard)
            assert isinstance(end, Reply)
            (made,) = tool_calls(end.message)
            if made.malformed:
                assert made.malformed == ARGUMENTS[name]
                assert made.input == {}
            else:
                assert name in ("empty", "null", "NaN", "a lone surrogate", "a number too long")
            again = asking(dialect, HELLO, end.message, User("try again"))
            assert (await hear(wire, again)).text == "ok"
        assert provider.violations == []


def split_in(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


async def test_a_terminal_event_twice_ends_once(dialect: Dialect) -> None:
    scripted = dialect.says(TEXT)
    last = scripted.frames[-1 if dialect.name == "google" else -3 :]
    heard, end = await ended(dialect, replace(scripted, frames=(*scripted.frames, *last)))

    assert isinstance(end, Reply)
    assert heard.text == visible_text(end.message) == TEXT
    assert end.usage == USAGE


PAGE = b"<!doctype html><html><body>Sign in to the hotel network</body></html>"
NOT_A_STREAM: dict[str, Scripted] = {
    "a page": Scripted(content_type="text/html", frames=(PAGE,)),
    "a page that calls itself a stream": Scripted(frames=(PAGE,)),
    "an empty object": Scripted(content_type="application/json", frames=(b"{}",)),
    "a JSON error": json_reply(200, {"error": {"message": "no", "code": 500}}),
    "null": Scripted(content_type="application/json", frames=(b"null",)),
    "binary": Scripted(content_type="application/octet-stream", frames=(bytes(range(256)) * 8,)),
    "zeros": Scripted(frames=(b"\0" * 4096,)),
    "only blank lines": Scripted(frames=(b"\n" * 4096,)),
    "text": Scripted(content_type="text/plain", frames=(b"data: hello\n\ndata: [DONE]\n\n",)),
}


@pytest.mark.parametrize("name", NOT_A_STREAM)
async def test_what_is_no_stream_is_a_typed_error(dialect: Dialect, name: str) -> None:
    scripted = NOT_A_STREAM[name]
    heard, end = await ended(dialect, scripted)

    assert isinstance(end, ProviderError)
    assert heard.text == ""


async def test_a_wrong_content_type_is_read_or_refused(dialect: Dialect) -> None:
    heard, end = await ended(dialect, replace(dialect.says(TEXT), content_type="text/plain"))

    assert isinstance(end, Transient) or heard.text == TEXT


def mutations(scripted: Scripted, count: int, seed: int) -> Iterator[Scripted]:
    """The answer with one leaf of one event replaced, or one event dropped, doubled or moved."""
    chance = random.Random(seed)
    events = [opened(frame) for frame in scripted.frames]
    for _ in range(count):
        frames = list(scripted.frames)
        place = chance.randrange(len(frames))
        event = events[place]
        match chance.randrange(8):
            case 0:
                del frames[place]
            case 1:
                frames.insert(place, frames[place])
            case 2:
                frames.insert(chance.randrange(len(frames)), frames.pop(place))
            case _ if event is not None:
                head, value, close = event
                frames[place] = close(head, changed(value, chance))
            case _:
                frames[place] = chance.randbytes(20) + b"\n\n"
        yield replace(scripted, frames=tuple(frames))


def opened(frame: bytes) -> tuple[bytes, Json, Callable[[bytes, Json], bytes]] | None:
    """Head and JSON of a frame, and how to put them together again."""
    if (found := re.fullmatch(rb"((?:event: .*\n)?data: )(\{.*\})((?:\r?\n){2})", frame)) is None:
        size = struct.unpack(">I", frame[4:8])[0] if len(frame) > 16 else 0
        with suppress(ValueError):
            return frame[12 : 12 + size], json.loads(frame[12 + size : -4]), closed_aws
        return None
    end = found[3]
    return found[1], json.loads(found[2]), lambda head, value: head + dumped(value) + end


def closed_aws(head: bytes, value: Json) -> bytes:
    return aws_message(head, dumped(value))


def dumped(value: Json) -> bytes:
    return json.dumps(value).encode()


def changed(value: Json, chance: random.Random) -> Json:
    """The value with one place in it replaced by something of another type, or taken out."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        return [*value[:place], changed(value[place], chance), *value[place + 1 :]]
    others: list[Json] = [None, True, -1, 10**30, 1.5, "x", [], {}, [None], [[]], {"x": {"y": 1}}]
    return chance.choice(others)


@pytest.mark.timeout(60)
async def test_wrong_types_missing_and_moved_events_never_crash(dialect: Dialect) -> None:
    await every_mutation_ends(dialect, count=300, seed=78)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_wrong_types_missing_and_moved_events_never_crash_for_long(dialect: Dialect) -> None:
    for seed in range(40):
        await every_mutation_ends(dialect, count=1_000, seed=seed)


async def every_mutation_ends(dialect: Dialect, *, count: int, seed: int) -> None:
    calls = (dialect.call("read_file", '{"path": "a"}'), dialect.call("glob", '{"pattern": "*"}'))
    answer = Answer(split("Let me look."), split("I think"), calls, USAGE)
    script = list(mutations(dialect.answers(answer), count, seed))

    def the_one_named(request: Recorded) -> Scripted:
        named = re.search(r"mutation (\d+)!", request.text)
        assert named is not None
        return script[int(named[1])]

    room = asyncio.Semaphore(16)
    async with (
        FakeProvider(the_one_named) as provider,
        open_wire(dialect, provider.url, idle_seconds=5.0) as wire,
    ):

        async def one(number: int) -> None:
            request = asking(dialect, User(f"mutation {number}!"), effort="high")
            heard = Heard()
            async with room:
                try:
                    end = await outcome(wire, request, heard)
                    if isinstance(end, Reply):
                        wire.encode(asking(dialect, HELLO, end.message, User("more")))
                except Exception as error:
                    error.add_note(f"mutation {number}: {script[number].body!r}")
                    raise

        await all_of(one(number) for number in range(count))


def gzip_bomb(megabytes: int) -> bytes:
    """Zeros, a thousandth of their size: one compressed block after another."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b"\0" * MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes


class bounded_memory:
    """Fails when the process grew by more than so many megabytes inside; Linux can tell."""

    def __init__(self, megabytes: int) -> None:
        self.limit = megabytes
        self.before = 0

    def __enter__(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.before = peak_kilobytes()

    def __exit__(self, *_: object) -> None:
        grown = (peak_kilobytes() - self.before) // 1024
        assert grown <= self.limit, f"grew by {grown} MB"


def peak_kilobytes() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.timeout(60)
async def test_a_compressed_bomb_is_given_up(dialect: Dialect) -> None:
    bomb = gzip_bomb(400)
    pieces = tuple(bomb[start : start + 4096] for start in range(0, len(bomb), 4096))
    scripted = Scripted(
        content_type=dialect.content_type, headers={"content-encoding": "gzip"}, frames=pieces
    )
    await ended(dialect, dialect.says("warm"))
    with bounded_memory(96):
        _, end = await ended(dialect, scripted)

    assert isinstance(end, ProviderError)


@pytest.mark.timeout(60)
async def test_an_event_of_fifty_megabytes_is_given_up(dialect: Dialect) -> None:
    piece = b"a" * 65_536
    if dialect.name == "bedrock":
        prelude = struct.pack(">II", 50 * MEGABYTE, 0)
        head = prelude + struct.pack(">I", zlib.crc32(prelude))
    else:
        head = b'data: {"type": "something", "text": "'
    begun = dialect.begins("hello")
    scripted = replace(begun, frames=(*begun.frames, head, *(piece,) * 800))
    await ended(dialect, dialect.says("warm"))
    with bounded_memory(96):
        _, end = await ended(dialect, scripted)

    assert isinstance(end, ProviderError)


BROKEN_AWS: dict[str, Callable[[bytes], bytes]] = {
    "a wrong checksum": lambda frame: frame[:-1] + bytes([frame[-1] ^ 1]),
    "a wrong prelude checksum": lambda frame: frame[:9] + bytes([frame[9] ^ 1]) + frame[10:],
    "a length of nothing": lambda frame: b"\0" * 16 + frame,
    "no headers": lambda frame: aws_message(b"", b"{}"),
    "no JSON": lambda frame: aws_message(b"\x0b:event-type\x07\0\x0bmessageStop", b"{{{"),
    "a header of an unknown type": lambda frame: aws_message(b"\x01a\x63", b"{}"),
    "headers longer than the message": lambda frame: struct.pack(">II", 20, 900) + frame[8:],
}


@pytest.mark.parametrize("name", BROKEN_AWS)
async def test_a_broken_aws_frame_is_a_typed_error(dialect: Dialect, name: str) -> None:
    if dialect.name != "bedrock":
        pytest.skip("no AWS frames")
    scripted = dialect.says(TEXT)
    frames = list(scripted.frames)
    frames[2] = BROKEN_AWS[name](frames[2])
    heard, end = await ended(dialect, replace(scripted, frames=tuple(frames)))

    match end:
        case Reply():
            assert visible_text(end.message) == heard.text
        case ProviderError():
            assert type(end) is Transient

"""A stream cut anywhere: a typed error or the whole answer, never a call from half an answer."""

from __future__ import annotations

import asyncio
import re
from typing import Literal, TypeAlias

import pytest

from keen.core.errors import ProviderError, Transient
from keen.core.messages import User
from keen.wire.base import Reply, Wire
from tests.fakes.asking import Heard, all_of, asking, hear, open_wire, outcome
from tests.fakes.dialects import USAGE, Dialect, split
from tests.fakes.frames import Answer
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider

How: TypeAlias = Literal["fin", "rst", "silence"]

AT_ONCE = 24
IDLE_SECONDS = 0.25


def recordings(dialect: Dialect) -> tuple[Scripted, ...]:
    """Answers of the three kinds: text, calls after reasoning and text, cut at the output cap."""
    calls = (dialect.call("read_file", '{"path": "ä"}'), dialect.call("glob", '{"pattern": "*"}'))
    answer = Answer(split("Let me 世界 look."), split("I think 🦜 so"), calls, USAGE)
    return (
        dialect.answers(answer),
        dialect.says("Grüße, 世界"),
        dialect.truncated("As far", ("read_file", '{"path": "a')),
    )


async def cut_everywhere(dialect: Dialect, recording: Scripted, how: How, step: int) -> None:
    """Cut one recording at every `step`-th byte, several cuts at a time."""
    whole = recording.body

    def at_the_place_named(request: Recorded) -> Scripted:
        named = re.search(r"cut at byte (\d+)!", request.text)
        assert named is not None
        frames = (whole[: int(named[1])],)
        if how == "silence":
            return Scripted(content_type=recording.content_type, frames=frames, hold=True)
        return Scripted(content_type=recording.content_type, frames=frames, cut=how)

    async with (
        FakeProvider(recording, at_the_place_named) as provider,
        open_wire(dialect, provider.url, idle_seconds=IDLE_SECONDS) as wire,
    ):
        uncut = await hear(wire, asking(dialect, User("whole"), effort="high"))
        room = asyncio.Semaphore(AT_ONCE)
        await all_of(
            cut_at(dialect, wire, place, uncut, room) for place in range(0, len(whole), step)
        )
        assert provider.violations == []
        assert provider.overruns == 0


async def cut_at(
    dialect: Dialect, wire: Wire, place: int, uncut: Heard, room: asyncio.Semaphore
) -> None:
    """One cut: what was shown is a beginning of the answer, what is replied is all of it."""
    heard = Heard()
    request = asking(dialect, User(f"cut at byte {place}!"), effort="high")
    async with room:
        ended = await outcome(wire, request, heard)
    assert uncut.text.startswith(heard.text), f"byte {place}: {heard.text!r}"
    assert uncut.reasoning.startswith(heard.reasoning), f"byte {place}: {heard.reasoning!r}"
    match ended:
        case Reply():
            assert ended.message.parts == uncut.message.parts, f"byte {place}"
            assert ended.finish == uncut.reply.finish, f"byte {place}"
        case ProviderError():
            assert type(ended) is Transient, f"byte {place}: {ended!r}"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["fin", "rst", "silence"])
async def test_a_stream_cut_at_every_sixteenth_byte(dialect: Dialect, how: How) -> None:
    await cut_everywhere(dialect, recordings(dialect)[0], how, step=16)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["fin", "rst", "silence"])
async def test_a_stream_cut_at_every_byte(dialect: Dialect, how: How) -> None:
    for recording in recordings(dialect):
        await cut_everywhere(dialect, recording, how, step=1)

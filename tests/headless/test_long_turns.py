"""Turns longer than their window, whole, through `keen run`, over six protocols."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from keen.core.messages import Usage
from tests.fakes.dialects import Dialect
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

TASK = "Read every part, one after another; the launch code is HEXAGON-7."
SUMMARY = "## Goal\nread all parts\n\n## Accomplished\nSUMMARY-MARKER: went on"
pytestmark = [pytest.mark.timeout(600)]


@dataclass
class Server:
    """A model that wants `rounds` tool rounds and takes at most `limit` tokens of input."""

    dialect: Dialect
    rounds: int
    limit: int
    done: int = 0
    refused: int = 0
    summaries: int = 0
    taskless: int = 0
    sizes: list[int] = field(default_factory=list[int])

    def answer(self, request: Recorded) -> Scripted:
        size = len(request.text) * 2 // 7
        self.sizes.append(size)
        if "HEXAGON-7" not in request.text:
            self.taskless += 1
        if size > self.limit:
            self.refused += 1
            return self.dialect.overflow(actual=size, limit=self.limit)
        usage = Usage(size, 0, 0, 30)
        if not self.dialect.read(request).tools:
            self.summaries += 1
            return self.dialect.says(SUMMARY, usage=usage)
        if self.done == self.rounds:
            return self.dialect.says("All read.", usage=usage)
        self.done += 1
        path = f"part{self.done % 4}.txt"
        return self.dialect.calls_many(("read_file", {"path": path}), usage=usage)


async def long_run(
    place: Place, dialect: Dialect, *, rounds: int, limit: int, window: int, kilobytes: int
) -> Server:
    for number in range(4):
        line = f"part {number}: some words to read here\n"
        (place.work / f"part{number}.txt").write_text(line * (kilobytes * 1024 // len(line)))
    server = Server(dialect, rounds, limit)
    async with FakeProvider(server.answer) as provider:
        place.configure(dialect, provider.url, window=window)
        ran = await place.run("run", TASK, "--format", "json")
        violations, total = provider.violations, sum(len(r.text) for r in provider.requests)
        sent = len(provider.requests)

    assert ran.code == 0, ran.stderr + ran.stdout[-2000:]
    assert ran.result["text"] == "All read."
    assert server.done == rounds
    assert server.taskless == 0
    assert violations == []
    assert "SUMMARY-MARKER" not in ran.stdout + ran.stderr
    compactions = ran.result["compactions"]
    assert isinstance(compactions, list)
    outcomes = [c["outcome"] for c in compactions if isinstance(c, dict)]
    assert outcomes == ["applied"] * len(outcomes)
    assert sent == ran.result["requests"] == rounds + 1 + len(outcomes) + server.refused
    print(
        f"\n{dialect.name:10} window {window:>9,} rounds {rounds:>4} requests {sent:>4} "
        f"compactions {len(outcomes):>3} refused {server.refused} bytes {total:>11,} "
        f"seconds {ran.result['duration_seconds']}"
    )
    return server


@pytest.mark.parametrize("window", [64_000, 1_000_000], ids=["right window", "wrong window"])
async def test_twelve_rounds_of_twenty_kilobytes(
    dialect: Dialect, place: Place, window: int
) -> None:
    server = await long_run(place, dialect, rounds=12, limit=64_000, window=window, kilobytes=20)
    assert server.refused == (0 if window == 64_000 else 1)


@pytest.mark.campaign
@pytest.mark.parametrize("window", [64_000, 1_000_000], ids=["right window", "wrong window"])
async def test_forty_rounds_of_twenty_kilobytes(
    dialect: Dialect, place: Place, window: int
) -> None:
    server = await long_run(place, dialect, rounds=40, limit=64_000, window=window, kilobytes=20)
    assert server.refused == (0 if window == 64_000 else 1)


@pytest.mark.campaign
async def test_two_hundred_rounds_in_a_small_window(dialect: Dialect, place: Place) -> None:
    server = await long_run(place, dialect, rounds=200, limit=16_384, window=16_384, kilobytes=2)
    assert server.refused == 0
    assert server.summaries < 200


@pytest.mark.campaign
async def test_a_thousand_rounds(dialect: Dialect, place: Place) -> None:
    await long_run(place, dialect, rounds=1_000, limit=64_000, window=64_000, kilobytes=4)

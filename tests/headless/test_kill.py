"""`keen run` killed at random moments around a compaction, and gone on with by another process."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from keen.agent.prompts import wrapped
from keen.core.messages import History, User
from keen.session.projection import conversation
from keen.session.reading import read
from keen.session.records import AssistantTurn, Record, TextItem
from keen.session.turns import settled
from tests.fakes.dialects import Dialect
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place
from tests.session.test_kill import is_valid

WINDOW = 30_000
"""Two results of the file below fill it."""
_LONGEST = 0.3
"""Seconds after a request that a kill may come, most of them much sooner."""
_MOST = 9
"""Requests of one process after which it is killed in any case."""


@dataclass
class Endless:
    """A model that reads for ever, until it may finish; it knows what keen must remember."""

    dialect: Dialect
    chance: random.Random
    prompt: str = ""
    steps: int = 0
    running: int = 0
    """The step that was told last in this process and that no request has followed yet."""
    finished: list[int] = field(default_factory=list[int])
    summaries: list[str] = field(default_factory=list[str])
    """The replacement that each summary makes, in order."""
    seen_summaries: int = 0
    """Replacements that a request has shown to be in force: they cannot be lost any more."""
    is_finishing: bool = False
    process: asyncio.subprocess.Process | None = None
    requests: int = 0
    kill_at: int = 0
    """The request of this process after which it is killed; 0: after the first summary request."""
    first: str = ""
    """The first request of this process."""

    def begin(self, prompt: str, kill_at: int = 0) -> None:
        self.prompt, self.requests, self.first, self.kill_at = prompt, 0, "", kill_at
        self.process, self.running = None, 0

    def answer(self, request: Recorded) -> Scripted:
        transcript = self.dialect.read(request)
        self.requests += 1
        if self.running:
            self.finished.append(self.running)
            self.running = 0
        self.first = self.first or request.text
        assert self.prompt in request.text
        is_summary = not transcript.tools
        wanted = is_summary if self.kill_at == 0 else self.requests == self.kill_at
        if wanted or self.requests == _MOST:
            self._kill_soon()
        if is_summary:
            summary = f"## Goal\nSUMMARY-{len(self.summaries) + 1}."
            self.summaries.append(wrapped(summary, [self.prompt], is_automatic=True))
            return self.dialect.says(summary, usage=None)
        self.seen_summaries = max(
            (n for n in range(len(self.summaries) + 1) if f"SUMMARY-{n}." in request.text),
            default=self.seen_summaries,
        )
        if self.is_finishing:
            return self.dialect.says("Finished.", usage=None)
        self.steps = self.running = self.steps + 1
        call = ("read_file", {"path": "big.txt"})
        return self.dialect.calls_many(call, text=f"This is step {self.steps}.", usage=None)

    def _kill_soon(self) -> None:
        if self.process is None or self.is_finishing:
            return
        loop, process, self.process = asyncio.get_running_loop(), self.process, None
        loop.call_later(_LONGEST * self.chance.random() ** 2, process.kill)


@dataclass
class Chain:
    """One session: killed, gone on with, killed again, and at last finished."""

    place: Place
    model: Endless
    provider: FakeProvider
    olds: int = 0
    news: int = 0

    async def killed(self, number: int) -> None:
        """One process from its start to its death, and what it left."""
        model = self.model
        kill_at = model.chance.choice((0, 0, 0, model.chance.randrange(1, 7)))
        model.begin(f"Please go on, part {number}.", kill_at)
        acknowledged = model.seen_summaries
        more = ("--continue",) if number else ()
        before = self.history() if number else ()
        process = model.process = await self.place.start("run", *more, model.prompt)
        _, errors = await process.communicate()
        # 255: asyncio's word where somebody else in this process waited for the child first.
        assert process.returncode in (-9, 255), errors.decode()
        self.resumed(before)
        self.check(acknowledged)

    def check(self, before: int) -> None:
        """Old or new, whole: every finished step once, in order, and a replacement that was made.

        A request shows that what was before it is on disk; the last two things may be or not be.
        """
        model = self.model
        records = self.records()
        texts = [int(text.split()[-1].rstrip(".")) for text in _steps(records)]
        assert texts == sorted(set(texts))
        assert set(model.finished) <= set(texts), "a finished step is lost"
        history = conversation(records)
        is_valid(history)
        newest = _checkpoint(history)
        in_force = model.summaries.index(newest) + 1 if newest else 0
        assert in_force in (model.seen_summaries, len(model.summaries)), "old or new"
        assert in_force >= before
        if in_force > model.seen_summaries:
            self.news += 1
        else:
            self.olds += 1

    def resumed(self, before: History) -> None:
        """The first request of a process tells what the one before it left."""
        for message in before:
            if isinstance(message, User):
                said = message.checkpoint.summary if message.checkpoint else message.text
                assert _sent(said) in self.model.first

    async def finish(self) -> None:
        model = self.model
        model.is_finishing = True
        before = self.history()
        model.begin("Now finish.")
        ran = await self.place.run("run", "--continue", model.prompt)
        self.resumed(before)
        assert (ran.code, ran.stdout) == (0, "Finished.\n"), ran.stderr
        assert "SUMMARY-" not in ran.stderr
        assert self.provider.violations == []

    def path(self) -> Path:
        (path,) = self.place.sessions()
        return path

    def records(self) -> list[Record]:
        return settled(read(self.path()).records)

    def history(self) -> History:
        return conversation(self.records()) if self.place.sessions() else ()


def _sent(text: str) -> str:
    """The part of a text that no JSON escapes."""
    return text.splitlines()[-1]


def _checkpoint(history: History) -> str:
    first = history[0]
    return first.text if isinstance(first, User) and first.checkpoint else ""


def _steps(records: list[Record]) -> list[str]:
    """The texts of the finished rounds; one without a call after it was cut off."""
    found: list[str] = []
    for record in records:
        if isinstance(record.payload, AssistantTurn):
            items = record.payload.transcript
            found += [item.content for item in items if isinstance(item, TextItem)]
    return [text for text in found if text.startswith("This is step") and text.endswith(".")]


async def campaign(dialect: Dialect, place: Place, kills: int, seed: int) -> None:
    (place.work / "big.txt").write_text("a line of the big text\n" * 900)
    model = Endless(dialect, random.Random(seed))
    async with FakeProvider(model.answer) as provider:
        place.configure(dialect, provider.url, window=WINDOW)
        chain = Chain(place, model, provider)
        for number in range(kills):
            await chain.killed(number)
        await chain.finish()
    print(
        f"\n{dialect.name:10} seed {seed} kills {kills}: old {chain.olds}, new {chain.news}, "
        f"steps {model.steps}, summaries {len(model.summaries)}"
    )


@pytest.mark.timeout(300)
async def test_a_kill_around_a_compaction_leaves_the_old_or_the_new_history(
    dialect: Dialect, place: Place
) -> None:
    await campaign(dialect, place, 4, seed=len(dialect.name))


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(7))
async def test_two_hundred_kills_over_six_protocols(
    dialect: Dialect, place: Place, seed: int
) -> None:
    await campaign(dialect, place, 5, seed=100 + seed)

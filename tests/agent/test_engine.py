"""What the engine adds to a conversation: undo, another model for summaries, a look at a switch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from keen.agent.compaction import CheckpointStrategy, Compactor, Summariser
from keen.agent.conversation import as_it_is
from keen.agent.sampling import Sampler
from keen.core.errors import CompactionError
from keen.core.events import CompactionApplied, Event
from keen.core.messages import Usage, User
from keen.core.models import Price
from keen.engine import RunLimits
from keen.session.records import Compaction
from tests.agent.engines import Kept, an_engine
from tests.agent.playing import FakeTool, small
from tests.agent.test_compaction import LARGE, SUMMARY, TASK, calls_big
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider

CHAT = dialect_named("chat")
RAW = "a line of the file\n" * 300


async def run(kept: Kept, text: str) -> list[Event]:
    seen: list[Event] = []

    async def emit(event: Event) -> None:
        seen.append(event)

    await kept.engine.run(User(text), emit)
    return seen


async def compact(kept: Kept) -> None:
    async def ignore(_event: Event) -> None:
        return

    assert await kept.conversation.compact("", ignore)


async def test_taking_a_compaction_back_sends_the_old_conversation_again(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a.py"),
        dialect.says("It has three hundred lines. " * 40),
        dialect.says(SUMMARY),
        dialect.says("after the compaction"),
        dialect.says("after the undo"),
    ) as provider:
        kept = an_engine(dialect, provider, tmp_path, FakeTool(output=RAW))
        await run(kept, "how long is a.py?")
        before = kept.in_memory
        await compact(kept)
        await run(kept, "go on")
        undone = await kept.engine.undo_compaction()
        back = kept.conversation.history
        await run(kept, "and now?")
        await kept.engine.aclose()
        last = dialect.read(provider.requests[-1])

    assert back[: len(before)] == before
    assert undone.tokens > 100
    assert not undone.is_raw
    assert "compacted_context" not in provider.requests[-1].text
    assert "how long is a.py?" in last.messages[0].text
    assert [call.name for call in last.calls] == ["read_file"]
    assert "after the compaction" in "\n".join(last.texts)
    assert kept.in_memory == kept.on_disk
    assert provider.violations == []


async def test_results_that_are_still_in_memory_come_back_raw(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a.py"),
        dialect.says("long"),
        dialect.says(SUMMARY),
        dialect.says("after the undo"),
    ) as provider:
        kept = an_engine(dialect, provider, tmp_path, FakeTool(output=RAW))
        kept.conversation.remember = as_it_is
        await run(kept, "how long is a.py?")
        await compact(kept)
        undone = await kept.engine.undo_compaction()
        await run(kept, "and now?")
        await kept.engine.aclose()
        last = dialect.read(provider.requests[-1])

    assert undone.is_raw
    assert [result.output for result in last.results] == [RAW]
    assert kept.in_memory == kept.on_disk
    assert provider.violations == []


async def test_only_the_last_compaction_is_taken_back_and_then_the_one_before(
    tmp_path: Path,
) -> None:
    async with FakeProvider(
        CHAT.says("first answer " * 99),
        CHAT.says("ONE " + SUMMARY),
        CHAT.says("second answer " * 99),
        CHAT.says("TWO " + SUMMARY),
    ) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        await run(kept, "first")
        await compact(kept)
        await run(kept, "second")
        await compact(kept)
        await kept.engine.undo_compaction()
        once = repr(kept.conversation.history)
        await kept.engine.undo_compaction()
        twice = repr(kept.conversation.history)
        with pytest.raises(CompactionError, match="no compaction"):
            await kept.engine.undo_compaction()
        await kept.engine.aclose()

    assert "ONE" in once
    assert "TWO" not in once
    assert "first answer" in twice
    assert "second answer" in twice
    assert "ONE" not in twice
    assert kept.in_memory == kept.on_disk


async def test_an_undo_that_would_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    async with FakeProvider(
        CHAT.says("word " * 12_000, usage=None), CHAT.says(SUMMARY), CHAT.says("ok")
    ) as provider:
        kept = an_engine(CHAT, provider, tmp_path, model=CHAT.model(window=60_000))
        await run(kept, "talk")
        await compact(kept)
        kept.conversation.sampler.model = small(CHAT)
        shortened = kept.conversation.history
        with pytest.raises(CompactionError, match=r"measures about 1\d,\d{3} tokens"):
            await kept.engine.undo_compaction()
        await kept.engine.aclose()

    assert kept.conversation.history is shortened
    assert kept.in_memory == kept.on_disk


async def test_an_undo_while_a_turn_runs_is_refused(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.hangs("so far")) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        task = asyncio.create_task(run(kept, "talk"))
        await provider.asked()
        with pytest.raises(CompactionError, match="turn is running"):
            await kept.engine.undo_compaction()
        task.cancel()
        await asyncio.wait([task])
        await kept.engine.aclose()


async def test_an_undo_cancelled_at_any_step_leaves_memory_and_disk_alike(tmp_path: Path) -> None:
    for step in range(12):
        place = tmp_path / str(step)
        place.mkdir()
        async with FakeProvider(CHAT.says("an answer " * 99), CHAT.says(SUMMARY)) as provider:
            kept = an_engine(CHAT, provider, place)
            await run(kept, "talk")
            await compact(kept)
            task = asyncio.create_task(kept.engine.undo_compaction())
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert kept.in_memory == kept.on_disk
            await kept.engine.aclose()


async def test_usage_requests_and_cost_of_another_summariser_are_the_runs_own(
    dialect: Dialect, tmp_path: Path
) -> None:
    usage = Usage(1_000, 0, 0, 100)
    async with (
        FakeProvider(calls_big(dialect), dialect.says("done", usage=usage)) as main,
        FakeProvider(dialect.says(SUMMARY, usage=usage)) as other,
    ):
        elsewhere = Sampler(
            dialect.wire(other.url),
            replace(dialect.model(id="cheap"), price=Price(input=1.0, output=10.0)),
        )

        def by_another(sampler: Sampler) -> Compactor:
            sampler.summarises_with = elsewhere.model.name
            return CheckpointStrategy(Summariser(elsewhere, payer=sampler))

        model = replace(small(dialect), price=Price(input=100.0, output=1_000.0))
        kept = an_engine(
            dialect, main, tmp_path, FakeTool(output=LARGE), model=model, compactor=by_another
        )
        kept.engine.summariser = elsewhere
        seen = await run(kept, TASK)
        await kept.engine.aclose()

    (applied,) = [event for event in seen if isinstance(event, CompactionApplied)]
    assert len(main.requests) + len(other.requests) == kept.engine.requests == 3
    assert kept.engine.usage == usage + usage
    assert kept.engine.cost_usd == pytest.approx(0.2 + 0.002)
    assert applied.receipt.usage == usage
    assert applied.receipt.requests == 1
    (record,) = [r.payload for r in kept.records() if isinstance(r.payload, Compaction)]
    assert record.model == applied.receipt.model == elsewhere.model.name
    elsewhere.model = replace(elsewhere.model, price=None)
    assert kept.engine.cost_usd is None
    assert kept.engine.unpriced == elsewhere.model.name


async def test_a_smaller_summariser_gets_a_request_that_fits_its_own_window(
    dialect: Dialect, tmp_path: Path
) -> None:
    def within(request: Recorded) -> Scripted:
        size = len(request.text) * 2 // 7
        return dialect.says(SUMMARY) if size <= 9_000 else dialect.overflow(size, 9_000)

    async with (
        FakeProvider(calls_big(dialect), dialect.says("done")) as main,
        FakeProvider(within) as other,
    ):
        elsewhere = Sampler(dialect.wire(other.url), small(dialect, 9_000, 1_000))

        def by_another(sampler: Sampler) -> Compactor:
            return CheckpointStrategy(Summariser(elsewhere, payer=sampler))

        kept = an_engine(
            dialect,
            main,
            tmp_path,
            FakeTool(output=LARGE),
            model=small(dialect),
            compactor=by_another,
        )
        kept.engine.summariser = elsewhere
        seen = await run(kept, TASK)
        await kept.engine.aclose()

    assert len(other.requests) == 1
    assert [event for event in seen if isinstance(event, CompactionApplied)]


async def test_a_conversation_fits_a_model_or_not(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(dialect.says("word " * 9_000), dialect.says(SUMMARY)) as provider:
        kept = an_engine(dialect, provider, tmp_path)
        assert kept.engine.fits(small(CHAT))
        await run(kept, "talk")
        too_small, larger = small(CHAT, 16_384), small(CHAT, 64_000)
        assert not kept.engine.fits(too_small)
        assert kept.engine.fits(larger)
        await compact(kept)
        assert kept.engine.fits(too_small)
        await kept.engine.aclose()


async def test_without_a_session_the_turn_is_over_when_it_is_over(tmp_path: Path) -> None:
    async with FakeProvider(CHAT.says("hello")) as provider:
        kept = an_engine(CHAT, provider, tmp_path)
        kept.engine.recorder = None
        await run(kept, "talk")
        assert kept.engine.turn is None
        await kept.engine.aclose()


def test_a_budget_in_dollars_ends_at_what_the_run_cost() -> None:
    limits = RunLimits(dollars=0.5, cost=lambda: 0.5)
    assert limits.reached(1, Usage()) == "budget"
    assert RunLimits(dollars=0.5, cost=lambda: 0.49).reached(1, Usage()) is None

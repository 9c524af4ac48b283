"""The invariants of a compaction over all six protocols, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from keen.agent.compaction import (
    CheckpointStrategy,
    Compactor,
    RecentStrategy,
    Summariser,
    WindowStrategy,
    safe_cut,
)
from keen.agent.conversation import Conversation
from keen.agent.prompts import compaction_system, wrapped
from keen.agent.sampling import Sampler
from keen.core.errors import CompactionError, ContextOverflow, SessionError
from keen.core.events import (
    CompactionApplied,
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Event,
    Receipt,
    Rewound,
    TextDelta,
    ToolFinished,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import Assistant, History, Image, Results, User
from keen.engine import RunLimits
from tests.agent.playing import SYSTEM, FakeTool, a_conversation, names, play, small
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider

LARGE = "line of output\n" * 3_040
"""About 13,030 tokens: between the trigger (12,514) and the budget (13,904) of `small`."""
TASK = "fix the parser & keep <tags> as they are"
SUMMARY = "## Goal\nFIX-MARKER\n\n## Accomplished\nread big.log"


def calls_big(dialect: Dialect) -> Scripted:
    """A call whose answer reports no usage, so that our own estimate decides."""
    return dialect.calls_many(("read_file", {"path": "big.log"}), usage=None)


def tight(
    dialect: Dialect,
    provider: FakeProvider,
    scratch: Path,
    compactor: Callable[[Sampler], Compactor] | None = None,
) -> Conversation:
    return a_conversation(
        dialect,
        provider,
        scratch,
        FakeTool(output=LARGE),
        model=small(dialect),
        compactor=compactor,
    )


def roomy(dialect: Dialect, provider: FakeProvider, scratch: Path) -> Conversation:
    """A conversation that is never tight; its tool results are worth summarising."""
    return a_conversation(dialect, provider, scratch, FakeTool(output="a line\n" * 800))


def press_esc(event: CompactionStarted) -> None:
    event.cancel()


E = TypeVar("E")


def of_kind(seen: list[Event], kind: type[E]) -> list[E]:
    return [event for event in seen if isinstance(event, kind)]


def only(seen: list[Event], kind: type[E]) -> E:
    (event,) = of_kind(seen, kind)
    return event


async def test_a_tight_history_is_replaced_before_the_next_request(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        turn = tight(dialect, provider, tmp_path).turn(User(TASK))
        seen = await play(turn)
        first, private, resumed = (dialect.read(request) for request in provider.requests)
        texts = [request.text for request in provider.requests]

    assert names(seen) == [
        "ToolStarted",
        "ToolFinished",
        "CompactionStarted",
        "CompactionApplied",
        "TextDelta",
        "UsageReported",
        "TurnFinished",
    ]
    assert private.tools == ()
    assert private.system == compaction_system(is_automatic=True)
    assert TASK in private.messages[-1].text
    assert LARGE.strip() in private.messages[-1].text
    assert (resumed.system, resumed.tools) == (first.system, first.tools)
    assert resumed.system == SYSTEM
    assert [entry.role for entry in resumed.messages] == ["user"]
    assert resumed.messages[0].text == wrapped(SUMMARY, [TASK], is_automatic=True)
    assert LARGE.strip() not in texts[2]
    assert provider.violations == []


async def test_the_summary_is_nowhere_but_in_the_replacement(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY, reasoning="SECRET-THOUGHT"), dialect.says("done")
    ) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))

    applied = only(seen, CompactionApplied)
    others = [e for e in seen if e is not applied and not isinstance(e, TurnFinished)]
    assert "FIX-MARKER" in repr(applied.replacement)
    assert "FIX-MARKER" not in repr(others) + repr(applied.receipt)
    assert "SECRET-THOUGHT" not in repr(seen)


async def test_the_receipt_tells_sizes_and_cost(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        conversation = tight(dialect, provider, tmp_path)
        seen = await play(conversation.turn(User(TASK)))

    started, receipt = only(seen, CompactionStarted), only(seen, CompactionApplied).receipt
    assert receipt.trigger == started.trigger == "proactive"
    assert receipt.tokens_before == started.tokens_before > 12_514
    assert receipt.tokens_after is not None
    assert receipt.tokens_after < 1_000
    assert receipt.usage is not None
    assert receipt.usage.output_tokens == 7
    assert receipt.requests == 1
    assert conversation.sampler.requests == 3


async def test_esc_ends_only_the_compaction_and_the_unchanged_request_goes_out_once(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(calls_big(dialect), dialect.hangs(), dialect.says("done")) as provider:
        turn = tight(dialect, provider, tmp_path).turn(User(TASK))
        loop = asyncio.get_running_loop()

        def esc(event: CompactionStarted) -> None:
            async def later() -> None:
                await provider.asked(2)
                event.cancel()
                event.cancel()

            waiting.append(loop.create_task(later()))

        waiting: list[asyncio.Task[None]] = []
        seen = await play(turn, {CompactionStarted: esc})
        await asyncio.gather(*waiting)
        await provider.left()
        last = dialect.read(provider.requests[2])

    assert names(seen)[2:] == [
        "CompactionStarted",
        "CompactionCancelled",
        "TextDelta",
        "UsageReported",
        "TurnFinished",
    ]
    assert last.results[0].output == LARGE
    assert len(provider.requests) == 3
    assert provider.violations == []


async def test_a_late_cancel_does_nothing(dialect: Dialect, tmp_path: Path) -> None:
    cancels: list[Callable[[], None]] = []
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        turn = tight(dialect, provider, tmp_path).turn(User(TASK))

        def late(_event: CompactionApplied) -> None:
            cancels[0]()

        seen = await play(
            turn, {CompactionStarted: lambda e: cancels.append(e.cancel), CompactionApplied: late}
        )

    assert isinstance(seen[-1], TurnFinished)
    assert of_kind(seen, CompactionCancelled) == []


async def test_ctrl_c_during_a_compaction_cancels_the_turn_and_keeps_the_history(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(calls_big(dialect), dialect.hangs()) as provider:
        conversation = tight(dialect, provider, tmp_path)

        async def ignore(_event: Event) -> None:
            return

        task = asyncio.create_task(conversation.run(conversation.turn(User(TASK)), ignore))
        await provider.asked(2)
        task.cancel()
        await asyncio.wait([task])
        await provider.left()

    assert task.cancelled()
    assert conversation.history[0] == User(TASK)
    results = conversation.history[-1]
    assert isinstance(results, Results)
    assert results.results[0].output == LARGE


BAD_SUMMARIES: dict[str, Callable[[Dialect], Scripted]] = {
    "empty": lambda d: d.says("   "),
    "only reasoning": lambda d: d.says("", reasoning="hm hm"),
    "cut": lambda d: d.truncated("## Goal half a summa"),
    "a call": lambda d: d.calls("read_file", path="x"),
    "refused": lambda d: d.refused("I cannot"),
    "no smaller": lambda d: d.says(LARGE, pieces=(LARGE,)),
    "rejected": lambda d: d.unauthorized(),
}


@pytest.mark.parametrize("kind", BAD_SUMMARIES)
async def test_a_summary_that_does_not_count_changes_nothing(
    dialect: Dialect, tmp_path: Path, kind: str
) -> None:
    async with FakeProvider(
        calls_big(dialect), BAD_SUMMARIES[kind](dialect), dialect.says("done")
    ) as provider:
        turn = tight(dialect, provider, tmp_path).turn(User(TASK))
        seen = await play(turn)
        last = dialect.read(provider.requests[-1])

    failed = only(seen, CompactionFailed)
    assert failed.receipt.error
    assert isinstance(seen[-1], TurnFinished)
    assert last.results[0].output == LARGE
    assert len(provider.requests) == 3
    assert provider.violations == []


async def test_a_failed_commit_fails_the_compaction_and_memory_stays(
    dialect: Dialect, tmp_path: Path
) -> None:
    async def full_disk(_replacement: History, _receipt: Receipt) -> None:
        raise SessionError("No space left on device.")

    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        conversation = tight(dialect, provider, tmp_path)
        conversation.commit = full_disk
        seen = await play(conversation.turn(User(TASK)))
        last = dialect.read(provider.requests[2])

    assert only(seen, CompactionFailed).receipt.error == "No space left on device."
    assert last.results[0].output == LARGE


async def test_a_cancel_during_the_commit_waits_for_it_and_memory_follows_the_disk(
    dialect: Dialect, tmp_path: Path
) -> None:
    entered, release, disk = asyncio.Event(), asyncio.Event(), list[History]()

    async def slow_disk(replacement: History, _receipt: Receipt) -> None:
        entered.set()
        await release.wait()
        disk.append(replacement)

    async with FakeProvider(calls_big(dialect), dialect.says(SUMMARY)) as provider:
        conversation = tight(dialect, provider, tmp_path)
        conversation.commit = slow_disk

        seen: list[Event] = []

        async def note(event: Event) -> None:
            seen.append(event)

        task = asyncio.create_task(conversation.run(conversation.turn(User(TASK)), note))
        await entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        await asyncio.wait([task])

    assert task.cancelled()
    assert disk == [conversation.history]
    assert [event.replacement for event in of_kind(seen, CompactionApplied)] == disk


async def test_an_overflow_is_compacted_and_sent_once_more(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.overflow(),
        dialect.says(SUMMARY),
        dialect.says("done"),
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))
        resumed = dialect.read(provider.requests[3])

    assert names(seen)[3:] == [
        "Rewound",
        "CompactionStarted",
        "CompactionApplied",
        "TextDelta",
        "UsageReported",
        "TurnFinished",
    ]
    assert only(seen, Rewound).reason == "overflow"
    assert only(seen, CompactionStarted).trigger == "forced"
    assert resumed.messages[0].text == wrapped(SUMMARY, [TASK], is_automatic=True)
    assert len(provider.requests) == 4


async def test_an_overflow_inside_a_stream_voids_the_text_before_it(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.overflow_in_stream("partial words"),
        dialect.says(SUMMARY),
        dialect.says("done"),
    ) as provider:
        turn = roomy(dialect, provider, tmp_path).turn(User(TASK))
        seen = await play(turn)

    after = seen[seen.index(only(seen, Rewound)) :]
    assert "".join(e.text for e in of_kind(after, TextDelta)) == "done"
    assert "partial words" not in repr(turn.history)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_compaction_that_spends_the_rest_of_a_limit_ends_the_turn(
    refused: bool, dialect: Dialect, tmp_path: Path
) -> None:
    first = dialect.calls("read_file", path="a") if refused else calls_big(dialect)
    refusal = (dialect.overflow(),) if refused else ()
    async with FakeProvider(first, *refusal, dialect.says(SUMMARY)) as provider:
        conversation = (roomy if refused else tight)(dialect, provider, tmp_path)
        spent = 128 if refused else 1  # the call's answer alone is below it
        seen = await play(conversation.turn(User(TASK), RunLimits(tokens=spent)))

    assert only(seen, TurnFinished).stop == "budget"
    assert of_kind(seen, CompactionApplied)
    assert len(provider.requests) == 2 + len(refusal)


async def test_a_second_overflow_of_the_same_request_ends_the_turn(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.overflow(),
        dialect.says(SUMMARY),
        dialect.overflow(),
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))

    last = seen[-1]
    assert isinstance(last, TurnFailed)
    assert isinstance(last.error, ContextOverflow)
    assert len(provider.requests) == 4


async def test_a_later_request_may_be_recovered_again(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.overflow(),
        dialect.says(SUMMARY),
        dialect.calls("read_file", path="b"),
        dialect.overflow(),
        dialect.says("SECOND " + SUMMARY),
        dialect.says("done"),
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))
        private = dialect.read(provider.requests[5])
        resumed = dialect.read(provider.requests[6])

    assert isinstance(seen[-1], TurnFinished)
    assert len(of_kind(seen, CompactionApplied)) == 2
    assert "EARLIER CHECKPOINT" in private.messages[-1].text
    assert resumed.messages[0].text == wrapped("SECOND " + SUMMARY, [TASK], is_automatic=True)
    assert resumed.messages[0].text.count("<compacted_context>") == 1


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_forced_compaction_that_does_not_happen_never_sends_the_request_again(
    dialect: Dialect, tmp_path: Path, how: str
) -> None:
    private = dialect.hangs() if how == "cancelled" else dialect.says("")
    async with FakeProvider(
        dialect.calls("read_file", path="a"), dialect.overflow(), private
    ) as provider:
        turn = roomy(dialect, provider, tmp_path).turn(User(TASK))
        seen = await play(turn, {CompactionStarted: press_esc} if how == "cancelled" else None)
        sent = len(provider.requests)

    last = seen[-1]
    assert isinstance(last, TurnFailed)
    assert isinstance(last.error, ContextOverflow)
    assert "/compact" in str(last.error)
    assert "tokens" in str(last.error)
    assert sent <= 3
    results = [m for m in turn.history if isinstance(m, Results)]
    assert len(results) == 1


async def test_the_summary_request_shrinks_when_it_is_refused_for_its_size(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect),
        dialect.overflow(),
        dialect.overflow(),
        dialect.says(SUMMARY),
        dialect.says("done"),
    ) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))
        sizes = [len(dialect.read(r).messages[-1].text) for r in provider.requests[1:4]]

    assert isinstance(seen[-1], TurnFinished)
    assert only(seen, CompactionApplied).receipt.requests == 3
    assert sizes[1] <= sizes[0] // 2
    assert sizes[2] <= sizes[1] // 2 + 600


async def test_a_summary_request_that_never_fits_gives_up_after_six(
    dialect: Dialect, tmp_path: Path
) -> None:
    private = 0

    def answer(request: Recorded) -> Scripted:
        nonlocal private
        if not dialect.read(request).tools:
            private += 1
            return dialect.overflow()
        return dialect.says("done")

    async with FakeProvider(calls_big(dialect), answer) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))

    assert isinstance(seen[-1], TurnFinished)
    assert isinstance(only(seen, CompactionFailed).error, CompactionError)
    assert 1 <= private <= 6


async def test_a_history_that_stays_tight_is_compacted_once_and_then_suspended(
    dialect: Dialect, tmp_path: Path
) -> None:
    bulky = "word " * 8_200
    async with FakeProvider(
        calls_big(dialect),
        dialect.says(bulky, pieces=(bulky,)),
        dialect.says("done", usage=None),
    ) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))

    assert len(of_kind(seen, CompactionStarted)) == 1
    suspended = only(seen, CompactionSuspended)
    assert suspended.measured * 100 >= suspended.trigger * 80
    assert isinstance(seen[-1], TurnFinished)


async def test_two_failures_in_one_turn_suspend_until_the_next_message(
    dialect: Dialect, tmp_path: Path
) -> None:
    growing = FakeTool(output=LARGE)
    more = dialect.calls_many(("read_file", {"path": "small"}), usage=None)
    async with FakeProvider(
        calls_big(dialect),
        dialect.says(""),
        more,
        dialect.says(""),
        more,
        dialect.says("done", usage=None),
        dialect.says(SUMMARY),
        dialect.says("second turn"),
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, growing, model=small(dialect))
        turn = conversation.turn(User(TASK))

        def shrink(_event: ToolFinished) -> None:
            growing.output = "ok"

        first: list[Event] = []

        async def emit(event: Event) -> None:
            first.append(event)
            if isinstance(event, ToolFinished):
                shrink(event)

        await conversation.run(turn, emit)
        second = await play(conversation.turn(User("go on")))

    assert len(of_kind(first, CompactionFailed)) == 2
    assert len(of_kind(first, CompactionSuspended)) == 1
    assert isinstance(first[-1], TurnFinished)
    assert len(of_kind(second, CompactionApplied)) == 1


async def test_steering_stands_in_the_replacement_behind_the_task_and_images_stay(
    dialect: Dialect, tmp_path: Path
) -> None:
    picture = Image("image/png", PNG, 1, 1)
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        turn = tight(dialect, provider, tmp_path).turn(User(TASK, (picture,)))
        turn.steering.append(User("and add timeouts"))
        await play(turn)
        resumed = dialect.read(provider.requests[2])

    assert resumed.messages[0].text == wrapped(
        SUMMARY, [TASK, "and add timeouts"], is_automatic=True
    )
    assert resumed.messages[0].images == 1


async def test_a_learned_limit_makes_the_next_compaction_proactive(
    dialect: Dialect, tmp_path: Path
) -> None:
    """The configured window is wrong; the provider's first refusal teaches the real one."""
    limit = 30_000
    refused: list[int] = []

    def answer(request: Recorded) -> Scripted:
        transcript = dialect.read(request)
        size = len(request.text) * 2 // 7
        if size > limit:
            refused.append(request.number)
            return dialect.overflow(actual=size, limit=limit)
        if not transcript.tools:
            return dialect.says(SUMMARY, usage=None)
        if len(rounds) >= 12:
            return dialect.says("done", usage=None)
        rounds.append(request.number)
        return dialect.calls_many(("read_file", {"path": f"{len(rounds)}"}), usage=None)

    rounds: list[int] = []
    tool = FakeTool(output="some output\n" * 1_700)
    async with FakeProvider(answer) as provider:
        model = dialect.model(window=1_000_000, asked_output=2_000)
        seen = await play(
            a_conversation(dialect, provider, tmp_path, tool, model=model).turn(User(TASK))
        )

    assert isinstance(seen[-1], TurnFinished)
    assert len(rounds) == 12
    triggers = [event.trigger for event in of_kind(seen, CompactionStarted)]
    assert triggers[0] == "forced"
    assert set(triggers[1:]) <= {"proactive"}
    assert len(triggers) >= 2
    assert provider.violations == []


async def test_an_unexplained_400_for_a_nearly_full_request_is_taken_for_an_overflow(
    dialect: Dialect, tmp_path: Path
) -> None:
    nearly = FakeTool(output="line of output\n" * 2_700)
    unexplained = Scripted(
        status=400,
        content_type="application/json",
        frames=(b'{"error": {"message": "Something is wrong."}}',),
    )
    async with FakeProvider(
        calls_big(dialect), unexplained, dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, nearly, model=small(dialect))
        seen = await play(conversation.turn(User(TASK)))

    assert isinstance(seen[-1], TurnFinished)
    assert only(seen, CompactionStarted).trigger == "forced"


async def test_pruning_saves_a_request_that_compaction_could_not(
    dialect: Dialect, tmp_path: Path
) -> None:
    half = FakeTool(output="line of output\n" * 1_600)
    async with FakeProvider(
        calls_big(dialect),
        calls_big(dialect),
        dialect.says(""),
        dialect.says("done", usage=None),
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, half, model=small(dialect))
        turn = conversation.turn(User(TASK))
        seen = await play(turn)
        sent = dialect.read(provider.requests[3])

    assert isinstance(seen[-1], TurnFinished)
    assert [r.output for r in sent.results] == [
        "Tool result removed to fit context.",
        half.output,
    ]
    kept = [r.output for m in turn.history if isinstance(m, Results) for r in m.results]
    assert kept == [half.output, half.output]


async def test_a_filled_window_keeps_the_text_and_goes_on_compacted(
    dialect: Dialect, tmp_path: Path
) -> None:
    filled = dialect.filled_window("so far so good")
    if filled is None:
        pytest.skip("this protocol cannot say so")
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        filled,
        dialect.says(SUMMARY),
        dialect.says("and the rest"),
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))
        private = dialect.read(provider.requests[2])

    assert "so far so good" in private.messages[-1].text
    assert isinstance(seen[-1], TurnFinished)
    texts = "".join(event.text for event in of_kind(seen, TextDelta))
    assert texts == "so far so goodand the rest"


def recent(sampler: Sampler) -> Compactor:
    return RecentStrategy(Summariser(sampler), keep_tokens=3_000)


def window(sampler: Sampler) -> Compactor:
    return WindowStrategy(sampler, keep_tokens=3_000)


@pytest.mark.parametrize("strategy", [recent, window], ids=["recent", "window"])
async def test_a_kept_tail_is_verbatim_and_whole(
    dialect: Dialect, tmp_path: Path, strategy: Callable[[Sampler], Compactor]
) -> None:
    tool = FakeTool(output=LARGE[:40_500])
    then = dialect.calls_many(("read_file", {"path": "two"}), usage=None)
    private = [dialect.says(SUMMARY)] if strategy is recent else []
    async with FakeProvider(calls_big(dialect), then, *private, dialect.says("done")) as provider:
        conversation = a_conversation(
            dialect, provider, tmp_path, tool, model=small(dialect), compactor=strategy
        )
        turn = conversation.turn(User(TASK))
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)
            if isinstance(event, ToolFinished):
                tool.output = "tail-output " * 400

        await turn.run(emit)
        resumed = dialect.read(provider.requests[-1])

    assert isinstance(seen[-1], TurnFinished)
    assert [result.output for result in resumed.results] == ["tail-output " * 400]
    assert [call.name for call in resumed.calls] == ["read_file"]
    assert TASK in resumed.messages[0].text
    assert LARGE[:1_000] not in provider.requests[-1].text
    assert provider.violations == []


def test_a_cut_never_separates_results_from_their_call() -> None:
    history: History = (
        User("a"),
        Assistant(()),
        Results(()),
        Assistant(()),
        Results(()),
    )
    assert safe_cut(history, 10**6) == 0
    assert all(not isinstance(history[safe_cut(history, n)], Results) for n in range(1, 40))


async def test_a_manual_compaction_streams_and_leaves_the_first_block_alone(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.says("an answer " * 300), dialect.says(SUMMARY), dialect.says("next")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)

        await conversation.run(conversation.turn(User(TASK)), emit)
        seen.clear()
        assert await conversation.compact("the tests", emit)
        await conversation.run(conversation.turn(User("go on")), emit)
        private = dialect.read(provider.requests[1])
        following = dialect.read(provider.requests[2])

    assert names(seen)[:3] == ["CompactionStarted", "TextDelta", "CompactionApplied"]
    assert only(seen, CompactionStarted).trigger == "manual"
    assert "the tests" in private.messages[-1].text
    text = following.messages[0].text
    assert text.startswith(wrapped(SUMMARY, [], is_automatic=False))
    assert text.endswith("go on")
    assert "<last_user_message>" not in text


async def test_there_is_nothing_to_compact_in_an_empty_conversation(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider() as provider:
        conversation = a_conversation(dialect, provider, tmp_path)

        async def ignore(_event: Event) -> None:
            return

        with pytest.raises(CompactionError, match="nothing to compact"):
            await conversation.compact("", ignore)
        assert provider.requests == []


async def test_the_summariser_may_be_another_model(dialect: Dialect, tmp_path: Path) -> None:
    async with (
        FakeProvider(calls_big(dialect), dialect.says("done")) as main,
        FakeProvider(dialect.says(SUMMARY)) as other,
    ):

        def elsewhere(sampler: Sampler) -> Compactor:
            another = replace(
                sampler, wire=dialect.wire(other.url), model=dialect.model(id="gpt-summary")
            )
            return CheckpointStrategy(Summariser(another))

        conversation = tight(dialect, main, tmp_path, elsewhere)
        seen = await play(conversation.turn(User(TASK)))
        private = dialect.read(other.requests[0])
        compactor = conversation.compactor
        assert isinstance(compactor, CheckpointStrategy)
        await compactor.summariser.sampler.wire.aclose()

    assert isinstance(seen[-1], TurnFinished)
    assert private.model == "gpt-summary"
    assert conversation.sampler.model.id != "gpt-summary"


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63"
    "f8cfc0f01f0005000201a5d6b3c40000000049454e44ae426082"
)


async def test_a_local_server_that_closes_twice_without_a_word_is_taken_for_an_overflow(
    tmp_path: Path,
) -> None:
    chat = dialect_named("chat")
    silent = Scripted(frames=())
    async with FakeProvider(
        chat.calls("read_file", path="a"), silent, silent, chat.says(SUMMARY), chat.says("done")
    ) as provider:
        conversation = roomy(chat, provider, tmp_path)
        conversation.sampler.model = replace(conversation.sampler.model, is_local=True)
        seen = await play(conversation.turn(User(TASK)))

    assert isinstance(seen[-1], TurnFinished)
    assert only(seen, CompactionStarted).trigger == "forced"
    assert len(provider.requests) == 5

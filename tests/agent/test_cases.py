"""What other agents were seen to do wrong around compaction, each kind once, over six protocols."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from keen.agent.compaction import (
    CheckpointStrategy,
    Compactor,
    RecentStrategy,
    Summariser,
    WindowStrategy,
    message_tokens,
    safe_cut,
)
from keen.agent.flatten import flattened
from keen.agent.prompts import wrapped
from keen.agent.sampling import Sampler
from keen.core.errors import CompactionError, ContextOverflow
from keen.core.estimate import text_tokens
from keen.core.events import (
    CompactionApplied,
    CompactionFailed,
    CompactionStarted,
    CompactionSuspended,
    Event,
    Rewound,
    TextDelta,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import (
    Assistant,
    History,
    Image,
    Message,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from tests.agent.engines import an_engine
from tests.agent.playing import FakeTool, a_conversation, names, play, small
from tests.agent.test_compaction import (
    LARGE,
    PNG,
    SUMMARY,
    TASK,
    calls_big,
    of_kind,
    only,
    roomy,
    tight,
)
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider

CHAT = dialect_named("chat")
PICTURE = Image("image/png", PNG, 1, 1)


async def ignore(_event: Event) -> None:
    return


async def test_an_output_cap_as_large_as_the_window_does_not_compact_at_every_step(
    dialect: Dialect, tmp_path: Path
) -> None:
    model = replace(dialect.model(window=32_000, asked_output=32_000), max_output=32_000)
    call = dialect.calls_many(("read_file", {"path": "a"}), usage=None)
    async with FakeProvider(call, call, call, dialect.says("done", usage=None)) as provider:
        seen = await play(a_conversation(dialect, provider, tmp_path, model=model).turn(User(TASK)))

    assert isinstance(seen[-1], TurnFinished)
    assert of_kind(seen, CompactionStarted) == []
    assert len(provider.requests) == 4


async def test_a_result_that_alone_is_too_large_and_no_summary_ends_the_turn_without_a_loop(
    dialect: Dialect, tmp_path: Path
) -> None:
    huge = FakeTool(output="line of output\n" * 3_400)
    async with FakeProvider(
        calls_big(dialect), dialect.says(""), dialect.says(""), dialect.says("never")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, huge, model=small(dialect))
        seen = await play(conversation.turn(User(TASK)))

    last = seen[-1]
    assert isinstance(last, TurnFailed)
    assert isinstance(last.error, ContextOverflow)
    assert len(of_kind(seen, CompactionFailed)) == 2
    assert len(provider.requests) == 3


async def test_a_second_refusal_ends_the_turn_with_the_sizes_and_what_helps(
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
    assert "/compact" in str(last.error)
    assert "tokens" in str(last.error)
    assert len(provider.requests) == 4


async def test_a_report_from_before_a_compaction_does_not_cause_the_next(
    dialect: Dialect, tmp_path: Path
) -> None:
    call = ("read_file", {"path": "a"})
    async with FakeProvider(
        dialect.calls_many(call, usage=Usage(13_000, 0, 0, 10)),
        dialect.says(SUMMARY, usage=None),
        dialect.calls_many(call, usage=None),
        dialect.says("done", usage=None),
    ) as provider:
        conversation = a_conversation(
            dialect, provider, tmp_path, FakeTool(output="ok " * 900), model=small(dialect)
        )
        seen = await play(conversation.turn(User(TASK)))

    assert len(of_kind(seen, CompactionApplied)) == 1
    assert of_kind(seen, CompactionSuspended) == []
    assert len(provider.requests) == 4


async def test_a_paste_larger_than_the_window_is_sent_as_head_tail_and_path(
    dialect: Dialect, tmp_path: Path
) -> None:
    paste = "FIRST-LINE\n" + "filler of a paste\n" * 45_000 + "LAST-LINE"
    async with FakeProvider(
        dialect.says("read", usage=None), dialect.says("and on", usage=None)
    ) as provider:
        kept = an_engine(dialect, provider, tmp_path, model=small(dialect))
        kept.conversation.scratch = tmp_path / "scratch"
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)

        await kept.engine.run(User(paste), emit)
        await kept.engine.run(User("go on"), emit)
        await kept.engine.aclose()
        said = dialect.read(provider.requests[0]).messages[0].text

    assert of_kind(seen, CompactionStarted) == []
    assert "FIRST-LINE" in said
    assert "LAST-LINE" in said
    assert text_tokens(said) < 13_904 // 3 + 500
    spilled = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert [path.read_text() for path in spilled] == [paste]
    assert str(spilled[0]) in said


async def test_an_answered_message_is_no_task_any_more(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(
        dialect.says("the first is done", usage=None),
        calls_big(dialect),
        dialect.says(SUMMARY),
        dialect.says("done"),
    ) as provider:
        conversation = tight(dialect, provider, tmp_path)
        await conversation.run(conversation.turn(User("the first wish")), ignore)
        await play(conversation.turn(User("the second wish")))
        private = dialect.read(provider.requests[2]).messages[-1].text
        resumed = dialect.read(provider.requests[3]).messages

    assert "the first wish" in private
    assert [entry.text for entry in resumed] == [
        wrapped(SUMMARY, ["the second wish"], is_automatic=True)
    ]


async def test_steering_during_a_compaction_is_neither_lost_nor_told_twice(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect),
        dialect.says(SUMMARY),
        dialect.calls_many(("read_file", {"path": "b"}), usage=None),
        dialect.says("done", usage=None),
    ) as provider:
        tool = FakeTool(output=LARGE)
        conversation = a_conversation(dialect, provider, tmp_path, tool, model=small(dialect))
        turn = conversation.turn(User(TASK))

        def steer(_event: CompactionStarted) -> None:
            tool.output = "short"
            turn.steering.append(User("and use tabs"))

        await play(turn, {CompactionStarted: steer})
        texts = [request.text for request in provider.requests]

    assert [text.count("and use tabs") for text in texts] == [0, 0, 0, 1]
    assert provider.violations == []


async def test_a_manual_compaction_does_not_go_on_by_itself(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.says("Which of the two do you want? " * 20), dialect.says(SUMMARY)
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        await conversation.run(conversation.turn(User(TASK)), ignore)
        assert await conversation.compact("", ignore)

    assert len(provider.requests) == 2
    assert provider.overruns == 0


async def test_a_second_compaction_of_an_unchanged_conversation_is_refused(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.says("an answer " * 99), dialect.says(SUMMARY)) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        await conversation.run(conversation.turn(User(TASK)), ignore)
        assert await conversation.compact("", ignore)
        for _ in range(2):
            with pytest.raises(CompactionError, match="nothing to compact"):
                await conversation.compact("", ignore)

    assert len(provider.requests) == 2
    assert "FIX-MARKER" in repr(conversation.history)


async def test_a_manual_compaction_during_a_turn_is_refused(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.says("before " * 99), dialect.hangs("so far")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        await conversation.run(conversation.turn(User(TASK)), ignore)
        task = asyncio.create_task(conversation.run(conversation.turn(User("more")), ignore))
        await provider.asked(2)
        with pytest.raises(CompactionError, match="turn is running"):
            await conversation.compact("", ignore)
        task.cancel()
        await asyncio.wait([task])

    assert len(provider.requests) == 2


@pytest.mark.parametrize("orphan", ["call", "result"])
async def test_unpaired_calls_and_results_do_not_stop_a_compaction(
    dialect: Dialect, tmp_path: Path, orphan: str
) -> None:
    call = Assistant((Text("I look. " * 90), ToolCall("lost-1", "read_file", {"path": "a"})))
    result = Results((ToolResult("lost-1", "read_file", "contents"),))
    history: History = (User("look"), call if orphan == "call" else result, User("and now?"))
    async with FakeProvider(dialect.says(SUMMARY), dialect.says("going on")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        conversation.history = (*history, Assistant((Text("a word " * 200),)))
        assert await conversation.compact("", ignore)
        seen = await play(conversation.turn(User("go on")))

    assert isinstance(seen[-1], TurnFinished)
    assert provider.violations == []


async def test_too_large_an_output_is_lowered_once_and_nothing_is_compacted(
    dialect: Dialect, tmp_path: Path
) -> None:
    refusal = dialect.output_reserve()
    if refusal is None or not dialect.has_output_cap:
        pytest.skip("no server of this protocol says so")
    async with FakeProvider(
        dialect.calls("read_file", path="a"), refusal, dialect.says("done")
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))
        caps = [dialect.read(request).output_tokens for request in provider.requests]

    assert isinstance(seen[-1], TurnFinished)
    assert of_kind(seen, CompactionStarted) == []
    assert caps[1] is not None
    assert caps[2] is not None
    assert caps[2] < caps[1]
    assert len(provider.requests) == 3


async def test_too_large_an_output_of_the_summary_request_is_lowered_there_too(
    dialect: Dialect, tmp_path: Path
) -> None:
    refusal = dialect.output_reserve()
    if refusal is None or not dialect.has_output_cap:
        pytest.skip("no server of this protocol says so")
    async with FakeProvider(
        calls_big(dialect), refusal, dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))

    assert only(seen, CompactionApplied).receipt.requests == 2
    assert isinstance(seen[-1], TurnFinished)


async def test_a_rate_limit_is_waited_for_and_never_compacted(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"), dialect.rate_limited(0), dialect.says("done")
    ) as provider:
        seen = await play(roomy(dialect, provider, tmp_path).turn(User(TASK)))

    assert only(seen, Rewound).reason == "transient"
    assert of_kind(seen, CompactionStarted) == []
    assert len(provider.requests) == 3


async def test_a_spent_quota_with_a_long_history_is_not_compacted(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(calls_big(dialect), dialect.says(""), dialect.spent()) as provider:
        seen = await play(tight(dialect, provider, tmp_path).turn(User(TASK)))

    assert isinstance(seen[-1], TurnFailed)
    assert [event.trigger for event in of_kind(seen, CompactionStarted)] == ["proactive"]
    assert len(provider.requests) == 3


async def test_the_summary_request_asks_for_no_more_output_than_there_is(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        await play(tight(dialect, provider, tmp_path).turn(User(TASK)))
        private = dialect.read(provider.requests[1])
        sent = text_tokens(provider.requests[1].text)

    assert (private.output_tokens is None) == (not dialect.has_output_cap)
    assert (private.output_tokens or 0) <= 2_000
    assert sent + 2_000 <= 20_000


async def test_a_resumed_conversation_that_is_tight_is_compacted_before_its_first_request(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.says(SUMMARY), dialect.says("done")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, model=small(dialect))
        conversation.history = (User("before"), Assistant((Text("a long answer\n" * 3_300),)))
        seen = await play(conversation.turn(User(TASK)))
        first, second = (dialect.read(request) for request in provider.requests)

    assert names(seen)[:2] == ["CompactionStarted", "CompactionApplied"]
    assert first.tools == ()
    assert second.messages[0].text == wrapped(SUMMARY, [TASK], is_automatic=True)


@pytest.mark.parametrize(
    "output", ["漢字" * 6_300, "한국어로" * 3_200, "🙂" * 6_300], ids=["han", "hangul", "emoji"]
)
async def test_wide_characters_are_not_undercounted(
    dialect: Dialect, tmp_path: Path, output: str
) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        tool = FakeTool(output=output)
        conversation = a_conversation(dialect, provider, tmp_path, tool, model=small(dialect))
        seen = await play(conversation.turn(User(TASK)))

    assert len(of_kind(seen, CompactionApplied)) == 1


async def test_a_refused_image_is_dropped_and_the_conversation_lives_on(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.bad_image(), dialect.says("I see " * 99), dialect.says(SUMMARY), dialect.says("ok")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        turn = conversation.turn(User("look at this", (PICTURE,)))
        await conversation.run(turn, ignore)
        assert await conversation.compact("", ignore)
        seen = await play(conversation.turn(User("go on")))
        images = [
            sum(entry.images for entry in dialect.read(request).messages)
            for request in provider.requests
        ]

    assert images == [1, 0, 0, 0]
    assert isinstance(seen[-1], TurnFinished)
    assert "[1 images]" in provider.requests[2].text


async def test_a_result_of_megabytes_reaches_the_model_bounded_with_its_path(
    dialect: Dialect, tmp_path: Path
) -> None:
    output = "START\n" + "x" * 4_000_000 + "\nEND"
    async with FakeProvider(
        dialect.calls("read_file", path="big.log"), dialect.says("done")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, FakeTool(output=output))
        seen = await play(conversation.turn(User(TASK)))
        sent = dialect.read(provider.requests[1]).results[0].output

    assert isinstance(seen[-1], TurnFinished)
    assert len(sent) < 100_000
    assert sent.startswith("START")
    spilled = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert [path.read_text() for path in spilled] == [output]
    assert str(spilled[0].resolve()) in sent


async def test_the_summary_request_has_a_cache_key_of_its_own(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        calls_big(dialect), dialect.says(SUMMARY), dialect.says("done")
    ) as provider:
        await play(tight(dialect, provider, tmp_path).turn(User(TASK)))
        keys = [request.json.get("prompt_cache_key") for request in provider.requests]

    if dialect.name in ("responses", "codex"):
        assert keys == ["test", "test-compact", "test"]
    else:
        assert set(keys) <= {None} or keys == ["test", "test-compact", "test"]


async def test_a_kept_tail_is_not_cloned_by_the_next_compaction(
    dialect: Dialect, tmp_path: Path
) -> None:
    tool = FakeTool(output=LARGE[:40_500])
    call = ("read_file", {"path": "x"})
    async with FakeProvider(
        calls_big(dialect),
        dialect.calls_many(call, text="TAIL-ONE", usage=None),
        dialect.says(SUMMARY),
        dialect.calls_many(call, text="TAIL-TWO", usage=None),
        dialect.says("SECOND " + SUMMARY),
        dialect.says("done", usage=None),
    ) as provider:
        conversation = a_conversation(
            dialect,
            provider,
            tmp_path,
            tool,
            model=small(dialect),
            compactor=lambda sampler: RecentStrategy(Summariser(sampler), 3_000),
        )
        sizes = iter(["small " * 500, LARGE[:43_000], "never"])
        seen: list[Event] = []

        async def emit(event: Event) -> None:
            seen.append(event)
            if type(event).__name__ == "ToolFinished":
                tool.output = next(sizes)

        await conversation.run(conversation.turn(User(TASK)), emit)
        texts = [request.text for request in provider.requests]

    assert len(of_kind(seen, CompactionApplied)) == 2
    assert all(text.count("TAIL-ONE") <= 1 and text.count("TAIL-TWO") <= 1 for text in texts)
    assert texts[-1].count("<compacted_context>") == 1
    assert texts[-1].count("parser") == 1
    assert "".join(e.text for e in of_kind(seen, TextDelta)) == "TAIL-ONETAIL-TWOdone"
    assert provider.violations == []


@pytest.mark.parametrize("strategy", ["recent", "window"])
async def test_a_task_inside_a_kept_tail_survives_the_next_compaction_too(
    dialect: Dialect, tmp_path: Path, strategy: str
) -> None:
    tool = FakeTool(output="more output\n" * 3_700)
    summaries = [dialect.says(SUMMARY, usage=None)] if strategy == "recent" else []
    async with FakeProvider(
        *summaries,
        dialect.calls_many(("read_file", {"path": "x"}), usage=None),
        *summaries,
        dialect.says("done", usage=None),
    ) as provider:

        def compactor(sampler: Sampler) -> Compactor:
            if strategy == "recent":
                return RecentStrategy(Summariser(sampler), 3_000)
            return WindowStrategy(sampler, 3_000)

        conversation = a_conversation(
            dialect, provider, tmp_path, tool, model=small(dialect), compactor=compactor
        )
        conversation.history = (User("before"), Assistant((Text("a long answer\n" * 3_300),)))
        seen = await play(conversation.turn(User(TASK)))
        last = dialect.read(provider.requests[-1])

    assert len(of_kind(seen, CompactionApplied)) == 2
    assert TASK in last.messages[0].text
    assert provider.violations == []


def test_a_cut_falls_between_batches_wherever_the_room_ends() -> None:
    history: list[Message] = [User("a task of some length " * 9)]
    for number in range(6):
        call = ToolCall(f"c{number}", "write_file", {"content": "x" * 700})
        result = ToolResult(call.id, call.name, "y" * (300 + 100 * number))
        history += [Assistant((Text("words"), call)), Results((result,))]
    cuts: set[int] = set()
    for keep in range(0, 2_600, 5):
        cut = safe_cut(tuple(history), keep)
        assert cut == len(history) or not isinstance(history[cut], Results)
        assert sum(map(message_tokens, history[cut:])) <= keep
        cuts.add(cut)
    assert cuts == {0, 1, 3, 5, 7, 9, 11, 13}


async def test_a_long_last_message_does_not_stop_the_rescue_of_a_wrong_window(
    dialect: Dialect, tmp_path: Path
) -> None:
    """The summary request is cut inside the text when leaving out whole messages is not enough."""
    limit = 5_000

    def answer(request: Recorded) -> Scripted:
        size = text_tokens(request.text)
        if size > limit:
            return dialect.overflow(actual=size, limit=limit)
        if not dialect.read(request).tools:
            return dialect.says(SUMMARY, usage=None)
        return dialect.says("done", usage=None)

    async with FakeProvider(answer) as provider:
        conversation = a_conversation(
            dialect,
            provider,
            tmp_path,
            compactor=lambda sampler: CheckpointStrategy(Summariser(sampler)),
        )
        conversation.history = (User("before"), Assistant((Text("one long answer\n" * 4_000),)))
        seen = await play(conversation.turn(User(TASK)))

    assert isinstance(seen[-1], TurnFinished)
    assert only(seen, CompactionApplied).receipt.trigger == "forced"


def test_a_text_that_is_longer_than_the_window_is_cut_to_head_and_tail() -> None:
    words = "BEGIN " + "漢" * 50_000 + " END"
    text = flattened((User("task"), Assistant((Text(words),))), 1_000)
    assert text is not None
    assert "BEGIN" in text
    assert "END" in text
    assert text_tokens(text) <= 1_000

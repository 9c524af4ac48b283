from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from keen.core.errors import ContextOverflow, Rejected, Transient, Unauthorized
from keen.core.events import (
    Event,
    Rewound,
    SteeringDelivered,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    UsageReported,
)
from keen.core.messages import Assistant, JsonObject, Results, Text, User, visible_text
from keen.tools.base import Outcome
from keen.wire.base import FixedKey
from tests.agent.playing import FakeTool, a_conversation, a_turn, names, play, until
from tests.fakes.dialects import USAGE, Dialect
from tests.fakes.frames import Answer
from tests.fakes.script import Scripted
from tests.fakes.server import FakeProvider


def text_of(seen: list[Event]) -> str:
    return "".join(event.text for event in seen if isinstance(event, TextDelta))


def failure(seen: list[Event]) -> BaseException:
    last = seen[-1]
    assert isinstance(last, TurnFailed)
    return last.error


async def test_an_answer_ends_the_turn(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(dialect.says("hello there")) as provider:
        turn = a_turn(dialect, provider, tmp_path)

        seen = await play(turn)

    assert names(seen) == ["TextDelta", "UsageReported", "TurnFinished"]
    assert text_of(seen) == "hello there"
    assert turn.history[0] == User("fix the parser")
    assert isinstance(turn.history[1], Assistant)
    assert visible_text(turn.history[1]) == "hello there"
    assert provider.violations == []


async def test_calls_are_run_and_answered_until_nothing_is_called(
    dialect: Dialect, tmp_path: Path
) -> None:
    tool = FakeTool(output="x = 1")
    async with FakeProvider(
        dialect.calls_many(("read_file", {"path": "a"}), ("read_file", {"path": "b"})),
        dialect.calls("read_file", path="c"),
        dialect.says("done"),
    ) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path, tool))
        last = dialect.read(provider.requests[2])

    assert sorted(str(call["path"]) for call in tool.ran) == ["a", "b", "c"]
    assert [result.output for result in last.results] == ["x = 1"] * 3
    assert names(seen)[-3:] == ["TextDelta", "UsageReported", "TurnFinished"]
    assert len(provider.requests) == 3
    assert provider.violations == []


async def test_reads_of_one_answer_run_side_by_side_and_keep_their_order(
    dialect: Dialect, tmp_path: Path
) -> None:
    both = asyncio.Barrier(2)

    async def meet(arguments: dict[str, object]) -> Outcome:
        await both.wait()
        return Outcome(f"read {arguments['path']}")

    async with FakeProvider(
        dialect.calls_many(("read_file", {"path": "a"}), ("read_file", {"path": "b"})),
        dialect.says("done"),
    ) as provider:
        await play(a_turn(dialect, provider, tmp_path, FakeTool(act=meet)))  # pyright: ignore[reportArgumentType]
        results = dialect.read(provider.requests[1]).results

    assert [result.output for result in results] == ["read a", "read b"]


async def test_calls_that_share_an_id_get_their_own_results(
    dialect: Dialect, tmp_path: Path
) -> None:
    async def tell(arguments: JsonObject) -> Outcome:
        return Outcome(f"read {arguments['path']}")

    one, two = (dialect.call("read_file", json.dumps({"path": path})) for path in ("a", "b"))
    shared = replace(two, id=one.id or "twice")
    answer = dialect.answers(Answer(calls=(replace(one, id=shared.id), shared), usage=USAGE))
    async with FakeProvider(answer, dialect.says("done")) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path, FakeTool(act=tell)))
        results = dialect.read(provider.requests[1]).results

    told = [event.result.call_id for event in seen if isinstance(event, ToolFinished)]
    assert len(set(told)) == 2
    assert [result.output for result in results] == ["read a", "read b"]
    assert len({result.call_id for result in results}) == 2
    assert provider.violations == []


async def test_writes_of_one_answer_run_one_after_another(dialect: Dialect, tmp_path: Path) -> None:
    running: list[str] = []

    async def alone(arguments: dict[str, object]) -> Outcome:
        assert running == []
        running.append(str(arguments["path"]))
        await asyncio.sleep(0.01)
        running.clear()
        return Outcome("written")

    tool = FakeTool(name="write", effect="write", act=alone)  # pyright: ignore[reportArgumentType]
    async with FakeProvider(
        dialect.calls_many(("write", {"path": "a"}), ("write", {"path": "b"})),
        dialect.says("done"),
    ) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path, tool))

    assert [e.result.is_error for e in seen if isinstance(e, ToolFinished)] == [False, False]


@pytest.mark.parametrize("fault", ["unknown tool", "wrong arguments", "crash"])
async def test_a_failing_call_is_told_to_the_model_and_never_ends_the_turn(
    dialect: Dialect, tmp_path: Path, fault: str
) -> None:
    async def crash(_arguments: dict[str, object]) -> Outcome:
        raise ZeroDivisionError("oh no")

    tool = FakeTool(act=crash if fault == "crash" else None)  # pyright: ignore[reportArgumentType]
    call = {
        "unknown tool": dialect.calls("read_fil", path="a"),
        "wrong arguments": dialect.calls("read_file", file="a"),
        "crash": dialect.calls("read_file", path="a"),
    }[fault]
    wanted = {
        "unknown tool": "Did you mean read_file?",
        "wrong arguments": "path is missing",
        "crash": "ZeroDivisionError: oh no",
    }[fault]
    async with FakeProvider(call, dialect.says("I see")) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path, tool))
        result = dialect.read(provider.requests[1]).results[0]

    assert wanted in result.output
    assert isinstance(seen[-1], TurnFinished)
    started = [e for e in seen if isinstance(e, ToolStarted)]
    finished = [e for e in seen if isinstance(e, ToolFinished)]
    assert len(started) == len(finished) == 1
    assert finished[0].result.is_error


async def test_arguments_that_are_no_object_are_answered_and_never_run(
    dialect: Dialect, tmp_path: Path
) -> None:
    if dialect.name in ("google",):
        pytest.skip("arguments arrive as an object there")
    tool = FakeTool()
    async with FakeProvider(
        dialect.calls_raw("read_file", '{"path": "a'), dialect.says("sorry")
    ) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path, tool))

    assert tool.ran == []
    assert isinstance(seen[-1], TurnFinished)
    assert provider.violations == []


async def test_a_cut_stream_is_sent_again_and_its_text_is_void(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.cut("half an ans"), dialect.says("whole answer")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        seen = await play(turn)

    rewound = next(event for event in seen if isinstance(event, Rewound))
    after = seen[seen.index(rewound) :]
    assert (rewound.reason, rewound.attempt) == ("transient", 2)
    assert text_of(after) == "whole answer"
    assert [m for m in turn.history if isinstance(m, Assistant)] == [turn.history[-1]]
    assert provider.requests[0].json == provider.requests[1].json


@pytest.mark.parametrize("status", [500, 503])
async def test_a_server_error_is_retried(dialect: Dialect, tmp_path: Path, status: int) -> None:
    async with FakeProvider(dialect.server_error(status), dialect.says("ok")) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    assert names(seen) == ["Rewound", "TextDelta", "UsageReported", "TurnFinished"]


async def test_a_spent_quota_ends_the_turn_without_another_try(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.spent()) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    error = failure(seen)
    assert isinstance(error, Transient)
    assert error.is_spent
    assert len(provider.requests) == 1


async def test_a_refused_key_ends_the_turn_at_once(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(dialect.unauthorized()) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    assert isinstance(failure(seen), Unauthorized)
    assert len(provider.requests) == 1


async def test_a_request_that_never_left_is_not_counted(dialect: Dialect, tmp_path: Path) -> None:
    class NoKey(FixedKey):
        async def secret(self) -> str:
            raise Unauthorized("There is no key.")

    async with FakeProvider() as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        wire = conversation.sampler.wire
        wire.endpoint = replace(wire.endpoint, credential=NoKey(""))
        seen = await play(conversation.turn(User("go")))

    assert isinstance(failure(seen), Unauthorized)
    assert conversation.sampler.requests == len(provider.requests) == 0


async def test_a_field_refused_by_name_is_left_out_and_remembered(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.quirk(), dialect.says("one"), dialect.says("two")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        await play(conversation.turn(User("a")))
        await play(conversation.turn(User("b")))
        texts = [request.text for request in provider.requests]

    assert len(texts) == 3
    assert dialect.optional_field not in texts[1]
    assert dialect.optional_field not in texts[2]


async def test_an_output_cap_above_the_models_range_is_lowered_once_and_remembered(
    dialect: Dialect, tmp_path: Path
) -> None:
    refusal = dialect.output_range(1_000)
    if refusal is None or not dialect.has_output_cap:
        pytest.skip("this client sends no cap")
    async with FakeProvider(refusal, dialect.says("one"), dialect.says("two")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        await play(conversation.turn(User("a")))
        await play(conversation.turn(User("b")))
        caps = [dialect.read(request).output_tokens for request in provider.requests]

    assert caps[0] is not None
    assert caps[0] > 1_000
    assert caps[1:] == [1_000, 1_000]


async def test_a_malformed_history_is_repaired_and_sent_once_more(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.malformed_history(),
        dialect.says("ok"),
    ) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    assert isinstance(seen[-1], TurnFinished)
    assert len(provider.requests) == 3


async def test_a_history_refused_twice_ends_the_turn(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(
        dialect.calls("read_file", path="a"),
        dialect.malformed_history(),
        dialect.malformed_history(),
    ) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    assert isinstance(seen[-1], TurnFailed)
    assert len(provider.requests) == 3


async def test_an_answer_cut_at_the_output_limit_stands_and_its_calls_are_not_run(
    dialect: Dialect, tmp_path: Path
) -> None:
    tool = FakeTool()
    cut = dialect.truncated("so far", ("read_file", '{"path": "a"}'))
    async with FakeProvider(cut) as provider:
        turn = a_turn(dialect, provider, tmp_path, tool)
        seen = await play(turn)

    assert tool.ran == []
    last = seen[-1]
    assert isinstance(last, TurnFinished)
    assert last.stop == "length"
    assert turn.history[-1] == Assistant((Text("so far"),))


async def test_a_refusal_to_answer_is_said_so(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(dialect.refused("I cannot")) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    last = seen[-1]
    assert isinstance(last, TurnFinished)
    assert last.stop == "refused"


async def test_an_overflow_with_nothing_to_summarise_fails_at_once(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.overflow()) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    error = failure(seen)
    assert isinstance(error, ContextOverflow)
    assert "/compact" in str(error)
    assert len(provider.requests) == 1


async def test_words_before_an_overflow_that_nothing_can_mend_stand(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.overflow_in_stream("I had begun")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        seen = await play(turn)

    assert isinstance(failure(seen), ContextOverflow)
    assert text_of(seen) == "I had begun"
    assert "Rewound" not in names(seen)  # nothing is sent again
    assert "I had begun" in repr(turn.history)


async def test_cancelling_a_streaming_turn_keeps_what_the_person_saw(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.hangs("I was saying")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        seen: list[Event] = []

        async def drive() -> None:
            async def emit(event: Event) -> None:
                seen.append(event)

            await turn.run(emit)

        task = asyncio.create_task(drive())
        await until(lambda: text_of(seen) == "I was saying")
        task.cancel()
        await asyncio.wait([task])
        await provider.left()

    assert task.cancelled()
    assert turn.history[1:] == (Assistant((Text("I was saying"),), interrupted=True),)


async def test_cancelling_in_a_batch_answers_every_open_call(
    dialect: Dialect, tmp_path: Path
) -> None:
    entered = asyncio.Event()

    async def act(arguments: dict[str, object]) -> Outcome:
        if arguments["path"] == "b":
            entered.set()
            await asyncio.sleep(3_600)
        return Outcome("finished")

    tool = FakeTool(name="write", effect="write", act=act)  # pyright: ignore[reportArgumentType]
    script = dialect.calls_many(*(("write", {"path": p}) for p in "abc"))
    async with FakeProvider(script, dialect.says("going on")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path, tool)
        turn = conversation.turn(User("go"))

        async def ignore(_event: Event) -> None:
            return

        task = asyncio.create_task(conversation.run(turn, ignore))
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        results = conversation.history[-1]
        await play(conversation.turn(User("and now?")))

    assert isinstance(results, Results)
    assert [r.is_error for r in results.results] == [False, True, True]
    assert results.results[0].output == "finished"
    assert "Interrupted" in results.results[2].output
    assert provider.violations == []


async def test_steering_is_delivered_at_the_next_tool_boundary(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.calls("read_file", path="a"), dialect.says("done")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        turn.steering.append(User("use tabs"))
        seen = await play(turn)
        request = dialect.read(provider.requests[1])

    delivered = [event.message for event in seen if isinstance(event, SteeringDelivered)]
    assert [m.text for m in delivered] == ["use tabs"]
    assert delivered[0].steering
    assert "use tabs" in request.messages[-1].text
    assert turn.steering == []
    assert provider.violations == []


async def test_steering_without_a_further_boundary_is_left_undelivered(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.says("done")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        turn.steering.append(User("too late"))
        seen = await play(turn)

    assert not any(isinstance(event, SteeringDelivered) for event in seen)
    assert [user.text for user in turn.steering] == ["too late"]


async def test_an_empty_answer_is_asked_for_once_more_and_then_stands(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with FakeProvider(dialect.says(""), dialect.says("")) as provider:
        turn = a_turn(dialect, provider, tmp_path)
        seen = await play(turn)

    assert isinstance(seen[-1], TurnFinished)
    assert len(provider.requests) == 2
    told = [event.usage for event in seen if isinstance(event, UsageReported)]
    assert sum(usage.total_tokens for usage in told) == turn.dialogue.sampler.spent.total_tokens


async def test_an_unexplained_400_for_a_small_request_is_final(
    dialect: Dialect, tmp_path: Path
) -> None:
    unexplained = Scripted(
        status=400,
        content_type="application/json",
        frames=(b'{"error": {"message": "Something is wrong."}}',),
    )
    async with FakeProvider(unexplained) as provider:
        seen = await play(a_turn(dialect, provider, tmp_path))

    assert isinstance(failure(seen), Rejected)
    assert len(provider.requests) == 1


async def test_a_model_switch_in_mid_session_replays_the_history_validly(
    dialect: Dialect, tmp_path: Path
) -> None:
    """Each dialect takes over what the dialect before it in the table left."""
    from tests.fakes.dialects import DIALECTS

    other = DIALECTS[(DIALECTS.index(dialect) + 1) % len(DIALECTS)]
    async with (
        FakeProvider(
            dialect.calls_many(("read_file", {"path": "a"}), reasoning="hm"), dialect.says("one")
        ) as first,
        FakeProvider(other.calls("read_file", path="b"), other.says("two")) as second,
    ):
        conversation = a_conversation(dialect, first, tmp_path)
        turn = conversation.turn(User("start"))
        await play(turn)
        moved = a_conversation(other, second, tmp_path)
        moved.history = turn.history
        await play(moved.turn(User("go on")))
        texts = [request.text for request in second.requests]

    assert first.violations == []
    assert second.violations == []
    assert all("start" in text and "one" in text for text in texts)


async def test_usage_and_requests_are_booked(dialect: Dialect, tmp_path: Path) -> None:
    async with FakeProvider(
        dialect.server_error(500), dialect.calls("read_file", path="a"), dialect.says("done")
    ) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        seen = await play(conversation.turn(User("x")))

    reported = [event.usage for event in seen if isinstance(event, UsageReported)]
    assert conversation.sampler.requests == 3
    assert conversation.sampler.spent == reported[0] + reported[1]


async def test_an_output_that_does_not_fit_beside_the_input_is_lowered_once(
    dialect: Dialect, tmp_path: Path
) -> None:
    refusal = dialect.output_reserve(input=190_000, asked=20_000, limit=200_000)
    if refusal is None:
        pytest.skip("no server of this protocol says so")
    async with FakeProvider(refusal, dialect.says("ok"), dialect.says("two")) as provider:
        conversation = a_conversation(dialect, provider, tmp_path)
        seen = await play(conversation.turn(User("a")))
        await play(conversation.turn(User("b")))
        caps = [dialect.read(request).output_tokens for request in provider.requests]

    assert isinstance(seen[-1], TurnFinished)
    assert caps[0] is not None
    assert caps[1] is not None
    assert caps[1] < caps[0]
    assert caps[2] == caps[0]

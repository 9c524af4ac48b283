from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from keen.core.errors import SessionError
from keen.core.events import (
    CompactionApplied,
    Event,
    ReasoningDelta,
    Receipt,
    Rewound,
    SteeringDelivered,
    TextDelta,
    ToolFinished,
    ToolStarted,
    UsageReported,
)
from keen.core.messages import (
    Assistant,
    Checkpoint,
    Image,
    Results,
    ToolCall,
    ToolResult,
    Usage,
    User,
    interrupted,
)
from keen.session.checkpoint import Recorder, Segments
from keen.session.files import FileLayer
from keen.session.projection import conversation, last_usage, total_usage
from keen.session.reading import read
from keen.session.records import (
    AssistantTurn,
    Compaction,
    ReasoningItem,
    TextItem,
    ToolItem,
    TurnSegment,
    UserMessage,
)
from tests.session.samples import a_draft, kinds, play


def call(number: int, **arguments: str) -> ToolCall:
    return ToolCall(f"call-{number}", "bash", {"command": f"step {number}", **arguments})


def done(
    number: int, output: str = "fine", *, is_error: bool = False, **arguments: str
) -> tuple[Event, Event]:
    answer = ToolResult(f"call-{number}", "bash", output, is_error, exit_code=0)
    return ToolStarted(call(number, **arguments)), ToolFinished(answer, 0.25)


def replacement(text: str = "wrapped") -> tuple[User, ...]:
    return (User(text, checkpoint=Checkpoint("the summary", ("do it",))),)


RECEIPT = Receipt("proactive", 900, 90, 1.5, Usage(1_000, output_tokens=50), model="demo/demo")


async def test_a_turn_becomes_one_record_with_offsets_into_its_message(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await play(
        recorder,
        ReasoningDelta("hmm"),
        TextDelta("First "),
        TextDelta("this."),
        *done(1),
        *done(2, "no", is_error=True),
        TextDelta("Done."),
    )
    await recorder.finish(False, None, Usage(10, output_tokens=4), 10)
    records = await recorder.records()
    await recorder.aclose()

    turn = records[-1].payload
    assert isinstance(turn, AssistantTurn)
    assert [type(item) for item in turn.transcript] == [
        ReasoningItem,
        TextItem,
        ToolItem,
        ToolItem,
        TextItem,
    ]
    assert turn.message == "First this.\n\nDone."
    assert [
        (entry.text_offset, entry.tool, entry.status, entry.exit_code) for entry in turn.turn_memory
    ] == [(11, "bash", "success", 0), (11, "bash", "error", 0)]
    assert turn.turn_memory[0].input == {"command": "step 1"}
    assert (turn.usage.total_tokens, turn.usage.context_tokens) == (14, 10)
    assert (turn.interrupted, turn.error) == (False, None)


async def test_an_event_is_passed_on_after_it_was_recorded(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    recorder = Recorder(log)
    await recorder.user_message(User("do it"))
    on_disk: list[list[str]] = []

    async def put(event: Event) -> None:
        on_disk.append(kinds(log.path))

    emit = recorder.tap(put)
    for event in done(1):
        await emit(event)
    await recorder.aclose()
    assert [seen.count("turn_segment") for seen in on_disk] == [0, 1]


async def test_every_finished_batch_is_on_disk_before_the_turn_ends(tmp_path: Path) -> None:
    log = a_draft(tmp_path)
    recorder = Recorder(log)
    await recorder.user_message(User("do it"))
    both = [ToolStarted(call(2)), ToolStarted(call(3)), done(3)[1]]
    await play(recorder, TextDelta("A"), *done(1), *both)
    assert kinds(log.path).count("turn_segment") == 1

    await play(recorder, done(2)[1], TextDelta("lost with the process"))

    segments = [r.payload for r in read(log.path).records if isinstance(r.payload, TurnSegment)]
    names = [[item.type for item in segment.transcript] for segment in segments]
    assert names == [["text", "tool"], ["tool", "tool"]]
    await recorder.aclose()


async def test_rewound_words_are_void_back_to_the_last_finished_tool(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await play(
        recorder,
        TextDelta("void"),
        Rewound("transient", 2, 0.0),
        TextDelta("kept"),
        *done(1),
        TextDelta("void too"),
        ReasoningDelta("void"),
        Rewound("transient", 2, 0.0),
        TextDelta("end"),
    )
    await recorder.finish(False, None, Usage(), 0)
    turn = (await recorder.records())[-1].payload
    await recorder.aclose()
    assert isinstance(turn, AssistantTurn)
    assert turn.message == "kept\n\nend"
    assert "void" not in turn.model_dump_json()


async def test_a_commit_is_one_write_of_turn_and_compaction(tmp_path: Path) -> None:
    writes: list[bytes] = []

    def write(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return os.write(descriptor, data)

    recorder = Recorder(a_draft(tmp_path, files=FileLayer(write=write)))
    await recorder.user_message(User("do it"))
    await play(recorder, TextDelta("A"), *done(1))

    await recorder.commit(replacement(), RECEIPT)
    await play(recorder, CompactionApplied(replacement(), RECEIPT), TextDelta("B"))
    await recorder.finish(False, None, Usage(1_200, output_tokens=60), 200)

    assert [group.count(b"\n") for group in writes] == [2, 1, 2, 1]
    records = await recorder.records()
    await recorder.aclose()
    compaction, last = records[-2].payload, records[-1].payload
    assert isinstance(compaction, Compaction)
    assert isinstance(last, AssistantTurn)
    assert (compaction.status, compaction.transcript) == ("", ())
    assert compaction.model_dump()["messages"] == ({"role": "user", "content": "wrapped"},)
    assert (compaction.summary, compaction.user_messages) == ("the summary", ("do it",))
    assert (compaction.trigger, compaction.tokens_before, compaction.tokens_after) == (
        "proactive",
        900,
        90,
    )
    assert last.message == "B"
    assert conversation(records)[0] == replacement()[0]


async def test_a_manual_compaction_shows_its_summary_and_its_line(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await recorder.finish(False, None, Usage(1), 0)
    await play(recorder, TextDelta("the summary"))
    await recorder.commit(replacement(), Receipt("manual", 900, 90))
    await recorder.finish(False, None, Usage(), 0)
    records = await recorder.records()
    await recorder.aclose()
    last = records[-1].payload
    assert isinstance(last, Compaction)
    assert last.status == "Context compacted."
    assert last.transcript == (TextItem(content="the summary"),)


async def test_the_records_of_a_turn_add_up_to_its_usage(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await play(recorder, UsageReported(Usage(100, output_tokens=5), 1_000), *done(1))
    await play(recorder, SteeringDelivered(User("faster", steering=True)))
    await play(recorder, UsageReported(Usage(150, output_tokens=5), 1_000), *done(2))
    await recorder.commit(replacement(), RECEIPT)
    whole = Usage(100 + 150 + 1_000 + 70, output_tokens=5 + 5 + 50 + 7)
    await recorder.finish(False, None, whole, 70)
    records = await recorder.records()
    await recorder.aclose()
    assert total_usage(records) == whole
    measured = last_usage(records)
    assert measured is not None
    assert (measured.context_tokens, measured.model) == (70, "demo/demo")


async def test_a_steering_message_stands_between_what_was_done_before_and_after(
    tmp_path: Path,
) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await play(recorder, TextDelta("A"), *done(1), SteeringDelivered(User("B", steering=True)))
    await play(recorder, TextDelta("C"))
    await recorder.finish(False, None, Usage(), 0)
    records = await recorder.records()
    await recorder.aclose()
    shape = [
        (payload.content, payload.steering) if isinstance(payload, UserMessage) else payload.message
        for record in records
        if isinstance(payload := record.payload, UserMessage | AssistantTurn)
    ]
    assert shape == [("do it", False), "A", ("B", True), "C"]


async def test_outputs_and_inputs_are_bounded_to_head_and_tail(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    long = "head" + "é" * 50_000 + "tail"
    started = ToolStarted(ToolCall("1", "write_file", {"content": long, "deep": [long]}))
    await play(recorder, started, ToolFinished(ToolResult("1", "write_file", long), 0.1))
    await recorder.finish(False, None, Usage(), 0)
    turn = (await recorder.records())[-1].payload
    await recorder.aclose()
    assert isinstance(turn, AssistantTurn)
    item = turn.transcript[0]
    assert isinstance(item, ToolItem)
    for text in (item.output, item.input["content"], turn.turn_memory[0].input["content"]):
        assert isinstance(text, str)
        assert len(text.encode()) <= 4_096
        assert text.startswith("head")
        assert text.endswith("tail")
        assert "bytes left out" in text
    assert isinstance(item.input["deep"], str)


async def test_an_interrupted_turn_tells_of_running_and_never_started_calls(
    tmp_path: Path,
) -> None:
    recorder = Recorder(a_draft(tmp_path))
    await recorder.user_message(User("do it"))
    await play(recorder, *done(1), ToolStarted(call(2)))
    calls = (call(1), call(2), call(3))
    results = (ToolResult("call-1", "bash", "fine"), interrupted(call(2)), interrupted(call(3)))
    history = (User("do it"), Assistant(calls), Results(results))
    await recorder.finish(True, None, Usage(), 0, history)
    turn = (await recorder.records())[-1].payload
    await recorder.aclose()
    assert isinstance(turn, AssistantTurn)
    assert turn.interrupted
    assert [entry.status for entry in turn.turn_memory] == ["success", "interrupted", "interrupted"]
    assert turn.turn_memory[2].input == {"command": "step 3"}


async def test_a_commit_that_cannot_be_written_fails_and_changes_nothing(tmp_path: Path) -> None:
    broken = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        if broken.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)

    log = a_draft(tmp_path, files=FileLayer(write=write))
    reasons: list[str | None] = []
    recorder = Recorder(log, reasons.append)
    await recorder.user_message(User("do it"))
    await play(recorder, TextDelta("A"), *done(1))
    before = log.path.read_bytes()
    broken.set()

    with pytest.raises(SessionError, match="No space left"):
        await recorder.commit(replacement(), RECEIPT)

    assert log.path.read_bytes() == before
    assert len(reasons) == 1
    assert "No space left" in (reasons[0] or "")
    broken.clear()
    await play(recorder, TextDelta("B"))
    await recorder.finish(False, None, Usage(), 0)
    turn = read(log.path).records[-1].payload
    await recorder.aclose()
    assert isinstance(turn, AssistantTurn)
    assert turn.message == "A\n\nB"
    assert reasons[1:] == [None]


async def test_a_cancelled_write_is_finished_before_the_cancellation_goes_on(
    tmp_path: Path,
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        writing.set()
        go_on.wait()
        return os.write(descriptor, data)

    log = a_draft(tmp_path, files=FileLayer(write=write))
    recorder = Recorder(log)
    task = asyncio.create_task(recorder.user_message(User("do it")))
    await asyncio.to_thread(writing.wait)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kinds(log.path) == ["session_started", "user_message"]
    await recorder.aclose()
    await recorder.aclose()


@pytest.mark.timeout(60)
async def test_a_long_turn_is_put_into_several_records_and_reads_as_one(tmp_path: Path) -> None:
    log = a_draft(tmp_path, files=FileLayer(sync=lambda _descriptor: None))
    recorder = Recorder(log)
    await recorder.user_message(User("do it"))
    for number in range(600):
        await play(recorder, *done(number, "x" * 9_000, more="y" * 9_000))
    await recorder.finish(False, None, Usage(), 0)
    records = await recorder.records()
    await recorder.aclose()
    assert 1 < kinds(log.path).count("assistant_turn") < 6
    calls = [m for m in conversation(records) if isinstance(m, Results)]
    assert sum(len(message.results) for message in calls) == 600


async def test_an_image_is_kept_with_the_message(tmp_path: Path) -> None:
    recorder = Recorder(a_draft(tmp_path))
    image = Image("image/png", bytes(range(256)), 16, 16)
    await recorder.user_message(User("look", (image,)))
    records = await recorder.records()
    await recorder.aclose()
    assert conversation(records) == (User("look", (image,)),)


def test_taking_empties_the_segments() -> None:
    segments = Segments()
    segments.add(TextDelta("once"))
    assert segments.take().message == "once"
    assert segments.is_empty
    assert segments.take().message == ""


def test_a_reused_call_id_closes_the_call_that_is_open() -> None:
    segments = Segments()
    for _ in range(2):
        segments.add(ToolStarted(call(1)))
        segments.add(ToolFinished(ToolResult("call-1", "bash", "ok"), 0.0))
    assert [entry.status for entry in segments.take().turn_memory] == ["success", "success"]

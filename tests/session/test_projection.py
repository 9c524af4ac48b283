from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keen.core.events import (
    CompactionApplied,
    Receipt,
    Rewound,
    SteeringDelivered,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from keen.core.messages import (
    Assistant,
    Checkpoint,
    History,
    Image,
    JsonObject,
    Message,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
    interrupted,
)
from keen.session.bounds import bounded, bounded_input
from keen.session.checkpoint import Recorder
from keen.session.files import FileLayer
from keen.session.log import SessionLog
from keen.session.projection import (
    Compacted,
    Ended,
    Reverted,
    Said,
    conversation,
    last_compaction,
    last_usage,
    remembered,
    transcript,
    turn_memory_result,
)
from keen.session.records import (
    AssistantTurn,
    Compaction,
    CompactionReverted,
    KeptMessage,
    ModelChanged,
    Payload,
    Record,
    Remembered,
    SessionStarted,
    Spent,
    TextItem,
    ToolItem,
    UserMessage,
)
from tests.session.samples import a_draft, play, turn, user
from tests.session.test_kill import is_valid


def records(*payloads: Payload) -> list[Record]:
    return [Record(n, "t", payload.kind, payload) for n, payload in enumerate(payloads, 1)]


def compaction(text: str = "wrapped", summary: str = "S", status: str = "") -> Compaction:
    message = KeptMessage(role="user", content=text)
    return Compaction(messages=(message,), summary=summary, user_messages=("task",), status=status)


def memory(offset: int, name: str = "bash", status: str = "success") -> Remembered:
    return Remembered(text_offset=offset, tool=name, input={"command": name}, status=status)


def texts(history: History) -> list[str]:
    return [
        message.text
        if isinstance(message, User)
        else "".join(part.text for part in message.parts if isinstance(part, Text))
        for message in history
        if not isinstance(message, Results)
    ]


def test_a_turn_is_rebuilt_as_answers_with_their_calls_and_results() -> None:
    message = "First.\n\nThen.\n\nEnd."
    session = records(
        user("do it"),
        AssistantTurn(
            message=message, turn_memory=(memory(6, "a"), memory(6, "b", "error"), memory(13, "c"))
        ),
    )
    assert conversation(session) == (
        User("do it"),
        Assistant(
            (
                Text("First."),
                ToolCall("past-1", "a", {"command": "a"}),
                ToolCall("past-2", "b", {"command": "b"}),
            )
        ),
        Results(
            (
                ToolResult("past-1", "a", turn_memory_result("success", None)),
                ToolResult("past-2", "b", turn_memory_result("error", None), is_error=True),
            )
        ),
        Assistant((Text("Then."), ToolCall("past-3", "c", {"command": "c"}))),
        Results((ToolResult("past-3", "c", turn_memory_result("success", None)),)),
        Assistant((Text("End."),)),
    )


def test_the_result_of_turn_memory_says_status_exit_code_and_that_the_output_is_gone() -> None:
    assert turn_memory_result("success", 0) == (
        "Succeeded with exit code 0. "
        "Its output is no longer kept; call the tool again if you need it."
    )
    assert turn_memory_result("error", None).startswith("Failed. ")
    assert turn_memory_result("interrupted", None).startswith("Interrupted before it finished. ")


def test_a_compaction_stands_in_the_place_of_everything_before() -> None:
    session = records(user("old"), turn("older"), compaction(), turn("after"), user("next"))
    history = conversation(session)
    assert texts(history) == ["wrapped", "after", "next"]
    assert history[0] == User("wrapped", checkpoint=Checkpoint("S", ("task",)))


def test_the_last_of_several_compactions_holds() -> None:
    session = records(user("a"), compaction("one"), turn("b"), compaction("two"), turn("c"))
    assert texts(conversation(session)) == ["two", "c"]


def test_a_reverted_compaction_shows_what_came_before_and_keeps_what_came_later() -> None:
    session = records(
        user("a"), turn("b"), compaction(), turn("c"), CompactionReverted(seq=3), user("d")
    )
    assert texts(conversation(session)) == ["a", "b\n\nc", "d"]
    assert last_compaction(session) is None


def test_reverting_the_second_compaction_brings_the_first_back() -> None:
    session = records(
        user("a"), compaction("one"), user("b"), compaction("two"), CompactionReverted(seq=4)
    )
    found = last_compaction(session)
    assert found is not None
    assert found.seq == 2
    assert texts(conversation(session)) == ["one", "b"]


def test_an_interrupted_and_a_failed_answer_are_marked() -> None:
    for mark in ({"interrupted": True}, {"error": "gone"}):
        cut = AssistantTurn.model_validate({"message": "half", **mark})
        last = conversation(records(user("a"), cut))[-1]
        assert isinstance(last, Assistant)
        assert last.interrupted


def test_an_empty_turn_leaves_no_message_and_its_neighbours_become_one() -> None:
    session = records(user("a"), AssistantTurn(error="refused"), user("b"), turn(" \n"), user("c"))
    assert conversation(session) == (User("a\n\nb\n\nc"),)


def test_a_user_message_of_blanks_is_no_message() -> None:
    history = conversation(records(user("a"), turn("b"), user(" \n"), turn("c")))
    assert history == (User("a"), Assistant((Text("b\n\nc"),)))


def test_a_checkpoint_is_never_merged_with_the_message_behind_it() -> None:
    history = conversation(records(user("a"), compaction(), user("next")))
    assert [isinstance(message, User) for message in history] == [True, True]


def test_many_calls_without_text_stay_below_what_an_answer_may_hold() -> None:
    many = AssistantTurn(turn_memory=tuple(memory(0) for _ in range(200)))
    history = conversation(records(user("a"), many))
    is_valid(history)
    assert max(len(m.results) for m in history if isinstance(m, Results)) == 32


def test_offsets_that_make_no_sense_still_give_a_valid_history() -> None:
    odd = AssistantTurn(
        message="hello", turn_memory=(memory(99), memory(-4), memory(2), memory(10**9))
    )
    history = conversation(records(user("a"), odd))
    is_valid(history)
    assert texts(history)[1] == "hello"


def test_the_measure_starts_at_the_last_report_and_not_at_one_before_a_compaction() -> None:
    report = AssistantTurn(message="x", usage=Spent(context_tokens=500))
    started = SessionStarted(session_id="s", model="a/b")
    session = records(started, user("q"), ModelChanged(model="c/d"), report)
    found = last_usage(session)
    assert found is not None
    assert (found.context_tokens, found.model) == (500, "c/d")
    assert last_usage([*session, *records(compaction())]) is None


def test_the_transcript_shows_everything_and_nothing_of_automatic_compactions() -> None:
    manual = compaction(status="Context compacted.").model_copy(
        update={"transcript": (TextItem(content="the summary"),)}
    )
    tool = ToolItem(id="1", name="bash", input={}, output="out")
    session = records(
        user("a"),
        AssistantTurn(transcript=(TextItem(content="b"), tool)),
        compaction(),
        AssistantTurn(transcript=(TextItem(content="c"),), interrupted=True),
        manual,
        CompactionReverted(seq=5),
    )
    assert transcript(session) == (
        Said("a"),
        TextItem(content="b"),
        tool,
        TextItem(content="c"),
        Ended(True, None),
        Compacted("the summary", "Context compacted."),
        Reverted(5),
    )


WORDS = st.text(st.sampled_from('ab \n\u2028é😀\ud800\x00{}"\\'), max_size=12)
INPUTS = st.dictionaries(
    st.sampled_from(["path", "command"]),
    st.one_of(WORDS, st.integers(), st.floats(), st.lists(WORDS, max_size=2), st.just("x" * 5_000)),
    max_size=2,
)


@dataclass(frozen=True)
class Call:
    input: JsonObject
    output: str
    is_error: bool
    exit_code: int | None


@dataclass(frozen=True)
class Answer:
    """One round: words, perhaps voided before, and calls; `steering` follows its results."""

    words: tuple[str, ...]
    calls: tuple[Call, ...]
    void: str
    steering: str
    compacts: bool
    tail: int


CALLS = st.builds(Call, INPUTS, WORDS, st.booleans(), st.one_of(st.none(), st.integers(-255, 255)))
ROUNDS = st.builds(
    Answer,
    st.lists(WORDS, max_size=3).map(tuple),
    st.lists(CALLS, min_size=1, max_size=3).map(tuple),
    WORDS,
    st.one_of(st.just(""), WORDS),
    st.booleans(),
    st.integers(0, 3),
)


@dataclass(frozen=True)
class Turn:
    question: str
    image: bool
    rounds: tuple[Answer, ...]
    ending: str
    last_words: str
    started: int


TURNS = st.builds(
    Turn,
    WORDS,
    st.booleans(),
    st.lists(ROUNDS, max_size=3).map(tuple),
    st.sampled_from(["done", "cut in text", "cut in tools"]),
    WORDS,
    st.integers(0, 2),
)


@dataclass
class Memory:
    """The conversation as a running keen keeps it in memory, and the recorder beside it."""

    recorder: Recorder
    history: History = ()
    start: int = 0
    number: int = 0
    questions: list[str] = field(default_factory=list[str])

    async def say(self, *messages: Message) -> None:
        self.history = (*self.history, *messages)

    async def begin(self, turn: Turn) -> None:
        images = (Image("image/png", b"png"),) if turn.image else ()
        question = User(turn.question if turn.question.strip() else "?", images)
        self.start = len(self.history)
        await self.recorder.user_message(question)
        await self.say(question)

    def calls(self, answer: Answer) -> tuple[tuple[ToolCall, Call], ...]:
        self.number += 1
        return tuple(
            (ToolCall(f"{self.number}-{index}", "bash", call.input), call)
            for index, call in enumerate(answer.calls)
        )

    async def words(self, answer: Answer) -> tuple[Text | Reasoning, ...]:
        if answer.void:
            await play(self.recorder, TextDelta(answer.void), Rewound("transient", 2, 0.0))
        for text in answer.words:
            await play(self.recorder, TextDelta(text))
        return (Reasoning("secret"), *map(Text, answer.words))

    async def round(self, answer: Answer) -> None:
        words = await self.words(answer)
        pairs = self.calls(answer)
        results: list[ToolResult] = []
        for call, told in pairs:
            output, code = told.output, told.exit_code
            result = ToolResult(call.id, call.name, output, told.is_error, exit_code=code)
            await play(self.recorder, ToolStarted(call), ToolFinished(result, 0.1))
            results.append(result)
        calls = tuple(call for call, _ in pairs)
        native = Native("demo", "chat", "demo", ())
        await self.say(Assistant((*words, *calls), native), Results(tuple(results)))
        if answer.steering.strip():
            message = User(answer.steering, steering=True)
            await play(self.recorder, SteeringDelivered(message))
            await self.say(message)
        if answer.compacts:
            await self.compact(answer.tail)

    async def compact(self, tail: int) -> None:
        checkpoint = Checkpoint(f"summary {self.number}", ("task",))
        kept = self.history[-2 * tail :] if tail else ()
        while kept and not isinstance(kept[0], Assistant):
            kept = kept[1:]
        replacement = (User(f"wrapped {self.number}", checkpoint=checkpoint), *kept)
        receipt = Receipt("proactive", 10, 5)
        await self.recorder.commit(replacement, receipt)
        await play(self.recorder, CompactionApplied(replacement, receipt))
        self.history = replacement
        self.start = 0

    async def end(self, turn: Turn) -> None:
        last = Answer((turn.last_words,), (), "", "", False, 0)
        match turn.ending:
            case "cut in tools" if turn.rounds:
                await self.cut_in_tools(turn)
            case "cut in text":
                await self.words(last)
                if turn.last_words:
                    await self.say(Assistant((Text(turn.last_words),), interrupted=True))
                await self.recorder.finish(True, None, Usage(), 0, self.history)
            case _:
                await self.words(last)
                await self.say(Assistant((Text(turn.last_words),)))
                await self.recorder.finish(False, None, Usage(), 0)
        self.history = remembered(self.history, self.start)

    async def cut_in_tools(self, turn: Turn) -> None:
        words = await self.words(turn.rounds[0])
        calls = tuple(call for call, _ in self.calls(turn.rounds[0]))
        for call in calls[: turn.started]:
            await play(self.recorder, ToolStarted(call))
        await self.say(Assistant((*words, *calls)), Results(tuple(map(interrupted, calls))))
        await self.recorder.finish(True, None, Usage(), 0, self.history)


@pytest.mark.timeout(120)
@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=3))
async def test_memory_and_resume_project_the_same(turns: list[Turn]) -> None:
    with TemporaryDirectory() as directory:
        log = a_draft(Path(directory), files=FileLayer(sync=lambda _descriptor: None))
        memory = Memory(Recorder(log))
        for turn_ in turns:
            await memory.begin(turn_)
            for answer in turn_.rounds:
                await memory.round(answer)
            await memory.end(turn_)
        await memory.recorder.aclose()
        resumed = SessionLog.open(log.path)
        session = resumed.records()
        resumed.close()
    assert conversation(session) == memory.history
    is_valid(memory.history)
    assert remembered(memory.history, 0) == memory.history
    assert not any(isinstance(m, Assistant) and m.native for m in memory.history)


@settings(max_examples=200)
@given(st.text(max_size=50).map(lambda text: text * 500))
def test_bounding_keeps_the_limit_and_is_idempotent(text: str) -> None:
    short = bounded(text)
    assert len(short.encode()) <= 4_096
    assert bounded(short) == short
    arguments: JsonObject = {f"{number}": text for number in range(100)}
    assert bounded_input(bounded_input(arguments)) == bounded_input(arguments)


def test_deep_and_odd_arguments_become_storable() -> None:
    deep: JsonObject = {}
    for _ in range(500):
        deep = {"a": deep}
    odd: JsonObject = {"deep": deep, "nan": float("nan"), "huge": 10**6_000, "bad": "\ud800"}
    stored = bounded_input(odd)
    assert stored["nan"] == "nan"
    assert stored["bad"] == "\ufffd"
    assert isinstance(stored["huge"], str)
    item = ToolItem.model_validate({"id": "1", "name": "x", "input": stored})
    line = UserMessage(content=item.model_dump_json())
    assert "[…]" in line.content

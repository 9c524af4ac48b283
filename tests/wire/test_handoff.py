"""Any history becomes one that a provider accepts, without touching what may stay."""

from __future__ import annotations

import re
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keen.core.messages import (
    Assistant,
    History,
    Message,
    Native,
    Reasoning,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
    tool_calls,
    visible_text,
)
from keen.wire._encoded import Encoded
from keen.wire._handoff import HandOff

OWN = Native("house", "responses", "m1", ({"type": "message"},))


def sent(messages: History, *, model: str = "m1") -> History:
    return HandOff().of(messages, provider="house", dialect="responses", model=model)


def call(call_id: str, malformed: str = "") -> ToolCall:
    return ToolCall(call_id, "read_file", {"path": "a"}, malformed)


def result(call_id: str, output: str = "fine") -> ToolResult:
    return ToolResult(call_id, "read_file", output)


def test_a_history_of_this_very_model_comes_back_object_for_object() -> None:
    history: History = (
        User("hi"),
        Assistant((Reasoning("hm"), Text("so"), call("functions.read:0")), OWN),
        Results((result("functions.read:0"),)),
        Assistant((Text("done"),)),
    )

    assert all(a is b for a, b in zip(sent(history), history, strict=True))


def test_natives_of_another_provider_dialect_or_model_are_dropped_with_their_reasoning() -> None:
    for foreign in (
        Native("other", "responses", "m1", ({},)),
        Native("house", "chat", "m1", ({},)),
        Native("house", "responses", "m2", ({},)),
    ):
        answer = Assistant((Reasoning("hm"), Text("so")), foreign, interrupted=True)

        assert sent((User("hi"), answer))[1] == Assistant((Text("so"),), interrupted=True)


def test_reasoning_becomes_text_only_where_the_answer_would_be_empty() -> None:
    assert sent((Assistant((Reasoning("deep "), Reasoning("thought")), OWN),)) == (
        Assistant((Text("deep thought"),)),
    )


def test_answers_without_text_and_calls_are_dropped() -> None:
    history: History = (User("hi"), Assistant(()), Assistant((Text(" \n"),), OWN), User("go"))

    assert sent(history) == (User("hi"), User("go"))


def test_foreign_ids_are_normalised_and_their_results_follow() -> None:
    long = "x" * 70
    history: History = (
        Assistant((call("fn:0"), call("fn.0"), call(long), call(""))),
        Results((result(""), result(long), result("fn.0", "second"), result("fn:0", "first"))),
    )

    answer, results = sent(history)

    assert isinstance(answer, Assistant)
    assert isinstance(results, Results)
    assert [c.id for c in tool_calls(answer)] == ["fn_0", "fn_0_2", "x" * 64, "call"]
    assert [r.call_id for r in results.results] == ["fn_0", "fn_0_2", "x" * 64, "call"]
    assert [r.output for r in results.results][:2] == ["first", "second"]


def test_an_id_used_again_in_a_later_answer_gets_another_name_and_its_own_result() -> None:
    step: History = (Assistant((call("call_0"),)), Results((result("call_0"),)))
    again: History = (Assistant((call("call_0"),)), Results((result("call_0", "later"),)))

    after = sent((*step, *again))

    assert after[:2] == step
    assert after[3] == Results((result("call_0_2", "later"),))


def test_an_open_call_is_answered_and_results_without_call_or_twice_are_dropped() -> None:
    history: History = (
        Results((result("a", "too early"),)),
        Assistant((call("a"), call("b"))),
        User("meanwhile"),
        Results((result("b"), result("b", "again"), result("z"))),
    )

    after = sent(history)

    assert [type(m) for m in after] == [Assistant, Results, User]
    assert isinstance(after[1], Results)
    assert [(r.call_id, r.is_error) for r in after[1].results] == [("a", True), ("b", False)]
    assert after[1].results[0].output == "Interrupted before it finished."
    assert after[1].results[1].output == "fine"


def test_two_calls_of_one_id_in_an_answer_are_told_apart_even_in_ones_own() -> None:
    history: History = (
        Assistant((call("a"), call("a")), OWN),
        Results((result("a", "1"), result("a", "2"))),
    )

    assert sent(history)[1] == Results((result("a", "1"), result("a_2", "2")))


@pytest.mark.parametrize(
    ("made_up", "sent_as"), [("Read File!", "Read_File_"), ("", "unnamed"), ("x" * 90, "x" * 64)]
)
def test_a_tool_name_the_model_made_up_goes_back_as_servers_take_it(
    made_up: str, sent_as: str
) -> None:
    answer = Assistant((Text("hm"), ToolCall("a", made_up, {})), OWN)
    after = sent((answer, Results((ToolResult("a", made_up, "no such tool"),))))

    assert after == (
        Assistant((Text("hm"), ToolCall("a", sent_as, {}))),
        Results((ToolResult("a", sent_as, "no such tool"),)),
    )


def test_malformed_calls_are_sent_with_empty_arguments() -> None:
    answer = sent((Assistant((call("a", malformed="{"),)),))[0]

    assert isinstance(answer, Assistant)
    assert tool_calls(answer)[0].input == {}


def test_what_had_to_be_rewritten_is_the_same_object_the_next_time() -> None:
    history: History = (
        User("hi"),
        Assistant((Reasoning("hm"), call("a:1"), call("b"))),
        Results((result("a:1"),)),
    )

    first = sent(history)
    second = sent((*history, User("more")))

    assert all(a is b for a, b in zip(first, second, strict=False))


def test_an_encoding_is_built_once_while_it_is_used_and_forgotten_when_it_is_not() -> None:
    encoded = Encoded()
    message = User("hi")
    built: list[str] = []

    def build() -> tuple[dict[str, object], ...]:
        built.append("x")
        return ()

    for _ in range(10):
        encoded.of(message, lambda: (build(), ())[1])
        encoded.sweep()
    assert built == ["x"]

    encoded.of(User("hi"), lambda: (build(), ())[1])
    assert built == ["x", "x"]

    for _ in range(5):
        encoded.sweep()
    assert len(encoded) == 0


def test_the_cost_is_linear_in_the_history() -> None:
    def calls_made(rounds: int) -> int:
        history = tuple(
            message
            for n in range(rounds)
            for message in (Assistant((call("same"),)), Results((result("same", str(n)),)))
        )
        counted = 0

        def count(_frame: FrameType, _event: str, _argument: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            sent(history)
        finally:
            sys.setprofile(None)
        return counted

    for _ in range(6):
        sent(())

    assert calls_made(400) < 2.2 * calls_made(200)


IDS = st.sampled_from(["a", "b", "a:b", "a_b", "", "call", "ü" * 80, "a_b_2"])
NATIVES = st.sampled_from([None, OWN, Native("other", "chat", "m", ())])
PARTS = st.lists(
    st.one_of(
        st.sampled_from(["", " ", "text"]).map(Text),
        st.sampled_from(["", "thought"]).map(Reasoning),
        st.builds(call, IDS, st.sampled_from(["", "{"])),
    ),
    max_size=4,
).map(tuple)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.just(User("u")),
    st.builds(Assistant, PARTS, NATIVES),
    st.lists(st.builds(result, IDS, st.sampled_from(["1", "2"])), max_size=4).map(
        lambda results: Results(tuple(results))
    ),
)
MODELS = st.sampled_from(["m1", "another"])
HISTORIES: st.SearchStrategy[History] = st.lists(MESSAGES, max_size=12).map(tuple)


@given(HISTORIES, MODELS)
def test_every_call_has_its_result_and_every_result_its_call(history: History, model: str) -> None:
    after = sent(history, model=model)

    assert [m for m in after if isinstance(m, User)] == [m for m in history if isinstance(m, User)]
    seen: set[str] = set()
    for position, message in enumerate(after):
        following = after[position + 1] if position + 1 < len(after) else None
        if isinstance(message, Results):
            before = after[position - 1] if position else None
            assert isinstance(before, Assistant)
            assert tool_calls(before)
        if not isinstance(message, Assistant):
            continue
        calls = tool_calls(message)
        assert calls or visible_text(message).strip()
        ids = [c.id for c in calls]
        if message.native is None:
            assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call_id) for call_id in ids)
            assert not seen & set(ids)
            assert not any(isinstance(part, Reasoning) for part in message.parts)
        else:
            assert message.native is OWN
            assert model == "m1"
        assert len(set(ids)) == len(ids)
        seen |= set(ids)
        if calls:
            assert isinstance(following, Results)
            assert [r.call_id for r in following.results] == ids
            assert [r.name for r in following.results] == [c.name for c in calls]


@given(HISTORIES, MODELS)
def test_handing_off_twice_or_again_changes_nothing(history: History, model: str) -> None:
    once = sent(history, model=model)

    again = sent(history, model=model)
    twice = sent(once, model=model)

    assert len(again) == len(once) == len(twice)
    assert all(a is b for a, b in zip(once, again, strict=True))
    assert once == twice


@given(HISTORIES, HISTORIES)
def test_what_comes_later_does_not_change_how_earlier_answers_are_sent(
    history: History, later: History
) -> None:
    before = [m for m in sent(history) if isinstance(m, Assistant)]
    after = [m for m in sent((*history, *later)) if isinstance(m, Assistant)]

    assert all(a is b for a, b in zip(before, after, strict=False))


@given(st.lists(HISTORIES, max_size=4), HISTORIES)
def test_a_history_that_grows_is_handed_off_as_if_it_had_come_at_once(
    pieces: list[History], other: History
) -> None:
    steady = HandOff()
    history: History = ()
    for piece in pieces:
        history = (*history, *piece)
        grown = steady.of(history, provider="house", dialect="responses", model="m1")
        assert grown == sent(history)

    replaced = steady.of(other, provider="house", dialect="responses", model="m1")
    assert replaced == sent(other)
    elsewhere = steady.of(other, provider="house", dialect="responses", model="m2")
    assert elsewhere == sent(other, model="m2")

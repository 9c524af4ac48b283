from __future__ import annotations

from keen.agent.view import BYTES_KEPT, IMAGE_REMOVED, REMOVED, View, prune, pruned_tokens
from keen.core.messages import (
    Assistant,
    History,
    Image,
    Native,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
)

PICTURE = Image("image/png", b"x", 10, 10)


def batch(name: str, output: str, images: tuple[Image, ...] = ()) -> History:
    native = Native("p", "chat", "m", ({"role": "assistant"},))
    call = Assistant((ToolCall(name, "read_file", {}),), native)
    return call, Results((ToolResult(name, "read_file", output, images=images),))


def outputs(history: History) -> list[str]:
    return [r.output for m in history if isinstance(m, Results) for r in m.results]


HISTORY: History = (
    User("task"),
    *batch("old", "o" * 20_000),
    *batch("small", "s" * 100),
    *batch("newer", "n" * 20_000),
    *batch("newest", "w" * 20_000),
)


def test_an_unreduced_history_is_the_same_object() -> None:
    assert View().apply(HISTORY) is HISTORY


def test_pruning_takes_the_oldest_big_results_in_one_sweep() -> None:
    assert prune(HISTORY, set(), 1) == {"old"}
    assert prune(HISTORY, set(), 6_000) == {"old", "newer"}
    assert prune(HISTORY, {"old"}, 1) == {"newer"}


def test_pruning_spares_the_newest_batch_and_small_results() -> None:
    assert prune(HISTORY, set(), 10**9) == {"old", "newer"}


def test_a_pruned_result_stays_pruned_and_keeps_its_object() -> None:
    view = View()
    view.prune({"old"})

    first, second = view.apply(HISTORY), view.apply((*HISTORY, User("more")))

    assert outputs(first)[0] == REMOVED
    assert outputs(first)[1:] == outputs(HISTORY)[1:]
    assert all(a is b for a, b in zip(first, second, strict=False))
    assert pruned_tokens(HISTORY, view.pruned) == 20_000 * 2 // 7 + 1


def test_pruning_leaves_answers_with_their_native_form() -> None:
    view = View()
    view.prune({"old"})

    assert view.apply(HISTORY)[1] is HISTORY[1]


def test_a_refusal_for_bytes_drops_images_and_cuts_big_results() -> None:
    view = View()
    history: History = (User("look", (PICTURE,)), *batch("a", "x" * 20_000, (PICTURE,)))

    assert view.shrink(history)
    reduced = view.apply(history)

    assert isinstance(reduced[0], User)
    assert reduced[0].images == ()
    assert IMAGE_REMOVED in reduced[0].text
    assert len(outputs(reduced)[0]) < BYTES_KEPT + 200
    assert not view.shrink(history)


def test_a_refused_image_is_the_newest_first_then_all() -> None:
    view = View()
    history: History = (User("a", (PICTURE,)), User("b", (PICTURE,)), User("c"))

    assert view.drop_images(history)
    first = [m.images for m in view.apply(history) if isinstance(m, User)]
    assert first == [(PICTURE,), (), ()]
    assert view.drop_images(history)
    second = [m.images for m in view.apply(history) if isinstance(m, User)]
    assert second == [(), (), ()]
    assert not view.drop_images(history)


def test_dropped_natives_stay_dropped_and_new_answers_keep_theirs() -> None:
    view = View()
    assert view.drop_natives(HISTORY)
    grown: History = (*HISTORY, *batch("later", "l"))

    natives = [m.native for m in view.apply(grown) if isinstance(m, Assistant)]

    assert [n is None for n in natives] == [True, True, True, True, False]
    assert not view.drop_natives(HISTORY)


def test_the_canonical_history_is_never_touched() -> None:
    before = repr(HISTORY)
    view = View()
    view.prune({"old"})
    view.shrink(HISTORY)
    view.drop_natives(HISTORY)
    view.apply(HISTORY)

    assert repr(HISTORY) == before
    view.reset()
    assert view.apply(HISTORY) is HISTORY


def test_text_parts_are_left_alone() -> None:
    view = View()
    view.prune({"x"})
    message = Assistant((Text("hello"),))

    assert view.apply((message,))[0] is message

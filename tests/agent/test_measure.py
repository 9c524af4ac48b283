from __future__ import annotations

from keen.agent.measure import Meter
from keen.core.messages import Json
from keen.wire.base import Body


def body(*texts: str, system: str = "s" * 700) -> Body:
    items: list[Json] = [_item(text) for text in texts]
    return Body({"system": system, "messages": items}, "messages")


_ITEMS: dict[str, Json] = {}


def _item(text: str) -> Json:
    """The same object for the same text, as the wires' caches give it."""
    return _ITEMS.setdefault(text, {"role": "user", "content": text})


def test_without_a_report_everything_is_estimated() -> None:
    assert Meter().measure(body("a" * 7_000)) > 2_000 + 200


def test_a_report_counts_and_only_what_was_appended_is_estimated() -> None:
    meter = Meter()
    meter.report(body("a" * 7_000), 2_200)

    grown = meter.measure(body("a" * 7_000, "b" * 700))

    assert 2_200 + 150 < grown < 2_200 + 260


def test_the_models_own_ratio_scales_the_estimate_within_bounds() -> None:
    meter = Meter()
    meter.report(body("a" * 70_000), 10_000_000)
    assert meter.ratio == 2.0
    meter.report(body("a" * 70_000), 1)
    assert meter.ratio == 0.5


def test_a_reset_drops_the_report_and_keeps_the_ratio() -> None:
    meter = Meter()
    meter.report(body("a" * 7_000), 3_000)
    ratio = meter.ratio

    meter.reset()

    assert meter.reported is None
    assert meter.ratio == ratio
    assert meter.measure(body("x")) < 700


def test_a_replaced_history_is_not_measured_by_the_old_report() -> None:
    meter = Meter()
    meter.report(body("a" * 7_000, "b" * 7_000, "c" * 7_000), 9_000)

    assert meter.measure(body("a" * 7_000)) < 3_500


def test_a_changed_last_item_is_counted_anew() -> None:
    meter = Meter()
    meter.report(body("a" * 7_000, "tail"), 2_300)

    assert meter.measure(body("a" * 7_000, "tail" + "z" * 7_000)) > 2_300 + 1_900


def test_a_refusal_that_names_the_size_raises_the_measure() -> None:
    meter = Meter()
    request = body("a" * 70_000)
    before = meter.measure(request)

    meter.raise_to(request, before * 3 // 2)

    assert meter.measure(request) >= before * 3 // 2 - 1


def test_measuring_again_does_not_walk_what_was_counted() -> None:
    meter = Meter()
    first = body("a" * 7_000)
    meter.measure(first)
    items = first.json["messages"]
    assert isinstance(items, list)
    counted = items[0]
    assert isinstance(counted, dict)

    # Grown behind the meter's back: were it walked again, the measure would grow with it.
    before = meter.measure(first)
    counted["extra"] = "x" * 7_000
    after = meter.measure(first)
    del counted["extra"]

    assert after == before


def test_what_pruning_took_is_taken_off_the_report() -> None:
    meter = Meter()
    meter.report(body("a" * 7_000, "b" * 7_000), 4_400)

    meter.recount()

    assert 2_300 < meter.measure(body("a" * 70, "b" * 7_000)) < 2_500

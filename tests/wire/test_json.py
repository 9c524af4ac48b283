from __future__ import annotations

import math

import pytest

from keen.core.messages import Json
from keen.wire._json import as_count, as_index, as_object, as_objects, as_string


@pytest.mark.parametrize(
    ("value", "count"),
    [(7, 7), (7.9, 7), (10**400, 10**400), (0, 0), (-3, 0), (True, 0), ("7", 0), (None, 0)],
)
def test_a_count_is_a_number_from_zero_up_and_nothing_else(value: Json, count: int) -> None:
    assert as_count(value) == count


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_count_without_an_end_is_none(value: float) -> None:
    assert as_count(value) == 0


def test_what_has_another_type_reads_as_empty() -> None:
    others: list[Json] = [None, True, 1.5, [1, "x"]]
    assert [as_object(other) for other in [*others, "x"]] == [{}] * 5
    assert [as_string(other) for other in [*others, {}]] == [""] * 5
    assert [as_index(other) for other in [*others, "1", {}]] == [None] * 6
    assert as_objects([None, {"a": 1}, "x", {}]) == [{"a": 1}, {}]
    assert as_objects({"a": 1}) == []

from __future__ import annotations

import pytest

from keen.core.budget import Budget, output_reserve, safety_margin


@pytest.mark.parametrize(
    ("window", "margin"), [(16_384, 4_096), (81_920, 4_096), (81_940, 4_097), (200_000, 10_000)]
)
def test_the_margin_is_five_percent_and_at_least_4096(window: int, margin: int) -> None:
    assert safety_margin(window) == margin


@pytest.mark.parametrize(
    ("window", "asked", "reserve", "effective", "trigger"),
    [
        (200_000, 64_000, 64_000, 126_000, 113_400),
        (16_384, 8_192, 6_144, 6_144, 5_530),
        (32_768, 4_096, 4_096, 24_576, 22_119),
        (128_000, 128_000, 60_800, 60_800, 54_720),
    ],
)
def test_reserve_and_trigger_have_no_cliff(
    window: int, asked: int, reserve: int, effective: int, trigger: int
) -> None:
    budget = Budget(window, output_reserve(window, asked))

    assert (budget.reserve, budget.effective, budget.trigger) == (reserve, effective, trigger)


@pytest.mark.parametrize("effective", [6_144, 24_576, 99_999, 100_000, 126_000])
def test_tight_begins_exactly_at_ninety_percent(effective: int) -> None:
    budget = Budget(effective + 8_192 + safety_margin(150_000), 8_192)
    exact = budget.effective

    assert all(budget.is_tight(size) == (size * 100 >= exact * 90) for size in range(exact + 2))


def test_a_threshold_above_a_hundred_is_tokens_and_never_beyond_the_budget() -> None:
    assert Budget(200_000, 8_192, threshold=140_000).trigger == 140_000
    assert Budget(32_768, 4_096, threshold=140_000).trigger == 24_576


def test_a_documented_input_limit_below_the_window_counts() -> None:
    assert Budget(400_000, 8_192, max_input=272_000).effective == 272_000 - 20_000
    assert Budget(400_000, 200_000, max_input=272_000).effective == 200_000 - 20_000

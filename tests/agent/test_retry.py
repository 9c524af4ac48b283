from __future__ import annotations

import random

import pytest

from keen.agent.retry import ATTEMPTS, PATIENCE, Schedule
from keen.core.errors import Transient


def delays(error: Transient) -> list[float]:
    schedule = Schedule(jitter=random.Random(1))
    seen: list[float] = []
    while (delay := schedule.delay(error)) is not None:
        seen.append(delay)
    return seen


def test_six_sendings_at_most_and_the_waits_grow() -> None:
    waits = delays(Transient("reset"))

    assert len(waits) == ATTEMPTS - 1
    assert waits == sorted(waits)


@pytest.mark.parametrize("seconds", [0.0, 1.5, 8.0])
def test_a_wait_the_provider_names_is_honoured_exactly(seconds: float) -> None:
    assert set(delays(Transient("busy", retry_after=seconds))) == {seconds}


def test_a_negative_wait_is_no_wait() -> None:
    assert set(delays(Transient("busy", retry_after=-3.0))) == {0.0}


@pytest.mark.parametrize("seconds", [PATIENCE + 1, 1e9])
def test_a_wait_beyond_the_patience_ends_the_tries(seconds: float) -> None:
    assert delays(Transient("busy", retry_after=seconds)) == []


def test_all_waits_together_stay_within_the_patience() -> None:
    assert sum(delays(Transient("busy", retry_after=50.0))) <= PATIENCE


def test_a_spent_quota_is_not_tried_again() -> None:
    assert delays(Transient("monthly limit", is_spent=True, retry_after=1.0)) == []

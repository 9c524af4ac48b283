"""What a row of the benchmark is: its figures, their aims, and how one run measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias

from bench_parts.machine import Place

KEEN: Final = "keen"
"""The subject that is measured; every other one is a baseline."""

Values: TypeAlias = dict[str, float]
"""One figure of one run: subject -> value. Without `KEEN` among them nothing is compared."""
Samples: TypeAlias = dict[str, Values]
"""One run: figure -> values."""
Once: TypeAlias = Callable[[], Samples]
"""Measures one run, keen and its baselines one after the other."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure's medians (subject -> value) should satisfy."""

    text: str
    holds: Callable[[Mapping[str, float]], bool]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row; `aim` None is told, not judged."""

    unit: str
    aim: Aim | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement that can run alone.

    `prepare` sets up in a place of the row's own what all runs share; the first run warms up and
    is not counted.
    """

    name: str
    what: str
    figures: Mapping[str, Figure]
    prepare: Callable[[Place], AbstractContextManager[Once]]


def at_most(limit: float) -> Aim:
    """keen's value is not above `limit`."""
    return Aim(f"≤ {limit:g}", lambda medians: medians[KEEN] <= limit)


def above(baseline: str, most: float) -> Aim:
    """keen's value is not above the baseline's by more than `most`."""
    return Aim(
        f"≤ {baseline} + {most:g}", lambda medians: medians[KEEN] <= medians[baseline] + most
    )


def times(baseline: str, most: float) -> Aim:
    """keen's value is at most `most` times the baseline's."""
    return Aim(
        f"≤ {most:g} × {baseline}", lambda medians: medians[KEEN] <= medians[baseline] * most
    )

"""The samples of all rows as one table for people, and as JSON for machines."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench_parts.rows import KEEN, Figure, Row, Samples

_HEAD: Final = ("row", "figure", "keen", "beside", "its own", "keen / beside", "aim", "")


@dataclass(frozen=True, slots=True)
class Measured:
    """A row and its runs; `problem` says why there are none."""

    row: Row
    runs: tuple[Samples, ...] = ()
    problem: str = ""

    def values(self, figure: str) -> dict[str, list[float]]:
        """Subject -> its values, a run each."""
        subjects = self.runs[0][figure]
        return {subject: [run[figure][subject] for run in self.runs] for subject in subjects}


def lines(measured: Measured) -> list[tuple[str, ...]]:
    """The table's lines for one row: one for each figure and baseline."""
    name = measured.row.name
    if measured.problem:
        return [(name, measured.row.what, measured.problem, "", "", "", "", "FAILED")]
    found: list[tuple[str, ...]] = []
    for title, figure in measured.row.figures.items():
        values = measured.values(title)
        keen = values.pop(KEEN)
        told = (name, f"{title}, {figure.unit}", spread(keen))
        aim = (figure.aim.text if figure.aim else "", verdict(figure, {KEEN: keen, **values}))
        for subject, own in values.items() or [("", [])]:
            ratios = [one / other for one, other in zip(keen, own, strict=False) if other]
            found.append((*told, subject, spread(own), spread(ratios), *aim))
            name, told, aim = "", ("", "", ""), ("", "")
        name = ""
    return found


def verdict(figure: Figure, values: dict[str, list[float]]) -> str:
    """Whether the medians satisfy the aim."""
    if figure.aim is None:
        return ""
    medians = {subject: statistics.median(own) for subject, own in values.items()}
    return "ok" if figure.aim.holds(medians) else "BEHIND"


def spread(values: Sequence[float]) -> str:
    """Median, and minimum and maximum behind it."""
    if not values:
        return ""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{short(middle)} ({short(low)} … {short(high)})"


def short(value: float) -> str:
    """About three significant digits, never an exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Lines in columns as wide as their contents."""
    widths = [max(len(line[i]) for line in (_HEAD, *rows)) for i in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (_HEAD, *rows)
    )


def as_json(measured: Sequence[Measured]) -> dict[str, Any]:
    """Every sample, with what it was measured on."""
    return {
        "machine": {
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "load": list(os.getloadavg()),
        },
        "rows": [
            {
                "name": one.row.name,
                "what": one.row.what,
                "problem": one.problem,
                "figures": {} if one.problem else _figures(one),
            }
            for one in measured
        ],
    }


def _figures(one: Measured) -> dict[str, Any]:
    return {
        title: {
            "unit": figure.unit,
            "aim": figure.aim.text if figure.aim else None,
            "verdict": verdict(figure, one.values(title)),
            "values": one.values(title),
        }
        for title, figure in one.row.figures.items()
    }

"""Which of many names a few typed letters mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_AT_START = 8
_IN_ROW = 5
_IN_NAME = 3
_SCORED: Final = 10_000


def ranked(wanted: str, names: Iterable[str], most: int = 30) -> list[str]:
    """The names that have the letters in order, best first; all of them when nothing is wanted."""
    if not wanted:
        return [name for name, _ in zip(names, range(most), strict=False)]
    needle = wanted.casefold()
    scored = [
        (points, -len(name), name)
        for name in _likely(needle, list(names), most)
        if (points := score(needle, name.casefold())) is not None
    ]
    scored.sort(key=lambda row: (-row[0], -row[1], row[2]))
    return [name for _, _, name in scored[:most]]


def _likely(needle: str, names: list[str], most: int) -> list[str]:
    """Of very many names those worth a score: a key pressed must not wait for all of them."""
    if len(names) <= _SCORED:
        return names
    whole = [name for name in names if needle in name.casefold()]
    if len(whole) < most:
        in_order = re.compile(".*?".join(map(re.escape, needle)), re.IGNORECASE | re.DOTALL)
        whole += [name for name in names if in_order.search(name) and needle not in name.casefold()]
    return whole[:_SCORED]


def score(needle: str, name: str) -> int | None:
    """How well the letters fit; None when they are not all there, in order."""
    place = name.rfind(needle)
    if place >= 0:
        is_start = place == 0 or name[place - 1] in "/._- "
        in_file_name = place > name.rfind("/")
        return 100 + _AT_START * is_start + 40 * in_file_name + 60 * (name[place:] == needle)
    points, position = 0, -1
    for letter in needle:
        found = name.find(letter, position + 1)
        if found < 0:
            return None
        if found == position + 1:
            points += _IN_ROW
        if found == 0 or name[found - 1] in "/._- ":
            points += _AT_START
        if found > name.rfind("/"):
            points += _IN_NAME
        position = found
    return points

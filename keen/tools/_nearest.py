"""Where a text that was not found nearly is, so that the next try can copy it."""

from __future__ import annotations

import re
import time
from collections import Counter
from difflib import SequenceMatcher
from typing import Final

from keen.tools._text import lines_of

_MOST_SECONDS: Final = 0.5
_MOST_SHOWN: Final = 30
_MOST_WIDTH: Final = 200
_MOST_PLACES: Final = 200
"""Places of one line that vote; a blank or a brace says nothing."""
_ALIKE: Final = 0.5
_NUMBERED: Final = re.compile(r"^\s*\d+\t")


def nearest(text: str, old: str) -> str:
    """The lines of `text` most like `old`, numbered, with what differs where that is known."""
    wanted = lines_of(old)
    if wanted and all(_NUMBERED.match(line) for line in wanted):
        bare = "\n".join(_NUMBERED.sub("", line) for line in wanted)
        if bare in text:
            return "Send it without the line numbers of read_file."
    if old.endswith("\n") and text.endswith(old[:-1]):
        return "The file ends without a line end there: leave the last one out of old."
    have = lines_of(text)
    start = _by_equal_lines(have, wanted)
    if start is None:
        start = _by_similar_line(have, wanted)
    if start is None:
        return "Nothing in it is similar; read the file again."
    part = have[start : start + len(wanted)]
    same = [line.split() for line in part] == [line.split() for line in wanted]
    hint = " (only blanks differ)" if same else ""
    body = [f"{start + i}\t{line[:_MOST_WIDTH]}" for i, line in enumerate(part[:_MOST_SHOWN], 1)]
    return "\n".join([f"The nearest text{hint}:", *body])


def _by_equal_lines(have: list[str], wanted: list[str]) -> int | None:
    """The start at which most lines agree, blanks at their ends apart."""
    places: dict[str, list[int]] = {line.strip(): [] for line in wanted if line.strip()}
    for number, line in enumerate(have):
        found = places.get(line.strip())
        if found is not None and len(found) < _MOST_PLACES:
            found.append(number)
    votes = Counter(
        number - offset
        for offset, line in enumerate(wanted)
        for number in places.get(line.strip(), ())
        if number >= offset
    )
    return votes.most_common(1)[0][0] if votes else None


def _by_similar_line(have: list[str], wanted: list[str]) -> int | None:
    """The start that puts the longest wanted line over the line most like it."""
    offset = max(range(len(wanted)), key=lambda i: len(wanted[i]), default=0)
    longest = wanted[offset].strip()[:_MOST_WIDTH] if wanted else ""
    if not longest:
        return None
    matcher = SequenceMatcher(None, "", longest, autojunk=False)
    best, where, deadline = _ALIKE, None, time.monotonic() + _MOST_SECONDS
    for number, line in enumerate(have):
        if number % 64 == 0 and time.monotonic() > deadline:
            break
        matcher.set_seq1(line.strip()[:_MOST_WIDTH])
        if matcher.real_quick_ratio() <= best or matcher.quick_ratio() <= best:
            continue
        ratio = matcher.ratio()
        if ratio > best:
            best, where = ratio, number
    return None if where is None else max(0, where - offset)

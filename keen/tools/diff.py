"""Unified diffs for people, bounded in time and size."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from keen.core.messages import JsonObject

_MOST_COMPARED: Final = 6_000
"""Differing lines above which no line is matched with another: the comparison is quadratic."""
_MOST_SHOWN: Final = 2_000
_MOST_WIDTH: Final = 2_000
_CONTEXT: Final = 3


@dataclass(frozen=True, slots=True)
class Diff:
    """`text` is a unified diff, shortened when very long; the counts are of the whole."""

    name: str
    is_new: bool
    text: str
    added: int
    removed: int

    def preview(self, path: str) -> JsonObject:
        """What a permission card shows."""
        return {
            "kind": "diff",
            "path": path,
            "name": self.name,
            "is_new": self.is_new,
            "diff": self.text,
            "added": self.added,
            "removed": self.removed,
        }


def unified_diff(name: str, before: str | None, after: str) -> Diff:
    """The change from `before` (None: there was no file) to `after`, line ends LF."""
    old, new = _lines(before or ""), _lines(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(0, head - _CONTEXT)
    old_part = old[start : len(old) - max(0, tail - _CONTEXT)]
    new_part = new[start : len(new) - max(0, tail - _CONTEXT)]
    if max(len(old_part), len(new_part)) > _MOST_COMPARED:
        hunks = _whole(old_part, new_part, start)
    else:
        hunks = _hunks(old_part, new_part, start)
    added = sum(line.startswith("+") for line in hunks)
    removed = sum(line.startswith("-") for line in hunks)
    if len(hunks) > _MOST_SHOWN:
        hunks = [*hunks[:_MOST_SHOWN], f"… {len(hunks) - _MOST_SHOWN:,} more lines\n"]
    heading = [f"--- {'/dev/null' if before is None else name}", f"+++ {name}"]
    text = "\n".join([*heading, *(_marked(line) for line in hunks)]) if hunks else ""
    return Diff(name, before is None, text, added, removed)


def _lines(text: str) -> list[str]:
    """Lines with their ends, so that a missing last one counts as a difference."""
    parts = text.split("\n")
    last = parts.pop()
    lines = [part + "\n" for part in parts]
    return [*lines, last] if last else lines


def _common(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _hunks(old: list[str], new: list[str], start: int) -> list[str]:
    matcher = difflib.SequenceMatcher(None, old, new)
    out: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        out.append(_header(start, first[1], last[2], first[3], last[4]))
        for tag, a, b, c, d in group:
            if tag == "equal":
                out += [" " + line for line in old[a:b]]
            else:
                out += ["-" + line for line in old[a:b]]
                out += ["+" + line for line in new[c:d]]
    return out


def _whole(old: list[str], new: list[str], start: int) -> list[str]:
    header = _header(start, 0, len(old), 0, len(new))
    return [header, *("-" + line for line in old), *("+" + line for line in new)]


def _header(start: int, a: int, b: int, c: int, d: int) -> str:
    return f"@@ -{_range(start + a, b - a)} +{_range(start + c, d - c)} @@\n"


def _range(first: int, length: int) -> str:
    if length == 1:
        return str(first + 1)
    return f"{first + (length > 0)},{length}"


def _marked(line: str) -> str:
    shown = line.removesuffix("\n")
    if len(shown) > _MOST_WIDTH:
        shown = f"{shown[:_MOST_WIDTH]}… {len(shown) - _MOST_WIDTH:,} more characters"
    return shown if line.endswith("\n") else f"{shown}\n\\ No newline at end of file"

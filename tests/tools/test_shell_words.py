"""keen's reading of words against bash's own."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from keen.tools.shell.verdict import verdict

_PIECES = (
    "a", "b1", "'", '"', "\\", " ", "  ", "\t", "\n", ";", "&&", "||", "|", "#", "$", "$x", "`",
    "(", ")", "{", "}", ",", "*", "?", "[", "]", "~", "~/", "!", "=", "-", "--", "%", "^", "+", "@",
    "<", ">", "2>&1", ">/dev/null", "2>/dev/null", " 2>/dev/null", "&", "é", "\u00a0", "\u3000",
    "2", "'x y'", '"x\\"y"', '"\\$z"', "$'q'", "\\\n", "''", '""', "p", "p ", "; p ", "\np ", ":",
    "/", "..", "<<E\n", "E\n", "if", "then", "fi", "case", "in", "esac", "time", "coproc", "[[",
    "]]", "((", "))", "=(", "a=1 ", "a[1]=", "function", "{1..3}",
)  # fmt: skip
_RECORD = 'p() { printf "%s\\0" "$@"; printf "\\1"; }\n'


def _texts(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [
        "p " + "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 9)))
        for _ in range(count)
    ]


def _as_bash_reads(text: str, cwd: Path) -> list[tuple[str, ...]]:
    argv = ["/bin/bash", "--noprofile", "--norc", "-c", _RECORD + text]
    out = subprocess.run(argv, cwd=cwd, capture_output=True, timeout=5, check=False).stdout
    calls = out.decode("utf-8", "surrogateescape").split("\1")[:-1]
    return [("p", *call.split("\0")[:-1]) for call in calls]


def _compare(count: int, seed: int, cwd: Path) -> int:
    """How many texts were plain; each of them must mean to bash what it means to keen."""
    plain = 0
    for text in _texts(count, seed):
        found = verdict(text, cwd, (cwd,))
        is_recordable = all(part[0] == "p" for part in found.parts)
        hides_output = "|" in text or "/dev/null" in text
        if not found.is_plain or not all(found.literal) or not is_recordable or hides_output:
            continue
        plain += 1
        calls = [(part[0], *(part[1:] or ("",))) for part in found.parts]
        assert [("p", *(call[1:] or ("",))) for call in _as_bash_reads(text, cwd)] == calls, text
    return plain


def test_plain_words_are_what_bash_makes_of_them(tmp_path: Path) -> None:
    assert _compare(600, 7, tmp_path.resolve()) > 40


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(8))
def test_plain_words_are_what_bash_makes_of_them_at_length(seed: int, tmp_path: Path) -> None:
    assert _compare(10_000, seed, tmp_path.resolve()) > 600

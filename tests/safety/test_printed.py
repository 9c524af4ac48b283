"""What a model reads of a command's output: text, without what only a terminal obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from keen.sanitize import printed
from keen.tools.bash import Bash
from keen.tools.jobs import Jobs
from tests.tools.calls import call, context_in


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;2;1;2;3mtrue\x1b[m\x1b[K", "true"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x07after", "after"),
        ("\x1bPq#0;2\x1b\\sixel", "sixel"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x9b31mC1\x9b0m", "C1"),
        ("\x1b(Bcharset\x1b=\x1b>\x1b7\x1b8\x1bc", "charset"),
        ("cut off \x1b[3", "cut off "),
        ("alone \x1b", "alone "),
        ("bell\x07", "bell"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("Downloading\rDone\x1b[K\n", "Done\n"),
        ("Downloading\rDone\n", "Doneloading\n"),
        ("50%\r\x1b[2K", ""),
        ("waiting\r", "waiting"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("\b\bx", "x"),
        ("a\r\r\nb", "a\nb"),
        ("é漢 plain\ttext\x00", "é漢 plain\ttext\x00"),
        ("<U+202E> \u202e stays", "<U+202E> \u202e stays"),
    ],
)
def test_terminal_sequences_are_gone_and_text_stays(written: str, read: str) -> None:
    assert printed(written) == read


def test_a_long_progress_bar_is_one_line_soon() -> None:
    bar = "".join(f"\r{'#' * (step % 70):<70} {step}" for step in range(60_000))

    assert printed(bar).strip().endswith("59999")
    assert len(printed(bar)) < 100


async def test_the_result_of_a_command_has_none_and_the_spooled_file_has_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    jobs = Jobs()
    context = context_in(tmp_path / "work")
    command = (
        "printf '\\033[32mok\\033[0m\\n'; for n in {1..20000}; do printf '\\033[1mline\\n'; done"
    )

    found = await call(Bash(jobs), context, command=command)

    assert found.output.startswith("ok\nline\n")
    assert "\x1b" not in found.output
    [kept] = context.scratch.glob("bash-*.txt")
    assert kept.read_bytes().startswith(b"\x1b[32mok\x1b[0m\n")

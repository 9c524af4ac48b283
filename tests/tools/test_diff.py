from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from keen.tools.diff import unified_diff


def test_a_new_file_is_all_additions() -> None:
    diff = unified_diff("a", None, "x\ny\n")

    assert diff.text == "--- /dev/null\n+++ a\n@@ -0,0 +1,2 @@\n+x\n+y"
    assert (diff.added, diff.removed) == (2, 0)


def test_a_missing_last_line_end_is_shown() -> None:
    text = unified_diff("a", "x\n", "x").text

    assert text.endswith("-x\n+x\n\\ No newline at end of file")


def test_equal_texts_have_no_diff() -> None:
    diff = unified_diff("a", "x\n", "x\n")

    assert (diff.text, diff.added, diff.removed) == ("", 0, 0)


def test_a_change_far_down_has_the_right_line_numbers() -> None:
    before = [f"{i}\n" for i in range(1, 1001)]
    after = [*before[:499], "five hundred\n", *before[500:]]

    assert "@@ -497,7 +497,7 @@" in unified_diff("a", "".join(before), "".join(after)).text


def test_two_large_unlike_texts_are_compared_as_wholes() -> None:
    before = "".join(f"a{i}\n" for i in range(100_000))
    after = "".join(f"b{i}\n" for i in range(100_000))

    diff = unified_diff("a", before, after)

    assert (diff.added, diff.removed) == (100_000, 100_000)
    assert diff.text.endswith("more lines")
    assert len(diff.text) < 50_000


@given(
    st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30)
)
def test_the_counts_are_those_of_the_lines(old: list[str], new: list[str]) -> None:
    diff = unified_diff("f", "".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new))

    assert len(new) - len(old) == diff.added - diff.removed


def test_patch_applies_what_the_diff_says(tmp_path: Path) -> None:
    before = "".join(f"line {i}\n" for i in range(200))
    after = before.replace("line 5\n", "").replace("line 100\n", "one\ntwo\n") + "last"
    (tmp_path / "f").write_text(before)

    patch = unified_diff("f", before, after).text + "\n"
    subprocess.run(["git", "apply", "-p0"], input=patch, text=True, cwd=tmp_path, check=True)

    assert (tmp_path / "f").read_text() == after

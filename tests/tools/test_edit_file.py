from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keen.core.errors import ToolError
from keen.core.messages import Json
from keen.tools._text import decode
from keen.tools.edit_file import EditFile
from keen.tools.file_memory import FileMemory
from keen.tools.read_file import ReadFile
from keen.tools.write_file import WriteFile
from tests.tools.calls import call, context_in


async def edit(directory: Path, *edits: tuple[str, str], path: str = "f", all: bool = False) -> str:
    sent: list[Json] = [{"old": old, "new": new, "all": all} for old, new in edits]
    return (await call(EditFile(FileMemory()), context_in(directory), path=path, edits=sent)).output


async def test_edits_apply_in_order_and_report_the_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\n")

    said = await edit(tmp_path, ("b\n", "B\nB2\n"), ("B2", "b2"))

    assert (tmp_path / "f").read_text() == "a\nB\nb2\nc\n"
    assert said == "Edited f: 2 edits, +2 -1 lines."


async def test_one_wrong_edit_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")

    with pytest.raises(ToolError, match=r"f is unchanged\. edit 2 of 2: old does not occur"):
        await edit(tmp_path, ("a", "A"), ("zzz", "y"))

    assert (tmp_path / "f").read_text() == "a\nb\n"


async def test_a_text_that_occurs_often_is_counted_and_located(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\ny\nx\nx\n")

    with pytest.raises(ToolError, match=r"occurs 3 times \(lines 1, 3, 4\)"):
        await edit(tmp_path, ("x", "z"))
    await edit(tmp_path, ("x", "z"), all=True)

    assert (tmp_path / "f").read_text() == "z\ny\nz\nz\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("def alpha(a,  b):\n    return a + b\n", "(only blanks differ):\n2\tdef alpha(a, b):"),
        ("def alpha(a, b):\n    return a - b\n", "The nearest text:\n2\tdef alpha(a, b):\n3\t"),
        ("def alhpa(a, b)", "The nearest text:\n2\tdef alpha(a, b):"),
        ("2\tdef alpha(a, b):\n3\t    return a + b", "without the line numbers"),
        ("# end\n", "ends without a line end"),
        ("something else entirely, quite long", "Nothing in it is similar"),
    ],
)
async def test_an_error_shows_the_nearest_text(old: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("import x\ndef alpha(a, b):\n    return a + b\n# end")

    with pytest.raises(ToolError) as caught:
        await edit(tmp_path, (old, "new"))

    assert said in str(caught.value)


async def test_the_nearest_text_of_a_huge_file_is_found_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"value_{i} = {i * 7919}\n" for i in range(600_000)))

    with pytest.raises(ToolError, match="does not occur"):
        await edit(tmp_path, ("valeu_17 := 12\nvalue_99999 = 0", "x"))


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
async def test_line_ends_are_matched_as_lf_and_kept(end: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(end.join(["a", "b", "c", ""]).encode())

    await edit(tmp_path, ("a\nb", "a\nx\r\ny\nb"))

    assert (tmp_path / "f").read_bytes() == end.join(["a", "x", "y", "b", "c", ""]).encode()


async def test_mixed_line_ends_stay_on_every_untouched_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\nb\nc\rd\r\ne\n")

    await edit(tmp_path, ("a\nb\nc\nd", "a\nb\nX\nY\nc\nd"))

    assert (tmp_path / "f").read_bytes() == b"a\r\nb\nX\rY\rc\rd\r\ne\n"


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfone\ntwo",
        "größe: one “x” two\n".encode("cp1252"),
        b"\x81\x8d one \xff\xfe two \r\n",
        "one\r\nzwei two\r\n".encode("utf-16"),
        "\ufeffone two".encode("utf-16-be"),
        "one two\n".encode("utf-32"),
        "one\u2028\x85\x1c two é \U0001f600".encode(),
        b"one\rtwo\r\nthree\nfour",
    ],
)
async def test_bytes_outside_the_edit_are_identical(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)

    await edit(tmp_path, ("one", "1"), ("two", "2"))
    await edit(tmp_path, ("1", "one"), ("2", "two"))

    after = (tmp_path / "f").read_bytes()
    assert hashlib.sha256(after).digest() == hashlib.sha256(content).digest()


async def test_a_character_the_encoding_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("größe\n".encode("latin-1"))

    with pytest.raises(ToolError, match=r"Windows-1252, which has no '→'"):
        await edit(tmp_path, ("e\n", "→\n"))

    assert (tmp_path / "f").read_bytes() == "größe\n".encode("latin-1")


@given(st.binary(max_size=60))
def test_any_text_file_survives_decoding_and_encoding(content: bytes) -> None:
    decoded = decode(content)

    assert decoded is None or decoded.encoded() == content


@given(
    st.lists(st.sampled_from(["a", "b", "\r\n", "\r", "\n", "é"]), max_size=30),
    st.integers(0, 30),
    st.integers(0, 5),
    st.text(alphabet="ab\n", max_size=4),
)
def test_a_splice_changes_only_what_it_replaces(
    parts: list[str], start: int, length: int, new: str
) -> None:
    content = "".join(parts).encode()
    decoded = decode(content)
    assert decoded is not None
    start = min(start, len(decoded.text))
    length = min(length, len(decoded.text) - start)

    after = decoded.spliced([start], length, new)
    head = decoded.spliced([start], len(decoded.text) - start, "").encoded()
    tail = decoded.spliced([0], start + length, "").encoded()

    assert after.text == decoded.text[:start] + new + decoded.text[start + length :]
    assert after.encoded().startswith(head)
    assert after.encoded().endswith(tail)
    assert content.startswith(head)
    assert content.endswith(tail)


async def test_many_replacements_in_a_large_mixed_file_are_quick(tmp_path: Path) -> None:
    content = b"item\r\nother\n" * 300_000
    (tmp_path / "f").write_bytes(content)

    await edit(tmp_path, ("item", "thing"), all=True)

    assert (tmp_path / "f").read_bytes() == content.replace(b"item", b"thing")


async def test_mode_is_kept_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    (tmp_path / "f").chmod(0o755)

    await edit(tmp_path, ("a", "b"))

    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["f"]


async def test_files_that_cannot_be_edited_say_why(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\0\1\2")
    (tmp_path / "empty").write_text("")
    (tmp_path / "big").write_bytes(b"x" * (25 * 1024 * 1024 + 1))

    for path, said in {
        "none": "does not exist. Use write_file",
        "bin": "is binary",
        "empty": "does not occur",
        "big": "up to 25 MB",
        ".": "directory",
    }.items():
        with pytest.raises(ToolError, match=said):
            await edit(tmp_path, ("a", "b"), path=path)
    with pytest.raises(ToolError, match="the same text"):
        await edit(tmp_path, ("a\r\n", "a\n"), path="empty")


async def test_a_file_of_25_megabytes_is_edited(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (25 * 1024 * 1024 - 4) + b"\nend")

    await edit(tmp_path, ("end", "END"))

    assert (tmp_path / "f").read_bytes().endswith(b"x\nEND")


async def test_an_edit_of_a_file_changed_since_the_preview_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    tool = EditFile(FileMemory())
    change = tool.prepare({"path": "f", "edits": [{"old": "a", "new": "A"}]}, context_in(tmp_path))
    preview = await change.preview()
    (tmp_path / "f").write_text("a\nb\nc\n")

    with pytest.raises(ToolError, match="being approved"):
        await change.run()

    assert isinstance(preview, dict)
    assert preview["diff"] == "--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+A\n b"
    assert (tmp_path / "f").read_text() == "a\nb\nc\n"


async def test_an_edit_beside_someone_elses_change_keeps_it_and_says_so(tmp_path: Path) -> None:
    memory, context = FileMemory(), context_in(tmp_path)
    (tmp_path / "f").write_text("a\nb\n")
    await call(ReadFile(memory), context, path="f")
    (tmp_path / "f").write_text("a\nb\nyours\n")

    outcome = await call(EditFile(memory), context, path="f", edits=[{"old": "a", "new": "A"}])

    assert (tmp_path / "f").read_text() == "A\nb\nyours\n"
    assert "It had changed since you last read it." in outcome.output
    with pytest.raises(ToolError, match="changed since you last read it"):
        await call(WriteFile(memory), context, path="f", content="mine")

from __future__ import annotations

import os
import socket
import struct
import zlib
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.tools.file_memory import FileMemory
from keen.tools.guard import shown
from keen.tools.read_file import ReadFile
from tests.tools.calls import call, context_in, output

READ = ReadFile(FileMemory())


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(bytes(height * (width + 1))))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x0b\x08\x00\x07\x00\x09" + bytes(20)
GIF = b"GIF89a" + struct.pack("<HH", 9, 7) + bytes(20)
WEBP_LOSSY = b"RIFF....WEBPVP8 " + bytes(10) + struct.pack("<HH", 9, 7) + bytes(4)
WEBP_LOSSLESS = b"RIFF....WEBPVP8L" + bytes(5) + struct.pack("<I", 8 | 6 << 14) + bytes(4)
WEBP_EXTENDED = b"RIFF....WEBPVP8X" + bytes(8) + b"\x08\0\0\x06\0\0" + bytes(4)


async def test_lines_come_numbered_and_a_short_file_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\nfour")

    assert await output(READ, context_in(tmp_path), path="a.txt") == "1\tone\n2\ttwo\n3\t\n4\tfour"


async def test_a_part_says_which_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {i}\n" for i in range(1, 101)))

    text = await output(READ, context_in(tmp_path), path="a", offset=41, limit=2)

    assert text == "[lines 41-42 of 100; go on with offset=43]\n41\tline 41\n42\tline 42"


async def test_following_the_offsets_reads_every_line_once(tmp_path: Path) -> None:
    lines = [f"{i} " + "é" * (i % 700) for i in range(1, 3000)]
    (tmp_path / "a").write_text("\n".join(lines))
    seen: list[str] = []

    offset = 1
    while True:
        text = await output(READ, context_in(tmp_path), path="a", offset=offset)
        assert len(text.encode()) < 64 * 1024
        header, *body = text.split("\n")
        seen += [line.partition("\t")[2] for line in body]
        if "offset=" not in header:
            break
        offset = int(header.rpartition("offset=")[2].rstrip("]"))

    assert seen == lines


async def test_a_long_line_is_cut_and_alone_shown_further(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 50_000 + "\nshort\n")

    text = await output(READ, context_in(tmp_path), path="a")
    alone = await output(READ, context_in(tmp_path), path="a", limit=1)

    assert "[48,000 more characters in this line]\n2\tshort" in text
    assert len(alone) > 15_000


async def test_an_offset_behind_the_end_says_how_long_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")

    with pytest.raises(ToolError, match="has 2 lines"):
        await call(READ, context_in(tmp_path), path="a", offset=3)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\r\nb\r\n", "[CRLF line ends]\n1\ta\n2\tb"),
        (b"a\rb\r", "[CR line ends]\n1\ta\n2\tb"),
        (b"a\r\nb\n", "[mixed line ends]\n1\ta\n2\tb"),
        (b"\xef\xbb\xbfa\n", "1\ta"),
        ("grüße\n".encode("utf-16"), "[UTF-16-LE]\n1\tgrüße"),
        ("x\n".encode("utf-32"), "[UTF-32-LE]\n1\tx"),
        ("grüße “x”\n".encode("cp1252"), "[Windows-1252]\n1\tgrüße “x”"),
        (b"gr\xfc\x81\n", "[Latin-1]\n1\tgr\xfc\x81"),
        ("a\u2028b\x0cc\n".encode(), "1\ta\u2028b\x0cc"),
        (b"\n", "1\t"),
        (b"", "[a is empty]"),
    ],
)
async def test_encodings_and_line_ends_are_named(
    content: bytes, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(content)

    assert await output(READ, context_in(tmp_path), path="a") == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\x01\0\0", "ELF program or library, 9 bytes"),
        (b"\0" * 100, "only NUL bytes"),
        (bytes(range(1, 256)) * 4, "unknown type"),
        (b"\x89PNG\r\n\x1a\n\0\0", "damaged PNG"),
        (b"\xff\xfe\0", "unknown type"),
    ],
)
async def test_binary_is_said_to_be_binary(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)

    text = await output(READ, context_in(tmp_path), path="a")

    assert "binary" in text
    assert said in text


@pytest.mark.parametrize(
    ("content", "media_type", "size"),
    [
        (png(9, 7), "image/png", (9, 7)),
        (JPEG, "image/jpeg", (9, 7)),
        (GIF, "image/gif", (9, 7)),
        (WEBP_LOSSY, "image/webp", (9, 7)),
        (WEBP_LOSSLESS, "image/webp", (9, 7)),
        (WEBP_EXTENDED, "image/webp", (9, 7)),
    ],
)
async def test_a_picture_is_returned_with_its_size(
    content: bytes, media_type: str, size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(content)

    (image,) = (await call(READ, context_in(tmp_path), path="a.txt")).images

    assert (image.media_type, image.data) == (media_type, content)
    assert (image.width, image.height) == size


async def test_a_picture_cut_anywhere_in_its_header_does_no_harm(tmp_path: Path) -> None:
    for content in (png(9, 7), JPEG, GIF, WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED):
        for length in range(1, 30):
            (tmp_path / "a").write_bytes(content[:length])
            assert (await call(READ, context_in(tmp_path), path="a")).output


async def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path may have 108 bytes at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("pipe", "socket", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/sys"):
            with pytest.raises(ToolError, match=r"only regular files|nothing inside"):
                await call(READ, context_in(tmp_path), path=path)


async def test_a_file_of_one_terabyte_of_nothing_answers_at_once(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    text = await output(READ, context_in(tmp_path), path="sparse")

    assert text == "[binary: only NUL bytes as far as read, 1,099,511,627,776 bytes]"


async def test_a_late_line_of_a_large_file_is_found(tmp_path: Path) -> None:
    with (tmp_path / "big.log").open("w") as file:
        for start in range(0, 1_200_000, 10_000):
            file.write("".join(f"entry number {i:09d}\n" for i in range(start, start + 10_000)))

    text = await output(READ, context_in(tmp_path), path="big.log", offset=1_000_001, limit=1)
    behind = READ.prepare({"path": "big.log", "offset": 1_200_001}, context_in(tmp_path))

    assert text.endswith("1000001\tentry number 001000000")
    assert "go on with offset=1000002" in text
    with pytest.raises(ToolError, match="behind the end"):
        await behind.run()


async def test_a_large_file_of_one_line_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (26 * 1024 * 1024))

    assert len(await output(READ, context_in(tmp_path), path="big")) < 64 * 1024


async def test_a_missing_file_is_answered_with_similar_names(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("")

    with pytest.raises(ToolError, match=r"Similar names: settings\.py"):
        await call(READ, context_in(tmp_path), path="setings.py")
    with pytest.raises(ToolError, match="nor does its directory"):
        await call(READ, context_in(tmp_path), path="none/of/it.py")


async def test_a_directory_is_answered_with_its_entries(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b\nname").write_text("")

    lines = (await output(READ, context_in(tmp_path), path=".")).split("\n")

    assert lines[1:] == [r"b\nname", "sub/"]


@pytest.mark.parametrize("raw", [b"new\nline", b"esc\x1b[31m", b"bad\xff", b"n" * 255])
async def test_names_of_any_kind_can_be_read(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(raw)
    path.write_text("content")

    name = shown(path, context_in(tmp_path))

    assert await output(READ, context_in(tmp_path), path=name) == "1\tcontent"


async def test_a_directory_swapped_for_a_link_after_the_judgement_is_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "ws/sub").mkdir(parents=True)
    (tmp_path / "ws/sub/a").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a").write_text("secret")
    prepared = READ.prepare({"path": "sub/a"}, context_in(tmp_path / "ws"))

    (tmp_path / "ws/sub").rename(tmp_path / "ws/moved")
    (tmp_path / "ws/sub").symlink_to(tmp_path / "other")

    with pytest.raises(ToolError, match="replaced by a link"):
        await prepared.run()


def test_a_description_is_short() -> None:
    assert len(READ.spec.description) < 200

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.tools.base import PreparedCall
from keen.tools.file_memory import FileMemory
from keen.tools.read_file import ReadFile
from keen.tools.write_file import WriteFile
from tests.tools.calls import call, context_in, output


def prepared(directory: Path, path: str, content: str) -> PreparedCall:
    tool = WriteFile(FileMemory())
    return tool.prepare({"path": path, "content": content}, context_in(directory))


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob(".keen-*")]


async def test_a_new_file_gets_its_parents_and_the_mode_of_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        said = await prepared(tmp_path, "a/b/c.txt", "one\ntwo\n").run()
    finally:
        os.umask(old)

    assert said.output == "Created a/b/c.txt: 2 lines, 8 bytes."
    assert (tmp_path / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o750


async def test_an_old_file_keeps_mode_owner_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()
    if sys.platform == "linux":
        os.setxattr(path, "user.note", b"kept")

    await prepared(tmp_path, "run.sh", "new").run()

    after = path.stat()
    assert path.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    if sys.platform == "linux":
        assert os.getxattr(path, "user.note") == b"kept"
    assert leftovers(tmp_path) == []


async def test_a_link_is_kept_and_its_target_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")

    await prepared(tmp_path, "link", "new").run()

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


async def test_the_other_names_of_a_hard_link_keep_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    os.link(tmp_path / "one", tmp_path / "two")

    said = await prepared(tmp_path, "one", "new").run()

    assert (tmp_path / "two").read_text() == "old"
    assert "the other names keep the old content" in said.output


async def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o444)

    with pytest.raises(ToolError, match=r"read-only \(mode 0444\)"):
        await prepared(tmp_path, "a", "new").run()

    assert (tmp_path / "a").read_text() == "old"


async def test_a_file_changed_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    memory = FileMemory()
    context = context_in(tmp_path)
    (tmp_path / "a").write_text("first")
    await call(ReadFile(memory), context, path="a")
    (tmp_path / "a").write_text("yours")

    with pytest.raises(ToolError, match="changed since you last read it"):
        await call(WriteFile(memory), context, path="a", content="mine")

    assert (tmp_path / "a").read_text() == "yours"
    await call(ReadFile(memory), context, path="a")
    assert "Replaced" in await output(WriteFile(memory), context, path="a", content="mine")
    assert "Replaced" in await output(WriteFile(memory), context, path="a", content="again")


async def test_a_file_that_was_only_touched_is_written(tmp_path: Path) -> None:
    memory = FileMemory()
    (tmp_path / "a").write_text("first")
    await call(ReadFile(memory), context_in(tmp_path), path="a")
    os.utime(tmp_path / "a", (1, 1))

    await call(WriteFile(memory), context_in(tmp_path), path="a", content="mine")

    assert (tmp_path / "a").read_text() == "mine"


async def test_what_a_person_was_shown_is_what_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("shown\n")
    change = prepared(tmp_path, "a", "new\n")
    preview = await change.preview()
    (tmp_path / "a").write_text("other\n")

    with pytest.raises(ToolError, match="changed while the change was being approved"):
        await change.run()

    assert (tmp_path / "a").read_text() == "other\n"
    assert preview == {
        "kind": "diff",
        "path": str(tmp_path / "a"),
        "name": "a",
        "is_new": False,
        "diff": "--- a\n+++ a\n@@ -1 +1 @@\n-shown\n+new",
        "added": 1,
        "removed": 1,
    }


async def test_a_file_that_appears_after_the_preview_is_not_overwritten(tmp_path: Path) -> None:
    change = prepared(tmp_path, "a", "new\n")
    await change.preview()
    (tmp_path / "a").write_text("appeared")

    with pytest.raises(ToolError, match="being approved"):
        await change.run()

    assert (tmp_path / "a").read_text() == "appeared"


@pytest.mark.parametrize("swap", ["parent", "grandparent", "file", "missing parent"])
async def test_nothing_is_written_through_a_link_put_there_after_the_judgement(
    swap: str, tmp_path: Path
) -> None:
    (tmp_path / "ws/a/b").mkdir(parents=True)
    (tmp_path / "ws/a/b/f").write_text("mine")
    (tmp_path / "other/b/new").mkdir(parents=True)
    (tmp_path / "other/b/f").write_text("outside")
    (tmp_path / "other/f").write_text("outside")
    target = "a/b/new/f" if swap == "missing parent" else "a/b/f"
    change = prepared(tmp_path / "ws", target, "new")
    await change.preview()

    match swap:
        case "parent":
            (tmp_path / "ws/a/b").rename(tmp_path / "ws/moved")
            (tmp_path / "ws/a/b").symlink_to(tmp_path / "other")
        case "grandparent":
            (tmp_path / "ws/a").rename(tmp_path / "ws/moved")
            (tmp_path / "ws/a").symlink_to(tmp_path / "other")
        case "file":
            (tmp_path / "ws/a/b/f").unlink()
            (tmp_path / "ws/a/b/f").symlink_to(tmp_path / "other/f")
        case _:
            (tmp_path / "ws/a/b/new").symlink_to(tmp_path / "other/b/new")

    with pytest.raises(ToolError):
        await change.run()

    assert (tmp_path / "other/f").read_text() == "outside"
    assert (tmp_path / "other/b/f").read_text() == "outside"
    assert list((tmp_path / "other/b/new").iterdir()) == []
    assert leftovers(tmp_path) == []


async def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()

    for path in ("pipe", "dir", ".", "/dev/null", "/proc/self/comm", "/sys/x", "/dev/shm"):
        with pytest.raises(ToolError):
            await prepared(tmp_path, path, "x").run()

    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


async def test_names_at_the_limit_can_be_written(tmp_path: Path) -> None:
    await prepared(tmp_path, "n" * 255, "x").run()

    assert (tmp_path / ("n" * 255)).read_text() == "x"
    with pytest.raises(ToolError, match=r"name is too long|File name too long"):
        await prepared(tmp_path, "n" * 256, "x").run()


async def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("same")
    inode = (tmp_path / "a").stat().st_ino

    said = await prepared(tmp_path, "a", "same").run()

    assert "already has exactly this content" in said.output
    assert (tmp_path / "a").stat().st_ino == inode


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from keen.core.errors import ToolError
from keen.tools.file_memory import FileMemory
from keen.tools.write_file import WriteFile
from tests.tools.calls import call, context_in
directory = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    asyncio.run(call(WriteFile(FileMemory()), context_in(directory), path="a", content="x" * 5000))
except ToolError as error:
    print(error)
"""


def test_a_write_that_does_not_fit_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert "nothing was changed" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.fixture
def small_disk(tmp_path: Path):
    where = tmp_path / "disk"
    where.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(where)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no right to mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


async def test_a_full_disk_leaves_the_old_file(small_disk: Path) -> None:
    (small_disk / "a").write_text("old" * 10_000)

    with pytest.raises(ToolError, match="disk is full; nothing was changed"):
        await prepared(small_disk, "a", "x" * 60_000).run()

    assert (small_disk / "a").read_text() == "old" * 10_000
    assert leftovers(small_disk) == []


@pytest.fixture
def mounted_file(small_disk: Path):
    (small_disk / "real").write_text("old")
    (small_disk / "mounted").write_text("")
    where = small_disk / "mounted"
    subprocess.run(["mount", "--bind", str(small_disk / "real"), str(where)], check=True)
    yield where
    subprocess.run(["umount", str(where)], check=True)


async def test_a_mounted_file_is_rewritten_in_place_or_kept(mounted_file: Path) -> None:
    directory, real = mounted_file.parent, mounted_file.with_name("real")

    await prepared(directory, "mounted", "new").run()
    assert real.read_text() == "new"

    with pytest.raises(ToolError, match="disk is full"):
        await prepared(directory, "mounted", "x" * 100_000).run()
    assert real.read_text() == "new"


async def test_a_file_in_a_directory_one_may_not_write_is_rewritten_in_place(
    tmp_path: Path,
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the mounted file covers the same path")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("old and longer")
    (tmp_path / "d").chmod(0o555)
    try:
        await prepared(tmp_path, "d/a", "new").run()
        with pytest.raises(ToolError, match="permission denied"):
            await prepared(tmp_path, "d/b", "new").run()
    finally:
        (tmp_path / "d").chmod(0o755)

    assert (tmp_path / "d/a").read_text() == "new"

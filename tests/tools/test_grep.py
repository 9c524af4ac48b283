from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.core.messages import Json
from keen.tools import grep as grep_module
from keen.tools._search import ripgrep
from keen.tools.grep import Grep
from tests.tools.calls import call, context_in, output

RIPGREP = shutil.which("rg")


@pytest.fixture(params=["python", "ripgrep"], autouse=True)
def engine(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """Every test with both engines, chosen as users choose them: by PATH."""
    if request.param == "ripgrep" and RIPGREP is None:
        pytest.skip("ripgrep is not installed")
    tools = tmp_path_factory.mktemp("bin")
    if request.param == "ripgrep":
        (tools / "rg").symlink_to(str(RIPGREP))
    monkeypatch.setenv("PATH", str(tools))
    return request.param


def tree(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


async def grep(root: Path, pattern: str, **more: Json) -> list[str]:
    return (await output(Grep(), context_in(root), pattern=pattern, **more)).split("\n")


async def test_lines_are_found_in_the_order_of_paths(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"b.py": "x = 1\ny = 2\nx = 3\n", "a/z.py": "x\n", "a.py": "x", "a-b/q": "x", "A": "x"},
    )

    assert await grep(tmp_path, "^x") == [
        "A:1:x",
        "a/z.py:1:x",
        "a-b/q:1:x",
        "a.py:1:x",
        "b.py:1:x = 1",
        "b.py:3:x = 3",
    ]


async def test_files_and_counts(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "x\nx\n", "b": "x\n", "c": "y\n"})

    assert await grep(tmp_path, "x", mode="files") == ["a", "b"]
    assert await grep(tmp_path, "x", mode="count") == ["a:2", "b:1"]
    assert await grep(tmp_path, "nothing") == ["No match for nothing in ."]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("src/*.{py,js}", ["src/b.py", "src/c.js"]),
        ("**/c.*", ["src/c.js"]),
        ("!a.py", []),
        ("[", []),
    ],
)
async def test_include_narrows_and_never_brings_ignored_files_back(
    include: str, expected: list[str], tmp_path: Path
) -> None:
    names = ("a.py", "src/b.py", "src/c.js", "src/ignored.py", "build/d.py")
    tree(tmp_path, dict.fromkeys(names, "x"))
    (tmp_path / ".gitignore").write_text("ignored.py\nbuild/\n")

    lines = await grep(tmp_path, "x", include=include, mode="files")

    assert [line for line in lines if not line.startswith("No match")] == expected


async def test_what_git_ignores_and_git_itself_is_left_out(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            ".git/config": "x",
            ".github/ci.yml": "x",
            "log/a.log": "x",
            "sub/keep.log": "x",
            "sub/tmp": "x",
            ".gitignore": "*.log",
            "sub/.gitignore": "!keep.log",
            "sub/.ignore": "tmp",
        },
    )

    assert await grep(tmp_path, "^x$", mode="files") == [".github/ci.yml", "sub/keep.log"]
    assert await grep(tmp_path, "x", path="sub", mode="files") == ["sub/keep.log"]


async def test_a_named_directory_or_file_is_searched_though_ignored(tmp_path: Path) -> None:
    tree(tmp_path, {"build/a.js": "x", ".gitignore": "build/\n", ".git/HEAD": ""})

    assert await grep(tmp_path, "x", path="build") == ["build/a.js:1:x"]
    assert await grep(tmp_path, "x", path="build/a.js") == ["build/a.js:1:x"]


async def test_secrets_are_left_out_unless_named(tmp_path: Path) -> None:
    tree(tmp_path, {".env": "KEY=1", "app/.env.local": "KEY=2", "a": "KEY", "b": "no"})

    assert await grep(tmp_path, "KEY") == [
        "a:1:KEY",
        "[2 files with secrets left out; name one as path to search it]",
    ]
    assert await grep(tmp_path, "KEY", path=".env") == [".env:1:KEY=1"]


async def test_binary_files_are_skipped_and_odd_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"needle\n" + bytes(100) + b"needle\n")
    (tmp_path / "b.bin").write_bytes(bytes(100) + b"needle\n")
    (tmp_path / "c16").write_bytes("\ufeffneedle ü\n".encode("utf-16-le"))
    (tmp_path / "crlf").write_bytes(b"one needle\r\ntwo\r\n")
    (tmp_path / "latin").write_bytes(b"needle \xfc\n")

    lines = await grep(tmp_path, "needle")

    assert [line for line in lines if ".bin" not in line] == [
        "c16:1:needle ü",
        "crlf:1:one needle",
        "latin:1:needle �",
    ]
    assert not any(line.startswith("b.bin") for line in lines)


async def test_long_lines_are_cut(tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("needle" + "x" * 3_000_000 + "\nneedle\n")

    first, second = await grep(tmp_path, "needle")

    assert first == "min.js:1:needle" + "x" * 394 + "…"
    assert second == "min.js:2:needle"


async def test_more_than_is_shown_is_counted(tmp_path: Path) -> None:
    tree(tmp_path, {f"{i:02d}": "x\n" * 100 for i in range(10)})

    lines = await grep(tmp_path, "x")

    assert len(lines) == 201
    assert lines[-1] == "[800 more matching lines, 10 files in all; narrow the search]"


async def test_a_result_is_bounded_in_bytes(tmp_path: Path) -> None:
    tree(tmp_path, {"a": ("x" + "é" * 399 + "\n") * 200})

    text = "\n".join(await grep(tmp_path, "x"))

    assert len(text.encode()) < 64 * 1024
    assert "more matching lines" in text


async def test_a_pattern_only_python_knows_works_with_both(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "foobar\nfoobaz\n"})

    assert await grep(tmp_path, "foo(?!bar)") == ["a:2:foobaz"]


@pytest.mark.parametrize("pattern", ["(", "[a", "*x", "a{2,1}", "(?P<n>"])
async def test_a_wrong_pattern_is_explained(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"no valid regular expression: .*Escape"):
        await grep(tmp_path, pattern)


@pytest.mark.parametrize("pattern", ["-x", "--files", "-", "@a", "a\\0b"])
async def test_a_pattern_is_never_an_option(pattern: str, tmp_path: Path) -> None:
    tree(tmp_path, {"a": f"{pattern}\n", "-f": "--files -x\n"})

    lines = await grep(tmp_path, pattern)

    assert lines[0].startswith(("-f:", "a:", "No match"))


async def test_names_of_any_kind_are_told_apart(tmp_path: Path) -> None:
    for raw in (b"a\nb", b"c:12:d", b"bad\xff", b"esc\x1b"):
        (tmp_path / os.fsdecode(raw)).write_text("needle\n")

    assert await grep(tmp_path, "needle") == [
        r"a\nb:1:needle",
        r"bad\xff:1:needle",
        "c:12:d:1:needle",
        r"esc\x1b:1:needle",
    ]


async def test_pipes_devices_and_loops_do_not_hold_a_search_up(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "needle"})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "zero").symlink_to("/dev/zero")

    assert await grep(tmp_path, "needle") == ["a:1:needle"]
    for path in ("pipe", "/dev/zero", "/proc", "none"):
        with pytest.raises(ToolError):
            await grep(tmp_path, "x", path=path)


async def test_what_is_behind_a_link_is_not_found_through_it(tmp_path: Path) -> None:
    root = tmp_path / "work"
    tree(tmp_path, {"id_rsa": "needle outside", "work/a": "needle", "work/sub/.env": "needle=1"})
    (root / "notes.txt").symlink_to(tmp_path / "id_rsa")
    (root / "settings").symlink_to("sub/.env")
    (root / "copy").symlink_to("a")

    found = await grep(root, "needle")

    assert found[0] == "a:1:needle"
    assert not any("outside" in line or "=1" in line for line in found)


async def test_settings_of_ripgreps_own_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rc").write_text("--files-without-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    tree(tmp_path, {"a": "needle"})

    assert await grep(tmp_path, "needle") == ["a:1:needle"]


def test_a_program_of_the_workspaces_is_never_taken_for_ripgrep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/link").symlink_to("..")

    for entry in (str(tmp_path), str(tmp_path / "elsewhere/link"), ".", ""):
        monkeypatch.setenv("PATH", entry)
        assert ripgrep((tmp_path,)) is None


async def test_a_pattern_that_explodes_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "MOST_SECONDS", 1.0)
    tree(tmp_path, {"a": "aab\n", "b": "a" * 60 + "c\n"})

    lines = await grep(tmp_path, "(?=x?)(a|a)+b$")  # the lookahead leaves it to Python

    assert lines[0] == "a:1:aab"
    assert "stopped after 1 s, after the matches in" in lines[1]
    assert _children() == []


async def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "aab\n", "b": "a" * 60 + "c\n"})
    running = asyncio.Event()

    def is_left_out(_path: Path) -> bool:
        running.set()  # asked about the first hit, while the second file holds the process up
        return False

    tool = Grep(is_left_out)
    task = asyncio.create_task(call(tool, context_in(tmp_path), pattern="(?=x?)(a|a)+b$"))
    await running.wait()
    assert len(_children()) == 1

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert _children() == []


def _children() -> list[str]:
    """Command lines of this process's own search processes."""
    done = subprocess.run(
        ["/bin/ps", "-A", "-ww", "-o", "ppid=,command="], capture_output=True, text=True, check=True
    )
    lines = [line.split(None, 1) for line in done.stdout.splitlines()]
    mine = [line[1] for line in lines if line[0] == str(os.getpid())]
    return [command for command in mine if "_grep_worker" in command or "--null" in command]

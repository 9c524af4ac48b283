from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.tools._ignore import matcher
from keen.tools.glob import Glob
from tests.tools.calls import call, context_in, output


def tree(root: Path, *names: str) -> None:
    for age, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
        os.utime(root / name, (1_000_000 - age, 1_000_000 - age))


async def found(root: Path, pattern: str, path: str = ".") -> list[str]:
    text = await output(Glob(), context_in(root), pattern=pattern, path=path)
    return text.split("\n")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("*.py", "a.pyc", False),
        ("./*.py", "a.py", True),
        ("./*.py", "x/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/*.py", "lib/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("src/**", "src/x/y", True),
        ("**/test_*.py", "test_a.py", True),
        ("**/x/**", "a/x/b/c", True),
        ("*.{ts,tsx}", "x/a.tsx", True),
        ("{a,b/{c,d}}.py", "b/d.py", True),
        ("[ab]?.txt", "bx.txt", True),
        ("[!ab]?.txt", "bx.txt", False),
        ("[]].txt", "].txt", True),
        (r"\*.txt", "a.txt", False),
        (r"\*.txt", "*.txt", True),
        ("[", "[", True),
        ("a[", "a[", True),
        ("{a", "{a", True),
        ("!x", "!x", True),
        ("#x", "#x", True),
        ("a+b(c).py", "a+b(c).py", True),
        ("*", "new\nline", True),
    ],
)
def test_patterns_mean_what_models_expect(pattern: str, path: str, matches: bool) -> None:
    assert matcher(pattern)(path) is matches


def test_a_pattern_of_countless_alternatives_is_refused() -> None:
    with pytest.raises(ToolError, match="too many alternatives"):
        matcher("{a,b}" * 20)


@pytest.mark.parametrize(
    "pattern",
    ["[z-a]", "[" * 900, "*" * 900 + "b", "*a" * 400 + "b", "**/a/" * 199 + "b", "[^", "\\"],
)
def test_hostile_patterns_answer_at_once(pattern: str) -> None:
    for path in ("a" * 250, "a/" * 1_000 + "a", "[" * 250):
        matcher(pattern)(path)


async def test_the_newest_come_first_and_ignored_ones_not_at_all(tmp_path: Path) -> None:
    names = ("new.py", "src/mid.py", "build/gen.py", ".git/x.py", ".hidden/h.py", "old.py")
    tree(tmp_path, *names)
    (tmp_path / ".gitignore").write_text("build/\n")

    assert await found(tmp_path, "*.py") == ["new.py", "src/mid.py", ".hidden/h.py", "old.py"]


async def test_ignore_rules_nest_and_can_be_taken_back(tmp_path: Path) -> None:
    tree(tmp_path, "a.log", "keep.log", "sub/a.log", "sub/b.txt", "sub/c.txt", "other/b.txt")
    (tmp_path / ".git/info").mkdir(parents=True)
    (tmp_path / ".git/info/exclude").write_text("c.txt\n")
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n")
    (tmp_path / "sub/.gitignore").write_text("/b.txt\n!a.log\n")

    assert await found(tmp_path, "**/*.{log,txt}") == ["keep.log", "sub/a.log", "other/b.txt"]
    assert await found(tmp_path, "*.txt", path="other") == ["other/b.txt"]


async def test_rules_above_the_searched_directory_hold(tmp_path: Path) -> None:
    tree(tmp_path, "sub/deep/a.log", "sub/deep/a.txt")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")

    assert await found(tmp_path, "*", path="sub/deep") == ["sub/deep/a.txt"]


async def test_an_ignored_directory_that_is_named_is_searched(tmp_path: Path) -> None:
    tree(tmp_path, "build/out/a.js")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n")

    assert await found(tmp_path, "*.js", path="build/out") == ["build/out/a.js"]


async def test_broken_rules_and_rules_that_are_no_file_do_no_harm(tmp_path: Path) -> None:
    tree(tmp_path, "a.py", "b.log", "sub/c.py")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\n!\n[\n*.log\n")
    os.mkfifo(tmp_path / "sub/.ignore")

    assert await found(tmp_path, "{*.py,*.log}") == ["a.py", "sub/c.py"]


async def test_loops_of_links_end(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "link.py").symlink_to("a.py")

    assert sorted(await found(tmp_path, "*.py")) == ["a.py", "link.py"]


async def test_a_long_list_says_how_many_are_missing(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{i:03d}.py" for i in range(250)))

    lines = await found(tmp_path, "*.py")

    assert (len(lines), lines[0]) == (201, "000.py")
    assert lines[-1] == "[50 more, changed earlier; narrow the pattern]"


async def test_absolute_patterns_and_parents_are_judged_where_they_start(tmp_path: Path) -> None:
    tree(tmp_path, "other/x/a.py", "ws/b.py")
    context = context_in(tmp_path / "ws")
    for pattern in (f"{tmp_path}/other/*/a.py", "../other/*/a.py"):
        made = Glob().prepare({"pattern": pattern}, context)

        assert made.accesses[0].target == str(tmp_path / "other")
        assert (await made.run()).output == str(tmp_path / "other/x/a.py")
    with pytest.raises(ToolError, match=r"only before its first wildcard"):
        Glob().prepare({"pattern": "*/../../x"}, context)


async def test_names_are_printed_on_one_line(tmp_path: Path) -> None:
    tree(tmp_path, "a\nb\x1b.py")

    assert await found(tmp_path, "*.py") == [r"a\nb\x1b.py"]


async def test_a_wrong_place_is_explained(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    for path, said in (("none", "does not exist"), ("a.py", "is a file"), ("/proc", "/proc")):
        with pytest.raises(ToolError, match=said):
            await call(Glob(), context_in(tmp_path), pattern="*", path=path)
    assert await found(tmp_path, "*.rs") == ["No file below . matches *.rs"]

"""The parts of the sandbox: the self-test that can fail, Landlock, the Mac's profile, the words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keen.tools.base import Context
from keen.tools.bash import Bash
from keen.tools.guard import Guard
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.sandbox import bubblewrap, denial, landlock, seatbelt
from keen.tools.sandbox import probe as looked_at
from keen.tools.sandbox.confinement import Confinement
from keen.tools.sandbox.confines import Confines, Surveyor
from keen.tools.sandbox.probe import Sandbox, find
from tests.tools.calls import outside_tmp

HAS_FULL = find("auto").kind == "bubblewrap"
needs_bubblewrap = pytest.mark.skipif(not HAS_FULL, reason="bubblewrap does not hold here")
needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root has what is given up here")

FILTER = """\
#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
for drop in {drops}:
    for start in reversed(range(len(words) - len(drop) + 1)):
        if words[start:start + len(drop)] == drop:
            del words[start:start + len(drop)]
os.execv("{program}", ["bwrap", *words])
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs that comes before all others."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setattr(looked_at, "PROGRAMS", f"{programs}:{looked_at.PROGRAMS}")
    return programs


@pytest.fixture
def base() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="keen-test-", dir=outside_tmp()))
    yield place
    shutil.rmtree(place)


def script(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


def weakened(machine: Path, *drops: list[str]) -> str:
    """What the self-test says of a bubblewrap that ignores some of its options."""
    program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    script(machine, "bwrap", FILTER.format(drops=list(drops), program=program))
    found = find("auto")
    assert found.level != "full"
    return found.reason


@needs_bubblewrap
def test_the_self_test_sees_a_network_that_is_left_on(machine: Path) -> None:
    assert "a connection was not stopped" in weakened(machine, ["--unshare-all"])


@needs_bubblewrap
@needs_root
def test_the_self_test_sees_rights_that_are_kept(machine: Path) -> None:
    assert "rights of root" in weakened(machine, ["--cap-drop", "ALL"])


@needs_bubblewrap
@needs_root
def test_the_self_test_sees_a_kernel_that_can_be_told_things(machine: Path) -> None:
    reason = weakened(machine, ["--ro-bind", "/proc/sys", "/proc/sys"])

    assert "/proc/sys can be written" in reason


@needs_bubblewrap
def test_the_self_test_sees_what_is_open(machine: Path, base: Path) -> None:
    script(machine, "bwrap", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n')

    reason = find("auto", base).reason

    for words in ("outside the workspace", "hidden file", "to .git", "connection"):
        assert words in reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n",
            "No perm",
        ),
        ("#!/bin/sh\nexit 3\n", "code 3"),
        ("#!/bin/sh\nexec sleep 30\n", "within"),
    ],
)
def test_a_bubblewrap_that_does_not_start_is_named_with_its_reason(
    text: str, words: str, machine: Path, base: Path
) -> None:
    script(machine, "bwrap", text)

    found = find("auto", base)

    assert found.level == ("fs-only" if landlock.version() else "none")
    assert words in found.reason
    assert list(base.iterdir()) == [base / "sandbox.json"]
    (machine / "bwrap").unlink()
    assert find("auto", base).level == ("full" if HAS_FULL else found.level)


@pytest.fixture
def files(base: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Context, Confinement]:
    """A workspace whose commands only Landlock holds."""
    monkeypatch.setenv("HOME", str(base))
    root, scratch = base / "work", base / "own/scratch"
    for directory in (root / ".git", scratch, base / ".ssh"):
        directory.mkdir(parents=True)
    for name in ("plain.txt", ".ssh/id", "own/auth.json"):
        (base / name).write_text("SECRET\n")
    context = Context(root, (root,), scratch)
    guard = Guard(own=(base / "own",))
    held = Sandbox("fs-only", kind="landlock", surveyor=Surveyor(guard))
    return context, Confinement(held, Policy(context, guard=guard, sandbox="fs-only"))


@needs_landlock
async def test_landlock_holds_files_and_says_so(
    files: tuple[Context, Confinement], base: Path
) -> None:
    context, confinement = files
    command = (
        "echo x > made; cat made; mkdir d; mv made d/; mktemp >/dev/null && echo temporary; "
        "echo x > ../made; echo y >> ../plain.txt; rm ../plain.txt; truncate -s0 ../plain.txt; "
        "cat ../.ssh/id ../own/auth.json; cat ../plain.txt; ls .. | head -1; python3 -c 'print(7)'"
    )

    found = await Bash(Jobs(), confinement).prepare({"command": command}, context).run()

    assert found.output.startswith("x\ntemporary\n")
    assert found.output.count("SECRET") == 1, "only the plain file outside is read"
    assert "7" in found.output
    assert (base / "plain.txt").read_text() == "SECRET\n"
    assert not (base / "made").exists()
    assert (base / "work/d/made").exists()
    assert {path.name for path in (base / "work").iterdir()} == {".git", "d"}


@needs_landlock
def test_landlock_passes_the_exit_code_and_never_runs_without_bounds(tmp_path: Path) -> None:
    def run(rules: str, *argv: str) -> int:
        worker = str(Path(landlock.__file__))
        line = [sys.executable, "-I", "-S", worker, rules, *argv]
        return subprocess.run(line, capture_output=True, check=False, timeout=8).returncode

    rules = json.dumps({"read": ["/"], "write": [str(tmp_path)]})
    assert run(rules, "/bin/sh", "-c", "exit 5") == 5
    assert run(rules, "/nonexistent/program") == 97
    assert run("nonsense", "/bin/sh", "-c", f"touch {tmp_path}/made") == 1
    assert not (tmp_path / "made").exists()


def test_the_profile_of_a_mac_denies_last_what_must_not_be() -> None:
    confines = Confines(
        cwd=Path("/Users/u/w"),
        scratch=Path("/Users/u/Library/Caches/keen/s"),
        temporary=Path("/Users/u/Library/Caches/keen/s/tmp"),
        roots=(Path("/Users/u/w"),),
        writable=(Path("/Users/u/w"),),
        protected=(Path("/Users/u/w/.git"), Path("/Users/u/w/.github/workflows")),
        pinned=(Path("/Users/u/w/.github"),),
        missing=(Path("/Users/u/w/.keen"),),
        hidden=(Path("/Users/u/.ssh"), Path('/Users/u/odd"[name')),
        covered=(Path("/Users/u/w/.env"),),
    )

    lines = seatbelt.profile(confines).splitlines()

    assert lines[:2] == ["(version 1)", "(allow default)"]
    order = [
        "(deny network*)",
        "(deny file-write*)",
        '(allow file-write* (subpath "/Users/u/w")',
        '(deny file-write* (regex #"^/[uU][sS][eE][rR][sS]/[uU]/[wW]/[.][gG][iI][tT](/.*)?$")',
        '(deny file-write-unlink (literal "/Users/u/w/.github"))',
        '(deny file-read* file-write* (regex #"^/[uU][sS][eE][rR][sS]/[uU]/[.][sS][sS][hH](/',
        '(allow file-read* (subpath "/Users/u/Library/Caches/keen/s"))',
        '(deny file-read* file-write* (regex #"^/[uU][sS][eE][rR][sS]/[uU]/[wW]/[.][eE][nN][vV](',
    ]
    places = [next(i for i, line in enumerate(lines) if line.startswith(o)) for o in order]
    assert places == sorted(places)
    assert "[.][kK][eE][eE][nN](/.*)?$" in lines[places[3]]
    assert "[oO][dD][dD]..[nN]" in lines[places[5]], "quotes and brackets become any character"
    assert _balanced("\n".join(lines))
    open_ = seatbelt.profile(replace(confines, has_network=True, is_wide=True))
    assert "(deny network*)" not in open_
    assert "(deny file-write*)" not in open_.splitlines()
    assert seatbelt.command_line(confines, ("/bin/bash", "-c", "x"))[3:] == [
        "/bin/bash",
        "-c",
        "x",
    ]


def _balanced(text: str) -> bool:
    depth, is_quoted = 0, False
    for character in text:
        is_quoted ^= character == '"'
        if not is_quoted:
            depth += {"(": 1, ")": -1}.get(character, 0)
    return depth == 0 and not is_quoted


def test_the_line_of_bubblewrap_goes_from_the_root_downwards() -> None:
    confines = Confines(
        cwd=Path("/tmp/w"),
        scratch=Path("/home/u/.cache/keen/s"),
        temporary=Path("/home/u/.cache/keen/s/tmp"),
        roots=(Path("/tmp/w"),),
        writable=(Path("/tmp/w"),),
        protected=(Path("/tmp/w/.git"),),
    )

    line = bubblewrap.command_line("/usr/bin/bwrap", confines, ("bash", "-c", "a b"), Path("/e"))

    text = " ".join(line)
    steps = ["--ro-bind / /", "s/tmp /tmp", "--bind /tmp/w /tmp/w", "--ro-bind /tmp/w/.git"]
    assert [text.index(step) for step in steps] == sorted(text.index(step) for step in steps)
    for fixed in ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop ALL"):
        assert fixed in text
    assert line[-4:] == ["--", "bash", "-c", "a b"]
    assert "--share-net" not in line
    assert "--setenv" not in line


BOUNDS = Confines(
    cwd=Path("/tmp"),
    scratch=Path("/var/empty/s"),
    temporary=Path("/var/empty/s/tmp"),
    roots=(Path("/tmp"),),
    writable=(Path("/tmp"),),
    protected=(Path("/tmp/.git"),),
    missing=(Path("/tmp/.keen"),),
)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("curl: (6) Could not resolve host: example.org", 6, "network is off"),
        ("Temporary failure in name resolution", 1, "network is off"),
        ("npm error code EAI_AGAIN", 1, "network is off"),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", 1, "network is off"),
        ("Temporary failure in name resolution", 0, ""),
        ("fatal: Unable to create '/tmp/.git/index.lock': Read-only file system", 128, "a call of"),
        ("bash: line 1: .keen/x: Read-only file system", 1, "write to .keen/x denied"),
        ("/bin/bash: line 1: lib/.keen/x: Read-only file system", 1, "outside the workspace"),
        ("sh: 1: lib/etc/hostname: Permission denied", 1, ""),
        ("OSError: [Errno 30] Read-only file system: '/tmp/.keen'", 1, "write to .keen denied"),
        ("mkdir: cannot create directory ‘.keen’: File exists", 1, "write to .keen denied"),
        ("mkdir: cannot create directory ‘src’: File exists", 1, ""),
        ("something failed: Read-only file system", 1, "outside the workspace was denied"),
        ("something failed: Read-only file system", 0, ""),
        ("cat: /etc/shadow: Permission denied", 1, ""),
        ("error: gpg failed to sign the data", 128, "signing was blocked"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", 1, "did not run"),
        ("all went well", 0, ""),
    ],
)
def test_what_was_denied_is_recognised(text: str, code: int, words: str) -> None:
    told = denial.note(text, code, BOUNDS)

    if words and "shadow" not in text:
        assert words in told
        assert told.startswith("[sandbox] ")
        assert "\n" not in told
    elif os.getuid() != 0 or "shadow" not in text:
        assert told == ""


def test_hidden_files_are_named_up_to_three() -> None:
    many = tuple(Path(f"/tmp/d{number}/.env") for number in range(5))

    assert denial.note("", 0, replace(BOUNDS, covered=many)).endswith("and 2 more are hidden")
    assert denial.note("", 0, replace(BOUNDS, covered=many[:1])) == "[sandbox] d0/.env is hidden"

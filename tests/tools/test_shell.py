"""Which commands may run unasked, which ask, and which never run unasked."""

from __future__ import annotations

import json
import os
import random
import shlex
import string
from pathlib import Path

import pytest

from keen.tools.guard import Guard
from keen.tools.shell.plain_programs import PLAIN
from keen.tools.shell.verdict import ShellVerdict, text_fault, verdict

_DATA = Path(__file__).parent / "data/commands.jsonl"
_ROWS = [
    (row["command"], row["verdict"])
    for row in map(json.loads, _DATA.read_text(encoding="utf-8").split("\n")[:-1])
]
_RISKY = [command for command, level in _ROWS if level != "auto"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = (tmp_path / "work").resolve()
    (root / "src").mkdir(parents=True)
    (root / "src/app.py").write_text("x = 1\n")
    (root / "notes.txt").write_text("a note\n")
    return root


def judge(command: str, root: Path) -> ShellVerdict:
    return verdict(command, root, (root,))


@pytest.mark.parametrize(("command", "level"), _ROWS, ids=range(len(_ROWS)))
def test_each_published_command_gets_its_verdict(command: str, level: str, workspace: Path) -> None:
    found = judge(command, workspace)

    assert found.level == level, found.reason
    assert found.reason


PLAIN_READS = [
    "cat src/app.py notes.txt",
    "head -n 5 notes.txt",
    "head -5 notes.txt",
    "tail -n +2 notes.txt | sort | uniq -c | sort -rn",
    "cd src && ls -la && cat app.py",
    "grep -rn --include='*.py' -e x src",
    "find . -name '*.py' -not -path './x/*'",
    "find src -type f \\( -name a -o -name b \\) -print",
    "rg --files src",
    "ls missing 2>/dev/null || echo none",
    "ls missing >/dev/null 2>&1; pwd",
    "printf '%s\\n' a b",
    "echo 'a $x `y` (z)' \"b;c\"",
    "/bin/ls -l",
    "test ! -d build && echo 'no build'",
    "cat 'notes.txt' \"src/app.py\"",
    "wc -l src/*.py",
    "diff notes.txt src/app.py",
    "date -u +%Y",
    "ls -la .env",
    "ls \\\n -l",
    "cut -d: -f1 notes.txt | tr a-z A-Z",
    "sed -n '3p;5,9p' notes.txt",
    "ls -- -x",
]


@pytest.mark.parametrize("command", PLAIN_READS)
def test_plain_reads_run_unasked(command: str, workspace: Path) -> None:
    found = judge(command, workspace)

    assert found.level == "auto", found.reason
    assert found.is_plain


PITFALLS = [
    "sort -ofile notes.txt",
    "sort --output=o notes.txt",
    "sort --outp o notes.txt",
    "sort -T /tmp notes.txt",
    "sort --files0-from=list",
    "tail -f notes.txt",
    "grep -R x .",
    "grep -f /etc/passwd notes.txt",
    "rg --pre=./x y",
    "rg -z x",
    "rg --files /etc",
    "rg -e x /etc",
    "rg -f list x",
    "rg --no-ignore --hidden x",
    "tree -o out",
    "tree -R -L 1 -H x",
    "xxd notes.txt out",
    "xxd -r notes.txt",
    "cat -- /etc/passwd",
    "cat ../other",
    "cat src/../../other",
    "cat ~/x",
    "cat ~root/x",
    "cat ~+/x",
    "cat a=~/x",
    "cat a='x':~/y",
    "cat < notes.txt",
    "cat 0< notes.txt",
    "cat notes.txt 3>f",
    "cat notes.txt >&2",
    "cat notes.txt &>f",
    "cat notes.txt <>f",
    "ls 2>/dev/nullx",
    "ls >/dev/null/../x",
    "cat $'notes.txt'",
    'cat $"notes.txt"',
    'cat "$x"',
    "cat {notes.txt,x}",
    "cat {1..3}",
    "cd - && ls",
    "cd && ls",
    "cd .. && cat notes.txt",
    "cd /tmp; cat x",
    "cd src; cd ..; cat ../x",
    "pushd src && cat x",
    "cd $x && cat notes.txt",
    "time -o f ls",
    "time ls",
    "exec >f",
    "printf '%n' 'a[$(id)]'",
    "printf -v x y",
    "test -v 'a[$(id)]'",
    "[[ -v a ]]",
    "let a=1",
    "((a=1))",
    "date 010203042030",
    "date -s x",
    "hostname x",
    "ls |& cat",
    "coproc ls",
    "select x in a; do ls; done",
    "! ls",
    "{ ls; }",
    "*",
    "?s",
    "~/bin/ls",
    "./ls",
    "src/../ls",
    "/proc/self/root/bin/ls",
    "ls\u00a0-la",
    "ls ; \u00a0rm x",
    "cat @notes.txt /etc/passwd",
    "echo x?(a|b)",
    "echo !(a)",
    "ls &",
    "ls & ls",
    "ls;;ls",
    "ls &&",
    "| ls",
    "f() { ls; }; f",
    "function ls { rm x; }; ls",
    "A=1",
    "A=1 ls",
    "unset PATH",
    "export A",
    "declare -x A=1",
    "ls\x00",
    "ls\x1b[2K",
    "ls \u2028x; rm y\u200b",
    "find . -newer /etc/passwd",
    "find . -fls x",
    "find -L . -name x",
    "find /etc",
    "find . -exec cat {} +",
    "sed -n '1,5p;w x' notes.txt",
    "sed -n -i 1p notes.txt",
    "sed -ni 1p notes.txt",
    "sed 1p notes.txt",
    "sed -n '$!p' notes.txt",
    "less notes.txt",
    "man ls",
    "awk '{print}' notes.txt",
    "jq . notes.txt",
    "strings @notes.txt",
    "ls `pwd`",
    "ls\\",
    "",
    "   ",
    "#x",
]


@pytest.mark.parametrize("command", PITFALLS)
def test_pitfalls_never_run_unasked(command: str, workspace: Path) -> None:
    assert judge(command, workspace).level != "auto"


DANGERS = [
    "sed 's;a;b;w out' notes.txt",
    "sed -e 's,a,id,gIe' notes.txt",
    "awk '{print $1 > \"out\"}' notes.txt",
    'awk \'BEGIN {print "id" | "sh"}\'',
    "git -C . -c core.fsmonitor=./x status",
    "git -C src --exec-path=. status",
    "git config core.pager get",
    "git config user.name list",
    "git diff --no-index app.py .env",
    "touch .envrc",
    "git -C . blame .env",
    "git --no-pager log -p -- .env",
    "/bin/rm x",
    "/tmp/evil/rm x",
    "env A=1 ls",
    "env -i rm x",
    "timeout 5 rm x",
    "timeout -k 3 -s KILL 5 rm x",
    "nice -n 5 rm x",
    "nice -5 rm x",
    "stdbuf -oL curl x",
    "time rm x",
    "xargs -n1 rm",
    "find . | xargs rm -f",
    "nohup setsid rm x",
    "bash -lc 'rm x'",
    "sh -c 'ls; curl x'",
    "bash -c \"bash -c 'rm x'\"",
    "cat notes.txt | sh",
    "cat notes.txt | bash -s",
    "ls && sh < notes.txt",
    "cat <<EOF | sh\nls\nEOF",
    "for f in a; do rm $f; done",
    "if true; then rm x; fi",
    "(cd src; rm x)",
    "{ rm x; }",
    "! rm x",
    "case a in a) rm x;; esac",
    "while true; do :; done",
    "tee .git/hooks/pre-commit",
    "cp x .git/config",
    "ls > .git/config",
    "cd src && echo x > ../.keen/config.toml",
    "cd src && cd ../.git && echo x > config",
    "echo x > /etc/passwd; rm y",
    "cat ~/.ssh/id_rsa",
    "cat $HOME/.ssh/id_rsa",
    'base64 "$HOME/.aws/credentials"',
    "cat .env.local",
    "cat src/../.env",
    "tar --checkpoint-action=exec=id -cf x .",
    "git --no-pager -c a=b log",
    "git --git-dir=/x status",
    "git diff --ext-diff",
    "git log --outp=x",
    "git push --force",
    "git push origin +main",
    "git reset --hard",
    "git branch -D x",
    "git checkout notes.txt",
    "git submodule foreach ls",
    "git rebase --exec ls",
    "awk 'BEGIN { system(\"id\") }'",
    "vim -c x +'!id' f",
    "chmod -R 777 .",
    "echo ${x:-y}",
    "echo $((1+1))",
    "set",
    "export -p",
    "alias ls=rm",
    "cat /proc/1/environ",
]


@pytest.mark.parametrize("command", DANGERS)
def test_dangers_never_run_unasked_however_they_are_wrapped(command: str, workspace: Path) -> None:
    found = judge(command, workspace)

    assert found.level == "never", found.reason


ASKED = [
    "git add .env",
    "git check-ignore .env",
    "git config get user.name",
    "git config list",
    "git log --oneline -5",
    "git -C src status",
    "git --no-pager log",
    "git switch -c topic",
    "git checkout -b topic",
    "git config --get user.name",
    "git push",
    "pytest -q",
    "npm run test",
    "mkdir build",
    "touch x",
    "cp notes.txt copy.txt",
    "echo x > out.txt",
    "xargs grep x",
    "bash script.sh",
    "set -e",
    "cat < notes.txt",
    "chmod +x run.sh",
    "command -v ls",
    "time ls",
]


@pytest.mark.parametrize("command", ASKED)
def test_ordinary_work_asks_and_can_be_allowed(command: str, workspace: Path) -> None:
    found = judge(command, workspace)

    assert found.level == "ask", found.reason


@pytest.mark.parametrize(
    ("command", "is_syntax"),
    [
        ("echo $(git rev-parse HEAD)", True),
        ("for f in a b; do echo $f; done", True),
        ("source venv/bin/activate", True),
        ("export A=1", True),
        ("A=1 pytest", True),
        ("echo $(rm x)", False),
        ("a=rm; $a x", False),
        ("for f in a; do rm $f; done", False),
        ("for f in a; do bash -c 'rm x'; done", False),
        ("rm x", False),
        ("ls &", False),
        ("eval ls", False),
        ("ls(){ rm x; }; ls", False),
        ("ls", False),
        ("echo $(cat .env)", False),
    ],
)
def test_only_syntax_is_told_from_danger(command: str, is_syntax: bool, workspace: Path) -> None:
    assert judge(command, workspace).only_syntax is is_syntax


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_options_outside_the_table_are_never_assumed_harmless(name: str, workspace: Path) -> None:
    plain = PLAIN[name]
    letters = set(string.ascii_letters) - set(plain.flags) - set(plain.valued)
    known = (*plain.long, *plain.long_valued)
    operands = " ".join(["notes.txt"] * max(plain.least, 1))
    for letter in letters if name not in ("true", "false", ":") else ():
        assert judge(f"{name} -{letter} {operands}", workspace).level != "auto", letter
    for option in known:
        short = option[:-1]
        if short and short not in known:
            assert judge(f"{name} --{short} {operands}", workspace).level != "auto", short


def test_links_are_followed_when_a_path_is_checked(workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    (workspace / "link").symlink_to(outside / "secret")
    (workspace / "folder").symlink_to(outside)

    assert judge("cat link", workspace).level == "ask"
    assert judge("cat folder/secret", workspace).level == "ask"
    assert judge("cat fold*/secret", workspace).level == "ask"
    assert judge("cat li*", workspace).level == "ask"
    assert judge("cd folder/.. && cat notes.txt", workspace).level == "ask"


def test_a_glob_that_meets_a_secret_or_an_option_is_asked_about(workspace: Path) -> None:
    assert judge("cat *", workspace).level == "auto"
    (workspace / ".env").write_text("KEY=1")
    assert judge("cat .e*", workspace).level == "never"
    assert judge("cat .[e]nv", workspace).level == "never"
    assert judge("cat *", workspace).level == "auto"
    (workspace / "--pre=x").write_text("")
    assert judge("cat *", workspace).level == "ask"


def test_a_search_through_a_tree_with_secrets_is_asked_about(workspace: Path) -> None:
    assert judge("grep -rn x .", workspace).level == "auto"
    (workspace / "src/.env").write_text("KEY=1")

    assert judge("grep -rn x .", workspace).level == "ask"
    assert judge("grep -rn x", workspace).level == "ask"
    assert judge("cd src && grep -rn x", workspace).level == "ask"
    assert judge("rg x", workspace).level == "auto"  # it leaves hidden files out
    assert judge("rg -g '*' x", workspace).level == "ask"
    assert judge("rg --glob=.env x", workspace).level == "ask"
    (workspace / ".ignore").write_text("!.env\n")
    assert judge("rg x", workspace).level == "ask"


@pytest.mark.parametrize("file", [".ignore", ".rgignore", ".gitignore", ".git/info/exclude"])
def test_ignore_files_above_a_search_can_let_hidden_files_in(file: str, workspace: Path) -> None:
    (workspace / "src/.env").write_text("KEY=1")
    assert judge("rg KEY src", workspace).level == "auto"
    (workspace / file).parent.mkdir(parents=True, exist_ok=True)
    (workspace / file).write_text("*.log\n!.env\n")

    for line in ("rg KEY src", "rg KEY src/app.py src", "cd src && rg KEY", "rg KEY"):
        assert judge(line, workspace).level == "ask", line


def test_an_ignore_file_that_is_a_pipe_is_not_waited_for(workspace: Path) -> None:
    (workspace / "src/.env").write_text("KEY=1")
    os.mkfifo(workspace / "src/.gitignore")

    assert judge("rg KEY src", workspace).level in ("auto", "ask")


def test_a_search_through_the_home_directory_is_asked_about(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace / "src"))

    assert judge("grep -rn x .", workspace).level == "ask"
    assert judge("cd src && grep -rn x", workspace).level == "ask"


def test_a_fifo_is_not_read_unasked(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")

    assert judge("cat pipe", workspace).level == "ask"


def test_a_program_out_of_the_workspace_is_not_taken_for_the_system_one(workspace: Path) -> None:
    planted = workspace / "bin/ls"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)

    found = verdict("ls", workspace, (workspace,), f"{planted.parent}:/usr/bin:/bin")

    assert found.level == "ask"
    assert str(planted) in found.reason
    assert verdict("ls", workspace, (workspace,), "/usr/bin:/bin").level == "auto"
    planted.rename(planted.with_name("find"))
    assert verdict("find", workspace, (workspace,), str(planted.parent)).level == "ask"


def test_keens_own_directories_are_hidden_from_commands(workspace: Path) -> None:
    own = workspace.parent / "settings"
    own.mkdir()
    guard = Guard(own=(own,))

    found = verdict(f"cp {own}/auth.json .", workspace, (workspace,), guard=guard)

    assert found.level == "never"


def test_texts_that_deceive_are_refused_before_they_are_parsed(workspace: Path) -> None:
    controls, invisible = "\r\x07\x7f\x85", "\u202e\u2066\u200b\u2060\ufeff\u061c\u206a\u3164\u00ad"
    for character in f"{controls}{invisible}\U000e0041\U000e0141\ud800":
        assert text_fault(f"ls {character}") is not None
        found = judge(f"ls '{character}'", workspace)
        assert (found.level, found.is_refused) == ("never", True)
    assert text_fault("ls\n\tx é 漢字 ✔\ufe0f") is None


def test_too_long_and_too_many_are_refused_and_not_cut(workspace: Path) -> None:
    assert judge("echo " + "x" * 16_384, workspace).is_refused
    assert judge("true;" * 65, workspace).is_refused
    assert not judge("true;" * 64, workspace).is_refused
    assert judge("(" * 5_000, workspace).level == "never"
    assert judge("$(" * 5_000 + ")" * 5_000, workspace).level == "never"


@pytest.mark.parametrize("wrappers", ["env " * 9, "eval " * 3_000, "nice env " * 5])
def test_what_is_wrapped_too_often_is_refused(wrappers: str, workspace: Path) -> None:
    """A deny rule for curl would not find it there, in yolo neither."""
    found = judge(f"{wrappers}curl x", workspace)

    assert (found.level, found.is_refused) == ("never", True)
    assert judge("env " * 7 + "curl x", workspace).mentions[-1] == ("curl", "x")


@pytest.mark.timeout(5)
@pytest.mark.parametrize("script", ["s;" * 7_000, ";" + " " * 15_000, "s/" * 5_000, "s//" * 4_000])
def test_a_long_script_takes_no_long_time(script: str, workspace: Path) -> None:
    assert judge(f"sed '{script}' notes.txt", workspace).level in ("ask", "never")
    assert judge(f"awk '{script.replace('s', 'print ')[:15_000]}' f", workspace).level != "auto"


def test_many_operands_are_asked_about(workspace: Path) -> None:
    names = " ".join(f"a{number}" for number in range(300))

    assert judge(f"cat {names}", workspace).level == "ask"
    assert judge(f"cat {names} ~/.ssh/id_rsa", workspace).holds == "refuse"


def test_every_reading_of_a_command_is_kept_for_deny_rules(workspace: Path) -> None:
    found = judge("ls && timeout 5 git --no-pager -C . commit -m x", workspace)
    hidden = judge("echo $(bash -c 'curl x')", workspace)

    assert ("git", "commit", "-m", "x") in found.mentions
    assert ("curl", "x") in hidden.mentions


def test_a_strange_letter_in_a_name_is_shown_by_its_number(workspace: Path) -> None:
    assert "U+0441" in judge("сat notes.txt", workspace).reason


def _spliced(command: str, chance: random.Random) -> str:
    """The same first word, spelled with quotes or a backslash."""
    head = command[: next((i for i, c in enumerate(command) if not c.isalpha()), len(command))]
    if not head.isascii() or not head:
        return command
    cut = chance.randrange(len(head))
    spelled = chance.choice(
        [f"{head[:cut]}''{head[cut:]}", f"{head[:cut]}\\{head[cut:]}", f'"{head}"', f"'{head}'"]
    )
    return spelled + command[len(head) :]


_LOOK_ALIKES = {"a": "а", "c": "с", "e": "е", "o": "о", "p": "р", "s": "ѕ", "i": "і", "x": "х"}


def _look_alike(command: str, chance: random.Random) -> str:
    head, blank, rest = command.partition(" ")
    places = [i for i, c in enumerate(head) if c in _LOOK_ALIKES]
    if not places or not head.isalpha():
        return command.replace(" ", chance.choice([" \u200b", "\u00a0\u202e", " \ufeff"]), 1) + "\r"
    at = chance.choice(places)
    return head[:at] + _LOOK_ALIKES[head[at]] + head[at + 1 :] + blank + rest


_BEFORE = ("ls; ", "true && ", "false || ", "ls | ", "ls\n", "cd src && ", "ls # x\n", "\n\t", "  ")
_AFTER = (" | cat", "\nls", " | head -n 5", " 2>/dev/null", " 2>&1", " > out", " >> out", " &")
_WRAPS = (
    "env {}", "nice {}", "timeout 5 {}", "command {}", "nohup {}", "time {}", "xargs {}", "! {}",
    "({})", "{{ {}; }}", "$({})", "echo $({})", "echo `{}`", "cat <({})", "exec {}", "A=1 {}",
    "if {}; then ls; fi", "while {}; do ls; done", "f() {{ {}; }}; f", "builtin {}", "sudo {}",
)  # fmt: skip


def _wrapped(command: str, chance: random.Random) -> str:
    if chance.random() < 0.3:
        return f"{chance.choice(['bash -c', 'sh -c', 'eval', 'bash -lc'])} {shlex.quote(command)}"
    return chance.choice(_WRAPS).format(command)


def _variant(chance: random.Random) -> str:
    command = chance.choice(_RISKY)
    for _ in range(chance.randint(1, 3)):
        match chance.randrange(5):
            case 0:
                command = _spliced(command, chance)
            case 1:
                command = _look_alike(command, chance)
            case 2:
                command = chance.choice(_BEFORE) + command
            case 3:
                command += chance.choice(_AFTER)
            case _:
                command = _wrapped(command, chance)
    return command


def _some_run_unasked(count: int, seed: int, root: Path) -> list[str]:
    chance = random.Random(seed)
    return [c for c in (_variant(chance) for _ in range(count)) if judge(c, root).level == "auto"]


@pytest.mark.parametrize("seed", range(100, 108))
def test_no_variant_of_a_risky_command_runs_unasked(seed: int, workspace: Path) -> None:
    assert _some_run_unasked(250, seed, workspace) == []


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
def test_no_variant_of_a_risky_command_runs_unasked_at_length(seed: int, workspace: Path) -> None:
    assert _some_run_unasked(2_000, seed, workspace) == []

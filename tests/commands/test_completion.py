from __future__ import annotations

import inspect
import os
import shutil
import sys
from pathlib import Path

import pexpect
import pytest

from keen.commands import _candidates, completion
from keen.commands._candidates import candidates
from keen.session.records import UserMessage
from keen.session.store import Store


def fitting(line: str) -> list[str]:
    return [one.words for one in candidates(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keen se", ["sessions"]),
        ("keen sessions ", ["list", "show", "export", "rename", "delete", "undo-compaction"]),
        ("keen mcp a", ["add", "approve"]),
        ("keen auth ", ["login", "logout", "status"]),
        ("keen auth login openai", ["openai", "openai-codex"]),
        ("keen config ", ["path", "show", "check"]),
        ("keen permissions ", ["check", "list"]),
        ("keen completion ", ["bash", "zsh", "fish"]),
        ("keen models min", ["minimax"]),
        ("keen --mode ", ["plan", "build", "yolo"]),
        ("keen --mode=b", ["--mode=build"]),
        ("keen --mode plan --theme keen-d", ["keen-dark"]),
        ("keen run --format ", ["text", "json", "stream-json"]),
        ("keen run --output-format j", ["json"]),
        ("keen run --max-b", ["--max-budget-usd"]),
        ("keen demo --scr", ["--screen-reader"]),
        ("keen sessions export --to h", ["html"]),
        ("keen sessions export abc -o ", [":files"]),
        ("keen sessions list --a", ["--all"]),
        ("keen sessions --", ["--help"]),
        ("keen -m demo/", ["demo/guide"]),
        ("keen --model=demo/g", ["--model=demo/guide"]),
        ("keen -m openr", ["openrouter/anthropic/claude-sonnet-5"]),
        ("keen --config ", [":files"]),
        ("keen -C ", [":directories"]),
        ("keen run --add-dir=", [":directories"]),
        ("keen run 'look at ", [":files"]),
        ("keen run -- --fo", [":files"]),
        ("FORCE=1 /usr/bin/keen conf", ["config"]),
        ("keen nothing-like-it ", []),
        ("ls ", []),
        ("", []),
    ],
)
def test_what_fits_is_read_from_the_parsers(
    line: str, expected: list[str], keen_home: Path
) -> None:
    if line == "keen -m openr":  # which model that is changes with the catalogue
        assert [one.partition("/")[0] for one in fitting(line)] == ["openrouter"]
    else:
        assert fitting(line) == expected


def test_each_option_of_a_command_is_offered_there_and_nowhere_else(keen_home: Path) -> None:
    assert "--max-turns" in fitting("keen run --m")
    assert "--max-turns" not in fitting("keen --m")
    assert "--theme" in fitting("keen --t")
    assert "--print" not in fitting("keen run --p")


def test_sessions_are_offered_by_id_and_by_name(
    keen_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(keen_home / "sessions")
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for place in (here, elsewhere):
        place.mkdir()
        log = store.draft(place, model="demo/guide", keen_version="0")
        log.append(UserMessage(content=f"look at {place.name}"))
        log.close()
    (mine,) = store.sessions(here)
    store.rename(mine.path, "The parser")
    monkeypatch.chdir(here)

    found = candidates("keen sessions show ")

    assert [one.words for one in found] == [mine.session_id[:8], "The parser"]
    assert fitting("keen -r ") == fitting("keen run --resume ") == [one.words for one in found]
    assert len(fitting("keen sessions show --all ")) == 3
    assert fitting(f"keen -C {elsewhere} -r ") == [store.sessions(elsewhere)[0].session_id[:8]]


def test_servers_are_offered_where_one_is_named(keen_home: Path) -> None:
    (keen_home / "config.toml").write_text('[mcp.servers.tracker]\ncommand = ["tracker"]\n')

    assert fitting("keen mcp remove ") == ["tracker"]
    assert fitting("keen mcp add ") == []


def test_wrong_settings_offer_what_needs_none(keen_home: Path) -> None:
    (keen_home / "config.toml").write_text("not toml")

    assert fitting("keen -m ") == []
    assert fitting("keen auth lo") == ["login", "logout"]


def test_a_word_and_its_meaning_stand_in_one_line(
    keen_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completion.main(["words", "--", "keen permissions l"]) == 0

    assert capsys.readouterr().out == "list\tthe rules in force and where each comes from\n"


SHELLS = {
    "bash": (["--norc", "--noprofile"], "source <(keen completion bash)"),
    "zsh": (
        ["-f"],
        # A tab with more keys behind it is a paste to zsh, unless it is told otherwise.
        "zstyle ':completion:*' insert-tab false; "
        "autoload -Uz compinit; compinit -u -D; source <(keen completion zsh)",
    ),
    "fish": (["--no-config"], "keen completion fish | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_actions_values_and_files(
    shell: str, tmp_path: Path, keen_home: Path
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words, start = SHELLS[shell]
    (tmp_path / "bin").mkdir()
    keen = tmp_path / "bin" / "keen"
    root = Path(inspect.getfile(_candidates)).parents[2]
    real = f"PYTHONPATH={root} exec {sys.executable} -m keen"
    keen.write_text(f'#!/bin/sh\n[ "$1" = completion ] && {real} "$@"\necho "ran $*;"\n')
    keen.chmod(0o755)
    (tmp_path / "settings.toml").touch()
    (tmp_path / "folder").mkdir()
    path = f"{keen.parent}:{os.environ['PATH']}"
    environment = {
        **os.environ, "PATH": path, "HOME": str(tmp_path), "KEEN_HOME": str(keen_home),
        "TERM": "xterm",
    }  # fmt: skip
    terminal: pexpect.spawn[str] = pexpect.spawn(
        program, words, env=environment, cwd=tmp_path, encoding="utf-8", dimensions=(40, 200)
    )
    terminal.sendline(f"{start}; echo rea''dy")
    terminal.expect_exact("ready")
    for typed, completed in {
        "mcp appr": "mcp approve",
        "--mode=pl": "--mode=plan",
        "run --output-format str": "run --output-format stream-json",
        "-m demo/gu": "-m demo/guide",
        "--config sett": "--config settings.toml",
        "-C fol": "-C folder/?",  # zsh takes its slash back
    }.items():
        terminal.send(f"keen {typed}\t\r")
        terminal.expect(f"ran {completed};")
    terminal.close(force=True)

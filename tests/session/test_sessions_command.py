from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from keen.commands import sessions
from keen.commands.parsing import Parser
from keen.core.errors import SessionError, UsageError
from keen.session.records import AssistantTurn, Compaction, KeptMessage, TextItem, ToolItem
from keen.session.store import Store
from tests.session.samples import turn, user


class Keen:
    """`keen sessions …` in one directory."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.store = Store(home / "sessions")
        self.cwd = cwd

    def __call__(self, *words: str) -> int:
        parser = Parser(prog="keen", allow_abbrev=False)
        sessions.add_parser(parser.add_subparsers(parser_class=Parser))
        arguments = parser.parse_args(["sessions", *words])
        return sessions.run(arguments, self.store.root, self.cwd)

    def session(self, text: str, cwd: Path | None = None) -> Path:
        log = self.store.draft(cwd or self.cwd, model="demo/demo", keen_version="1")
        item = ToolItem(id="1", name="bash", input={"command": "ls \x1b[2J"}, output="a\nb\x1b[0m")
        transcript = (TextItem(content="answer"), item)
        log.append(user(text), AssistantTurn(transcript=transcript, message="answer"))
        log.close()
        assert log.path is not None
        return log.path


@pytest.fixture
def keen(tmp_path: Path) -> Keen:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    return Keen(tmp_path, tmp_path / "here")


def test_the_list_is_aligned_and_harmless(keen: Keen, capsys: pytest.CaptureFixture[str]) -> None:
    keen.session("fix \x1b[31mthe\x07 parser\u202e")
    keen.session("日本語のタイトル " * 20)
    assert keen("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "LAST", "USED", "TURNS", "MODEL", "TITLE"]
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)
    column = lines[0].index("TITLE")
    assert [line[column - 2 : column] for line in lines] == ["  "] * 3


def test_the_list_of_all_directories_names_them(
    keen: Keen, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keen.session("mine")
    keen.session("theirs", tmp_path / "there")
    keen("list")
    assert "theirs" not in capsys.readouterr().out
    keen("list", "--all")
    assert str(tmp_path / "there") in capsys.readouterr().out


def test_an_empty_list_says_so_on_stderr(keen: Keen, capsys: pytest.CaptureFixture[str]) -> None:
    assert keen("list") == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "No sessions" in output.err


def test_show_prints_what_was_said_and_done(keen: Keen, capsys: pytest.CaptureFixture[str]) -> None:
    path = keen.session("do\nit")
    assert keen("show", path.stem[:8]) == 0
    assert capsys.readouterr().out == (
        "> do\n> it\n\nanswer\n\n✔ bash ls ␛[2J (0.0 s)\n  a\n  b\n\n"
    )


def test_export_writes_a_private_file_whole_or_prints(
    keen: Keen, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = keen.session("hello")
    target = tmp_path / "out.html"
    assert keen("export", path.stem, "--to", "html", "-o", str(target)) == 0
    assert "hello" in target.read_text(encoding="utf-8")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    capsys.readouterr()
    keen("export", path.stem, "--to", "json")
    assert json.loads(capsys.readouterr().out)["title"] == "hello"
    with pytest.raises(SessionError, match="nothing was written"):
        keen("export", path.stem, "-o", str(tmp_path / "missing" / "x.md"))


def test_a_files_ending_says_the_form_of_an_export(keen: Keen, tmp_path: Path) -> None:
    path = keen.session("hello")

    keen("export", path.stem, "-o", str(tmp_path / "out.json"))
    keen("export", path.stem, "--to", "md", "-o", str(tmp_path / "page.html"))

    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["title"] == "hello"
    assert "<html" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_session_of_which_nothing_can_be_read_is_not_exported(keen: Keen) -> None:
    path = keen.session("hello")
    path.write_text("no record\n", encoding="utf-8")

    with pytest.raises(SessionError, match="nothing that can be read"):
        keen("export", path.stem)


def test_rename_then_delete_by_the_new_name(keen: Keen) -> None:
    path = keen.session("hello")
    keen("rename", path.stem[:6], "my", "parser")
    assert keen.store.sessions(keen.cwd)[0].name == "my parser"
    keen("delete", "my parser")
    assert not path.exists()
    with pytest.raises(SessionError, match="No session"):
        keen("show", "my parser")


def test_undoing_a_compaction_brings_the_conversation_back(
    keen: Keen, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keen.session("hello")
    log = keen.store.open(path)
    wrapped = KeptMessage(role="user", content="wrapped")
    log.append(Compaction(messages=(wrapped,), summary="S"), turn("later"))
    log.close()
    assert keen("undo-compaction", path.stem) == 0
    assert "record 4" in capsys.readouterr().out
    with pytest.raises(SessionError, match="no compaction"):
        keen("undo-compaction", path.stem)


def test_a_session_in_use_is_neither_renamed_nor_deleted(keen: Keen) -> None:
    path = keen.session("hello")
    log = keen.store.open(path)
    for words in (("rename", path.stem, "x"), ("delete", path.stem)):
        with pytest.raises(SessionError, match=f"process {os.getpid()}"):
            keen(*words)
    log.close()


def test_wrong_use_names_the_actions(keen: Keen) -> None:
    with pytest.raises(UsageError, match="ACTION"):
        keen()
    with pytest.raises(UsageError, match="invalid choice"):
        keen("export", "x", "--to", "pdf")

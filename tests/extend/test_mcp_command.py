from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from keen import trust
from keen.commands import mcp
from keen.commands.parsing import Parser
from keen.core.errors import ConfigError, UsageError
from keen.paths import Paths
from tests.extend.mcp_place import SCRIPT


class Command:
    """`keen mcp` in a folder and a home of the test's own."""

    def __init__(self, work: Path, home: Path) -> None:
        self.work = work
        self.home = home
        self.record = work / "record"

    def __call__(self, *words: str) -> int:
        parser = Parser(prog="keen")
        mcp.add_parser(parser.add_subparsers(dest="command", required=True))
        action, *rest = words
        arguments: argparse.Namespace = parser.parse_args(
            ["mcp", action, "-C", str(self.work), *rest]
        )
        return mcp.run(arguments)

    def project(self, mode: str = "plain") -> None:
        args = ["-I", str(SCRIPT), mode, str(self.record)]
        entries = {"theirs": {"command": sys.executable, "args": args}}
        (self.work / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
        trust.trust(self.work, Paths.in_one_directory(self.home))


@pytest.fixture
def command(tmp_path: Path, keen_home: Path) -> Command:
    work = tmp_path / "work"
    work.mkdir()
    return Command(work, keen_home)


def test_a_server_is_added_listed_tried_and_removed(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (sys.executable, "-I", str(SCRIPT), "plain", str(command.record))
    assert command("add", "mine", "-e", "A=b=c", "--", *words) == 0
    file = command.home / "mcp.json"
    entry = json.loads(file.read_text())["mcpServers"]["mine"]
    assert entry == {"command": words[0], "args": [*words[1:]], "env": {"A": "b=c"}}
    assert file.stat().st_mode & 0o777 == 0o600

    assert command("list") == 0
    assert "mine  user  tools not known yet" in capsys.readouterr().out
    assert not command.record.exists()

    assert command("test", "mine") == 0
    assert "mcp__mine__echo\nSays what it is given." in capsys.readouterr().out

    assert command("remove", "mine") == 0
    assert json.loads(file.read_text())["mcpServers"] == {}


def test_a_command_keeps_every_word_behind_the_first_dashes(command: Command) -> None:
    command("add", "mine", "-e", "A=1", "--", "docker", "run", "-e", "B", "--", "x", "--", "-h")

    entry = json.loads((command.home / "mcp.json").read_text())["mcpServers"]["mine"]
    words = ["run", "-e", "B", "--", "x", "--", "-h"]
    assert entry == {"command": "docker", "args": words, "env": {"A": "1"}}


def test_an_address_is_added_with_options_on_any_side(command: Command) -> None:
    command("add", "one", "--sse", "https://a.invalid/sse")
    command("add", "two", "https://a.invalid/mcp", "--header", "X: y")
    for words in (("three",), ("three", "--")):
        with pytest.raises(UsageError, match=r"required: URL \| -- COMMAND"):
            command("add", *words)

    entries = json.loads((command.home / "mcp.json").read_text())["mcpServers"]
    assert [entries["one"]["type"], entries["two"]["headers"]] == ["sse", {"X": "y"}]


def test_an_address_is_added_with_its_headers(command: Command) -> None:
    command("add", "web", "https://a.invalid/mcp", "--header", "Authorization: Bearer x:y")

    entry = json.loads((command.home / "mcp.json").read_text())["mcpServers"]["web"]
    assert entry == {
        "type": "http",
        "url": "https://a.invalid/mcp",
        "headers": {"Authorization": "Bearer x:y"},
    }


def test_a_name_that_is_taken_is_not_overwritten(command: Command) -> None:
    command("add", "a", "https://a.invalid")
    with pytest.raises(ConfigError, match="has a server a already"):
        command("add", "a", "https://b.invalid")

    assert "https://a.invalid" in (command.home / "mcp.json").read_text()


def test_a_server_that_is_not_there_is_named(command: Command) -> None:
    for action in ("test", "approve", "remove"):
        with pytest.raises(UsageError, match="nobody"):
            command(action, "nobody")


def test_a_project_server_is_tried_only_once_it_is_approved(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.project()
    assert command("test", "theirs") == 1
    assert not command.record.exists()

    assert command("approve", "theirs") == 0
    said = capsys.readouterr().out
    assert str(SCRIPT) in said
    assert "mcp__theirs__echo\nSays what it is given.\nArguments" in said
    assert command("test", "theirs") == 0

    command.project("changed")
    assert command("test", "theirs") == 1


def test_a_project_server_that_does_not_start_is_not_approved(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.project("exits")
    assert command("approve", "theirs") == 1
    assert "no licence found" in capsys.readouterr().err
    command.project("plain")
    assert command("test", "theirs") == 1


def test_a_server_that_does_not_start_is_told_with_exit_code_one(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command("add", "gone", "--", "no-such-program-here")

    assert command("test", "gone") == 1
    assert "there is no no-such-program-here" in capsys.readouterr().err

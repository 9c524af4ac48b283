"""Rewind brings back files that keen edited, and asks about those that others changed since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keen.app.rewinding import changes, restore
from keen.session import snapshots
from keen.session.snapshots import Snapshots, file_of
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.script import Script
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "0f3c.jsonl"


def edit(log: Path, seq: int, path: Path, after: bytes) -> None:
    """One edit of keen's."""
    before = path.read_bytes() if path.exists() else None
    Snapshots(file_of(log), lambda: seq).keep(path, before, after)
    path.write_bytes(after)


def test_a_file_goes_back_to_before_any_message(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"0")
    path.chmod(0o755)
    for seq, after in ((2, b"1"), (2, b"2"), (5, b"3"), (8, b"4")):
        edit(log, seq, path, after)

    restored = restore(log, changes(log, 5), 8)

    assert restored.paths == (path,)
    assert path.read_bytes() == b"2"
    assert path.stat().st_mode & 0o777 == 0o755
    restore(log, changes(log, 2), 8)
    assert path.read_bytes() == b"0"
    assert changes(log, 2) == ()


def test_a_new_file_goes_away_and_a_deleted_one_comes_back(log: Path, tmp_path: Path) -> None:
    new, old = tmp_path / "new.py", tmp_path / "old.sh"
    old.write_bytes(b"old")
    old.chmod(0o700)
    edit(log, 2, new, b"new")
    edit(log, 2, old, b"other")
    old.unlink()

    found = {change.path: change for change in changes(log, 2)}
    assert found[new].state == "ready"
    assert found[old].state == "changed"
    restore(log, found.values(), 2)

    assert not new.exists()
    assert old.read_bytes() == b"old"
    assert old.stat().st_mode & 0o777 == 0o700


def test_a_file_changed_by_others_and_one_too_large_are_told_apart(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FILE_BYTES", 100)
    mine, large = tmp_path / "mine.py", tmp_path / "large.txt"
    mine.write_bytes(b"0")
    large.write_bytes(b"a" * 101)
    edit(log, 2, mine, b"1")
    edit(log, 2, large, b"b")
    mine.write_bytes(b"a person's")

    states = {change.path: change.state for change in changes(log, 2)}

    assert states == {mine: "changed", large: "lost"}


def test_an_edit_that_was_noted_and_failed_counts_as_keens_own_state(
    log: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"0")
    edit(log, 2, path, b"1")
    Snapshots(file_of(log), lambda: 5).keep(path, b"1", b"2")

    (change,) = changes(log, 2)

    assert change.state == "ready"


def test_nothing_is_written_through_a_link(log: Path, tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "dir" / "a.py", tmp_path / "elsewhere"
    path.parent.mkdir()
    elsewhere.mkdir()
    path.write_bytes(b"0")
    edit(log, 2, path, b"1")
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(elsewhere)

    restored = restore(log, changes(log, 2), 2)

    assert restored.paths == ()
    assert restored.faults
    assert list(elsewhere.iterdir()) == []


async def two_edits(terminal: Terminal) -> None:
    """Two messages, one edit each."""
    await terminal.ready()
    await terminal.say("first change")
    await terminal.until("Changed once.")
    await terminal.until("✔ ")
    await terminal.say("second change")
    await terminal.until("Changed twice.")
    await terminal.until(lambda: terminal.text.count("✔ ") == 2)


def edits(chat: Dialect) -> tuple[Script, ...]:
    old, new = "def parse(text):", "def parse(words):"
    return (
        chat.calls("edit_file", path="parser.py", edits=[{"old": old, "new": new}]),
        chat.says("Changed once."),
        chat.calls("write_file", path="new.py", content="x = 1\n"),
        chat.says("Changed twice."),
        chat.says("Something else."),
    )


async def to_choice(terminal: Terminal, message: str) -> None:
    """The rewind menu, up to the question what goes back."""
    await terminal.say("/rewind")
    await terminal.until("Rewind to before")
    terminal.type(message)
    await terminal.until(lambda: "❯ " in terminal.text)
    await terminal.quiet()
    terminal.press("enter")
    await terminal.until("What commands changed is not known")


async def test_conversation_and_files_go_back_together(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    before = (workspace / "parser.py").read_text()
    async with FakeProvider(*edits(chat)) as provider, keen(provider, "--yolo") as terminal:
        await two_edits(terminal)
        await to_choice(terminal, "first change")

        terminal.press("enter")

        await terminal.until("2 files brought back")
        assert (workspace / "parser.py").read_text() == before
        assert not (workspace / "new.py").exists()
        await terminal.until(lambda: terminal.prompt == "first change")


async def test_files_alone_go_back_in_a_resumed_session_and_the_conversation_stays(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with FakeProvider(*edits(chat)) as provider:
        async with keen(provider, "--yolo") as terminal:
            await two_edits(terminal)
            terminal.press("ctrl+d")
            await terminal.ended()
        async with keen(provider, "-c") as terminal:
            await terminal.until("Changed twice.")
            await terminal.ready()
            await to_choice(terminal, "second change")

            terminal.press("down", "down", "enter")

            await terminal.until("1 file brought back")
            assert "Changed twice." in terminal.text
            assert not (workspace / "new.py").exists()
            assert "words" in (workspace / "parser.py").read_text()


async def test_a_file_that_others_changed_is_overwritten_only_after_a_yes(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with FakeProvider(*edits(chat)) as provider, keen(provider, "--yolo") as terminal:
        await two_edits(terminal)
        (workspace / "parser.py").write_text("mine\n")
        await to_choice(terminal, "first change")

        terminal.press("enter")

        await terminal.until("Changed since keen's last edit: parser.py")
        terminal.press("enter")
        await terminal.until("1 file brought back")
        await terminal.until("Left as they are: parser.py")
        assert (workspace / "parser.py").read_text() == "mine\n"
        assert not (workspace / "new.py").exists()


async def test_a_copy_can_go_back_further(keen: Start, chat: Dialect, workspace: Path) -> None:
    before = (workspace / "parser.py").read_text()
    async with FakeProvider(*edits(chat)) as provider, keen(provider, "--yolo") as terminal:
        await two_edits(terminal)
        await to_choice(terminal, "second change")
        terminal.press("enter")
        await terminal.until("1 file brought back")
        await terminal.until(lambda: terminal.prompt == "second change")
        terminal.press("escape")
        await terminal.until(lambda: terminal.prompt != "second change")

        await to_choice(terminal, "first change")
        terminal.press("enter")

        await terminal.until(lambda: (workspace / "parser.py").read_text() == before)

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from keen.core.errors import SessionError
from keen.session.log import Log, SessionLog
from keen.session.projection import conversation
from keen.session.reading import read
from keen.session.records import (
    AssistantTurn,
    ModelChanged,
    SessionRenamed,
    SessionStarted,
    TextItem,
    ToolItem,
)
from keen.session.store import MemoryLog, Store, recall
from tests.session.samples import said, turn, user


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    place = tmp_path / "My Project!"
    place.mkdir()
    return place


def draft(store: Store, cwd: Path) -> Log:
    return store.draft(cwd, model="demo/demo", keen_version="1")


def saved(store: Store, cwd: Path, text: str = "hello", name: str = "") -> Path:
    log = draft(store, cwd)
    log.append(user(text), turn(f"answer to {text}"))
    if name:
        log.append(SessionRenamed(name=name))
    log.close()
    assert log.path is not None
    return log.path


def test_a_workspace_has_a_directory_by_slug_and_hash_of_its_real_path(
    store: Store, here: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(here)
    directory = store.directory(here)
    assert store.directory(link) == directory
    slug, _, digest = directory.name.rpartition("-")
    assert slug == "my-project"
    assert len(digest) == 10
    assert store.directory(Path("/")).name.startswith("root-")


def test_the_list_tells_title_turns_model_and_is_newest_first(store: Store, here: Path) -> None:
    first = saved(store, here, "fix\nthe  parser")
    second = saved(store, here, "second", name="my name")
    log = store.open(first)
    log.append(ModelChanged(model="other/model"))
    log.append(user("again"), AssistantTurn(message="x" * 100_000))
    log.close()
    os.utime(second, (time.time() - 100, time.time() - 100))

    one, two = store.sessions(here)

    assert (one.path, one.title, one.turns, one.model) == (
        first,
        "fix the parser",
        2,
        "other/model",
    )
    assert (two.path, two.title, two.name, two.turns) == (second, "my name", "my name", 1)
    assert one.cwd == os.path.realpath(here)


def test_a_name_given_long_ago_is_still_in_the_list(store: Store, here: Path) -> None:
    path = saved(store, here, "hello", name="parser")
    log = store.open(path)
    for number in range(50):
        log.append(user(f"more {number}"), AssistantTurn(message="x" * 20_000))
    log.close()
    (item,) = store.sessions(here)
    assert (item.title, item.turns) == ("parser", 51)


def test_a_session_whose_first_message_is_huge_is_listed(store: Store, here: Path) -> None:
    saved(store, here, "long " * 200_000)
    (item,) = store.sessions(here)
    assert item.title.startswith("long long")


def test_a_session_is_found_by_unique_prefix_and_by_name_here_first(
    store: Store, here: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mine = saved(store, here, "a", name="parser")
    other = saved(store, elsewhere, "b", name="parser")
    only_there = saved(store, elsewhere, "c", name="lexer")
    assert store.find(mine.stem[:8], here) == mine
    assert store.find(other.stem, here) == other
    assert store.find("Parser", here) == mine
    assert store.find("lexer", here) == only_there
    assert store.find("Lex", here) == only_there
    assert store.find("pars", here) == mine
    with pytest.raises(SessionError, match="fits 2 sessions"):
        store.find("parser", None)
    saved(store, here, "d", name="parser of tables")
    assert store.find("parser", here) == mine
    with pytest.raises(SessionError, match="fits 2 sessions"):
        store.find("pars", here)
    with pytest.raises(SessionError, match="No session 'nothing'"):
        store.find("nothing", here)


def test_the_shortest_unique_prefix_finds_a_session_and_a_short_name_its_own(
    store: Store, here: Path
) -> None:
    first, second, third = (saved(store, here, text) for text in "abc")
    first = first.rename(first.with_stem(f"1{first.stem[1:]}"))
    second = second.rename(second.with_stem(f"fe{second.stem[2:]}"))
    third = third.rename(third.with_stem(f"a5{third.stem[2:]}"))

    assert store.find("1", here) == first
    assert store.find("F", here) == second
    named = saved(store, here, "d", name="a")
    named = named.rename(named.with_stem(f"2{named.stem[1:]}"))
    assert store.find("a", here) == named
    assert store.find("a5", here) == third
    saved(store, here, "e", name="Feed").rename(third.with_stem(f"3{third.stem[1:]}"))
    with pytest.raises(SessionError, match="fits 2 sessions"):
        store.find("fe", here)


def test_the_latest_session_is_the_newest_that_nobody_uses(store: Store, here: Path) -> None:
    with pytest.raises(SessionError, match="No session to continue"):
        store.latest(here)
    old = saved(store, here, "old")
    new = saved(store, here, "new")
    os.utime(old, (time.time() - 100, time.time() - 100))
    assert store.latest(here) == new
    busy = SessionLog.open(new)
    assert store.latest(here) == old
    busier = SessionLog.open(old)
    with pytest.raises(SessionError, match="--fork-session"):
        store.latest(here)
    busy.close()
    busier.close()


def test_deleting_is_refused_while_the_session_is_used_and_removes_all_of_it(
    store: Store, here: Path
) -> None:
    path = saved(store, here)
    with path.open("ab") as file:
        file.write(b"torn")
    log = store.open(path)
    with pytest.raises(SessionError, match="in use"):
        store.delete(path)
    log.close()
    assert path.exists()
    store.delete(path)
    assert not path.parent.exists()


def test_a_fork_continues_alone_up_to_where_it_was_made(store: Store, here: Path) -> None:
    path = saved(store, here, "one", name="parser")
    log = store.open(path)
    log.append(user("two"))
    fork = store.fork(path, here, upto=3)
    whole = store.fork(path, here)
    log.append(turn("only in the parent"))
    log.close()

    copy = store.open(fork)
    copy.append(user("only in the fork"))
    copy.close()

    records = read(fork).records
    assert said(records) == ["one", "answer to one", "only in the fork"]
    started = records[0].payload
    assert isinstance(started, SessionStarted)
    assert (started.parent, started.session_id) == (path.stem, fork.stem)
    assert said(read(whole).records) == ["one", "answer to one", "two"]
    assert conversation(read(whole).records)[0] == conversation(read(path).records)[0]
    assert store.find("parser", here) == path


def test_a_home_that_cannot_be_written_gives_a_session_in_memory_that_says_why(
    tmp_path: Path, here: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    log = Store(tmp_path / "file" / "sessions").draft(here, model="m", keen_version="1")
    assert isinstance(log, MemoryLog)
    assert "Not a directory" in (log.reason or "")
    log.append(user("hello"), strict=True)
    assert said(log.records()) == ["hello"]


def test_a_session_that_shall_not_be_saved_touches_nothing(store: Store, here: Path) -> None:
    log = store.draft(here, model="m", keen_version="1", is_saved=False)
    log.append(user("hello"))
    log.close()
    assert log.reason is None
    assert not store.root.exists()


def test_search_finds_what_was_said_and_done(store: Store, here: Path) -> None:
    path = saved(store, here, "the Needle in the hay")
    log = store.open(path)
    item = ToolItem(id="1", name="bash", input={"command": "grep thimble"}, output="found")
    log.append(AssistantTurn(transcript=(TextItem(content="no"), item)))
    log.close()
    assert [hit.seq for hit in store.search("needle", here)] == [2, 3]
    assert [hit.seq for hit in store.search("thimble", here)] == [4]
    assert "grep thimble" in recall(path, "THIMBLE")
    assert "Nothing" in recall(path, "absent")


def test_a_damaged_head_does_not_hide_a_session(store: Store, here: Path) -> None:
    path = saved(store, here, "hello")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0][:30], *lines[1:]]))
    (item,) = store.sessions(here)
    assert item.title == "hello"


def test_a_time_in_the_future_is_clamped_to_the_files_own(store: Store, here: Path) -> None:
    path = saved(store, here)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[-1]["ts"] = "2999-01-01T00:00:00Z"
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    (item,) = store.sessions(here)
    assert item.time.year < 2999

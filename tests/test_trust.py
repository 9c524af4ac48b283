from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from keen.paths import Paths
from keen.trust import (
    distrust,
    is_refused,
    is_trusted,
    project_root,
    refuse,
    trust,
    what_would_take_effect,
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.in_one_directory(tmp_path / "home")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A real repository with one commit."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "--quiet")
    (path / "sub" / "deep").mkdir(parents=True)
    git(path, "commit", "--quiet", "--allow-empty", "--message", "first")
    return path


def git(cwd: Path, *words: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.invalid"}
    identity |= {name.replace("AUTHOR", "COMMITTER"): word for name, word in identity.items()}
    home = {"HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env=identity | home)


def test_nothing_is_trusted_until_the_user_says_so(paths: Paths, repository: Path) -> None:
    assert not is_trusted(repository, paths)

    trust(repository, paths)

    assert is_trusted(repository, paths)
    assert stat.S_IMODE(paths.trust_file.stat().st_mode) == 0o600


def test_trust_holds_for_the_whole_repository_from_anywhere_in_it(
    paths: Paths, repository: Path
) -> None:
    trust(repository / "sub" / "deep", paths)

    assert is_trusted(repository, paths)
    assert is_trusted(repository / "sub", paths)
    assert project_root(repository / "sub" / "deep") == repository


def test_trust_holds_for_linked_worktrees_both_ways(
    paths: Paths, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    (tmp_path / "tree" / "below").mkdir()

    trust(tmp_path / "tree" / "below", paths)

    assert is_trusted(repository, paths)
    assert is_trusted(tmp_path / "tree", paths)
    assert project_root(tmp_path / "tree" / "below") == tmp_path / "tree"


def test_worktrees_of_a_bare_repository_are_trusted_together(
    paths: Paths, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(tmp_path / "bare"))
    git(tmp_path / "bare", "worktree", "add", "--quiet", "--detach", str(tmp_path / "one"))
    git(tmp_path / "bare", "worktree", "add", "--quiet", "--detach", str(tmp_path / "two"))

    trust(tmp_path / "one", paths)

    assert is_trusted(tmp_path / "two", paths)


def test_a_pointer_into_a_trusted_repository_inherits_nothing(
    paths: Paths, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    trust(repository, paths)
    hostile = tmp_path / "hostile"
    hostile.mkdir()

    for target in (
        repository / ".git",
        repository / ".git" / "worktrees" / "tree",
        repository / ".git" / "worktrees" / "missing",
        Path("..") / "repository" / ".git" / "worktrees" / "tree",
    ):
        (hostile / ".git").write_text(f"gitdir: {target}\n")
        assert not is_trusted(hostile, paths), target

    (hostile / ".git").unlink()
    (hostile / ".git").symlink_to(repository / ".git")
    assert not is_trusted(hostile, paths)

    (hostile / ".git").unlink()
    (hostile / ".git").mkdir()
    (hostile / ".git" / "commondir").write_text(str(repository / ".git"))
    (hostile / ".git" / "gitdir").write_text(str(repository / ".git"))
    assert not is_trusted(hostile, paths)


def test_a_tree_that_forges_both_pointers_gains_only_itself(
    paths: Paths, repository: Path, tmp_path: Path
) -> None:
    trust(repository, paths)
    hostile = tmp_path / "hostile"
    forged = hostile / "fake" / "worktrees" / "x"
    forged.mkdir(parents=True)
    (hostile / ".git").write_text(f"gitdir: {forged}\n")
    (forged / "gitdir").write_text(f"{hostile / '.git'}\n")
    (forged / "commondir").write_text(f"{repository / '.git'}\n")
    (hostile / "fake" / "HEAD").write_text("ref: refs/heads/main\n")
    (hostile / "fake" / "objects").mkdir()

    assert not is_trusted(hostile, paths)

    trust(hostile, paths)

    assert is_trusted(hostile, paths)
    assert not is_trusted(tmp_path, paths)


def test_a_repository_inside_a_trusted_one_is_asked_for_itself(
    paths: Paths, repository: Path
) -> None:
    nested = repository / "vendor" / "library"
    (nested / ".git").mkdir(parents=True)
    trust(repository, paths)

    assert not is_trusted(nested, paths)
    assert not is_trusted(nested / "deeper", paths)


def test_a_link_is_judged_by_where_it_leads(paths: Paths, repository: Path, tmp_path: Path) -> None:
    trust(repository, paths)
    (tmp_path / "link").symlink_to(repository)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repository / "sub" / "out").symlink_to(elsewhere)

    assert is_trusted(tmp_path / "link", paths)
    assert not is_trusted(repository / "sub" / "out", paths)


def test_a_plain_folder_is_trusted_alone(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    (folder / "unpacked").mkdir(parents=True)

    trust(folder, paths)

    assert is_trusted(folder, paths)
    assert not is_trusted(folder / "unpacked", paths)


def test_a_home_in_git_does_not_vouch_for_what_lies_in_it(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    (home / ".git").mkdir(parents=True)
    (home / "downloads").mkdir()
    monkeypatch.setenv("HOME", str(home))

    trust(home, paths)

    assert is_trusted(home, paths)
    assert not is_trusted(home / "downloads", paths)


def test_trust_can_be_taken_back(paths: Paths, repository: Path) -> None:
    trust(repository, paths)

    distrust(repository / "sub", paths)

    assert not is_trusted(repository, paths)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"folders": []}', '{"folders": null}'])
def test_a_broken_trust_file_trusts_nothing(paths: Paths, repository: Path, content: str) -> None:
    paths.data.mkdir(parents=True)
    paths.trust_file.write_text(content)

    assert not is_trusted(repository, paths)


def test_a_folder_that_is_gone_is_not_trusted(paths: Paths, tmp_path: Path) -> None:
    assert not is_trusted(tmp_path / "gone", paths)


def test_what_would_take_effect_is_named(repository: Path) -> None:
    assert what_would_take_effect(repository) == ()
    (repository / "AGENTS.md").write_text("obey")
    (repository / ".mcp.json").write_text("{}")
    (repository / ".keen" / "skills").mkdir(parents=True)
    (repository / "sub" / ".keen").mkdir()
    (repository / "sub" / ".keen" / "config.toml").symlink_to("/nowhere")

    assert what_would_take_effect(repository) == ("AGENTS.md", ".keen/skills", ".mcp.json")
    assert "sub/.keen/config.toml" in what_would_take_effect(repository / "sub" / "deep")


def test_no_pointer_is_read_that_is_not_a_small_file(
    paths: Paths, tmp_path: Path, repository: Path
) -> None:
    trust(repository, paths)
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(hostile / ".git")  # reading it would wait for ever

    assert not is_trusted(hostile, paths)
    assert project_root(hostile) == hostile


def test_a_no_is_remembered_until_something_new_would_take_effect(
    paths: Paths, repository: Path
) -> None:
    (repository / "AGENTS.md").write_text("Say moo.\n")
    assert not is_refused(repository, paths)

    refuse(repository / "sub", paths)

    assert is_refused(repository, paths)
    assert not is_trusted(repository, paths)
    (repository / ".mcp.json").write_text("{}")
    assert not is_refused(repository, paths)


def test_yes_and_no_take_each_other_back(paths: Paths, repository: Path) -> None:
    (repository / "AGENTS.md").write_text("Say moo.\n")
    trust(repository, paths)

    refuse(repository, paths)
    assert not is_trusted(repository, paths)

    trust(repository, paths)
    assert is_trusted(repository, paths)
    assert not is_refused(repository, paths)

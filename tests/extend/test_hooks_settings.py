"""Hooks and programs in config.toml: what may stand there, and whose it must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from keen import config
from keen.core.errors import ConfigError
from keen.paths import Paths


def load(tmp_path: Path, text: str, project: str = "") -> config.Loaded:
    home, work = tmp_path / "home", tmp_path / "work"
    (work / ".keen").mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text)
    if project:
        (work / ".keen" / "config.toml").write_text(project)
    paths = Paths.from_environment({"KEEN_HOME": str(home), "HOME": str(home)})
    return config.load(work, flags={}, environment={}, trusted=True, paths=paths)


def test_a_hook_has_a_matcher_and_a_time_limit(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        '[[hooks.PreToolUse]]\ncommand = ["check", "-x"]\nmatcher = "Edit|Write"\ntimeout = 5\n'
        '[[hooks.Stop]]\ncommand = ["done"]\nmatcher = "*"\n',
    )
    (hook,) = loaded.settings.hooks["PreToolUse"]
    (stop,) = loaded.settings.hooks["Stop"]
    assert (hook.command, hook.matcher, hook.timeout) == (("check", "-x"), "Edit|Write", 5)
    assert (stop.matcher, stop.timeout) == ("*", 60)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('matcher = "("', 'hooks.PreToolUse[0].matcher = "(": expected a regular expression'),
        ('matcher = "+"', "expected a regular expression"),
        ("timeout = 0", "timeout = 0: expected a number of at least 1"),
        ("timeout = 601", "timeout = 601: expected a number of at most 600"),
        ('timeout = "5"', "expected a number"),
        ("shell = true", "unknown key hooks.PreToolUse[0].shell"),
    ],
)
def test_what_is_wrong_with_a_hook_is_said_with_its_key(
    tmp_path: Path, line: str, words: str
) -> None:
    text = f'[[hooks.PreToolUse]]\ncommand = ["check"]\n{line}\n'
    try:
        said = "\n".join(load(tmp_path, text).warnings)
    except ConfigError as error:
        said = str(error)
    assert words in said
    assert "config.toml:3" in said


@pytest.mark.parametrize("command", ["[]", '[""]', '["a\\u0000b"]', '"check"', "[1]"])
def test_a_command_is_a_list_that_begins_with_a_program(tmp_path: Path, command: str) -> None:
    with pytest.raises(ConfigError, match=r"hooks\.Stop\[0\]\.command"):
        load(tmp_path, f"[[hooks.Stop]]\ncommand = {command}\n")


@pytest.mark.parametrize("key", ["notify_command", "status_command"])
def test_programs_of_the_screen_are_lists_too(tmp_path: Path, key: str) -> None:
    assert getattr(load(tmp_path, f'[ui]\n{key} = ["say", "x"]').settings.ui, key) == ("say", "x")
    assert getattr(load(tmp_path, f"[ui]\n{key} = []").settings.ui, key) == ()
    with pytest.raises(ConfigError, match=rf"ui\.{key}"):
        load(tmp_path, f'[ui]\n{key} = [" "]')


def test_a_projects_file_sets_no_hook(tmp_path: Path) -> None:
    loaded = load(tmp_path, "", project='[[hooks.Stop]]\ncommand = ["evil"]\n')
    assert loaded.settings.hooks == {}
    assert "hooks.Stop is ignored" in loaded.warnings[0]
    assert "its hooks stand in .keen/hooks.toml" in loaded.warnings[0]

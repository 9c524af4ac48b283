"""The page of a sign-in is opened by a program of the system's, whatever the project holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.browser import open_page

PAGE = "https://auth.example.org/authorize?state=abc"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / "bin").mkdir()
    return root


def program(file: Path, said: Path) -> None:
    """A program that writes down how it was called; a named pipe waits for that."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'#!/bin/sh\necho "$PWD $*" > {said}\n')
    file.chmod(0o755)


def desktop(*path: str) -> dict[str, str]:
    return {"PATH": os.pathsep.join(path), "DISPLAY": ":0"}


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="other systems have a command of their own")
def test_the_systems_own_program_opens_it(tmp_path: Path, project: Path) -> None:
    said = tmp_path / "said"
    os.mkfifo(said)
    program(tmp_path / "system/xdg-open", said)

    assert open_page(PAGE, project, desktop(str(tmp_path / "system")))

    assert said.read_text() == f"/ {PAGE}\n"


@pytest.mark.parametrize("name", ["xdg-open", "firefox", "x-www-browser", "mine"])
def test_no_program_of_the_project_is_taken_for_a_browser(
    name: str, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    said = tmp_path / "said"
    for place in (project, project / "bin"):
        program(place / name, said)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / name).symlink_to(project / name)
    (tmp_path / "folder").symlink_to(project / "bin")
    path = (".", "", "bin", str(project), str(project / "bin"), str(tmp_path / "folder"))
    environment = {**desktop(*path, str(tmp_path / "linked")), "BROWSER": name}

    assert not open_page(PAGE, project / "bin", environment)

    assert not said.exists()


@pytest.mark.parametrize(
    "address",
    ["http://x.org/", "--version", "file:///etc/passwd", "javascript:1", "https://x\x1b]0;", ""],
)
def test_only_a_plain_https_page_is_opened(address: str, tmp_path: Path, project: Path) -> None:
    program(tmp_path / "system/xdg-open", tmp_path / "said")

    assert not open_page(address, project, desktop(str(tmp_path / "system")))


def test_without_a_desktop_nothing_is_started(tmp_path: Path, project: Path) -> None:
    program(tmp_path / "system/xdg-open", tmp_path / "said")

    assert not open_page(PAGE, project, {"PATH": str(tmp_path / "system")})

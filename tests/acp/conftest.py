"""A home and a workspace for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.headless.running import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    return Place(home, work)

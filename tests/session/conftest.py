from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one: for tests that make thousands of files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="keen-test-") as directory:
        yield Path(directory)

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from pathlib import Path

import pytest

from keen.wire._sdk import loaded, preload

SLOW = """
import threading
import keen_test_gate
keen_test_gate.importers.append(threading.current_thread().name)
keen_test_gate.gate.wait()
"""
GATE = "import threading\ngate = threading.Event()\nimporters = []\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "keen_test_gate.py").write_text(GATE)
    return tmp_path


async def test_many_wait_for_one_import_that_none_of_them_can_stop(modules: Path) -> None:
    (modules / "keen_test_slow.py").write_text(SLOW)
    gate = await loaded("keen_test_gate")
    first, second = (asyncio.create_task(loaded("keen_test_slow")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    gate.gate.set()
    assert await second is sys.modules["keen_test_slow"]
    assert await loaded("keen_test_slow") is sys.modules["keen_test_slow"]
    assert first.cancelled()
    assert len(gate.importers) == 1
    assert gate.importers[0] != threading.main_thread().name


async def test_a_failed_import_is_told_and_can_be_tried_again(modules: Path) -> None:
    with pytest.raises(ImportError, match="keen_test_late"):
        await loaded("keen_test_late")
    (modules / "keen_test_late.py").write_text("")
    importlib.invalidate_caches()
    assert (await loaded("keen_test_late")).__name__ == "keen_test_late"


def test_preloading_needs_no_event_loop() -> None:
    assert preload("json").result() is sys.modules["json"]

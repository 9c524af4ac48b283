"""Closes what the turns of a test opened."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.agent.playing import close_all


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_all()

"""The card before a command, in a terminal: nothing is allowed whose end was not in sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.terminal import Terminal
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.headless.running import Place


@pytest.mark.timeout(60)
async def test_a_command_cannot_be_allowed_before_its_end_was_shown(place: Place) -> None:
    """E1: padding by lines and by blanks; the part that matters stands behind it."""
    chat = dialect_named("chat")
    padding = "\n".join(f"echo step {number}" for number in range(60))
    command = f"echo begin{' ' * 80}x\n{padding}\nrm {mine_of(place).name}"
    mine_of(place).write_text("kept")
    async with FakeProvider(chat.calls("bash", command=command), chat.says("Done.")) as provider:
        (place.home / "keen").mkdir(mode=0o700)
        (place.home / "keen/config.toml").write_text(chat.settings(provider.url))
        async with Terminal(cwd=place.work, home=place.home) as terminal:
            await terminal.ready()
            await terminal.say("go")
            await terminal.until("Run this command? (62 lines, ")
            await terminal.until("before you can say yes")
            assert "echo begin␠×80x" in terminal.text
            assert "rm mine" not in terminal.text
            for _ in range(9):
                await terminal.quiet(0.4)
                if "rm mine" in terminal.text:
                    break
                terminal.type("y")
            assert mine_of(place).exists()
            assert "before you can say yes" not in terminal.text

            terminal.type("y")

            await terminal.until("Done.")
    assert not mine_of(place).exists()


def mine_of(place: Place) -> Path:
    return place.work / "mine"

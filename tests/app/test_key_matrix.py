"""Every key of the contract in every phase: what it did in a real terminal, as a table.

`KEEN_KEY_MATRIX=FILE pytest -m campaign -n 0 tests/app/test_key_matrix.py` writes it to FILE.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.app.phases import PHASES, Phase, reached
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect

Start = Callable[..., Terminal]


@dataclass(frozen=True, slots=True)
class Press:
    """A key, and what stands in the prompt when it is pressed."""

    key: str
    draft: str = ""
    times: int = 1

    @property
    def name(self) -> str:
        shown = " ".join([self.key] * self.times)
        return f"{shown} on `{self.draft}`" if self.draft else shown


PRESSES: Final = (
    Press("enter"),
    Press("enter", "abc"),
    Press("ctrl+s", "abc"),
    Press("shift+enter", "abc"),
    Press("ctrl+j", "abc"),
    Press("alt+enter", "abc"),
    Press("enter", "abc\\"),
    Press("escape"),
    Press("escape", "abc"),
    Press("escape", times=2),
    Press("ctrl+c"),
    Press("ctrl+c", "abc"),
    Press("ctrl+c", times=2),
    Press("ctrl+d"),
    Press("ctrl+d", "abc"),
    Press("tab", "/hel"),
    Press("up"),
    Press("down"),
    Press("ctrl+r"),
    Press("shift+tab"),
    Press("ctrl+g"),
    Press("ctrl+a", "abc"),
    Press("ctrl+e", "abc"),
    Press("ctrl+k", "abc"),
    Press("ctrl+u", "abc"),
    Press("ctrl+w", "abc"),
    Press("ctrl+y"),
    Press("alt+b", "abc"),
    Press("alt+f", "abc"),
    Press("alt+d", "abc"),
    Press("ctrl+underscore", "abc"),
    Press("home"),
    Press("end"),
    Press("ctrl+o"),
    Press("ctrl+t"),
    Press("ctrl+f"),
    Press("pageup"),
    Press("pagedown"),
    Press("ctrl+home"),
    Press("ctrl+end"),
    Press("ctrl+l"),
    Press("ctrl+q"),
    Press("ctrl+p"),
)
_NOISE: Final = re.compile(r"\d+m? ?\d*s|↑ [\d.]+k? ↓ [\d.]+k?")


async def pressed(press: Press, at: Phase) -> str:
    """What the screen says after the key, in words."""
    terminal = at.terminal
    if press.draft:
        terminal.type(press.draft)
        await terminal.quiet(0.15)
    before = _lines(terminal)
    requests = len(at.provider.requests)
    for number in range(press.times):
        if number:
            await asyncio.sleep(0.15)
        terminal.press(press.key)
    await terminal.quiet(0.4)
    if not terminal.is_open:
        return "keen ends"
    after = _lines(terminal)
    came = [line for line in after if line not in before]
    went = [line for line in before if line not in after]
    words = [f"+ {line}" for line in came[:4]] + [f"− {line}" for line in went[:3]]
    if len(at.provider.requests) > requests:
        words.append(f"{len(at.provider.requests) - requests} request(s) sent")
    return " / ".join(words) or "nothing"


def _lines(terminal: Terminal) -> list[str]:
    lines = (_NOISE.sub("…", line).strip(" ─") for line in terminal.lines)
    return [line[:70] for line in lines if line]


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
async def test_every_key_does_its_work_in_every_phase(
    keen: Start, chat: Dialect, workspace: Path, tmp_path: Path
) -> None:
    rows: dict[str, dict[str, str]] = {}
    for press in PRESSES:
        for phase in PHASES:
            async with reached(phase, keen, chat, workspace) as at:
                rows.setdefault(press.name, {})[phase] = await pressed(press, at)
            (workspace / "new.py").unlink(missing_ok=True)
    table = ["| key | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
    for name, cells in rows.items():
        shown = (cells[phase].replace("|", "\\|") for phase in PHASES)
        table.append(f"| {name} | " + " | ".join(shown) + " |")
    text = "\n".join(table) + "\n"
    target = os.environ.get("KEEN_KEY_MATRIX")
    await asyncio.to_thread(Path(target or tmp_path / "matrix.md").write_text, text)
    assert all(len(cells) == len(PHASES) for cells in rows.values())

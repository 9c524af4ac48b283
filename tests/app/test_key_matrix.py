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
    is_harmless: bool = False
    """It leaves the phase as it was, so that the next key can be pressed in the same keen."""

    @property
    def name(self) -> str:
        shown = " ".join([self.key] * self.times)
        return f"{shown} on `{self.draft}`" if self.draft else shown


PRESSES: Final = (
    Press("enter"),
    Press("enter", "abc"),
    Press("ctrl+s", "abc"),
    Press("enter", "abc\\"),
    Press("escape"),
    Press("escape", "abc"),
    Press("escape", times=2),
    Press("ctrl+c"),
    Press("ctrl+c", "abc"),
    Press("ctrl+c", times=2),
    Press("ctrl+d"),
    Press("tab", "/hel"),
    Press("up"),
    Press("ctrl+r"),
    Press("shift+tab"),
    Press("ctrl+g"),
    Press("ctrl+f"),
    *(Press(symbol) for symbol in "?/@!"),
    *(
        Press(key, draft, is_harmless=True)
        for key, draft in (
            *((key, "abc") for key in ("shift+enter", "ctrl+j", "alt+enter", "ctrl+d")),
            *((f"ctrl+{letter}", "abc def") for letter in "aekuwy"),
            *((f"alt+{letter}", "abc def") for letter in "bfd"),
            ("ctrl+underscore", "abc"),
            *((key, "") for key in ("home", "end", "down", "ctrl+o", "ctrl+o", "ctrl+t")),
            *((key, "") for key in ("ctrl+t", "pageup", "pagedown", "ctrl+home", "ctrl+end")),
            *((key, "") for key in ("ctrl+l", "ctrl+q", "ctrl+p")),
        )
    ),
)
TOLD: Final = "".join(f"Paragraph {number}.\n\n" for number in range(1, 31))
"""More than a screen, so that scrolling is seen."""
# Read before the tests' own environment takes keen's variables away.
_TARGET: Final = os.environ.get("KEEN_KEY_MATRIX", "")
_NOISE: Final = re.compile(r"\d+m? ?\d*s|↑ [\d.]+k? ↓ [\d.]+k?")


async def pressed(press: Press, at: Phase, *, is_card: bool) -> str:
    """What the screen says after the key, in words."""
    terminal = at.terminal
    if press.draft and not is_card:
        terminal.type(press.draft)
        await terminal.quiet(0.15)
    before = _lines(terminal)
    requests = len(at.provider.requests)
    for number in range(press.times):
        if number:
            await asyncio.sleep(0.15)
        if press.key in "?/@!":
            terminal.type(press.key)
        else:
            terminal.press(press.key)
    await terminal.quiet(0.4)
    if press.is_harmless and press.draft and not is_card:
        # Where the cursor went, or what became of the text, is told by what is typed next.
        terminal.type("X")
        await terminal.quiet(0.15)
        return f"the prompt is `{_prompt(terminal)}`, X typed behind it"
    if "Go on with: keen -r" in terminal.text or b"\x1b[?1049l" in terminal.raw[-400:]:
        return "keen ends and says how to go on"
    after = _lines(terminal)
    came = [line for line in after if line not in before]
    went = [line for line in before if line not in after]
    words = [f"+ {line}" for line in came[:4]] + [f"− {line}" for line in went[:3]]
    if len(at.provider.requests) > requests:
        words.append(f"{len(at.provider.requests) - requests} request(s) sent")
    return " / ".join(words) or "nothing"


def _prompt(terminal: Terminal) -> str:
    """All of the prompt's lines."""
    lines = terminal.lines
    first = max(number for number, line in enumerate(lines) if line.lstrip().startswith("❯"))
    rows = lines[first : next(n for n in range(first, len(lines)) if "───" in lines[n])]
    return "⏎".join(row.strip().removeprefix("❯").strip() for row in rows)


def _lines(terminal: Terminal) -> list[str]:
    lines = (_NOISE.sub("…", line).strip(" ─") for line in terminal.lines)
    return [line[:70] for line in lines if line]


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
async def test_every_key_does_its_work_in_every_phase(
    keen: Start, chat: Dialect, workspace: Path, tmp_path: Path
) -> None:
    target = Path(_TARGET or tmp_path / "matrix.md")
    rows: dict[str, dict[str, str]] = {press.name: {} for press in PRESSES}
    for phase in PHASES:
        is_card = phase == "permission card"
        for press in PRESSES:
            if press.is_harmless:
                continue
            async with reached(phase, keen, chat, workspace, TOLD) as at:
                rows[press.name][phase] = await pressed(press, at, is_card=is_card)
            (workspace / "new.py").unlink(missing_ok=True)
        async with reached(phase, keen, chat, workspace, TOLD) as at:
            for press in PRESSES:
                if press.is_harmless:
                    rows[press.name][phase] = await pressed(press, at, is_card=is_card)
                    if press.draft and not is_card:
                        at.terminal.press("ctrl+e", *["ctrl+u"] * 4, "ctrl+k", "ctrl+k")
                        await at.terminal.quiet(0.15)
        await asyncio.to_thread(target.write_text, table(rows))
    assert all(len(cells) == len(PHASES) for cells in rows.values())


def table(rows: dict[str, dict[str, str]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| key | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
    for name, cells in rows.items():
        shown = (cells.get(phase, "").replace("|", "\\|") for phase in PHASES)
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"

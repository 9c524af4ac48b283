"""Files behind an `@` in a folder with very many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from keen.app.fuzzy import ranked
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
MANY = 2_500


def fill(folder: Path) -> None:
    for number in range(MANY):
        (folder / f"generated_{number:05}.txt").touch()
    (folder / "needle_parser.py").touch()
    (folder / "needle_printer.py").touch()


async def test_the_file_is_offered_and_taken_among_thousands(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    await asyncio.to_thread(fill, workspace)
    async with FakeProvider(chat.says("Read.")) as provider, keen(provider) as terminal:
        await terminal.ready()
        terminal.type("look at @needle")
        await terminal.until("needle_printer.py")
        terminal.type("_par")
        await terminal.gone("needle_printer.py")
        await terminal.until("needle_parser.py")

        terminal.press("tab")

        await terminal.until(lambda: terminal.prompt.startswith("look at @needle_parser.py"))
        terminal.type("@zzqqxx")
        await terminal.gone("generated_")
        terminal.press("enter")
        await terminal.until("Read.")


def test_among_very_many_names_a_part_of_a_name_comes_before_scattered_letters() -> None:
    names = [f"n_e_e_d_l_e/{number}.txt" for number in range(20_000)]

    assert ranked("needle", [*names, "src/my_needle.py"])[0] == "src/my_needle.py"
    assert len(ranked("needle", names)) == 30
    assert ranked("qqq", names) == []

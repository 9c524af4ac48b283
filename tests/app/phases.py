"""keen brought into each phase that a key can meet."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.messages import Usage
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.script import Script
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]

PHASES: Final = (
    "idle",
    "streaming",
    "tool running",
    "permission card",
    "automatic compaction",
    "manual compaction",
    "queue non-empty",
)
SMALL: Final = 20_000
"""A window whose budget of 13,904 tokens the first report nearly fills."""


@dataclass
class Phase:
    """keen in a phase, and the provider behind it."""

    terminal: Terminal
    provider: FakeProvider


def script(phase: str, chat: Dialect, told: str = "") -> list[Script]:
    """What the provider answers until the phase is reached, and after it; `told` comes first."""
    # A report smaller than the one before would be taken for a server that cut the prompt.
    size = 13_300 if phase == "automatic compaction" else 120
    words = ("Afterwards.", "And again.", "Once more.")
    after = [chat.says(text, usage=Usage(input_tokens=size, output_tokens=7)) for text in words]
    match phase:
        case "streaming" | "queue non-empty":
            return [chat.hangs(f"{told}Working on it"), *after]
        case "tool running":
            slow = ("bash", {"command": "echo started; sleep 60"})
            return [chat.calls_many(slow, text=told), *after]
        case "permission card":
            write = ("write_file", {"path": "new.py", "content": "x = 1\n"})
            return [chat.calls_many(write, text=told), *after]
        case "automatic compaction":
            reading = ("read_file", {"path": "parser.py"})
            size_of_first = Usage(input_tokens=13_000, output_tokens=7)
            first = chat.calls_many(reading, text=told, usage=size_of_first)
            return [first, chat.hangs_before_headers(), *after]
        case "manual compaction":
            return [chat.says(f"{told}First answer."), chat.hangs("## Goal"), *after]
        case _:
            return [*([chat.says(told)] if told else []), *after]


@asynccontextmanager
async def reached(
    phase: str, keen: Start, chat: Dialect, workspace: Path, told: str = ""
) -> AsyncGenerator[Phase, None]:
    """keen in that phase, with an empty prompt. `told`: what the model has said by then."""
    arguments = ["--yolo"] if phase == "tool running" else []
    window = SMALL if phase == "automatic compaction" else 200_000
    async with (
        FakeProvider(*script(phase, chat, told)) as provider,
        keen(provider, *arguments, window=window) as terminal,
    ):
        await terminal.ready()
        if phase == "idle" and told:
            await terminal.say("begin")
            await terminal.until("✔ ")
        await _reach(phase, terminal)
        if phase in ("automatic compaction", "manual compaction"):
            await provider.asked(2)
        yield Phase(terminal, provider)


async def _reach(phase: str, terminal: Terminal) -> None:
    match phase:
        case "idle":
            return
        case "manual compaction":
            await terminal.say("begin")
            await terminal.until("✔ ")
            await terminal.say("/compact")
            await terminal.until("Compacting...")
            await terminal.until("Goal")
        case "queue non-empty":
            await terminal.say("begin")
            await terminal.until("Working on it")
            await terminal.say("later")
            await terminal.until("⋯ later")
        case _:
            signs = {
                "streaming": "Working on it",
                "tool running": "started",
                "permission card": "y yes, once",
                "automatic compaction": "Compacting...",
            }
            await terminal.say("begin")
            await terminal.until(signs[phase])
            if phase == "permission card":
                await terminal.quiet(0.4)

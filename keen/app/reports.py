"""Slash commands that tell something, on a sheet of their own."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from keen import reports as told
from keen import sanitize, trust
from keen.app.blocks import Block, Words, cropped, prefixed, wrapped
from keen.app.keys import COMMANDS as KEYS
from keen.app.keys import spoken
from keen.app.look import Look
from keen.app.screens.opening import Opening
from keen.app.tool_cards import diff_lines
from keen.app.units import duration
from keen.paths import Paths

if TYPE_CHECKING:
    pass

_DIFF_LINES = 5_000
_LOOKING = "Looking…"
_BAR = 50


@dataclass
class Table:
    """Rows of a name and what it is."""

    rows: Sequence[tuple[str, str]]
    gap: int = 1

    @property
    def text(self) -> str:
        return "\n".join(f"{name} {value}" for name, value in self.rows)

    def estimate(self, width: int) -> int:
        return len(self.rows)

    def lines(self, width: int, look: Look) -> list[Strip]:
        wide = min(max((len(name) for name, _ in self.rows), default=0), max(width * 2 // 5, 8))
        drawn: list[Strip] = []
        for name, value in self.rows:
            label = cropped(name, wide).ljust(wide + 2)
            values = wrapped(value, max(width - wide - 2, 8), look)
            drawn += prefixed(values, look.text, label, " " * (wide + 2), look.accent)
        return drawn


@dataclass
class Heading:
    """A line over what follows."""

    text: str
    gap: int = 1

    def estimate(self, width: int) -> int:
        return 1

    def lines(self, width: int, look: Look) -> list[Strip]:
        return [Strip([Segment(cropped(self.text, width), look.strong)])]


@dataclass
class Diff:
    """A unified diff in colour."""

    text: str
    gap: int = 0

    def estimate(self, width: int) -> int:
        return min(self.text.count("\n") + 1, _DIFF_LINES)

    def lines(self, width: int, look: Look) -> list[Strip]:
        return diff_lines(self.text, width, look, _DIFF_LINES)


def _show(screen: Opening, title: str, blocks: Sequence[Block]) -> None:
    from keen.app.screens.sheet import TextSheet

    screen.host.push_screen(TextSheet(title, blocks, screen.look))


def help_sheet(screen: Opening, _argument: str) -> None:
    """Keys and commands."""
    from keen.app.commands import COMMANDS
    from keen.app.skills import slash_entries

    by_command: dict[str, list[str]] = {}
    for key, name in screen.desk.early.keymap.items():
        spelled = by_command.setdefault(name, [])
        if spoken(key) not in spelled:
            spelled.append(spoken(key))
    keys = [
        (" ".join(by_command.get(command.name, ["none"])[:3]), command.help)
        for command in KEYS
        if command.help
    ]
    keys += [
        ("/ @ !", "commands, files, a shell command of your own (!! keeps it private)"),
        ("Esc Esc", "on an empty prompt: go back to an earlier message"),
    ]
    commands = [
        (
            " ".join([f"/{one.name}", one.argument]).strip(),
            one.help
            + (f" (also {', '.join('/' + name for name in one.aliases)})" if one.aliases else "")
            + (" · when nothing runs" if one.when == "idle" else ""),
        )
        for one in COMMANDS
    ]
    blocks: list[Block] = [
        Heading("Keys", gap=0),
        Table(keys, 0),
        Heading("Commands"),
        Table(commands, 0),
    ]
    added = [
        (
            sanitize.line(f"/{one.name} {one.argument_hint}".rstrip()),
            sanitize.line(f"{one.description} ({one.scope})".lstrip()),
        )
        for one in slash_entries(screen.engine)
    ]
    if added:
        blocks += [Heading("Of yours, of the project and of MCP servers"), Table(added, 0)]
    _show(screen, "Help", blocks)


def usage(screen: Opening, _argument: str) -> None:
    """Tokens and cost of this session."""
    engine = screen.engine
    if engine is None:
        return
    rows = [
        *told.usage(engine),
        ("turns", f"{screen.tally.turns:,}"),
        ("compactions", f"{screen.tally.compactions:,}"),
        ("files changed", f"{len(screen.tally.changed):,}"),
        ("time", duration(time.monotonic() - screen.tally.started)),
    ]
    _show(screen, "Usage of this session, since it was opened", [Table(rows, 0)])


def status(screen: Opening, _argument: str) -> None:
    """Session, model, folder, safety."""
    engine, opened = screen.engine, screen.opened
    if engine is None or opened is None:
        screen.notify_person("No model is set up yet.")
        return
    rows = [*told.status(engine), ("trusted", "yes" if opened.is_trusted else "no: /trust")]
    if screen.status_line.status.name:
        rows.append(("name", screen.status_line.status.name))
    _show(screen, "Status", [Table([(name, sanitize.line(value)) for name, value in rows], 0)])


async def diff(screen: Opening, _argument: str) -> None:
    """What has changed in the working tree."""
    cwd = screen.desk.early.cwd

    def ask() -> tuple[bool, str, str]:
        # git runs the filters that a repository's own configuration names.
        if not trust.is_trusted(Path(cwd), Paths.from_environment()):
            words = "/diff asks git, which runs what this folder configures: /trust it first."
            return False, words, ""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        is_told, text = _git(cwd, "diff", *plain, "HEAD", "--")
        _, others = _git(cwd, "ls-files", "--others", "--exclude-standard") if is_told else ("", "")
        return is_told, text, others

    is_told, text, others = await asyncio.to_thread(ask)
    if not is_told:
        first = text.strip().split("\n")[0] or "git cannot tell."
        screen.notify_person(sanitize.line(first), "warning", 6.0)
        return
    blocks: list[Block] = [Diff(text)] if text.strip() else []
    if others.strip():
        blocks += [Heading("New files"), Words(sanitize.block(others.rstrip()), gap=0)]
    if not blocks:
        screen.notify_person("Nothing has changed since the last commit.")
        return
    _show(screen, "Changes since the last commit", blocks)


def _git(cwd: Path, *words: str) -> tuple[bool, str]:
    """What git says, and whether it could."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    try:
        done = subprocess.run(
            [*command, "--no-pager", *words], cwd=cwd, capture_output=True, timeout=10,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"git cannot tell: {error}"
    said = done.stdout if done.returncode == 0 else done.stderr
    return done.returncode == 0, said.decode("utf-8", "replace")


def permissions(screen: Opening, _argument: str) -> None:
    """The rules in force."""
    engine = screen.engine
    if engine is None:
        return
    policy = engine.conversation.toolbox.policy
    rules = [(rule.kind, f"{rule.text}  ({rule.place})") for rule in policy.rules]
    granted = [("session", rule) for rule in policy.granted]
    blocks: list[Block] = [
        Heading(f"Mode: {policy.mode}", gap=0),
        Table(rules, 0) if rules else Words("There are no rules of your own.", "muted"),
    ]
    if granted:
        blocks += [Heading("Allowed in this session"), Table(granted, 0)]
    blocks += [Words(fault, "warning") for fault in policy.faults]
    _show(screen, "Permissions: deny beats ask beats allow", blocks)


async def memory(screen: Opening, _argument: str) -> None:
    """The instructions keen reads."""
    _show(screen, "Instructions", [Words(sanitize.block(await screen.desk.report("memory")))])


async def config(screen: Opening, _argument: str) -> None:
    """Where settings come from, and what they come to."""
    _show(screen, "Settings", [Words(sanitize.block(await screen.desk.report("config")))])


async def doctor(screen: Opening, _argument: str) -> None:
    """Check the installation."""
    screen.notify_person(_LOOKING, seconds=60.0)
    try:
        found = await screen.desk.report("doctor")
    finally:
        screen.notices.dismiss(_LOOKING)
    _show(screen, "Doctor", [Words(sanitize.block(found))])


def listed(screen: Opening, title: str, rows: list[tuple[str, str]], empty: str) -> None:
    """Rows on a sheet; where there are none, what to do about it."""
    if not rows:
        screen.notify_person(empty, seconds=6.0)
        return
    _show(screen, title, [Table([(sanitize.line(a), sanitize.line(b)) for a, b in rows], 0)])


async def tasks(screen: Opening, argument: str) -> None:
    """Background commands: list, output, stop."""
    engine = screen.engine
    if engine is None:
        return
    word, _, number = argument.partition(" ")
    if word == "stop" and number.strip().isdigit():
        known = {job.id for job in engine.jobs.all()}
        if int(number) not in known:
            screen.notify_person(f"There is no task {number.strip()}.", "warning")
            return
        await engine.jobs.stop(int(number))
        screen.notify_person(f"Task {number.strip()} is stopped.")
        return
    if argument.strip():
        screen.notify_person("/tasks takes nothing or stop NUMBER.", "warning")
        return
    blocks: list[Block] = []
    for job in engine.jobs.all():
        head = f"{job.id}  {job.state}  {duration(job.seconds)}  {sanitize.line(job.command)}"
        blocks.append(Heading(head))
        output = await asyncio.to_thread(engine.jobs.output, job.id)
        blocks.append(Words(sanitize.plain(output)[-4_000:] or "no output yet", "muted", gap=0))
    if not blocks:
        screen.notify_person("No background command was started.")
        return
    _show(screen, "Background commands; /tasks stop NUMBER ends one", blocks)

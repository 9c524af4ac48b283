"""`/hooks`: what runs at events of a turn, and the person's yes to hooks of the project."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from keen import sanitize
from keen.app.blocks import Block, Words
from keen.app.reports import Heading, Table
from keen.app.screens.opening import Opening
from keen.core.errors import ConfigError

if TYPE_CHECKING:
    from keen.extend.project_hooks import ProjectHook, ProjectHooks

_USE = "/hooks approve N lets it run as it is now, /hooks revoke N takes that back."
_HOW = f"Hooks run outside of the sandbox. {_USE}"


async def hooks(screen: Opening, argument: str) -> None:
    """List hooks; approve one of the project's, or take that back."""
    word, _, number = argument.strip().partition(" ")
    if not word:
        await _show(screen)
    elif word in ("approve", "revoke") and number.strip().isdigit():
        await _decide(screen, int(number), is_yes=word == "approve")
    else:
        screen.notify_person("/hooks [approve N|revoke N]", "warning")


def _of_project(screen: Opening) -> ProjectHooks | None:
    extensions = screen.engine.extensions if screen.engine is not None else None
    return extensions.hooks if extensions is not None else None


async def _decide(screen: Opening, number: int, *, is_yes: bool) -> None:
    found = _of_project(screen)
    if found is None or not 0 < number <= len(found.hooks):
        screen.notify_person(f"The project has no hook {number}: /hooks lists them.", "warning")
        return
    one = found.hooks[number - 1]
    try:
        await asyncio.to_thread(found.approve if is_yes else found.revoke, one)
    except ConfigError as error:
        screen.notify_person(sanitize.line(str(error)), "warning", 8.0)
        return
    said = "Approved" if is_yes else "Not approved any more"
    screen.notify_person(sanitize.line(f"{said}: {one.shown}"), seconds=6.0)


async def _show(screen: Opening) -> None:
    from keen.app.screens.sheet import TextSheet

    settings = screen.desk.settings()
    own = settings.hooks if settings is not None else {}
    rows = [
        (event + (f" for {hook.matcher}" if hook.matcher else ""), shlex.join(hook.command))
        for event, hooks in own.items()
        for hook in hooks
    ]
    blocks: list[Block] = []
    if rows:
        lines = [(sanitize.line(name), sanitize.line(what)) for name, what in rows]
        blocks += [Heading("Yours, from config.toml"), Table(lines, 0)]
    blocks += await asyncio.to_thread(_blocks_of_project, _of_project(screen), screen)
    if not blocks:
        screen.notify_person(
            "No hooks: [[hooks.EVENT]] in config.toml, or in the project's .keen/hooks.toml.",
            seconds=6.0,
        )
        return
    screen.host.push_screen(TextSheet("Hooks", blocks, screen.look))


def _blocks_of_project(found: ProjectHooks | None, screen: Opening) -> list[Block]:
    """The project's hooks, read again, and what is ignored. Blocking."""
    from keen import trust
    from keen.extend.project_hooks import PROJECT_FILE, shell_hooks
    from keen.paths import Paths

    blocks: list[Block] = []
    if found is not None:
        found.reload()
        rows = [_row(found, number, one) for number, one in enumerate(found.hooks, 1)]
        if rows:
            blocks += [Heading("The project's, from .keen/hooks.toml"), Table(rows, 0), Words(_HOW)]
        blocks += [Words(sanitize.line(fault), "warning") for fault in found.faults]
    cwd: Path = screen.desk.early.cwd
    if trust.is_trusted(cwd, Paths.from_environment()):
        root = trust.project_root(cwd)
        if found is None and (root / PROJECT_FILE).exists():
            blocks.append(Words(f"{PROJECT_FILE} is new: /new begins a session that reads it."))
        if ignored := shell_hooks(root):
            blocks.append(Words(sanitize.line(ignored), "muted"))
    return blocks


def _row(found: ProjectHooks, number: int, one: ProjectHook) -> tuple[str, str]:
    state = {
        "approved": "runs",
        "not approved": "waits for your yes",
        "changed": "changed since your yes",
    }[found.state(one)]
    covered = f"  (with {', '.join(one.scripts)})" if one.scripts else ""
    return f"{number}  {state}", sanitize.line(f"{one.shown}{covered}")

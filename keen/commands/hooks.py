"""`keen hooks`: what runs at events of a turn, and which of a project's hooks may."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from keen import sanitize, trust
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.parsing import filled
from keen.commands.saying import err, out
from keen.core.errors import UsageError
from keen.extend.project_hooks import PROJECT_FILE, ProjectHook, ProjectHooks, shell_hooks

ID_LENGTH: Final = 8
"""Characters of a hash that stand for a hook in a list."""


def add_parser(subparsers: Subparsers) -> None:
    """Add `hooks` with its actions to a parser."""
    parser = subparsers.add_parser("hooks", help="hooks")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    place = argparse.ArgumentParser(add_help=False)
    add_place(place)
    actions.add_parser("list", parents=[place], help="your hooks and the project's")
    named = argparse.ArgumentParser(add_help=False, parents=[place])
    named.add_argument("hook", nargs="*", metavar="ID", type=filled, help="as in `keen hooks list`")
    named.add_argument("--all", action="store_true", help="every hook of the project")
    actions.add_parser("approve", parents=[named], help="let hooks of the project run, as now")
    actions.add_parser("revoke", parents=[named], help="take that back")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code. Raises: UsageError, ConfigError."""
    place = place_of(arguments)
    found = project_hooks(place)
    for fault in found.faults if found is not None else ():
        err(f"keen hooks: {fault}")
    match arguments.action:
        case "approve":
            return _each(found, arguments, _approve)
        case "revoke":
            return _each(found, arguments, _revoke)
        case _:
            return _list(place, found)


def project_hooks(place: Place) -> ProjectHooks | None:
    """The hooks of the project; None where it is not trusted."""
    return ProjectHooks.of(trust.project_root(place.cwd), place.paths) if place.is_trusted else None


def _list(place: Place, found: ProjectHooks | None) -> int:
    own = [(event, hook) for event, hooks in place.load().settings.hooks.items() for hook in hooks]
    for event, hook in own:
        matcher = f" for {hook.matcher}" if hook.matcher else ""
        out(sanitize.line(f"{'yours':<{ID_LENGTH}}  {event}{matcher}: {shlex.join(hook.command)}"))
    for one in found.hooks if found is not None else ():
        state = found.state(one) if found is not None else ""
        out(sanitize.line(f"{one.key[:ID_LENGTH]}  {one.shown}  ({PROJECT_FILE}, {state})"))
    if not own and (found is None or not found.hooks):
        err(f"No hooks. They stand as [[hooks.EVENT]] in your config.toml or in {PROJECT_FILE}.")
    if found is None:
        if str(PROJECT_FILE) in trust.what_would_take_effect(place.cwd):
            err(f"{PROJECT_FILE} is ignored: this folder is not trusted.")
    elif shell := shell_hooks(found.root):
        err(shell)
    return 0


def _each(
    found: ProjectHooks | None,
    arguments: argparse.Namespace,
    do: Callable[[ProjectHooks, ProjectHook], None],
) -> int:
    if found is None:
        raise UsageError(
            f"This folder is not trusted, so its {PROJECT_FILE} is not read. "
            "Start keen in it and answer, or use --trust once."
        )
    for one in _named(found, arguments.hook, is_all=arguments.all):
        do(found, one)
    return 0


def _named(found: ProjectHooks, names: Sequence[str], *, is_all: bool) -> list[ProjectHook]:
    if bool(names) == is_all:
        raise UsageError("Name hooks by their ID, or say --all. `keen hooks list` shows them.")
    if is_all:
        return [*found.hooks]
    chosen: list[ProjectHook] = []
    for name in names:
        fitting = [one for one in found.hooks if one.key.startswith(name)]
        if not fitting:
            raise UsageError(
                f"The project has no hook {name!r}; one that has changed has another ID. "
                "`keen hooks list` shows them."
            )
        if len({one.key for one in fitting}) > 1:
            raise UsageError(f"{name!r} fits several hooks. Give more of the ID.")
        chosen += fitting
    return chosen


def _approve(found: ProjectHooks, one: ProjectHook) -> None:
    found.approve(one)
    scripts = f", {', '.join(one.scripts)} included" if one.scripts else ""
    out(sanitize.line(f"Approved, as it is now{scripts}: {one.shown}"))


def _revoke(found: ProjectHooks, one: ProjectHook) -> None:
    found.revoke(one)
    out(sanitize.line(f"Not approved any more: {one.shown}"))

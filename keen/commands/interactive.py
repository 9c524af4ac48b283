"""`keen`: the interactive session."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from keen.commands.arguments import interactive_parser, options
from keen.commands.parsing import NAMES
from keen.commands.saying import err, out
from keen.core.errors import UsageError
from keen.options import PICK, Options

_LEAST_LIKENESS = 0.75


def main(words: Sequence[str]) -> int:
    """Run the session to its end; returns the exit code.

    Raises: UsageError without a terminal, or for flags that make no sense together.
    """
    parsed = interactive_parser().parse_args(words)
    said: list[str] = parsed.prompt
    _check_for_a_command(said)
    wanted = options(parsed)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the interactive session needs a terminal; without one use `keen run`.")
    is_picking = wanted.resume == PICK
    if is_picking:
        wanted = replace(wanted, resume=None)
    prompt = " ".join(said)
    if parsed.screen_reader or os.environ.get("TERM", "") == "dumb":
        return _plainly(wanted, prompt, is_picking=is_picking)
    return _on_a_screen(wanted, prompt, parsed.theme, is_picking=is_picking)


def _check_for_a_command(said: Sequence[str]) -> None:
    """A lone word that looks like a command was meant as one. Raises: UsageError naming it."""
    if len(said) != 1 or not said[0].isalpha():
        return
    near = difflib.get_close_matches(said[0].lower(), NAMES, n=1, cutoff=_LEAST_LIKENESS)
    if near and near[0] != said[0]:
        raise UsageError(f'there is no command "{said[0]}". Did you mean `keen {near[0]}`?')


def _on_a_screen(wanted: Options, prompt: str, theme: str, *, is_picking: bool) -> int:
    # A lone Esc is told from the start of a sequence by waiting; a tenth of a second is long.
    os.environ.setdefault("ESCDELAY", "40")
    os.chdir(wanted.cwd)
    from keen.commands._early import early
    from keen.commands.desk import AppDesk

    first = early(wanted, dict(os.environ), theme=theme, prompt=prompt, is_picking=is_picking)
    from keen.app.app import KeenApp

    app = KeenApp(AppDesk(wanted, dict(os.environ), first))
    app.run(mouse=first.mouse)
    if app.crash is not None:
        raise app.crash
    if app.summary:
        out(app.summary)
    if app.fault:
        err(f"keen: {app.fault}")
    return app.exit_code or app.return_code or int(bool(app.fault))


def _plainly(wanted: Options, prompt: str, *, is_picking: bool) -> int:
    import asyncio

    from keen.app.plain import converse
    from keen.commands._early import early
    from keen.commands.desk import AppDesk

    os.chdir(wanted.cwd)
    first = early(wanted, dict(os.environ), prompt=prompt, is_picking=is_picking)
    return asyncio.run(converse(AppDesk(wanted, dict(os.environ), first)))

"""`keen run`: one turn without a screen, for scripts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Final

from keen import __version__
from keen.commands.arguments import options, run_parser
from keen.commands.saying import complain
from keen.core.errors import ConfigError, KeenError, UsageError
from keen.core.messages import User
from keen.engine import Engine, RunLimits
from keen.headless.output import Format, Output, Result, tell, wanted_format
from keen.headless.run import (
    EXIT_FAILED,
    Headless,
    Interrupts,
    error_code,
    exit_code,
    say,
    write_result,
)
from keen.options import Options
from keen.sessions import Opened, open_session

_LAST_WORDS_SECONDS: Final = 2.0
"""How long an interrupted run waits for a reader that takes nothing."""


def main(words: Sequence[str]) -> int:
    """Run one turn; returns the exit code of the contract, section 1."""
    form = wanted_format(words)
    try:
        parsed = _parsed(words)
        form = parsed.format
        prompt = _prompt(parsed.prompt)
        return asyncio.run(_run(parsed, options(parsed), prompt))
    except KeenError as error:
        complain("keen run", error)
        return _failed(form, error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Flags and prompt in any order; behind `--` everything is prompt."""
    end = words.index("--") if "--" in words else len(words)
    parsed = run_parser().parse_intermixed_args(words[:end])
    parsed.prompt.extend(words[end + 1 :])
    return parsed


def _prompt(words: Sequence[str]) -> str:
    """The words of the command line, and behind them what was piped in."""
    said = " ".join(words)
    piped = ""
    if sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty():
        with contextlib.suppress(OSError):
            piped = _decoded(sys.stdin.buffer.read())
    prompt = f"{said}\n{piped}" if said.strip() and piped.strip() else said or piped
    if not prompt.strip():
        raise UsageError("prompt is required")
    return prompt.rstrip("\r\n") if piped else prompt


def _decoded(piped: bytes) -> str:
    """What was piped in, without a byte order mark; bytes that are no text are told."""
    try:
        return piped.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        say(
            f"keen run: what was piped in is no UTF-8 text (byte {error.start + 1:,}): \ufffd "
            "stands for what cannot be read. A file can be named in the prompt instead."
        )
        return piped.decode("utf-8", "replace")


def _failed(form: Format, error: KeenError) -> int:
    """A start that failed prints the result object too."""
    tell(form, Result(error=error))
    return error_code(error)


async def _run(parsed: argparse.Namespace, wanted: Options, prompt: str) -> int:
    environment = dict(os.environ)
    task = asyncio.current_task()
    assert task is not None
    with Interrupts(task.cancel) as interrupts:
        engine: Engine | None = None
        headless: Headless | None = None
        output = Output(1)
        try:
            opened = await open_session(wanted, environment)
            engine = opened.engine
            _limit(engine, parsed)
            await engine.check_key()
            headless = Headless(engine, output, parsed.format, __version__)
            _announce(opened)
            await headless.started()
            await headless.run(User(prompt))
        except asyncio.CancelledError:
            if not interrupts.code:
                raise
            task.uncancel()
        finally:
            if engine is not None:
                await _closed(engine)
                _tell_unsaved(engine)
        result = headless.result if headless is not None else Result()
        if interrupts.code:
            result.stop_reason = "interrupted"
        elif result.error is not None:
            say(f"keen run: {result.error}")
        await _written(output, parsed.format, result, interrupts)
        if interrupts.code:
            _leave_in_time(interrupts.code)
        return interrupts.code or exit_code(result, parsed.completion_signal or "")


def _leave_in_time(code: int) -> None:
    """Leave even if a thread never ends, such as one that reads from a network that is gone."""
    leaving = threading.Timer(_LAST_WORDS_SECONDS, os._exit, (code,))
    leaving.daemon = True
    leaving.start()


async def _written(output: Output, form: Format, result: Result, interrupts: Interrupts) -> None:
    """Write the result; a signal ends a wait for a reader that takes nothing."""
    try:
        async with asyncio.timeout(_LAST_WORDS_SECONDS if interrupts.code else None):
            await write_result(output, form, result)
    except TimeoutError:
        return
    except asyncio.CancelledError:
        if not interrupts.code:
            raise


def _limit(engine: Engine, parsed: argparse.Namespace) -> None:
    if parsed.max_budget_usd is not None and engine.cost_usd is None:
        raise ConfigError(
            f"The price of {engine.unpriced} is not known, so --max-budget-usd cannot be kept. "
            "Use --max-tokens."
        )
    engine.limits = RunLimits(
        parsed.max_turns, parsed.max_tokens, parsed.max_budget_usd, lambda: engine.cost_usd
    )


def _announce(opened: Opened) -> None:
    for notice in opened.engine.notices:
        say(f"keen run: {notice}")
    opened.engine.listen(lambda text: say(f"keen run: {text}"))


def _tell_unsaved(engine: Engine) -> None:
    """Say what a disk that filled up meanwhile keeps from being saved."""
    reason = engine.recorder.reason if engine.recorder is not None else None
    if reason is not None and f"Nothing is saved: {reason}" not in engine.notices:
        say(f"keen run: Not all is saved: {reason}")


async def _closed(engine: Engine) -> None:
    """Close to the end even if a second signal comes meanwhile."""
    closing = asyncio.ensure_future(engine.aclose())
    while not closing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([closing])
    closing.result()

"""The parsers of `keen` and `keen run`, and the flags that they share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from keen import __version__
from keen.commands.parsing import Parser, filled, filled_path, overview
from keen.core.errors import UsageError
from keen.options import PICK, Options

MODES: Final = ("plan", "build", "yolo")


def interactive_parser() -> Parser:
    """`keen` without a command."""
    parser = Parser(
        prog="keen",
        allow_abbrev=False,
        description="A coding agent for the terminal. Without a command: the interactive session.",
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="sent first")
    add_flags(parser)
    parser.add_argument("--theme", default="", metavar="NAME", help="colours")
    parser.add_argument("--screen-reader", action="store_true", help="plain lines, no full screen")
    _add_version(parser)
    return parser


def run_parser() -> Parser:
    """`keen run`."""
    from keen.headless.output import FORMATS

    parser = Parser(
        prog="keen run",
        allow_abbrev=False,
        description="One turn without a screen. Piped stdin is appended to the prompt.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong use, 3 context limit, 4 not configured, "
        "5 no completion signal, 6 a limit was reached, 75 try again later, 130 interrupted.",
    )
    add = parser.add_argument
    add("prompt", nargs="*", help="the words are joined")
    add_flags(parser)
    add("--format", "--output-format", choices=FORMATS, default="text", help="what stdout carries")
    add("--completion-signal", type=filled, metavar="TEXT", help="exit 5 if the answer lacks it")
    add("--max-turns", type=_positive, metavar="N", help="answers of the model at most")
    add("--max-tokens", type=_positive, metavar="N", help="input and output of the whole run")
    add("--max-budget-usd", type=_dollars, metavar="X", help="stop when the run has cost this")
    # `keen run -p`, for the habit
    add("-p", "--print", action="store_true", help=argparse.SUPPRESS)
    _add_version(parser)
    return parser


def _add_version(parser: Parser) -> None:
    words = f"keen {__version__}"
    parser.add_argument("-v", "--version", action="version", version=words, help="print it")


def _positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _dollars(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive amount")
    return number


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags common to `keen` and `keen run`."""
    add = parser.add_argument
    add("-m", "--model", type=filled, metavar="PROVIDER/MODEL[:EFFORT]", help="which model answers")
    add("-c", "--continue", dest="is_continued", action="store_true", help="the last session here")
    add(
        "-r", "--resume", "--session", nargs="?", const=PICK, metavar="ID|NAME", dest="resume",
        help="a saved session; a unique prefix is enough",
    )  # fmt: skip
    add("--fork-session", action="store_true", help="go on in a copy of the resumed session")
    add("-C", "--cwd", type=filled_path, default=Path(), metavar="DIR", help="work in DIR")
    add("--mode", choices=MODES, default="", help="what may happen unasked")
    add("--yolo", dest="mode", action="store_const", const="yolo", help="the same as --mode yolo")
    add("--allow", action="append", default=[], metavar="RULE", help="for example 'bash(make:*)'")
    add("--deny", action="append", default=[], metavar="RULE", help="stronger than any allow")
    add(
        "--add-dir", action="append", default=[], type=filled_path, metavar="DIR",
        help="edit there too",
    )  # fmt: skip
    add("--config", type=filled_path, metavar="FILE", help="in place of your config.toml")
    add("--mcp-config", type=filled_path, metavar="FILE", help="more MCP servers, as in .mcp.json")
    add("--append-system-prompt", default="", metavar="TEXT", help="added to the system prompt")
    add("--no-session", action="store_true", help="keep nothing on disk")
    add("--trust", action="store_true", help="trust this folder's AGENTS.md, settings and skills")
    add("--debug", action="store_true", help="write a detailed log")


def options(parsed: argparse.Namespace) -> Options:
    """The parsed flags, checked.

    Raises: UsageError for a directory or file that does not exist.
    """
    return Options(
        cwd=directory(parsed.cwd),
        model=parsed.model or "",
        is_continued=parsed.is_continued,
        resume=parsed.resume,
        is_fork=parsed.fork_session,
        mode=parsed.mode,
        allow=tuple(parsed.allow),
        deny=tuple(parsed.deny),
        directories=tuple(directory(path) for path in parsed.add_dir),
        config=_file(parsed.config),
        mcp_config=_file(parsed.mcp_config),
        appended_prompt=parsed.append_system_prompt,
        is_saved=not parsed.no_session,
        is_trusting=parsed.trust,
        is_debugging=parsed.debug,
    )


def directory(path: Path) -> Path:
    """The real path of a directory. Raises: UsageError for one that is not there any more."""
    real = _real(path)
    if not real.is_dir():
        raise UsageError(f"{path} is no directory.")
    return real


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path.expanduser()))
    except FileNotFoundError as error:  # a relative path, and the place it starts from is gone
        raise UsageError(
            "The current directory does not exist any more. Change to another one, or use -C DIR."
        ) from error


def _file(path: Path | None) -> Path | None:
    if path is None:
        return None
    real = _real(path)
    if not real.is_file():
        raise UsageError(f"{path} is no file.")
    return real

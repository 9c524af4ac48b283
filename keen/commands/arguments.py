"""The flags that `keen` and `keen run` share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from keen.commands.parsing import filled, filled_path
from keen.core.errors import UsageError
from keen.options import PICK, Options

MODES: Final = ("plan", "build", "yolo")


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

"""The flags that `keen` and `keen run` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from keen.core.errors import UsageError
from keen.options import PICK, Options

MODES: Final = ("plan", "build", "yolo")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags common to `keen` and `keen run`."""
    add = parser.add_argument
    add("-m", "--model", metavar="PROVIDER/MODEL[:EFFORT]", default="", help="which model answers")
    add("-c", "--continue", dest="is_continued", action="store_true", help="the last session here")
    add(
        "-r", "--resume", "--session", nargs="?", const=PICK, metavar="ID|NAME", dest="resume",
        help="a saved session; a unique prefix is enough",
    )  # fmt: skip
    add("--fork-session", action="store_true", help="go on in a copy of the resumed session")
    add("-C", "--cwd", type=Path, default=Path(), metavar="DIR", help="work in DIR")
    add("--mode", choices=MODES, default="", help="what may happen unasked")
    add("--yolo", dest="mode", action="store_const", const="yolo", help="the same as --mode yolo")
    add("--allow", action="append", default=[], metavar="RULE", help="for example 'bash(make:*)'")
    add("--deny", action="append", default=[], metavar="RULE", help="stronger than any allow")
    add("--add-dir", action="append", default=[], type=Path, metavar="DIR", help="edit there too")
    add("--config", type=Path, metavar="FILE", help="in place of your config.toml")
    add("--mcp-config", type=Path, metavar="FILE", help="further MCP servers")
    add("--append-system-prompt", default="", metavar="TEXT", help="added to the system prompt")
    add("--no-session", action="store_true", help="keep nothing on disk")
    add("--trust", action="store_true", help="trust this folder's AGENTS.md, settings and skills")
    add("--debug", action="store_true", help="write a detailed log")


def options(parsed: argparse.Namespace) -> Options:
    """The parsed flags, checked.

    Raises: UsageError for a directory or file that does not exist.
    """
    if parsed.mcp_config is not None:
        raise UsageError("--mcp-config: this version of keen does not run MCP servers yet.")
    return Options(
        cwd=_directory(parsed.cwd),
        model=parsed.model,
        is_continued=parsed.is_continued,
        resume=parsed.resume,
        is_fork=parsed.fork_session,
        mode=parsed.mode,
        allow=tuple(parsed.allow),
        deny=tuple(parsed.deny),
        directories=tuple(_directory(path) for path in parsed.add_dir),
        config=_file(parsed.config),
        mcp_config=_file(parsed.mcp_config),
        appended_prompt=parsed.append_system_prompt,
        is_saved=not parsed.no_session,
        is_trusting=parsed.trust,
        is_debugging=parsed.debug,
    )


def _directory(path: Path) -> Path:
    real = path.expanduser().resolve()
    if not real.is_dir():
        raise UsageError(f"{path} is no directory.")
    return real


def _file(path: Path | None) -> Path | None:
    if path is None:
        return None
    real = path.expanduser().resolve()
    if not real.is_file():
        raise UsageError(f"{path} is no file.")
    return real

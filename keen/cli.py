"""The command line: which command runs. Everything heavy is imported by the chosen command."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from keen import __version__
from keen.commands.parsing import NAMES, Parser
from keen.core.errors import ConfigError, KeenError, UsageError

_VALUED: Final = frozenset(
    {
        *("-m", "--model", "-r", "--resume", "--session", "-C", "--cwd", "--mode", "--allow"),
        *("--deny", "--add-dir", "--config", "--mcp-config", "--append-system-prompt", "--theme"),
        *("--format", "--output-format", "--completion-signal"),
        *("--max-turns", "--max-tokens", "--max-budget-usd"),
    }
)
"""Options whose next word is their value, so that it is not taken for a command."""


def main() -> NoReturn:
    """The console script. Leaves with the exit code of the chosen command."""
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run the command line `words`; returns its exit code."""
    # pydantic would scan the entry points of every installed package, and load what it finds.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if words and words[0] in ("-v", "--version"):
        print(f"keen {__version__}")
        return 0
    name, rest = split(words)
    try:
        return _dispatch(name, rest)
    except KeenError as error:
        _complain(str(error))
        return 2 if isinstance(error, UsageError) else 4 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:
        # The reader of our output left; Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _crashed(error)


def _complain(words: str) -> None:
    from keen.commands.saying import err

    err(f"keen: {words}")


def _crashed(error: Exception) -> int:
    """What only a mistake in keen itself brings about: one line here, the rest in the log."""
    import logging

    logger = logging.getLogger("keen")
    logger.critical("keen crashed", exc_info=error)
    files = [getattr(handler, "baseFilename", "") for handler in logger.handlers]
    if os.environ.get("KEEN_TRACEBACK"):
        raise error
    _complain(
        f"a mistake in keen itself: {type(error).__name__}: {error}\n"
        f"The session is saved up to here. {' '.join(filter(None, files)) or 'No log'} has the "
        "details; KEEN_TRACEBACK=1 shows them here."
    )
    return 1


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name ("" for the interactive session) and the other words, in order."""
    rest = list(words)
    skip = False
    for index, word in enumerate(rest):
        if skip:
            skip = False
        elif word == "--":
            break
        elif word in ("-p", "--print"):
            return "run", rest[:index] + rest[index + 1 :]
        elif word.startswith("-") and word != "-":
            skip = word in _VALUED
        elif word in NAMES:
            return word, rest[:index] + rest[index + 1 :]
        else:
            break
    # `keen PROMPT -p` asks for a run as well.
    if "-p" in rest and "--" not in rest[: rest.index("-p")]:
        rest.remove("-p")
        return "run", rest
    return "", rest


def _dispatch(name: str, rest: list[str]) -> int:
    match name:
        case "":
            return _interactive(rest)
        case "run":
            from keen.commands import run as command

            return command.main(rest)
        case "demo":
            return _interactive(["-m", "demo/guide", *rest])
        case "completion":
            from keen.commands import completion

            return completion.main(rest)
        case _:
            return _management(name, rest)


def _management(name: str, rest: list[str]) -> int:
    """A command that looks after settings or sessions; each is one module of keen.commands."""
    module = importlib.import_module(f"keen.commands.{name}")
    parser = Parser(prog="keen", allow_abbrev=False)
    module.add_parser(parser.add_subparsers(parser_class=Parser))
    return int(module.run(parser.parse_args([name, *rest])))


def _interactive(rest: list[str]) -> int:
    from keen.commands import interactive

    return interactive.main(rest)

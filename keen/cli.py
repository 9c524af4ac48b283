"""The command line: which command runs. Everything heavy is imported by the chosen command."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NoReturn

from keen import __version__
from keen.commands import _streams
from keen.commands.parsing import NAMES, USUAL_ACTIONS, Parser
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

_ONLY_RUN: Final = frozenset(
    {
        *("--format", "--output-format", "--completion-signal"),
        *("--max-turns", "--max-tokens", "--max-budget-usd"),
    }
)

_PRINTING: Final = re.compile(r"-c*p[A-Za-z]*|--print")
"""`-p`, alone or together with other short flags."""

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupted(KeyboardInterrupt):
    """A signal that ends a run came before the run could listen to it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main() -> NoReturn:
    """The console script. Leaves with the exit code of the chosen command."""
    _streams.hold()
    try:
        code = run(sys.argv[1:])
    except SystemExit as leaving:  # argparse, after --help
        code = leaving.code if isinstance(leaving.code, int) else 0
    sys.exit(_streams.settled(code))


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
        from keen.commands.saying import complain

        complain("keen", error)
        return 2 if isinstance(error, UsageError) else 4 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:
        # The reader of our output left; Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _failed(error)
    except Exception as error:
        return _crashed(error)


def _complain(words: str) -> None:
    from keen.commands.saying import err

    err(f"keen: {words}")


def _failed(error: OSError) -> int:
    """A disk, a file or a stream that cannot be used: nothing that keen did wrong."""
    import logging

    logging.getLogger("keen").error("keen failed", exc_info=error)
    if os.environ.get("KEEN_TRACEBACK"):
        raise error
    place = f"{error.filename}: " if error.filename else ""
    _complain(f"{place}{error.strerror or error}")
    return 1


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
        elif _PRINTING.fullmatch(word):
            return "run", rest
        elif word.startswith("-") and word != "-":
            skip = word in _VALUED
        elif word in NAMES:
            return word, rest[:index] + rest[index + 1 :]
        else:
            break
    # `keen PROMPT -p` asks for a run as well.
    said = rest[: rest.index("--")] if "--" in rest else rest
    return ("run" if "-p" in said or "--print" in said else ""), rest


def _dispatch(name: str, rest: list[str]) -> int:
    match name:
        case "":
            return _interactive(rest)
        case "run":
            return _run(rest)
        case "demo":
            return _interactive(["-m", "demo/guide", *rest])
        case "completion":
            from keen.commands import completion

            return completion.main(rest)
        case _:
            return _management(name, rest)


def _run(rest: list[str]) -> int:
    """`keen run`, whose end by a signal is told in the wanted format from the first moment on."""
    early: list[int] = []
    _listen(lambda number, _: early.append(number))  # an import that is broken off stays broken
    from keen.commands import run as command

    try:
        _listen(_interrupted)
        if early:
            raise _Interrupted(early[0])
        return command.main(rest)
    except _Interrupted as interrupt:
        _listen(signal.SIG_IGN)
        from keen.headless.output import tell_interrupted

        tell_interrupted(rest)
        return 128 + interrupt.number
    except Exception as error:
        from keen.headless.output import tell_broken

        tell_broken(rest, error)  # a script reads the object; `run` tells the person
        raise


def _listen(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _ENDING:
        # Under nohup a hangup stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupted(number: int, _: FrameType | None) -> NoReturn:
    raise _Interrupted(number)


def _management(name: str, rest: list[str]) -> int:
    """A command that looks after settings or sessions; each is one module of keen.commands."""
    own = rest[: rest.index("--")] if "--" in rest else rest
    if name != "permissions" and not {"-v", "--version"}.isdisjoint(own):
        print(f"keen {__version__}")
        return 0
    module = importlib.import_module(f"keen.commands.{name}")
    parser = Parser(prog="keen", allow_abbrev=False)
    module.add_parser(parser.add_subparsers(parser_class=Parser))
    return int(module.run(parser.parse_args([name, *_with_action(name, rest)])))


def _with_action(name: str, rest: list[str]) -> list[str]:
    """`keen sessions` alone lists: a command that has actions does its usual one, named or not."""
    usual = USUAL_ACTIONS.get(name)
    if usual is None or not {"-h", "--help"}.isdisjoint(rest):
        return rest
    is_value = False
    for word in rest:
        if not is_value and (word == "--" or not word.startswith("-")):
            return rest
        is_value = not is_value and word in _VALUED
    return [usual, *rest]


def _interactive(rest: list[str]) -> int:
    said = rest[: rest.index("--")] if "--" in rest else rest
    for word in said:
        if word.partition("=")[0] in _ONLY_RUN:
            raise UsageError(f"{word.partition('=')[0]} belongs to `keen run` (or `keen -p`).")
    from keen.commands import interactive

    return interactive.main(rest)

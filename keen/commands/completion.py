"""`keen completion bash|zsh|fish`: scripts made from the same tables as the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from keen.commands.arguments import add_flags
from keen.commands.parsing import COMMANDS, NAMES, Parser


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="keen completion", description="Print a completion script.")
    parser.add_argument("shell", choices=tuple(_SHELLS))
    print(_SHELLS[parser.parse_args(words).shell](), end="")
    return 0


def flags() -> tuple[str, ...]:
    """Every long flag of `keen` and `keen run`."""
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    return tuple(
        option
        for action in parser._actions  # pyright: ignore[reportPrivateUsage] - no public list
        for option in action.option_strings
        if option.startswith("--")
    )


def _bash() -> str:
    return f"""\
_keen() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "{" ".join(flags())}" -- "$word"))
    elif [[ $COMP_CWORD == 1 ]]; then
        COMPREPLY=($(compgen -W "{" ".join(NAMES)}" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o default -F _keen keen
"""


def _zsh() -> str:
    commands = "\n".join(f"        '{name}:{_plain(text)}'" for name, text in COMMANDS)
    return f"""\
#compdef keen
_keen() {{
    local -a commands
    commands=(
{commands}
    )
    if [[ $words[CURRENT] == -* ]]; then
        compadd -- {" ".join(flags())}
    elif (( CURRENT == 2 )); then
        _describe command commands
    else
        _files
    fi
}}
compdef _keen keen
"""


def _fish() -> str:
    lines = [
        f"complete -c keen -n __fish_use_subcommand -a {name} -d '{_plain(text)}'"
        for name, text in COMMANDS
    ]
    lines += [f"complete -c keen -l {flag.removeprefix('--')}" for flag in flags()]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A description without what the shells would read as syntax."""
    return text.replace("'", "").replace(":", " -")


_SHELLS: Final[Mapping[str, Callable[[], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

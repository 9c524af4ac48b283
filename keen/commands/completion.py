"""`keen completion bash|zsh|fish`: scripts that ask keen itself what fits at the cursor."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from keen import sanitize
from keen.commands.parsing import Parser

_ASK: Final = "words"
"""`keen completion words -- LINE`, for the scripts: a word a line, then a tab and its meaning."""

_BASH: Final = r"""
_keen() {
    local line word=${COMP_WORDS[COMP_CWORD]} typed=${COMP_LINE:0:COMP_POINT} IFS=$'\n'
    # bash takes words apart at : and =, and wants back only what comes behind the last of them.
    local begun=${typed##*[[:space:]]}
    local apart=${begun%"${begun##*[:=]}"}
    COMPREPLY=()
    compopt +o default 2>/dev/null
    while read -r line; do
        line=${line%%$'\t'*}
        case $line in
            :files) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$word")) ;;
            :directories) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$word")) ;;
            *) COMPREPLY+=("$(printf %q "${line#"$apart"}")") ;;
        esac
    done < <(command keen completion words -- "$typed" 2>/dev/null)
}
complete -o default -F _keen keen
"""

_ZSH: Final = r"""#compdef keen
_keen() {
    local line
    local -a found
    for line in "${(@f)$(command keen completion words -- \
        "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}"; do
        case $line in
            '') ;;
            :files) _files ;;
            :directories) _files -/ ;;
            *$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) found+=("${line//:/\\:}") ;;
        esac
    done
    (( $#found )) && _describe -V keen found
}
if [[ $funcstack[1] == _keen ]]; then _keen "$@"; else compdef _keen keen; fi
"""

_FISH: Final = r"""
function __keen_words
    for line in (command keen completion words -- (commandline -cp | string collect) 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':directories'
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c keen -f -a '(__keen_words)'
"""

_SHELLS: Final[Mapping[str, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_USE: Final = """\
To use it, put this line where your shell starts:
  bash  ~/.bashrc                   source <(keen completion bash)
  zsh   ~/.zshrc, after compinit    source <(keen completion zsh)
  fish  ~/.config/fish/config.fish  keen completion fish | source"""


def main(words: Sequence[str]) -> int:
    """Print a shell's script, or what fits at the end of a line; returns the exit code."""
    if words[:1] == [_ASK]:
        from keen.commands._candidates import candidates

        for one in candidates(words[-1]):
            print("\t".join(sanitize.line(text) for text in (one.words, one.meaning) if text))
        return 0
    print(_SHELLS[shells_parser().parse_args(words).shell].lstrip("\n"), end="")
    return 0


def shells_parser() -> Parser:
    """`keen completion`."""
    parser = Parser(
        prog="keen completion",
        description="Print a script that completes commands, options, sessions and models.",
        epilog=_USE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(_SHELLS))
    return parser

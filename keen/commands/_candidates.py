"""What can stand where the cursor is in a command line of keen, read from keen's own parsers."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from keen.commands.parsing import COMMANDS, Parser
from keen.core.errors import KeenError

if TYPE_CHECKING:
    from keen._settings import Settings
    from keen.commands._place import Place

FILES: Final = ":files"
"""Stands in place of candidates where the shell completes names of files by itself."""

DIRECTORIES: Final = ":directories"

_TITLE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class Candidate:
    """A whole word that fits, and what it means; `words` is FILES or DIRECTORIES for the shell."""

    words: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class _Typed:
    """What stands before the word at the cursor."""

    flags: Mapping[str, str]
    positionals: Sequence[str]
    current: str = ""
    """What is typed already of the value itself."""

    def value(self, *names: str) -> str:
        return next((self.flags[name] for name in names if name in self.flags), "")


def candidates(line: str) -> list[Candidate]:
    """What fits at the end of `line`, a command line of which `keen` is a word. Blocking.

    Where settings are wrong, nothing that depends on them is offered.
    """
    words = _words(line)
    places = [at for at, word in enumerate(words[:-1]) if os.path.basename(word) == "keen"]
    if not places:
        return []
    *before, current = words[places[0] + 1 :]
    try:
        found = list(_fitting(_parser(before), before, current))
    except KeenError:
        return []
    fitting = (one for one in found if one.words.startswith((current, ":")))
    return list({one.words: one for one in fitting}.values())


def _words(line: str) -> list[str]:
    """The words of a line as a shell reads it, the last one being typed and perhaps empty."""
    for ending in ("", "'", '"', "\\"):
        try:
            words = shlex.split(line + ending)
        except ValueError:  # an open quotation or a lone backslash
            continue
        is_between = not ending and (not line or line[-1].isspace()) and not line.endswith("\\ ")
        return [*words, ""] if is_between else words
    return [""]


def _parser(before: Sequence[str]) -> Parser:
    """The parser of the command that is named, with the commands themselves where none is."""
    from keen.cli import split

    name, _ = split(before)
    if name == "completion":
        from keen.commands.completion import shells_parser

        return shells_parser()
    if not name or name == "demo":
        from keen.commands.arguments import interactive_parser

        return interactive_parser()
    if name == "run":
        from keen.commands.arguments import run_parser

        return run_parser()
    root = Parser(prog="keen", allow_abbrev=False, add_help=False)
    module = importlib.import_module(f"keen.commands.{name}")
    module.add_parser(root.add_subparsers(parser_class=Parser))
    chosen = _parsers(root.known()[0])[name]
    assert isinstance(chosen, Parser)
    return chosen


def _fitting(parser: Parser, before: Sequence[str], current: str) -> Iterator[Candidate]:
    from keen.cli import split

    name, rest = split(before)
    if "--" in rest:
        yield Candidate(FILES)
        return
    option, equals, begun = current.partition("=")
    parser, typed, wanting = _read(parser, rest, begun if option.startswith("--") else current)
    options = {flag: one for one in parser.known() for flag in one.option_strings}
    if wanting is not None and not (current.startswith("-") and wanting.nargs == "?"):
        yield from _values(parser, wanting, typed)
    elif equals and option.startswith("--") and option in options:
        for one in _values(parser, options[option], typed):
            is_word = not one.words.startswith(":")
            yield Candidate(f"{option}={one.words}" if is_word else one.words, one.meaning)
    elif current.startswith("-"):
        for flag, one in options.items():
            if one.help != argparse.SUPPRESS and (current == flag or flag.startswith("--")):
                yield Candidate(flag, one.help or "")
    else:
        yield from _next_word(parser, typed, is_command=not name)


def _next_word(parser: Parser, typed: _Typed, *, is_command: bool) -> Iterator[Candidate]:
    """What the next word may be that is no option."""
    if is_command:
        if not typed.positionals:
            yield from (Candidate(*command) for command in COMMANDS)
        return
    slots = [one for one in parser.known() if not one.option_strings]
    if len(typed.positionals) < len(slots):
        yield from _values(parser, slots[len(typed.positionals)], typed)
    elif slots and slots[-1].nargs in ("*", "+"):
        yield from _values(parser, slots[-1], typed)


def _read(
    parser: Parser, words: Sequence[str], current: str
) -> tuple[Parser, _Typed, argparse.Action | None]:
    """The parser of the last action named, what was typed for it, and an option without value."""
    flags: dict[str, str] = {}
    positionals: list[str] = []
    wanting: argparse.Action | None = None
    for word in words:
        options = {flag: one for one in parser.known() for flag in one.option_strings}
        name, equals, value = word.partition("=")
        if wanting is not None and not (word.startswith("-") and wanting.nargs == "?"):
            flags.update(dict.fromkeys(wanting.option_strings, word))
            wanting = None
        elif name in options:
            action = options[name]
            flags.update(dict.fromkeys(action.option_strings, value))
            wanting = None if equals or action.nargs == 0 else action
        elif not word.startswith("-"):
            slot = next((one for one in parser.known() if _parsers(one)), None)
            if slot is not None and isinstance(inner := _parsers(slot).get(word), Parser):
                parser, positionals = inner, []
            else:
                positionals.append(word)
    return parser, _Typed(flags, positionals, current), wanting


def _parsers(action: argparse.Action) -> Mapping[str, object]:
    """The parsers of a command's actions by name; empty for any other argument."""
    choices = cast("object", action.choices)
    return cast("dict[str, object]", choices) if isinstance(choices, dict) else {}


def _values(parser: Parser, action: argparse.Action, typed: _Typed) -> Iterator[Candidate]:
    """What can be the value of an option or stand in a positional's place."""
    if action.choices is not None:
        # argparse keeps the sentence on each action where only a parser's help can reach it.
        rows = cast("list[argparse.Action]", getattr(action, "_choices_actions", []))
        meanings = {row.dest: row.help or "" for row in rows}
        yield from (Candidate(str(one), meanings.get(str(one), "")) for one in action.choices)
    elif find := _KINDS.get(action.dest, _KINDS.get(f"{parser.prog} {action.dest}")):
        yield from find(typed)


def _files(_: _Typed) -> Iterator[Candidate]:
    yield Candidate(FILES)


def _directories(_: _Typed) -> Iterator[Candidate]:
    yield Candidate(DIRECTORIES)


def _sessions(typed: _Typed) -> Iterator[Candidate]:
    """Saved sessions of the directory in question: the beginning of each id, and each name."""
    from keen import sanitize
    from keen.commands.arguments import directory
    from keen.paths import Paths
    from keen.session.store import Store

    cwd = None if "--all" in typed.flags else directory(Path(typed.value("--cwd")))
    for one in Store(Paths.from_environment().sessions).sessions(cwd):
        title = sanitize.line(one.title)[:_TITLE_WIDTH]
        yield Candidate(one.session_id[:8], title)
        if one.name and one.name.isprintable():
            yield Candidate(one.name, title)


def _models(typed: _Typed) -> Iterator[Candidate]:
    """One model of each provider, or all of the one whose name is there already."""
    from keen import providers

    place, settings = _settings(typed)
    provider, slash, _ = typed.current.partition("/")
    only = provider if slash else ""
    known = providers.known_models(settings, place.environment, place.paths, provider=only)
    yield from (Candidate(one.spec.name) for one in known)


def _providers(typed: _Typed) -> Iterator[Candidate]:
    from keen import providers

    yield from (Candidate(name) for name in providers.provider_names(_settings(typed)[1]))


def _themes(_: _Typed) -> Iterator[Candidate]:
    from keen import themes
    from keen.paths import Paths

    yield from (Candidate(name) for name in themes.names(Paths.from_environment().themes))


def _servers(typed: _Typed) -> Iterator[Candidate]:
    """MCP servers by name; a project's own are named only where the project is trusted."""
    from keen import trust
    from keen.extend.mcp_config import USER_FILE, servers

    place, settings = _settings(typed)
    root = trust.project_root(place.cwd) if place.is_trusted else None
    mine = place.paths.config / USER_FILE
    found = servers(settings, root, None, place.environment, user_file=mine)
    yield from (Candidate(one.name) for one in found.configs)


def _hooks(typed: _Typed) -> Iterator[Candidate]:
    """The hooks of a trusted project by their id."""
    from keen.commands.hooks import ID_LENGTH, project_hooks

    found = project_hooks(_settings(typed)[0])
    hooks = found.hooks if found is not None else ()
    yield from (Candidate(one.key[:ID_LENGTH], one.shown) for one in hooks)


def _settings(typed: _Typed) -> tuple[Place, Settings]:
    from keen.commands._place import place_of

    where = argparse.Namespace(
        cwd=Path(typed.value("--cwd")),
        config=Path(file) if (file := typed.value("--config")) else None,
    )
    place = place_of(where)
    return place, place.load().settings


_KINDS: Final[Mapping[str, Callable[[_Typed], Iterator[Candidate]]]] = {
    "cwd": _directories,
    "add_dir": _directories,
    "config": _files,
    "mcp_config": _files,
    "output": _files,
    "prompt": _files,
    "target": _files,
    "model": _models,
    "resume": _sessions,
    "id": _sessions,
    "theme": _themes,
    "provider": _providers,
    "keen mcp remove name": _servers,
    "keen mcp test name": _servers,
    "keen mcp approve name": _servers,
    "keen mcp login name": _servers,
    "keen mcp logout name": _servers,
    "keen hooks approve hook": _hooks,
    "keen hooks revoke hook": _hooks,
}
"""By an argument's name; with its command before it where the name alone does not say enough."""

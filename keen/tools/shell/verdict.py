"""Whether a command may run: plain reads unasked, dangerous ones never unasked, the rest on asking.

The rule is safety by proof: only what two parsers read alike, out of a table of programs that only
read, with options and paths that were checked one by one, is `auto`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.sanitize import INVISIBLE
from keen.tools.base import Context
from keen.tools.guard import Guard, real_path
from keen.tools.shell.dangers import TooDeep, danger, readings, touched
from keen.tools.shell.places import Places
from keen.tools.shell.plain import objection
from keen.tools.shell.plain_programs import SYSTEM_DIRECTORIES
from keen.tools.shell.second_reading import split_plainly
from keen.tools.shell.syntax import (
    Finding,
    Hold,
    Level,
    Script,
    SimpleCommand,
    Word,
    highest,
    read,
)

MOST_BYTES: Final = 16_384
MOST_PARTS: Final = 64

_NEVER_IN_A_COMMAND: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200c\u200d{INVISIBLE}]")
_NOWHERE: Final = Path("/nonexistent")


@dataclass(frozen=True, slots=True)
class ShellVerdict:
    """What is known about a command before it runs."""

    level: Level
    reason: str
    """The end of a card's sentence, for example "rm deletes"."""
    parts: tuple[tuple[str, ...], ...] = ()
    """The words of each simple command of a plain list; empty when the call is not plain."""
    is_plain: bool = False
    """Syntax without surprises: every word is literal or a glob or `~` of an operand."""
    only_syntax: bool = False
    """`never` for its shell syntax alone: a full sandbox holds it."""
    is_refused: bool = False
    """Not even to be asked about: the text deceives, or is too long to be judged."""
    holds: Hold = "free"
    """What its operands show of hidden and protected places: binding in yolo too."""
    held: str = ""
    """The reason of `holds`."""
    levels: tuple[Level, ...] = ()
    """Of each part, by the table alone."""
    literal: tuple[bool, ...] = ()
    """Of each part: no globs, so that a rule may speak of its words."""
    touched: tuple[tuple[Path, bool], ...] = ()
    """Paths that its words may stand for, and whether it may write there: for deny rules."""
    mentions: tuple[tuple[str, ...], ...] = ()
    """Every reading of every simple command at any depth: what deny rules are held against."""


def text_fault(command: str) -> str | None:
    """Why a text is no command that anybody can judge by looking at it; None when it is one."""
    match = _NEVER_IN_A_COMMAND.search(command)
    if match:
        return f"it holds the invisible or control character U+{ord(match[0]):04X}"
    if len(command.encode()) > MOST_BYTES:
        return f"it is longer than {MOST_BYTES:,} bytes; put it into a script file"
    return None


def verdict(
    command: str,
    cwd: Path,
    roots: tuple[Path, ...],
    path: str | None = None,
    *,
    guard: Guard | None = None,
    scratch: Path = _NOWHERE,
) -> ShellVerdict:
    """Judge the exact text that `/bin/bash -c` would get.

    `path`: the PATH that commands get; "" or None means that names are not looked up.
    Reads directories and links to see where operands lead.
    """
    fault = text_fault(command)
    if fault is not None:
        return _refused(fault)
    script = read(command)
    if len(script.commands) > MOST_PARTS:
        return _refused(f"it has more than {MOST_PARTS} commands; run them in smaller groups")
    try:
        mentions = tuple(m for c in script.commands for m in readings(c.words))
    except TooDeep:
        return _refused("it wraps a command too often")
    context = Context(cwd, roots, scratch)
    places = Places(context, guard or Guard(), (cwd,))
    stages = list(zip(script.commands, _stages(script, places), strict=True))
    judged = [_one(command, stage, path) for command, stage in stages]
    findings = [*script.findings, *(f for one in judged for f in one)]
    plain = not any(f.is_syntax or f.level == "never" for f in script.findings)
    plain = plain and _both_readings_agree(command, script)
    if not plain and not findings:
        findings.append(Finding("ask", "its syntax is not plain", True))
    if not script.commands and not findings:
        findings.append(Finding("ask", "it is empty"))
    level = highest(findings)
    deciding = [f for f in findings if f.level == level]
    parts = tuple(tuple(w.text for w in c.words) for c in script.commands) if plain else ()
    held = sorted((f for f in findings if f.holds != "free"), key=lambda f: f.holds)
    return ShellVerdict(
        level,
        deciding[0].reason if deciding else _summary(script),
        parts,
        plain,
        only_syntax=level == "never" and all(f.is_syntax for f in deciding),
        holds=held[-1].holds if held else "free",
        held=held[-1].reason if held else "",
        levels=tuple(highest(one) for one in judged) if plain else (),
        literal=tuple(_is_literal(c) for c in script.commands) if plain else (),
        touched=tuple(pair for one, stage in stages for pair in touched(one, stage)),
        mentions=mentions,
    )


def _refused(reason: str) -> ShellVerdict:
    return ShellVerdict("never", reason, is_refused=True)


def _summary(script: Script) -> str:
    return "only reads" if len(script.commands) < 2 else "each of its commands only reads"


def _is_literal(command: SimpleCommand) -> bool:
    return all(word.is_literal for word in command.words) and all(
        redirect.is_harmless for redirect in command.redirects
    )


def _stages(script: Script, places: Places) -> Iterator[Places]:
    """For each command, where it may start after the ones before it."""
    for command in script.commands:
        yield places
        words = [word for word in command.words if word.text not in ("-L", "-P", "--")]
        if words and words[0].text in ("pushd", "popd"):
            places = places.moved(Word("", is_dynamic=True))
        elif words and words[0].text == "cd":
            home = Word(os.path.expanduser("~"))
            places = places.moved(_known_goal(words[1] if len(words) > 1 else home))


def _known_goal(goal: Word) -> Word:
    """`cd -` goes where nobody can say beforehand."""
    return Word("-", is_dynamic=True) if goal.text == "-" else goal


def _one(command: SimpleCommand, places: Places, path: str | None) -> list[Finding]:
    findings: list[Finding] = []
    risk = danger(command, places)
    findings.extend(risk)
    if not command.words:
        return findings
    name = _system_name(command.words[0])
    if name is None:
        findings.append(Finding("ask", f"{command.words[0].text} is named by its path"))
        return findings
    words = (name, *command.words[1:])
    found = objection(words, places)
    if found is None:
        found = _strange_program(name.text, places, path)
    if found is not None:
        findings.append(found)
    if name.text == "cd":
        findings.extend(_crooked(command.words[1:], places))
    return findings


def _system_name(word: Word) -> Word | None:
    """A program's bare name; of one named by its path only where the system keeps programs."""
    if "/" not in word.text:
        return word
    literal, real = os.path.normpath(word.text), real_path(word.text)
    directory, name = os.path.split(literal)
    try:
        is_system = os.stat(real).st_uid == 0 and os.stat(os.path.dirname(real)).st_uid == 0
    except OSError:
        return None
    inside = directory in SYSTEM_DIRECTORIES and os.path.dirname(real) in SYSTEM_DIRECTORIES
    if word.text != literal or not word.is_literal or not inside or not is_system:
        return None
    return Word(name)


def _strange_program(name: str, places: Places, path: str | None) -> Finding | None:
    """A program of a plain name must not come out of the workspace."""
    if not path:
        return None
    where = shutil.which(name, path=path)
    if where is None:
        return None
    real = Path(real_path(where))
    roots = places.context.roots
    if any(Path(where).is_relative_to(r) or real.is_relative_to(r) for r in roots):
        return Finding("ask", f"{name} is a program of this workspace ({where})")
    return None


def _crooked(words: Sequence[Word], places: Places) -> list[Finding]:
    """bash follows `..` in the spelling, the system through links: both must mean one place."""
    findings: list[Finding] = []
    for word in words:
        if word.text == "-":
            findings.append(Finding("ask", "cd - goes to a directory not known beforehand"))
        for start in places.starts:
            spelled = real_path(os.path.normpath(start / word.text))
            if ".." in word.text and spelled != real_path(start / word.text):
                findings.append(Finding("ask", f"cd {word.text} leads through a link"))
    return findings


def _both_readings_agree(command: str, script: Script) -> bool:
    lexed = split_plainly(command)
    if lexed is None or len(lexed) != len(script.commands):
        return False
    return all(
        len(words) == len(parsed.words)
        and not parsed.is_nested
        and all(_is_same(word, text) for word, text in zip(parsed.words, words, strict=True))
        for words, parsed in zip(lexed, script.commands, strict=True)
    )


def _is_same(word: Word, text: str) -> bool:
    if word.has_tilde and text.startswith("~"):
        return word.text in (text, os.path.expanduser("~") + text[1:])
    return word.text == text and not word.is_dynamic

"""What makes a simple command dangerous, whatever stands around it, and how else it can be read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from keen.tools.guard import PathFacts, real_path
from keen.tools.shell.git_dangers import git_dangers, is_one_of, shows_content, subcommand_words
from keen.tools.shell.places import Places, glob_matches
from keen.tools.shell.risky_programs import (
    DANGEROUS_OPTIONS,
    FIND_RUNS,
    NEVER,
    RUN_TEXT,
    SHELLS,
    SOURCES,
    WRAPPER_LONG,
    WRAPPER_OPERANDS,
    WRAPPERS,
    WRITERS,
)
from keen.tools.shell.syntax import Finding, Hold, Redirect, SimpleCommand, Word, is_setting, read

# Each of these takes time in proportion to the text: a model writes the text.
_SED_COMMAND: Final = re.compile(r"(?:^|[;{}\d$/,!\s])[ewW](?:\s|$)")
_SED_FLAGS: Final = re.compile(r"([^\w\s\\])[gpiImM\d]*[ew]")
_AWK: Final = re.compile(r"system\s*\(|\|\s*getline|\|&|@load|@include")
_AWK_STATEMENT: Final = re.compile(r"[;}\n]")
_OPTION_C: Final = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
_MOST_WRAPPED: Final = 8
"""Commands around a command: wrappers, shells and evals together."""


def danger(command: SimpleCommand, places: Places) -> list[Finding]:
    """What speaks against running this command; plain reads are recognised elsewhere."""
    findings = [f for redirect in command.redirects for f in _redirect(redirect, places)]
    words = command.words
    if not words:
        return findings
    if words[0].is_dynamic or words[0].has_glob or words[0].has_brace:
        findings.append(Finding("never", "the program's name is not known beforehand"))
    wrapped = words
    while True:
        inner = _inner(wrapped)
        findings.extend(_named(wrapped, command, places))
        if inner is None:
            break
        findings.append(Finding("ask", f"{_base(wrapped[0])} runs another command"))
        if not inner:
            break
        wrapped = inner
    findings.extend(_operands(wrapped, places))
    return findings


class TooDeep(ValueError):
    """A command that is wrapped in so many others that nobody can say what it runs."""


def readings(words: Sequence[Word], depth: int = 0) -> list[tuple[str, ...]]:
    """The words as they stand, and as they act: unwrapped, without path and git's own options.

    Raises: TooDeep.
    """
    found: list[tuple[str, ...]] = []
    current: Sequence[Word] | None = words
    while current:
        if depth >= _MOST_WRAPPED:
            raise TooDeep
        texts = tuple(word.text for word in current)
        based = (_base(current[0]), *texts[1:])
        found += [texts, based]
        if based[0] == "git":
            found.append(("git", *subcommand_words(current[1:])))
        depth += 1
        for script in _scripts(current):
            found += [r for c in read(script).commands for r in readings(c.words, depth)]
        current = _inner(current)
    return list(dict.fromkeys(found))


def touched(command: SimpleCommand, places: Places) -> list[tuple[Path, bool]]:
    """The paths its words and redirections may stand for, and whether it may write there."""
    words = command.words
    found: list[tuple[Path, bool]] = []
    for redirect in command.redirects:
        found += [(path, redirect.writes) for path in _spelled(redirect.target, places)]
    spelled = {word: _spelled(word, places) for word in words[1:]}
    while words:
        writes = _base(words[0]) in WRITERS
        found += [(path, writes) for word in words[1:] for path in spelled[word]]
        for script in _scripts(words):
            found += [pair for one in read(script).commands for pair in touched(one, places)]
        words = tuple(_inner(words) or ())
    return found


def _spelled(word: Word, places: Places) -> list[Path]:
    """The paths a word, or the value glued to an option, may be: as spelled and as they lead."""
    found: list[Path] = []
    for text in _as_paths(word.text):
        for name in [text, *((glob_matches(text, places) or []) if word.has_glob else [])]:
            for start in places.starts:
                literal = os.path.normpath(start / name)
                found += [Path(literal), Path(real_path(literal))]
    return found


def _base(word: Word) -> str:
    return word.text.rpartition("/")[2] or word.text


def _inner(words: Sequence[Word]) -> Sequence[Word] | None:
    """The command that a wrapper runs; None when this is no wrapper."""
    name = _base(words[0])
    if name == "find":
        texts = [word.text for word in words]
        position = next((i for i, text in enumerate(texts) if text in FIND_RUNS), len(words))
        return words[position + 1 :] or None
    if name not in WRAPPERS:
        return None
    position, own = 1, WRAPPER_OPERANDS.get(name, 0)
    while position < len(words):
        text = words[position].text
        if text == "--":
            position += 1
            break
        if text.startswith("-") and text != "-":
            is_short = len(text) == 2 and text[1] in WRAPPERS[name]
            position += 2 if is_short or text in WRAPPER_LONG else 1
        elif is_setting(text) and name in ("env", "sudo", "doas"):
            position += 1
        elif own:
            own -= 1
            position += 1
        else:
            break
    return words[position + own :]


def _scripts(words: Sequence[Word]) -> list[str]:
    """The command texts among the words: behind `-c` of a shell or its like, of eval and trap."""
    name, rest = _base(words[0]), [word.text for word in words[1:]]
    if name == "eval":
        return [" ".join(rest)]
    if name == "trap":
        return rest[:1]
    if name == "env":
        return [text for before, text in pairwise(rest) if before in ("-S", "--split-string")]
    if name not in SHELLS | RUN_TEXT:
        return []
    position = next((i for i, text in enumerate(rest) if _OPTION_C.fullmatch(text)), len(rest))
    following = iter(rest[position + 1 :])
    for text in following:
        if text in ("-o", "-O", "+o", "+O"):
            next(following, None)
        elif not text.startswith(("-", "+")):
            return [text]
    return []


def _named(words: Sequence[Word], command: SimpleCommand, places: Places) -> list[Finding]:
    """Dangers by the program's name and its words."""
    name, texts = _base(words[0]), [word.text for word in words[1:]]
    findings: list[Finding] = []
    if name in NEVER and not _is_look_up(name, texts):
        findings.append(Finding("never", f"{name} {NEVER[name]}", _is_setting_command(name)))
    if name.startswith("mkfs"):
        findings.append(Finding("never", f"{name} writes to disks"))
    if name in SOURCES:
        findings.append(Finding("never", f"{name} runs a file in this shell", True))
    if name in SHELLS:
        findings.extend(_shell(words, command, places))
    if name == "git":
        findings.extend(git_dangers(words[1:], places))
    if name == "env" and any(is_setting(text) for text in texts):
        findings.append(Finding("never", "it sets a variable for a command"))
    options = DANGEROUS_OPTIONS.get(name, ())
    option = next((text for text in texts if is_one_of(text, options)), None)
    if option is not None:
        findings.append(Finding("never", f"{name} {option} can write, delete or run something"))
    findings.extend(_special(name, texts))
    return findings


def _is_setting_command(name: str) -> bool:
    return name in ("export", "declare", "typeset", "readonly", "local", "unset")


def _is_look_up(name: str, texts: list[str]) -> bool:
    """`set -e` and its like are harmless; `env X` and `builtin X` are judged by what they wrap."""
    if name == "set":
        known = ("-e", "-u", "-x", "-eu", "-ex", "-eux", "-euo", "-euxo", "-o", "pipefail")
        return bool(texts) and all(text in known for text in texts)
    return name == "env" and bool(texts)


def _special(name: str, texts: list[str]) -> list[Finding]:
    """Programs whose operands, not options, do the harm."""
    operands = [text for text in texts if not text.startswith("-") or text == "-"]
    match name:
        case "uniq" | "xxd" if len(operands) > 1:
            return [Finding("never", f"{name} writes its second operand")]
        case "hostname" if operands:
            return [Finding("never", "hostname sets the machine's name")]
        case "less" | "more" | "vi" | "vim" | "nvim" | "view" | "ex":
            if any(text.startswith("+") for text in texts):
                return [Finding("never", f"{name} + runs commands")]
        case "sed":
            if any(_SED_COMMAND.search(text) or _has_acting_flag(text) for text in texts):
                return [Finding("never", "this sed script can write or run something")]
        case "awk" | "gawk" | "mawk" | "nawk":
            if any(_AWK.search(text) or _prints_away(text) for text in texts):
                return [Finding("never", "this awk program can write or run something")]
        case _:
            pass
    return []


def _has_acting_flag(script: str) -> bool:
    """True where sed's `s` may have the flag `e` or `w`, whatever stands between its parts."""
    last = {match[1]: match.start() for match in _SED_FLAGS.finditer(script)}
    for mark, end in last.items():
        start = script.find(f"s{mark}")
        if start >= 0 and script.count(mark, start + 2, end):
            return True
    return False


def _prints_away(program: str) -> bool:
    """True where an awk `print` is redirected."""
    rests = (one.partition("print")[2] for one in _AWK_STATEMENT.split(program))
    return any(">" in rest or "|" in rest for rest in rests)


def _shell(words: Sequence[Word], command: SimpleCommand, places: Places) -> list[Finding]:
    scripts = _scripts(words)
    findings: list[Finding] = []
    for script in scripts:
        inner = read(script)
        findings.extend(inner.findings)
        for one in inner.commands:
            findings.extend(danger(one, places))
    files = [word for word in words[1:] if not word.text.startswith("-")]
    if not scripts and (command.has_input or "-s" in [w.text for w in words]):
        findings.append(Finding("never", f"{_base(words[0])} runs what is fed to it"))
    elif not scripts and not files:
        findings.append(Finding("ask", f"{_base(words[0])} is a shell"))
    return findings


def _redirect(redirect: Redirect, places: Places) -> list[Finding]:
    if redirect.is_harmless:
        return []
    target = redirect.target
    if redirect.operator in (">&", "<&") and target.text.rstrip("-").isdecimal():
        return [Finding("ask", "it moves file descriptors", True)]
    verb = "writes to" if redirect.writes else "reads from"
    findings = [Finding("ask", f"it {verb} {target.text or 'a file'}")]
    for facts in places.facts(target.text or "."):
        reason = _sensitive(facts, is_write=redirect.writes)
        if reason:
            told = f"it {verb} {target.text}: {reason}"
            findings.append(Finding("never", told, holds=_hold(facts, is_write=redirect.writes)))
    return findings


def _sensitive(facts: PathFacts, *, is_write: bool) -> str:
    """Why a path is not to be touched; "" when it may be."""
    if facts.is_hidden or facts.is_secret:
        return facts.reason or "it may hold secrets"
    if facts.kind == "system":
        system = str(facts.path).startswith(("/proc", "/sys"))
        return "it belongs to the system" if is_write or system else ""
    if is_write and facts.protection != "none":
        return facts.reason
    return ""


def _hold(facts: PathFacts, *, is_write: bool) -> Hold:
    if facts.is_hidden or (is_write and facts.protection == "refuse"):
        return "refuse"
    is_protected = is_write and facts.protection != "none"
    return "ask" if facts.is_secret or is_protected else "free"


def _operands(words: Sequence[Word], places: Places) -> list[Finding]:
    """Protected and secret places among the words of a program that is no plain read."""
    name = _base(words[0])
    may_name_secrets = name == "touch" or (name == "git" and not shows_content(words))
    findings: list[Finding] = []
    for word in words[1:]:
        for text in _as_paths(word.text):
            for facts in places.facts(text):
                if reason := _why_not_touch(name, facts, may_name_secrets=may_name_secrets):
                    hold = _hold(facts, is_write=name in WRITERS)
                    told = f"{name} touches {text}: {reason}"
                    findings.append(Finding("never", told, holds=hold))
    return findings


def _as_paths(text: str) -> list[str]:
    """A word and what an option may have glued to it, as far as they can name a file."""
    if not text or (text.startswith("-") and not text.startswith("--") and len(text) < 4):
        return []
    spellings = [text]
    _, is_given, value = text.partition("=")
    if is_given and value:
        spellings.append(os.path.expanduser(value) if value.startswith("~") else value)
    if text.startswith("-") and not text.startswith("--"):
        spellings.append(text[2:])
    return [s for s in spellings if len(s) < 4_096 and not s.startswith("-") and "\0" not in s]


def _why_not_touch(name: str, facts: PathFacts, *, may_name_secrets: bool) -> str:
    if facts.kind == "missing" and facts.reason == "cannot be resolved":
        return ""  # it is asked about anyhow
    if name in ("echo", "printf", "grep", "rg", "egrep", "fgrep", "test", "find", "ls", "stat"):
        return ""  # words of these are text, or judged by the table of plain reads
    if facts.is_hidden:
        return facts.reason
    if facts.is_secret and not may_name_secrets:
        return "it may hold secrets"
    if facts.protection != "none" and name in WRITERS:
        return facts.reason
    if name in ("chmod", "chown", "chgrp") and facts.root is None and facts.kind != "missing":
        return "it is outside the workspace"
    if facts.kind == "system" and name in WRITERS and str(facts.path) != "/dev/null":
        return "it belongs to the system"
    return ""

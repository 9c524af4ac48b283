"""Whether one simple command is a plain read: the tables applied to its words."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from keen.tools.guard import PathFacts
from keen.tools.shell.places import MOST_MATCHES, Places, glob_matches
from keen.tools.shell.plain_programs import (
    FIND_TESTS,
    FIND_VALUED,
    PLAIN,
    PRINTF_FORMAT,
    SED_PRINT,
    TEST_OPERATORS,
    Plain,
)
from keen.tools.shell.syntax import Finding, Word
from keen.tools.shell.trees import tree_objection

_MOST_CHECKED: Final = 250
"""Files of one command whose place is looked up: together a few hundredths of a second."""
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


def objection(words: Sequence[Word], places: Places) -> Finding | None:
    """What keeps this command from running unasked; None for a plain read."""
    name, *rest = words
    if not name.is_literal:
        return Finding("ask", "the program's name is not plain")
    special = {"echo": _echo, "printf": _printf, "test": _test, "sed": _sed, "find": _find}
    judge = special.get(name.text)
    if judge is not None:
        return judge(rest, places)
    match name.text:
        case "sleep" | "seq" | "exit":
            return None if _are_numbers(rest) else Finding("ask", f"{name.text} is given words")
        case "date":
            return _date(rest)
        case text if text in PLAIN:
            return _tabled(text, PLAIN[text], rest, places)
        case text:
            return Finding("ask", f"{_spelled(text)} is not known as a plain read")


def _spelled(name: str) -> str:
    strange = next((character for character in name if ord(character) > 126), None)
    if strange is None:
        return name
    return f"{name} (with the character U+{ord(strange):04X})"


def _tabled(name: str, plain: Plain, words: Sequence[Word], places: Places) -> Finding | None:
    parsed = _parsed(name, plain, words)
    if isinstance(parsed, Finding):
        return parsed
    operands = parsed.operands
    has_glob = any(operand.has_glob for operand in operands)
    if len(operands) > plain.most or (has_glob and plain.most < MOST_MATCHES):
        return Finding("ask", f"{name} with so many operands can write or change something")
    if len(operands) < plain.least:
        return Finding("ask", f"{name} needs an operand")
    texts = len(operands) if plain.operands == "texts" else int(parsed.takes_pattern(plain))
    if any(not operand.is_literal for operand in operands[:texts]):
        return Finding("ask", f"a pattern in an argument of {name} expands to file names")
    paths = operands[texts:]
    reads_trees = plain.is_recursive or parsed.is_recursive
    if reads_trees and not paths:
        paths = [Word(".")]
    for operand in paths:
        finding = path_objection(operand, places, plain, name)
        if finding is None and reads_trees and not parsed.lists_files:
            finding = tree_objection(name, operand, places, has_filter=parsed.has_filter)
        if finding is not None:
            return finding
    return None


@dataclass
class _Parsed:
    operands: list[Word]
    has_pattern: bool = False
    lists_files: bool = False
    is_recursive: bool = False
    has_filter: bool = False

    def takes_pattern(self, plain: Plain) -> bool:
        return plain.operands == "pattern" and not self.has_pattern and not self.lists_files


def _parsed(name: str, plain: Plain, words: Sequence[Word]) -> _Parsed | Finding:
    """The operands, options checked against the table."""
    parsed = _Parsed([])
    waiting = iter(words)
    for word in waiting:
        text = word.text
        if text == "--" and word.is_literal:
            parsed.operands.extend(waiting)
            break
        if not text.startswith("-") or text == "-":
            parsed.operands.append(word)
            continue
        needs_value = _option(name, plain, word, parsed)
        if isinstance(needs_value, Finding):
            return needs_value
        if needs_value:
            value = next(waiting, None)
            if value is None or not value.is_literal:
                return Finding("ask", f"the value of {text} of {name} is not plain")
            parsed.has_filter = parsed.has_filter or _is_filter(text, value.text)
    return parsed


def _option(name: str, plain: Plain, word: Word, parsed: _Parsed) -> bool | Finding:
    """True when the next word is this option's value."""
    text = word.text
    unknown = Finding("ask", f"{name} {text.partition('=')[0]} is not known as harmless")
    if not word.is_literal:
        return unknown
    if text.startswith("--"):
        option, has_value, value = text[2:].partition("=")
        parsed.has_pattern = parsed.has_pattern or option == "regexp"
        parsed.lists_files = parsed.lists_files or option in ("files", "type-list")
        parsed.is_recursive = parsed.is_recursive or f"--{option}" in plain.recursive.split()
        if has_value:
            parsed.has_filter = parsed.has_filter or _is_filter(f"--{option}", value)
            return False if option in plain.long_valued else unknown
        if option in plain.long:
            return False
        return True if option in plain.long_valued else unknown
    if plain.has_number and text[1:].isdecimal() and text.isascii():
        return False
    for position, letter in enumerate(text[1:], start=2):
        if letter in plain.valued:
            parsed.has_pattern = parsed.has_pattern or letter == "e"
            value = text[position:]
            parsed.has_filter = parsed.has_filter or (
                bool(value) and _is_filter(f"-{letter}", value)
            )
            return not value
        if letter not in plain.flags:
            return unknown
        parsed.is_recursive = parsed.is_recursive or letter in plain.recursive.split()
    return False


def _is_filter(option: str, value: str) -> bool:
    """True for a glob that makes ripgrep look into hidden files it would leave out."""
    return option.lstrip("-") in ("g", "glob", "iglob") and not value.startswith("!")


def path_objection(operand: Word, places: Places, plain: Plain, name: str) -> Finding | None:
    """What keeps a path operand from being read unasked."""
    if operand.text == "-" and operand.is_literal:
        return None
    if operand.has_brace or operand.is_dynamic or _is_other_home(operand):
        return Finding("ask", f"an argument of {name} expands to something not known beforehand")
    if not places.is_known and not os.path.isabs(operand.text):
        return Finding("ask", "the directory it starts in is not known beforehand")
    matches = [operand.text]
    if operand.has_glob:
        found = glob_matches(operand.text, places)
        if found is None:
            return Finding("ask", f"{operand.text} matches too many files to check")
        matches += found
        if any(match.startswith("-") for match in found):
            return Finding("ask", f"{operand.text} matches a file name that looks like an option")
    if len(matches) + len(places.memo) > _MOST_CHECKED:
        return Finding("ask", f"{name} would read more files than can be checked at once")
    for match in matches:
        for facts in places.facts(match):
            finding = _facts_objection(match, facts, plain, name)
            if finding is not None:
                return finding
    return None


def _is_other_home(word: Word) -> bool:
    return word.has_tilde and "~" in word.text


def _facts_objection(text: str, facts: PathFacts, plain: Plain, name: str) -> Finding | None:
    if facts.is_hidden:
        return Finding("never", f"{text} is {facts.reason}", holds="refuse")
    if facts.is_secret and plain.shows_content:
        return Finding("never", f"{text} may hold secrets", holds="ask")
    if facts.kind == "system":
        if text == "/dev/null":
            return None
        if str(facts.path).startswith(("/proc", "/sys")):
            return Finding("never", f"{text} shows what other programs keep in memory")
        return Finding("ask", f"{text} is a device")
    if facts.root is None:
        return Finding("ask", f"{text} is outside the workspace")
    if facts.kind in ("device", "fifo", "socket"):
        return Finding("ask", f"{text} is a {facts.kind}")
    if facts.kind == "directory" and not plain.takes_directories:
        return Finding("ask", f"{name} would read everything in {text}")
    return None


def _are_numbers(words: Sequence[Word]) -> bool:
    return all(w.is_literal and _NUMBER.fullmatch(w.text) for w in words) and len(words) <= 3


def _echo(words: Sequence[Word], places: Places) -> Finding | None:
    if any(w.is_dynamic or w.has_brace or _is_other_home(w) for w in words):
        return Finding("ask", "an argument of echo expands to something not known beforehand")
    for word in words:
        leads_away = os.path.isabs(word.text) or word.has_tilde or ".." in word.text
        if word.has_glob and (leads_away or not places.is_known):
            return Finding("ask", f"{word.text} lists names outside the workspace")
    return None


def _printf(words: Sequence[Word], _places: Places) -> Finding | None:
    if not words or any(not word.is_literal for word in words):
        return Finding("ask", "an argument of printf is not plain")
    form = words[1:] if words[0].text == "--" else words
    if not form or form[0].text.startswith("-") or not re.fullmatch(PRINTF_FORMAT, form[0].text):
        return Finding("ask", "this printf may set a variable")
    return None


def _date(words: Sequence[Word]) -> Finding | None:
    for word in words:
        text = word.text
        is_known = text in ("-u", "-R", "-I", "--utc", "--iso-8601") or text.startswith("+")
        if not word.is_literal or not is_known:
            return Finding("ask", f"date {text} may set the clock")
    return None


def _test(words: Sequence[Word], places: Places) -> Finding | None:
    for word in words:
        if not word.is_literal and not (word.has_tilde and not word.is_dynamic):
            return Finding("ask", "an argument of test is not plain")
        if word.text.startswith("-") and word.text not in TEST_OPERATORS:
            return Finding("ask", f"test {word.text} is not known as harmless")
    for word in words:
        if word.text not in TEST_OPERATORS and "/" in word.text:
            finding = path_objection(word, places, Plain(shows_content=False), "test")
            if finding is not None:
                return finding
    return None


def _sed(words: Sequence[Word], places: Places) -> Finding | None:
    match words:
        case [option, script, *paths] if option.text == "-n" and script.is_literal:
            if not re.fullmatch(SED_PRINT, script.text):
                return Finding("ask", "only sed -n 'N,Mp' is known to do nothing but print")
        case _:
            return Finding("ask", "only sed -n 'N,Mp' is known to do nothing but print")
    for path in paths:
        if path.text.startswith("-") and path.text != "-":
            return Finding("ask", f"sed {path.text} is not known as harmless")
        finding = path_objection(path, places, Plain(), "sed")
        if finding is not None:
            return finding
    return None


def _find(words: Sequence[Word], places: Places) -> Finding | None:
    plain = Plain(shows_content=False)
    waiting = list(words)
    while waiting and not waiting[0].text.startswith(("-", "(", "!", ",")):
        finding = path_objection(waiting.pop(0), places, plain, "find")
        if finding is not None:
            return finding
    while waiting:
        word = waiting.pop(0)
        if not word.is_literal or word.text not in FIND_TESTS | FIND_VALUED:
            return Finding("ask", f"find {word.text} is not known as harmless")
        if word.text in FIND_VALUED and (not waiting or not waiting.pop(0).is_literal):
            return Finding("ask", f"the value of find {word.text} is not plain")
    return None

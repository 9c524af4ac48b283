"""What makes git dangerous: its own options, and subcommands that discard work or run something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from keen.tools.shell.places import Places
from keen.tools.shell.risky_programs import (
    GIT_EXECUTES,
    GIT_HARMLESS_GLOBALS,
    GIT_NEVER,
    GIT_NEVER_WORDS,
    GIT_SHOWS,
)
from keen.tools.shell.syntax import Finding, Word

_GIT_CONFIG_READS: Final = frozenset({"--get", "--list", "-l", "--get-all", "--get-regexp"})


def subcommand_words(words: Sequence[Word]) -> list[str]:
    """The subcommand and its words, options of git itself left out."""
    texts = [word.text for word in words]
    while texts and texts[0].startswith("-"):
        takes_next = texts[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
        del texts[: 2 if takes_next else 1]
    return texts


def git_dangers(words: Sequence[Word], places: Places) -> list[Finding]:
    """What speaks against git with these words behind its name."""
    findings: list[Finding] = []
    position = 0
    while position < len(words) and (text := words[position].text).startswith("-"):
        following = words[position + 1].text if position + 1 < len(words) else ""
        if text == "-C" and all(f.root is not None for f in places.facts(following)):
            position += 2
            continue
        if text not in GIT_HARMLESS_GLOBALS and text not in ("--version", "--help"):
            findings.append(Finding("never", f"git {text} changes what git runs or where"))
            break
        position += 1
    texts = subcommand_words(words)
    option = next((text for text in texts if is_one_of(text, GIT_EXECUTES)), None)
    if option is not None:
        findings.append(Finding("never", f"git {option} can write or run something"))
    if texts:
        findings.extend(_git_subcommand(texts[0], texts[1:], places))
    return findings


def _git_subcommand(name: str, rest: list[str], places: Places) -> list[Finding]:
    if name in GIT_NEVER and not _is_git_reading(name, rest):
        return [Finding("never", f"git {name} {GIT_NEVER[name]}")]
    word = next((w for w in rest if is_one_of(w, GIT_NEVER_WORDS.get(name, ()))), None)
    if word is not None:
        return [Finding("never", f"git {name} {word} discards work or runs something")]
    if name == "checkout" and "-b" not in rest and _names_files(rest, places):
        return [Finding("never", "git checkout of files discards work")]
    if name == "push" and any(word.startswith(("+", ":")) for word in rest):
        return [Finding("never", "this git push overwrites or deletes a branch")]
    return [Finding("ask", f"git {name} can run hooks and filters of this repository")]


def _is_git_reading(name: str, rest: list[str]) -> bool:
    if name == "config":
        return rest[:1] in (["get"], ["list"]) or not _GIT_CONFIG_READS.isdisjoint(rest)
    if name == "restore":
        return "--staged" in rest and "--worktree" not in rest and "-W" not in rest
    return name in ("clean", "rm") and bool({"-n", "--dry-run", "--cached"} & set(rest))


def _names_files(rest: list[str], places: Places) -> bool:
    operands = [word for word in rest if not word.startswith("-")]
    if len(operands) != 1:
        return bool(operands)
    is_file = any(f.kind in ("file", "directory") for f in places.facts(operands[0]))
    return is_file or any(character in operands[0] for character in "*?[")


def shows_content(words: Sequence[Word]) -> bool:
    """True where git, with its name among the words, brings what is in files before the model."""
    return not GIT_SHOWS.isdisjoint(subcommand_words(words[1:])[:1])


def is_one_of(text: str, options: Sequence[str]) -> bool:
    """True for an option, its `=value` form, its bundled form, or an abbreviation of it."""
    head = text.partition("=")[0]
    for option in options:
        if head == option:
            return True
        if option.startswith("--"):
            if len(head) > 3 and head.startswith("--") and option.startswith(head):
                return True
        elif _is_bundled(option, head):
            return True
    return False


def _is_bundled(option: str, head: str) -> bool:
    is_short = len(option) == 2 and option[0] == "-"
    return is_short and head[:1] == "-" != head[1:2] and option[1] in head[1:]

"""What mode, rules and sandbox make of the verdict on a command."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from keen.tools.base import Access, Context
from keen.tools.guard import Guard, is_environment_file
from keen.tools.permission.openings import OPEN_NETWORK
from keen.tools.permission.rules import (
    Kind,
    Rule,
    covers_path,
    covers_text,
    covers_words,
    denial,
    names_secret,
)
from keen.tools.shell.risky_programs import (
    INTERPRETERS,
    NEVER,
    PACKAGE_RUNNERS,
    RUNNING_WORDS,
    SHELLS,
    WRAPPERS,
)
from keen.tools.shell.verdict import Level, ShellVerdict, verdict

Nature: TypeAlias = Literal["read", "git", "other"]
"""`read`: provably only reads. `git`: git that changes its directory, and nothing else of note."""

_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9:_-]*")
_GIT_WRITES: Final = frozenset({
    "add", "am", "apply", "bisect", "branch", "checkout", "cherry-pick", "clean", "clone", "commit",
    "fetch", "gc", "init", "merge", "mv", "notes", "pull", "push", "rebase", "reset", "restore",
    "revert", "rm", "stash", "switch", "tag", "update-index", "worktree",
})  # fmt: skip
_GIT_READS: Final = frozenset({
    "blame", "describe", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status",
})  # fmt: skip
_BESIDE_GIT: Final = frozenset({
    "cat", "cd", "date", "echo", "false", "grep", "head", "ls", "printf", "pwd", "tail", "test",
    "true", "wc",
})  # fmt: skip
"""What stands beside git in one command without making it another thing."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of a command. `is_once`: no grant and no rule can cover it."""

    kind: Literal["allow", "ask", "refuse"]
    reason: str
    verdict: ShellVerdict
    is_once: bool = False
    rule: str = ""
    """The exact rule that would allow it, where a rule can."""


@dataclass(frozen=True, slots=True)
class CommandJudge:
    """One state of a policy, as far as commands are concerned."""

    mode: Literal["plan", "build", "yolo"]
    rules: tuple[Rule, ...]
    context: Context
    guard: Guard
    is_contained: bool
    """A full sandbox holds what runs."""
    has_network: bool
    path: str | None
    is_held: bool = False
    """Some sandbox, if only for files, holds what runs."""

    def judge(self, access: Access) -> Judged:
        """Deny beats ask beats allow; text that deceives is refused in every mode."""
        found = self._verdict(access.target)
        if found.is_refused:
            return Judged("refuse", f"This command was not run: {found.reason}.", found)
        denied = self._mentioned("deny", access.target, found) or self._denied_path(found)
        if denied is not None:
            return Judged("refuse", denial(denied), found)
        if self.mode == "yolo":
            return self._in_yolo(found)
        asked = self._mentioned("ask", access.target, found)
        if asked is not None:
            reason = f"the rule {asked.text} ({asked.place}) asks"
            return Judged("ask", reason, found, is_once=True)
        return self._by_table(access, found)

    def nature(self, command: str) -> Nature:
        """What a command that may run needs of the workspace."""
        found = self._verdict(command)
        if found.level == "auto":
            return "read"
        return "git" if _changes_git(found) else "other"

    def check(self, command: str) -> tuple[Level, str]:
        """The verdict of table and rules, without regard to mode."""
        found = self._verdict(command)
        if found.is_refused:
            return "never", f"{found.reason}; refused in every mode"
        denied = self._mentioned("deny", command, found) or self._denied_path(found)
        if denied is not None:
            return "never", f"the rule {denied.text} ({denied.place}) denies it, in yolo too"
        asked = self._mentioned("ask", command, found)
        if asked is not None and found.level != "never":
            return "ask", f"the rule {asked.text} ({asked.place}) asks"
        allowing = self._allowing(found)
        if found.level == "ask" and allowing is not None:
            return "auto", f"the rule {allowing.text} ({allowing.place}) allows it"
        runs_contained = (found.level == "ask" or found.only_syntax) and not _changes_git(found)
        if self.is_contained and runs_contained:
            return found.level, f"{found.reason}; runs unasked inside the sandbox"
        return found.level, found.reason

    def _verdict(self, command: str) -> ShellVerdict:
        context = self.context
        return verdict(
            command,
            context.cwd,
            context.roots,
            self.path,
            guard=self.guard,
            scratch=context.scratch,
        )

    def _in_yolo(self, found: ShellVerdict) -> Judged:
        if found.holds == "refuse":
            return Judged("refuse", f"Not run, in yolo neither: {found.held}.", found)
        if found.holds == "ask" and self._reads_secret(found):
            return Judged("refuse", f"Not run: {found.held}; only an allow rule opens it.", found)
        if found.holds == "ask":
            return Judged("ask", found.held, found, is_once=True)
        return Judged("allow", "", found)

    def _reads_secret(self, found: ShellVerdict) -> bool:
        """A secret of the workspace that no rule names: read_file refuses it in yolo as well."""
        roots = self.context.roots
        allows = [r for r in self.rules if r.kind == "allow" and r.subject == "read"]
        return any(
            is_environment_file(path) and not any(names_secret(r, path, roots) for r in allows)
            for path, may_write in found.touched
            if not may_write
        )

    def _by_table(self, access: Access, found: ShellVerdict) -> Judged:
        raised = access.needs == "outside" or (access.needs == "network" and not self.has_network)
        if found.level == "auto" and not raised:
            return Judged("allow", "", found)
        if found.level == "never":
            return self._never(found, raised=raised)
        asks_for_git = self.mode != "plan" and _changes_git(found)
        if self.is_contained and not raised and not asks_for_git:
            return Judged("allow", "", found)
        may_rule = not (raised and self.is_held)  # a rule is no leave to go outside
        if may_rule and self._allowing(found) is not None:
            return Judged("allow", "", found)
        reason = f"it says that it needs {_needs(access)}" if raised else found.reason
        rule = _exact(found)
        if raised and self.is_held:  # the rule for the command would change nothing
            rule = OPEN_NETWORK if access.needs == "network" else ""
        return Judged("ask", reason, found, rule=rule)

    def _never(self, found: ShellVerdict, *, raised: bool) -> Judged:
        asks_for_git = self.mode != "plan" and _changes_git(found)
        if found.only_syntax and self.is_contained and not raised and not asks_for_git:
            return Judged("allow", "", found)
        if self.mode == "plan" and not found.only_syntax:
            reason = f"Not run in plan mode: {found.reason}. Describe it instead."
            return Judged("refuse", reason, found)
        return Judged("ask", found.reason, found, is_once=True)

    def _mentioned(self, kind: Kind, command: str, found: ShellVerdict) -> Rule | None:
        """A deny or ask rule that any reading of any part of the command meets."""
        for rule in self.rules:
            if rule.kind != kind or rule.subject != "bash":
                continue
            if covers_text(rule, command) or any(covers_words(rule, m) for m in found.mentions):
                return rule
        return None

    def _denied_path(self, found: ShellVerdict) -> Rule | None:
        """A deny rule for reading, or editing, that the command meets with one of its words."""
        roots = self.context.roots
        for rule in self.rules:
            if rule.kind != "deny" or rule.subject not in ("read", "edit") or rule.pattern is None:
                continue
            for path, may_write in found.touched:
                if (may_write or rule.subject == "read") and covers_path(rule, path, roots):
                    return rule
        return None

    def _allowing(self, found: ShellVerdict) -> Rule | None:
        """The first allow rule at work when every part that is not a plain read meets one."""
        if found.level == "never" or not found.is_plain:
            return None
        rules = [r for r in self.rules if r.kind == "allow" and r.subject == "bash"]
        first: Rule | None = None
        parts = zip(found.parts, found.levels, found.literal, strict=True)
        for words, level, is_literal in parts:
            if level == "auto":
                continue
            rule = next((r for r in rules if covers_words(r, words)), None)
            if rule is None or not is_literal:
                return None
            first = first or rule
        return first


def _changes_git(found: ShellVerdict) -> bool:
    """git that writes into its directory, with at most harmless words beside it."""
    if any(may_write and ".git" in path.parts for path, may_write in found.touched):
        return False
    changes = False
    for words in found.mentions:
        if not words or words[0] in _BESIDE_GIT:
            continue
        name = _git_subcommand(words)
        if name in _GIT_WRITES:
            changes = True
        elif name not in _GIT_READS:
            return False
    return changes


def _git_subcommand(words: tuple[str, ...]) -> str:
    """The subcommand of `git` or `git -C DIR`; "" for everything else."""
    if words[0] != "git":
        return ""
    rest = words[3:] if words[1:2] == ("-C",) else words[1:]
    return rest[0] if rest else ""


def _needs(access: Access) -> str:
    return "the network" if access.needs == "network" else "files outside the workspace"


def _exact(found: ShellVerdict) -> str:
    """The rule for exactly this command; only one part can be put into one rule."""
    parts = zip(found.parts, found.levels, found.literal, strict=True)
    open_parts = [(words, literal) for words, level, literal in parts if level != "auto"]
    if len(open_parts) != 1 or not open_parts[0][1]:
        return ""
    return f"bash({shlex.join(open_parts[0][0])})"


def suggested_prefix(found: ShellVerdict) -> str:
    """A wider rule worth offering: never one word, never what runs other programs, never git."""
    parts = zip(found.parts, found.levels, found.literal, strict=True)
    open_parts = [words for words, level, literal in parts if level != "auto" and literal]
    if len(open_parts) != 1 or len(open_parts[0]) < 2:
        return ""
    name, second, *rest = open_parts[0]
    runs_others = SHELLS | INTERPRETERS | PACKAGE_RUNNERS | set(WRAPPERS) | set(NEVER) | {"git"}
    if name in runs_others or "/" in name or re.fullmatch(r"(python|pip)[\d.]*", name):
        return ""
    if second in RUNNING_WORDS or not _SUBCOMMAND.fullmatch(second):
        return ""
    words = [name, second]
    if second == "run":
        if not rest or not _SUBCOMMAND.fullmatch(rest[0]):
            return ""
        words.append(rest[0])
    return f"bash({' '.join(words)}:*)"

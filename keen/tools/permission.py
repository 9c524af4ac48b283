"""Whether a call may run: mode, rules, protected places and what a person allowed so far.

Decisions are pure but for looking at where paths lead. Asking is an event of the toolbox's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.errors import ConfigError
from keen.core.events import Choice, Decision
from keen.tools._commands import CommandJudge, Nature, suggested_prefix
from keen.tools._grants import Grants
from keen.tools._rules import (
    Kind,
    Rule,
    covers_host,
    covers_path,
    covers_tool,
    names_path,
    names_secret,
    parse_rule,
)
from keen.tools.base import Access, Context, Effect
from keen.tools.guard import Guard, PathFacts, is_environment_file
from keen.tools.shell import Level

Mode: TypeAlias = Literal["plan", "build", "yolo"]
Sandbox: TypeAlias = Literal["full", "fs-only", "none"]

_log: Final = logging.getLogger(__name__)

_ANY: Final[tuple[Choice, ...]] = ("once", "session", "project", "deny")
_ONCE: Final[tuple[Choice, ...]] = ("once", "deny")
_RANK: Final = {"allow": 0, "ask": 1, "refuse": 2}
_UNREADABLE: Final = ("system", "device", "fifo", "socket")
_PLAN_HINT: Final = (
    "Plan mode changes nothing. Describe the change instead; the person can switch to build mode "
    "(Shift+Tab or /mode build)."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a call. Of a refusal `reason` is a sentence the model reads."""

    kind: Literal["allow", "ask", "refuse"]
    reason: str = ""
    choices: tuple[Choice, ...] = ()
    rule: str = ""
    """What "project" would save, exact; a person may edit it."""
    prefix: str = ""
    """A wider rule to offer, where that is sensible."""


_ALLOW: Final = Verdict("allow")


class Policy:
    """The one who decides. `sandbox`: what holds commands; `is_interactive`: can anybody be asked.

    `save` keeps an allow rule for the project and returns it, and may raise ConfigError.
    """

    def __init__(
        self,
        context: Context,
        *,
        mode: Mode = "build",
        rules: Iterable[Rule] = (),
        guard: Guard | None = None,
        sandbox: Sandbox = "none",
        is_interactive: bool = True,
        has_network: bool = False,
        path: str | None = None,
        save: Callable[[str], Rule] | None = None,
    ) -> None:
        self.mode: Mode = mode
        self.context = context
        self.guard = guard or Guard()
        self.sandbox: Sandbox = sandbox
        self.is_interactive = is_interactive
        self.has_network = has_network
        self.faults: list[str] = []
        """What could not be saved, and project rules that were left out."""
        self._rules: list[Rule] = []
        self._grants = Grants()
        self._save = save
        self._path = path if path is not None else context.environment.get("PATH")
        for rule in rules:
            self._add(rule)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force, in the order they are tried."""
        return tuple(self._rules)

    @property
    def granted(self) -> tuple[str, ...]:
        """What a person allowed for this session, in the form of rules."""
        return self._grants.listed()

    def set_mode(self, mode: Mode) -> None:
        """A person switched; takes effect with the next call."""
        self.mode = mode

    def set_context(self, context: Context) -> None:
        """The workspace grew (`/add-dir`)."""
        self.context = context

    def restricted(self, *, mode: Mode | None = None) -> Policy:
        """A policy for a subagent: the same rules and grants, never wider.

        `plan` stays plan; grants given to either count for both.
        """
        child = Policy(
            self.context,
            mode="plan" if "plan" in (mode, self.mode) else self.mode,
            rules=self._rules,
            guard=self.guard,
            sandbox=self.sandbox,
            is_interactive=self.is_interactive,
            has_network=self.has_network,
            path=self._path,
            save=self._save,
        )
        child._grants = self._grants
        return child

    def decide(self, tool: str, effect: Effect, accesses: tuple[Access, ...]) -> Verdict:
        """May this call run, must a person be asked, or is it refused.

        The strictest of its accesses decides. A call without any touches nothing that is judged.
        """
        if not accesses and tool.startswith("mcp__"):
            accesses = (Access("mcp", tool),)
        verdict = _ALLOW
        for access in accesses:
            found = self._one(access)
            if _RANK[found.kind] > _RANK[verdict.kind]:
                verdict = found
        if verdict.kind == "ask" and not self.is_interactive:
            return Verdict("refuse", self._unasked(tool, verdict))
        return verdict

    def grant(self, tool: str, accesses: tuple[Access, ...], decision: Decision) -> None:
        """Remember a person's yes, as exactly what it was given for."""
        if decision.choice == "project":
            self._keep(decision.rule)
        if decision.choice not in ("session", "project"):
            return
        for access in accesses or (Access("mcp", tool),):
            verdict = self._one(access)
            if verdict.kind == "ask" and "session" in verdict.choices:
                self._remember(access)

    def is_unreadable(self, path: Path) -> bool:
        """True for a file that a search passes over: secrets, and what a rule denies."""
        if self.guard.is_secret(path):
            return True
        facts = self.guard.facts(str(path), self.context)
        return self._denied("read", Access("read", str(path)), facts) is not None

    def is_covered(self, path: Path) -> bool:
        """True for a file of the workspace that a sandbox does not show to commands.

        Looks at names only: what is behind a link is judged where it lies.
        """
        roots = self.context.roots
        reads = [rule for rule in self._rules if rule.subject == "read"]
        if any(rule.kind == "deny" and covers_path(rule, path, roots) for rule in reads):
            return True
        if not is_environment_file(path):
            return False
        allows = (rule for rule in reads if rule.kind == "allow")
        return not any(names_secret(rule, path, roots) for rule in allows)

    @property
    def denies_reads(self) -> bool:
        """Whether a rule denies reading anything, whatever its name."""
        return any(rule.kind == "deny" and rule.subject == "read" for rule in self._rules)

    def nature(self, command: str) -> Nature:
        """What a command needs of the workspace, for the sandbox that holds it."""
        return self._commands().nature(command)

    def check(self, command: str) -> tuple[Level, str]:
        """What table and rules say of a command, for `keen permissions check`."""
        return self._commands().check(command)

    def _one(self, access: Access) -> Verdict:
        match access.kind:
            case "bash":
                return self._bash(access)
            case "read":
                return self._read(access)
            case "edit":
                return self._edit(access)
            case "web_fetch":
                return self._outward(access, covers_host, f"web_fetch(domain:{access.target})")
            case "mcp":
                return self._outward(access, covers_tool, access.target)

    def _bash(self, access: Access) -> Verdict:
        judged = self._commands().judge(access)
        if judged.kind == "ask" and self._grants.covers(access, judged.verdict):
            return _ALLOW
        if judged.kind != "ask":
            return Verdict(judged.kind, judged.reason)
        if judged.is_once:
            return Verdict("ask", judged.reason, _ONCE)
        prefix = suggested_prefix(judged.verdict)
        return Verdict("ask", judged.reason, _ANY, judged.rule, prefix)

    def _commands(self) -> CommandJudge:
        return CommandJudge(
            mode=self.mode,
            rules=self.rules,
            context=self.context,
            guard=self.guard,
            is_contained=self.sandbox == "full",
            is_held=self.sandbox != "none",
            has_network=self.has_network,
            path=self._path,
        )

    def _read(self, access: Access) -> Verdict:
        facts = self.guard.facts(access.target, self.context)
        shown = access.target
        denied = self._denied("read", access, facts)
        if denied is not None:
            return denied
        named = self._named(facts, "read")
        if facts.kind in _UNREADABLE:
            return Verdict("refuse", f"{shown} is a {facts.kind} file; it cannot be read.")
        if facts.is_hidden and facts.protection == "refuse":
            return Verdict("refuse", f"{shown} belongs to keen and is never read by tools.")
        if facts.is_hidden and not named:
            if self.mode == "yolo":
                return Verdict("refuse", f"{shown} holds {facts.reason}; only a rule opens it.")
            return Verdict("ask", f"{shown}: {facts.reason}", _ONCE, f"read({facts.path})")
        if facts.is_secret and not named and not self._names_secret(facts):
            question = Verdict("ask", f"{shown} may hold secrets", _ANY, f"read({facts.path})")
            return self._unless_granted(access, question)
        asked = self._rule("ask", "read", facts)
        if asked is not None and self.mode != "yolo":
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", _ONCE)
        if facts.root is not None or self.mode == "yolo" or self._rule("allow", "read", facts):
            return _ALLOW
        return self._unless_granted(
            access, Verdict("ask", f"{shown} is outside the workspace", _ANY, f"read({facts.path})")
        )

    def _edit(self, access: Access) -> Verdict:
        facts = self.guard.facts(access.target, self.context)
        denied = self._denied("edit", access, facts)
        if denied is not None:
            return denied
        if self.mode == "plan":
            return Verdict("refuse", _PLAN_HINT)
        barred = self._barred(access.target, facts)
        if barred is not None:
            return barred
        asked = self._rule("ask", "edit", facts)
        if asked is not None and self.mode != "yolo":
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", _ONCE)
        if self.mode == "yolo" or self._rule("allow", "edit", facts):
            return _ALLOW
        return self._unless_granted(access, self._ordinary_edit(access.target, facts))

    def _barred(self, shown: str, facts: PathFacts) -> Verdict | None:
        """What protects a file from edits in every mode."""
        if facts.protection == "refuse":
            return Verdict("refuse", f"{shown}: {facts.reason} are never changed by tools.")
        if facts.kind in _UNREADABLE:
            return Verdict("refuse", f"{shown} is a {facts.kind} file; it cannot be written.")
        named = self._named(facts, "edit")
        if facts.is_hidden and self.mode == "yolo" and not named:
            return Verdict("refuse", f"{shown} holds {facts.reason}; only a rule opens it.")
        if facts.protection == "person" or (facts.is_hidden and not named):
            return Verdict("ask", f"{shown}: {facts.reason}", _ONCE)
        if facts.protection == "ask" and not named:
            return Verdict("ask", f"{shown}: {facts.reason}", _ONCE, f"edit({facts.path})")
        return None

    def _ordinary_edit(self, shown: str, facts: PathFacts) -> Verdict:
        rule = f"edit({facts.path})"
        if facts.root is None:
            return Verdict("ask", f"{shown} is outside the workspace", _ANY, rule)
        if facts.links > 1:
            return Verdict("ask", f"{shown} has {facts.links} names, not all seen here", _ONCE)
        if facts.is_secret:
            return Verdict("ask", f"{shown} may hold secrets", _ANY, rule)
        if not self.is_interactive:
            return _ALLOW
        rule = f"edit({facts.path.relative_to(facts.root)})"
        return Verdict("ask", "it changes a file of the workspace", _ANY, rule)

    def _outward(self, access: Access, covers: Callable[[Rule, str], bool], exact: str) -> Verdict:
        def matching(kind: Kind) -> Rule | None:
            rules = (r for r in self.rules if r.kind == kind and r.subject == access.kind)
            return next((rule for rule in rules if covers(rule, access.target)), None)

        if denied := matching("deny"):
            return Verdict("refuse", _denial(denied))
        if self.mode == "yolo":
            return _ALLOW
        where = "reaches the network" if access.kind == "web_fetch" else "leaves keen"
        if asked := matching("ask"):
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", _ONCE)
        if matching("allow"):
            return _ALLOW
        question = Verdict("ask", f"{access.target} {where}", _ANY, exact)
        return self._unless_granted(access, question)

    def _unless_granted(self, access: Access, verdict: Verdict) -> Verdict:
        facts = None
        if access.kind in ("read", "edit"):
            facts = self.guard.facts(access.target, self.context)
        is_granted = "session" in verdict.choices and self._grants.covers_path(access, facts)
        return _ALLOW if is_granted else verdict

    def _rule(self, kind: Kind, subject: str, facts: PathFacts) -> Rule | None:
        rules = (rule for rule in self.rules if rule.kind == kind and rule.subject == subject)
        roots = self.context.roots
        return next((rule for rule in rules if covers_path(rule, facts.path, roots)), None)

    def _denied(self, subject: str, access: Access, facts: PathFacts) -> Verdict | None:
        """Both the spelling and where it leads are held against deny rules."""
        literal = replace(facts, path=Path(access.target))
        rule = self._rule("deny", subject, facts) or self._rule("deny", subject, literal)
        return Verdict("refuse", _denial(rule)) if rule is not None else None

    def _named(self, facts: PathFacts, subject: str) -> bool:
        roots = self.context.roots
        return any(
            names_path(rule, facts.path, roots)
            for rule in self.rules
            if rule.kind == "allow" and rule.subject == subject
        )

    def _names_secret(self, facts: PathFacts) -> bool:
        roots = self.context.roots
        rules = (r for r in self.rules if r.kind == "allow" and r.subject == "read")
        return any(names_secret(rule, facts.path, roots) for rule in rules)

    def _unasked(self, tool: str, verdict: Verdict) -> str:
        """The refusal where nobody can be asked, and what would have let the call through."""
        ways = [f"--allow '{verdict.rule}'"] if verdict.rule else []
        if self.mode != "yolo" and (tool == "bash" or "session" in verdict.choices):
            ways.append("--yolo")
        way = " or ".join(ways) or "a person at the keyboard"
        return (
            f"Not run: {verdict.reason}, and nobody can be asked here. It would need {way}. "
            "Find another way or go on without it, and say so at the end."
        )

    def _remember(self, access: Access) -> None:
        if access.kind == "bash":
            self._grants.add_command(access, self._commands().judge(access).verdict)
        elif access.kind in ("read", "edit"):
            self._grants.add_path(access, self.guard.facts(access.target, self.context))
        else:
            self._grants.add_target(access)

    def _keep(self, text: str) -> None:
        """Save a rule for the project; where that fails it holds for this session."""
        try:
            rule = parse_rule(text, "allow", "saved")
            self._rules.append(self._save(text) if self._save is not None else rule)
        except ConfigError as error:
            _log.warning("rule not saved: %s", error)
            self.faults.append(f"The rule was not saved: {error}")

    def _add(self, rule: Rule) -> None:
        if rule.source == "project" and rule.kind == "allow":
            self.faults.append(f"{rule.origin}: a project cannot allow anything ({rule.text}).")
            return
        self._rules.append(rule)


def _denial(rule: Rule) -> str:
    return (
        f"The rule {rule.text} ({rule.place}) denies this. Do not try to get around it; go on "
        "without it or say what you need."
    )


def by_source(rules: Sequence[Rule]) -> list[Rule]:
    """Rules as they are listed: what denies first, then what asks, then what allows."""
    order = {"deny": 0, "ask": 1, "allow": 2}
    return sorted(rules, key=lambda rule: order[rule.kind])

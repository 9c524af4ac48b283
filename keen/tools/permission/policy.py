"""Whether a call may run: mode, rules, protected places and what a person allowed so far.

Decisions are pure but for looking at where paths lead. Asking is an event of the toolbox's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.errors import ConfigError
from keen.core.events import Decision
from keen.tools.base import Access, Context, Effect
from keen.tools.guard import Guard, is_environment_file
from keen.tools.permission.commands import CommandJudge, Nature, suggested_prefix
from keen.tools.permission.files import FileJudge
from keen.tools.permission.grants import Grants
from keen.tools.permission.openings import Openings
from keen.tools.permission.rules import (
    Kind,
    Rule,
    covers_host,
    covers_path,
    covers_tool,
    denial,
    names_secret,
    parse_rule,
)
from keen.tools.permission.verdict import ALLOW, ANY, ONCE, Verdict
from keen.tools.shell.verdict import Level

Mode: TypeAlias = Literal["plan", "build", "yolo"]
Sandbox: TypeAlias = Literal["full", "fs-only", "none"]

_log: Final = logging.getLogger(__name__)

_YOLO_HINT: Final = (
    "in yolo only an allow rule that names it opens it, or a person who is asked in build mode."
)
MOST_TOLD: Final = 300
"""Characters of a URL that a host may be told because it was allowed; more is asked about anew."""
_RANK: Final = {"allow": 0, "ask": 1, "refuse": 2}


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
        self._network = has_network
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

    @property
    def openings(self) -> Openings:
        """What the sandbox leaves open to commands at present."""
        rules = (*self._rules, *self._grants.openings)
        return Openings.of(rules, self.guard, self.context, has_network=self._network)

    def set_mode(self, mode: Mode) -> None:
        """A person switched; takes effect with the next call."""
        self.mode = mode

    def set_context(self, context: Context) -> None:
        """The workspace grew (`/add-dir`)."""
        self.context = context

    def restricted(self, *, mode: Mode | None = None) -> Policy:
        """A policy for a subagent: the same rules and grants, never wider.

        `plan` stays plan; what a person allows either, for the session or the project, counts for
        both.
        """
        child = Policy(
            self.context,
            mode="plan" if "plan" in (mode, self.mode) else self.mode,
            guard=self.guard,
            sandbox=self.sandbox,
            is_interactive=self.is_interactive,
            has_network=self._network,
            path=self._path,
            save=self._save,
        )
        child._rules, child._grants = self._rules, self._grants
        return child

    def decide(self, tool: str, effect: Effect, accesses: tuple[Access, ...]) -> Verdict:
        """May this call run, must a person be asked, or is it refused.

        The strictest of its accesses decides. A call without any touches nothing that is judged.
        """
        if not accesses and tool.startswith("mcp__"):
            accesses = (Access("mcp", tool),)
        verdict = ALLOW
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
        return self._files().denied("read", Access("read", str(path)), facts) is not None

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

    def open(self, texts: Iterable[str], *, is_kept: bool) -> None:
        """A person opened the sandbox, for the session or, kept, for the project."""
        for text in texts:
            self._grants.openings.append(parse_rule(text, "allow", "session"))
            if is_kept:
                self._keep(text)

    def has_declined(self, what: str) -> bool:
        """Whether a person was asked to open the sandbox for this and left it so."""
        return what in self._grants.declined

    def decline(self, what: str) -> None:
        """A person leaves the sandbox as it is; not to be asked again in this session."""
        self._grants.declined.add(what)

    def _one(self, access: Access) -> Verdict:
        match access.kind:
            case "bash":
                return self._bash(access)
            case "read":
                return self._unless_granted(access, self._files().read(access))
            case "edit":
                return self._unless_granted(access, self._files().edit(access))
            case "web_fetch":
                return self._outward(access, covers_host, f"web_fetch(domain:{access.target})")
            case "mcp":
                return self._outward(access, covers_tool, access.target)

    def _bash(self, access: Access) -> Verdict:
        judged = self._commands().judge(access)
        if judged.kind == "ask" and self._grants.covers(access, judged.verdict):
            return ALLOW
        if judged.kind != "ask":
            return Verdict(judged.kind, judged.reason)
        if judged.is_once:
            return Verdict("ask", judged.reason, ONCE)
        prefix = suggested_prefix(judged.verdict)
        return Verdict("ask", judged.reason, ANY, judged.rule, prefix)

    def _commands(self) -> CommandJudge:
        return CommandJudge(
            mode=self.mode,
            rules=self.rules,
            context=self.context,
            guard=self.guard,
            is_contained=self.sandbox == "full",
            is_held=self.sandbox != "none",
            has_network=self.openings.has_network,
            path=self._path,
        )

    def _outward(self, access: Access, covers: Callable[[Rule, str], bool], exact: str) -> Verdict:
        def matching(kind: Kind) -> Rule | None:
            rules = (r for r in self.rules if r.kind == kind and r.subject == access.kind)
            return next((rule for rule in rules if covers(rule, access.target)), None)

        if denied := matching("deny"):
            return Verdict("refuse", denial(denied))
        if self.mode == "yolo":
            return ALLOW
        what = "reaches the network" if access.kind == "web_fetch" else "leaves keen"
        if asked := matching("ask"):
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", ONCE)
        if access.length > MOST_TOLD:
            told = f"the URL tells {access.target} {access.length:,} characters"
            return Verdict("ask", f"{told}; read it whole", ONCE)
        if matching("allow"):
            return ALLOW
        question = Verdict("ask", f"it {what}: {access.target}", ANY, exact)
        return self._unless_granted(access, question)

    def _unless_granted(self, access: Access, verdict: Verdict) -> Verdict:
        """The verdict, unless this very thing was allowed before. In yolo no read is a question."""
        if verdict.kind != "ask":
            return verdict
        is_place = access.kind in ("read", "edit")
        facts = self.guard.facts(access.target, self.context) if is_place else None
        if "session" in verdict.choices and self._grants.covers_path(access, facts):
            return ALLOW
        if self.mode == "yolo" and access.kind == "read" and self.is_interactive:
            return Verdict("refuse", f"{verdict.reason}; {_YOLO_HINT}")
        return verdict

    def _files(self) -> FileJudge:
        return FileJudge(self.mode, self.rules, self.context, self.guard, self.is_interactive)

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


def by_source(rules: Sequence[Rule]) -> list[Rule]:
    """Rules as they are listed: what denies first, then what asks, then what allows."""
    order = {"deny": 0, "ask": 1, "allow": 2}
    return sorted(rules, key=lambda rule: order[rule.kind])

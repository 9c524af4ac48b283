"""What mode, rules and guard make of reading or editing a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from keen.tools.base import Access, Context
from keen.tools.guard import Guard, PathFacts
from keen.tools.permission.rules import Kind, Rule, covers_path, denial, names_path, names_secret
from keen.tools.permission.verdict import ALLOW, ANY, ONCE, Verdict

_UNREADABLE: Final = ("system", "device", "fifo", "socket")
_PLAN_HINT: Final = (
    "Plan mode changes nothing. Describe the change instead; the person can switch to build mode "
    "(Shift+Tab or /mode build)."
)


@dataclass(frozen=True, slots=True)
class FileJudge:
    """One state of a policy, as far as files are concerned; knows nothing of grants."""

    mode: Literal["plan", "build", "yolo"]
    rules: tuple[Rule, ...]
    context: Context
    guard: Guard
    is_interactive: bool

    def read(self, access: Access) -> Verdict:
        """The verdict on reading. Secrets and what is hidden ask, where a person can be asked.

        In yolo they are refused unless a rule names them: nobody is to be asked there.
        """
        facts = self.guard.facts(access.target, self.context)
        shown = access.target
        denied = self.denied("read", access, facts)
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
            return Verdict("ask", f"{shown}: {facts.reason}", ONCE, f"read({facts.path})")
        if facts.is_secret and not named and not self._names_secret(facts):
            return Verdict("ask", f"{shown} may hold secrets", ANY, f"read({facts.path})")
        asked = self._rule("ask", "read", facts)
        if asked is not None and self.mode != "yolo":
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", ONCE)
        if facts.root is not None or self.mode == "yolo" or self._rule("allow", "read", facts):
            return ALLOW
        return Verdict("ask", f"{shown} is outside the workspace", ANY, f"read({facts.path})")

    def edit(self, access: Access) -> Verdict:
        """The verdict on changing, creating or removing."""
        facts = self.guard.facts(access.target, self.context)
        denied = self.denied("edit", access, facts)
        if denied is not None:
            return denied
        if self.mode == "plan":
            return Verdict("refuse", _PLAN_HINT)
        barred = self._barred(access.target, facts)
        if barred is not None:
            return barred
        asked = self._rule("ask", "edit", facts)
        if asked is not None and self.mode != "yolo":
            return Verdict("ask", f"the rule {asked.text} ({asked.place}) asks", ONCE)
        if self.mode == "yolo" or self._rule("allow", "edit", facts):
            return ALLOW
        return self._ordinary_edit(access.target, facts)

    def _barred(self, shown: str, facts: PathFacts) -> Verdict | None:
        """What protects a file from edits in every mode."""
        if facts.protection == "refuse":
            return Verdict("refuse", f"{shown}: tools never change {facts.reason}.")
        if facts.kind in _UNREADABLE:
            return Verdict("refuse", f"{shown} is a {facts.kind} file; it cannot be written.")
        named = self._named(facts, "edit")
        if facts.is_hidden and self.mode == "yolo" and not named:
            return Verdict("refuse", f"{shown} holds {facts.reason}; only a rule opens it.")
        if facts.protection == "person" or (facts.is_hidden and not named):
            return Verdict("ask", f"{shown}: {facts.reason}", ONCE)
        if facts.protection == "ask" and not named:
            return Verdict("ask", f"{shown}: {facts.reason}", ONCE, f"edit({facts.path})")
        return None

    def _ordinary_edit(self, shown: str, facts: PathFacts) -> Verdict:
        rule = f"edit({facts.path})"
        if facts.root is None:
            return Verdict("ask", f"{shown} is outside the workspace", ANY, rule)
        if facts.links > 1:
            return Verdict("ask", f"{shown} has {facts.links} names, not all seen here", ONCE)
        if facts.is_secret:
            return Verdict("ask", f"{shown} may hold secrets", ANY, rule)
        if not self.is_interactive:
            return ALLOW
        rule = f"edit({facts.path.relative_to(facts.root)})"
        return Verdict("ask", "it changes a file of the workspace", ANY, rule)

    def _rule(self, kind: Kind, subject: str, facts: PathFacts) -> Rule | None:
        rules = (rule for rule in self.rules if rule.kind == kind and rule.subject == subject)
        roots = self.context.roots
        return next((rule for rule in rules if covers_path(rule, facts.path, roots)), None)

    def denied(self, subject: str, access: Access, facts: PathFacts) -> Verdict | None:
        """Both the spelling and where it leads are held against deny rules."""
        literal = replace(facts, path=Path(access.target))
        rule = self._rule("deny", subject, facts) or self._rule("deny", subject, literal)
        return Verdict("refuse", denial(rule)) if rule is not None else None

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

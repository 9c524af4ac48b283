"""What a person allowed for this session, each thing as exactly what was seen on the card."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from keen.tools.base import Access
from keen.tools.guard import PathFacts
from keen.tools.permission.rules import Rule
from keen.tools.shell.verdict import ShellVerdict


@dataclass
class Grants:
    """Grants of one session; a subagent's policy shares them."""

    commands: set[tuple[str, tuple[str, ...]]] = field(
        default_factory=set[tuple[str, tuple[str, ...]]]
    )
    """`needs` and the words of a simple command."""
    texts: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """`needs` and a whole text that has no plain words."""
    paths: set[tuple[str, Path]] = field(default_factory=set[tuple[str, Path]])
    targets: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Hosts and MCP tools."""
    openings: list[Rule] = field(default_factory=list[Rule])
    """What a person opened in the sandbox, as rules."""
    declined: set[str] = field(default_factory=set[str])
    """What the sandbox stopped and a person left so."""
    has_edits: bool = False
    """Every edit inside the workspace."""

    def covers(self, access: Access, verdict: ShellVerdict) -> bool:
        """True when this command was allowed, as a text or in each of its parts."""
        if (access.needs, access.target) in self.texts:
            return True
        if not verdict.is_plain:
            return False
        judged = zip(verdict.parts, verdict.levels, verdict.literal, strict=True)
        return all(
            level == "auto" or (literal and (access.needs, words) in self.commands)
            for words, level, literal in judged
        ) and any(level != "auto" for level in verdict.levels)

    def add_command(self, access: Access, verdict: ShellVerdict) -> None:
        """Keep a command: its parts where it is plain, else the exact text."""
        if not verdict.is_plain or not all(verdict.literal) or access.needs:
            self.texts.add((access.needs, access.target))
            return
        for words, level in zip(verdict.parts, verdict.levels, strict=True):
            if level != "auto":
                self.commands.add(("", words))

    def covers_path(self, access: Access, facts: PathFacts | None) -> bool:
        """True when this place, host or MCP tool was allowed."""
        if facts is None:
            return (access.kind, access.target) in self.targets
        is_ordinary = facts.root is not None and not facts.is_secret and facts.links <= 1
        if access.kind == "edit" and self.has_edits and is_ordinary:
            return True
        return (access.kind, facts.path) in self.paths

    def add_path(self, access: Access, facts: PathFacts) -> None:
        """Keep a file; an edit inside the workspace stands for all of them."""
        if access.kind == "edit" and facts.root is not None and not facts.is_secret:
            self.has_edits = True
        else:
            self.paths.add((access.kind, facts.path))

    def add_target(self, access: Access) -> None:
        """Keep a host or an MCP tool."""
        self.targets.add((access.kind, access.target))

    def listed(self) -> tuple[str, ...]:
        """The grants in the form of rules, to be shown."""
        texts = [f"bash({shlex.join(words)})" for _, words in sorted(self.commands)]
        texts += [f"bash({text})" for _, text in sorted(self.texts)]
        texts += [f"{kind}({path})" for kind, path in sorted(self.paths)]
        texts += [target for _, target in sorted(self.targets)]
        texts += dict.fromkeys(rule.text for rule in self.openings)
        return (*texts, "edit(**)") if self.has_edits else tuple(texts)

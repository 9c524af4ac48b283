"""What is left open in the sandbox: by settings, by saved rules and by a person in this session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.tools.base import Context
from keen.tools.guard import Guard
from keen.tools.permission.rules import Rule, covers_path

OPEN_NETWORK: Final = "sandbox(network)"
_LEAST_PARTS: Final = 3
"""`/etc` has two: what lies directly below the root is too much to open at once."""


@dataclass(frozen=True, slots=True)
class Openings:
    """What commands in the sandbox may do beyond the workspace."""

    has_network: bool
    writable: tuple[Path, ...]
    may_open_network: bool
    """False where a rule denies it."""

    @classmethod
    def of(
        cls, rules: Sequence[Rule], guard: Guard, context: Context, *, has_network: bool
    ) -> Openings:
        """The openings in force: deny beats allow, and no rule opens what is protected."""
        mine = [rule for rule in rules if rule.subject == "sandbox"]
        is_denied = any(rule.kind == "deny" and rule.pattern == "network" for rule in mine)
        allowed = [rule.pattern or "" for rule in mine if rule.kind == "allow"]
        places = [Path(one[6:]) for one in allowed if one.startswith("write:")]
        return cls(
            has_network=not is_denied and (has_network or "network" in allowed),
            writable=tuple(one for one in places if may_open(one, rules, guard, context)),
            may_open_network=not is_denied,
        )


def place_to_open(path: Path, rules: Sequence[Rule], guard: Guard, context: Context) -> Path | None:
    """The narrowest place that must be open for `path` to be written; None when none may be.

    Programs write files beside and rename them: of a file it is the folder, unless that is too
    wide. What is missing needs the nearest folder that is there.
    """
    candidates = [path] if path.is_dir() else [path.parent, path]
    for place in candidates:
        while not os.path.lexists(place):
            place = place.parent
        if may_open(place, rules, guard, context):
            return place
    return None


def may_open(path: Path, rules: Sequence[Rule], guard: Guard, context: Context) -> bool:
    """False for what is protected, hidden, denied or holds a whole home directory."""
    facts = guard.facts(str(path), context)
    place = facts.path
    if is_barred(path, rules, guard, context):
        return False
    if facts.kind not in ("file", "directory") or facts.links > 1:
        return False
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if len(place.parts) < _LEAST_PARTS and facts.kind == "directory":
        return False
    return not home.is_relative_to(place)


def is_barred(path: Path, rules: Sequence[Rule], guard: Guard, context: Context) -> bool:
    """True for what no person is offered: protected, hidden, or denied by a rule."""
    facts = guard.facts(str(path), context)
    if facts.is_hidden or facts.is_secret or facts.protection != "none":
        return True
    for rule in rules:
        if rule.kind != "deny":
            continue
        if rule.subject == "edit" and covers_path(rule, facts.path, context.roots):
            return True
        denied = (rule.pattern or "").removeprefix("write:")
        if rule.subject == "sandbox" and denied and facts.path.is_relative_to(denied):
            return True
    return False

"""Whether a call may run: what modes, rules and a person's earlier answers make of it.

policy    the one who decides, for every tool; holds mode, rules and grants of a session
commands  what becomes of a command, given the shell's verdict on it
files     what becomes of reading or editing a file, given the guard's facts about it
rules     how `tool(pattern)` is read, what it matches, where saved rules are kept
grants    what a person allowed for this session
openings  what rules and a person leave open in the sandbox
verdict   the answer: allow, ask or refuse, with its reason and what a card offers

Asking is an event of the toolbox's; what a card offers is in the verdict.
"""

from __future__ import annotations

from keen.tools.permission.policy import Mode, Policy, by_source
from keen.tools.permission.verdict import Verdict

__all__ = ["Mode", "Policy", "Verdict", "by_source"]

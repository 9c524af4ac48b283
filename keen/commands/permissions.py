"""`keen permissions`: what the policy says of a command, and the rules it goes by."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from keen import sanitize
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.saying import out
from keen.core.errors import UsageError
from keen.tools._environment import command_environment
from keen.tools.base import Context
from keen.tools.permission import Policy, by_source
from keen.toolset import policy, sandbox


def add_parser(subparsers: Subparsers) -> None:
    """Add `permissions` with its actions to a parser."""
    parser = subparsers.add_parser("permissions", help="what may run unasked, and why")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="the verdict on a shell command")
    add_place(check)
    check.add_argument("command", nargs="+", metavar="COMMAND", help="as bash would read it")
    add_place(actions.add_parser("list", help="the rules in force and where each comes from"))


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code. Raises: UsageError, ConfigError."""
    place = place_of(arguments)
    judge = _policy(place)
    if arguments.action == "check":
        return check_command(judge, place.cwd, arguments.command)
    return list_rules(judge)


def _policy(place: Place) -> Policy:
    """The policy that a session in this place would start with."""
    loaded = place.load()
    roots = (place.cwd,)
    environment = command_environment(
        place.environment,
        roots,
        added=loaded.settings.permissions.env,
        is_trusted=place.is_trusted,
    )
    context = Context(place.cwd, roots, place.paths.cache / "scratch", environment=environment)
    level = sandbox(loaded, place.paths).level
    return policy(loaded, context, place.paths, is_interactive=True, level=level)


def check(command: str, policy: Policy) -> str:
    """The verdict in one line: `auto`, `ask` or `never`, a space, the reason."""
    level, reason = policy.check(command)
    return f"{level} {sanitize.line(reason)}"


def check_command(policy: Policy, cwd: Path, words: Sequence[str]) -> int:
    """Print the verdict on a command; several words are joined. Raises: UsageError."""
    command = words[0] if len(words) == 1 else " ".join(words)
    if not command.strip():
        raise UsageError("A command is required: keen permissions check 'git status'.")
    if policy.context.cwd != cwd:
        raise UsageError(f"The policy was made for {policy.context.cwd}, not for {cwd}.")
    out(check(command, policy))
    return 0


def list_rules(policy: Policy) -> int:
    """Print the rules in force, what denies first, and where each comes from."""
    held = {"full": "a full sandbox", "fs-only": "a sandbox for files only", "none": "no sandbox"}
    out(f"mode {policy.mode}, {held[policy.sandbox]}")
    rules = by_source(policy.rules)
    width = max((len(rule.text) for rule in rules), default=0)
    for rule in rules:
        out(sanitize.line(f"{rule.kind:<5}  {rule.text:<{min(width, 60)}}  {rule.place}"))
    for text in policy.granted:
        out(sanitize.line(f"allow  {text}  session"))
    out("allow  plain reads in the workspace  built-in")
    out("deny   keen's own files, git hooks and git configuration (edits)  built-in")
    for fault in policy.faults:
        out(sanitize.line(f"note: {fault}"))
    return 0

"""The built-in tools of a session and the policy that decides about their calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keen import config, trust
from keen.config import Loaded
from keen.core.errors import ConfigError
from keen.paths import Paths
from keen.tools.base import Context, Tool
from keen.tools.bash import Bash
from keen.tools.edit_file import EditFile
from keen.tools.file_memory import FileMemory
from keen.tools.glob import Glob
from keen.tools.grep import Grep
from keen.tools.guard import Guard
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.permission.rules import Kind, Rule, SavedRules, Source, parse_rule, parse_rules
from keen.tools.read_file import ReadFile
from keen.tools.recall import Recall
from keen.tools.sandbox.confinement import Confinement, Placeholders
from keen.tools.sandbox.confines import Surveyor
from keen.tools.sandbox.probe import Level, Sandbox, find
from keen.tools.todo import Todo
from keen.tools.web_fetch import WebFetch
from keen.tools.write_file import WriteFile


@dataclass(frozen=True, slots=True)
class Workshop:
    """The tools of a session, who decides about their calls, and what they leave running."""

    tools: dict[str, Tool]
    policy: Policy
    jobs: Jobs
    confinement: Confinement
    notices: tuple[str, ...] = ()


def open_workshop(
    loaded: Loaded,
    context: Context,
    paths: Paths,
    *,
    is_interactive: bool,
    readable: tuple[Path, ...] = (),
) -> Workshop:
    """Tools, policy and sandbox as the settings want them. Blocking.

    `readable`: folders outside the workspace that may be read unasked, such as those of skills.

    Raises: ConfigError for text that is no rule, or for a sandbox that is required and not there.
    """
    held = sandbox(loaded, paths, readable=readable)
    if not is_interactive:
        check_sandbox(held)
    decide = policy(
        loaded,
        context,
        paths,
        is_interactive=is_interactive,
        level=held.level,
        readable=readable,
    )
    jobs = Jobs()
    placeholders = Placeholders(paths.cache / "placeholders")
    placeholders.sweep()
    confinement = Confinement(held, decide, placeholders)
    tools = built_in_tools(
        FileMemory(),
        jobs,
        is_left_out=decide.is_unreadable,
        is_interactive=is_interactive,
        confinement=confinement,
    )
    notices: tuple[str, ...] = ()
    if is_interactive and held.level != "full" and loaded.settings.permissions.sandbox != "off":
        notices = (
            f"Commands will ask: no full sandbox ({held.reason}). "
            "keen doctor says what to install.",
        )
    return Workshop(tools, decide, jobs, confinement, notices)


def check_sandbox(held: Sandbox) -> None:
    """Refuse to start where a sandbox is required that is not there. Raises: ConfigError."""
    if held.is_required and held.level != "full":
        raise ConfigError(
            f'permissions.sandbox is "require", but {held.reason}. `keen doctor` says what to '
            "install."
        )


def built_in_tools(
    memory: FileMemory,
    jobs: Jobs,
    *,
    is_left_out: Callable[[Path], bool],
    is_interactive: bool,
    confinement: Confinement | None = None,
) -> dict[str, Tool]:
    """The tools of one session in the order the model sees them.

    `is_left_out`: files a search passes over. `ask_user` is there only where somebody answers.
    `confinement`: what starts commands in the sandbox.
    """
    bash = Bash(jobs)
    if confinement is not None:
        is_full = confinement.sandbox.level == "full"
        bash = Bash.sandboxed(jobs, confinement) if is_full else Bash(jobs, confinement)
    tools: list[Tool] = [
        ReadFile(memory),
        WriteFile(memory),
        EditFile(memory),
        Glob(),
        Grep(is_left_out),
        bash,
        WebFetch(),
        Todo(),
        Recall(),
    ]
    if is_interactive:
        from keen.tools.ask_user import AskUser

        tools.append(AskUser())
    return {tool.spec.name: tool for tool in tools}


def rules(loaded: Loaded) -> tuple[Rule, ...]:
    """The permission rules of the settings, each with where it comes from.

    Raises: ConfigError for text that is no rule.
    """
    settings = loaded.settings.permissions
    found: list[Rule] = []
    kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (
        ("deny", settings.deny),
        ("ask", settings.ask),
        ("allow", settings.allow),
    )
    for kind, texts in kinds:
        for number, text in enumerate(texts):
            origin = loaded.origins.get(f"permissions.{kind}[{number}]", "")
            try:
                found.append(parse_rule(text, kind, _source(origin), origin))
            except ConfigError as error:
                raise ConfigError(f"{origin}: permissions.{kind}: {error}") from error
    return tuple(found)


def _source(origin: str) -> Source:
    if origin.startswith("--"):
        return "flag"
    return "project" if f"{os.sep}{config.PROJECT_FILE}:" in origin else "user"


def sandbox(loaded: Loaded, paths: Paths, *, readable: tuple[Path, ...] = ()) -> Sandbox:
    """What holds commands here, as the settings want it. Blocking; seconds at the very first."""
    settings = loaded.settings.permissions
    writable = tuple(Path(os.path.realpath(os.path.expanduser(one))) for one in settings.writable)
    surveyor = Surveyor(guard(paths, readable), writable=writable)
    return find(settings.sandbox, paths.cache, surveyor=surveyor)


def policy(
    loaded: Loaded,
    context: Context,
    paths: Paths,
    *,
    is_interactive: bool,
    level: Level = "none",
    readable: tuple[Path, ...] = (),
) -> Policy:
    """The policy of a session: mode and rules of the settings, what was saved for this project.

    `level`: how far a sandbox holds commands. `readable`: more folders that are read unasked.

    Raises: ConfigError for text that is no rule.
    """
    settings = loaded.settings.permissions
    saved = SavedRules(paths.permissions_file, trust.project_root(context.cwd))
    return Policy(
        context,
        mode=settings.mode,
        rules=(*rules(loaded), *saved.load(), *_readable(readable)),
        guard=guard(paths, readable),
        sandbox=level,
        is_interactive=is_interactive,
        has_network=settings.network,
        save=saved.append,
    )


def guard(paths: Paths, readable: tuple[Path, ...] = ()) -> Guard:
    """Who knows which paths are keen's own, and which of all may be read."""
    own = (paths.config, paths.data, paths.cache, paths.logs)
    return Guard(own=tuple(dict.fromkeys(own)), readable=(paths.skills, *readable))


def _readable(folders: tuple[Path, ...]) -> tuple[Rule, ...]:
    """A rule for each folder whose name cannot be taken for a pattern."""
    plain = (str(folder) for folder in folders if not set("*?[]()") & set(str(folder)))
    return parse_rules((f"read({one}/**)" for one in plain), "allow", "built-in", "of skills")

"""What the person and a trusted project added: skills, subagents, MCP servers, hooks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from keen import trust
from keen._settings import Settings
from keen.agent.gate import OPEN, Gate
from keen.choice import Chosen
from keen.core.events import Emit
from keen.core.messages import User
from keen.extend import mcp_config
from keen.extend.mcp_config import Servers
from keen.extend.profiles import Profiles, load_profiles
from keen.extend.skills import Skills, SlashEntry, user_folders
from keen.extend.subagents import Ledger, Parts, Subagents
from keen.options import Options
from keen.paths import Paths
from keen.session.checkpoint import Recorder
from keen.tools.base import Context, Tool
from keen.tools.file_memory import FileMemory
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.toolset import Workshop, built_in_tools

if TYPE_CHECKING:
    from keen.extend.mcp import McpServers
    from keen.extend.project_hooks import ProjectHooks


def _nothing(_name: str) -> Tool | None:
    return None


def _unheard(_text: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Session:
    """Where a session works, with which tools, and what it is called."""

    context: Context
    workshop: Workshop
    recorder: Recorder | None
    is_interactive: bool


@dataclass
class Extensions:
    """What a session has beside its own tools. Nothing of it runs before it is used."""

    skills: Skills
    profiles: Profiles
    servers: Servers
    gate: Gate = OPEN
    notices: tuple[str, ...] = ()
    mcp: McpServers | None = None
    """None where no server is configured."""
    hooks: ProjectHooks | None = None
    """Those of the project; None where it has none or is not trusted."""
    ledger: Ledger = field(default_factory=Ledger)
    """What subagents spent on models other than the conversation's."""
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    """What requests declare; the tool of the subagents comes with `add_subagents`."""

    _tell: Callable[[str], None] = _unheard

    @property
    def undeclared(self) -> Callable[[str], Tool | None]:
        """Finds the tools of MCP servers, which requests leave out."""
        return self.mcp.undeclared if self.mcp is not None else _nothing

    def open(self, chosen: Chosen, environment: Mapping[str, str], session: Session) -> None:
        """Take what a session gives. Blocking, quick."""
        self.gate, unknown = _gate(chosen.settings, session, self.hooks)
        self.notices = (
            *self.skills.notices,
            *self.profiles.notices,
            *self.servers.notices,
            *unknown,
            *(self.hooks.notices if self.hooks is not None else ()),
        )
        tools: list[Tool] = []
        if (skill := self.skills.tool()) is not None:
            tools.append(skill)
        if self.servers.configs:
            from keen.extend.mcp import McpServers

            self.mcp = McpServers(
                self.servers.configs,
                paths=chosen.paths,
                cwd=session.context.cwd,
                roots=session.context.roots,
                environment=environment,
                is_interactive=session.is_interactive,
                is_trusted=chosen.is_trusted,
            )
            tools += self.mcp.tools()
        self.tools = {tool.spec.name: tool for tool in tools}

    def add_subagents(self, parts: Parts) -> None:
        """Give the session its subagents, made of `parts`, under the same hooks."""
        parts.undeclared, parts.ledger = self.undeclared, self.ledger
        parts.gate = self._gate_of
        task = Subagents(parts, self.profiles).tool()
        self.tools = {task.spec.name: task, **self.tools}

    def _gate_of(self, label: str) -> Gate:
        """The gate of a subagent: the same hooks, which are told its name."""
        if self.gate is OPEN:
            return OPEN
        from keen.extend.hooks import Hooks

        return self.gate.of_agent(label) if isinstance(self.gate, Hooks) else self.gate

    def subagent_tools(self, session: Session) -> Callable[[Policy, Jobs], Mapping[str, Tool]]:
        """What makes the tools of one subagent: those of the session, with files of its own."""

        def make(policy: Policy, jobs: Jobs) -> Mapping[str, Tool]:
            own = built_in_tools(
                FileMemory(),
                jobs,
                is_left_out=policy.is_unreadable,
                is_interactive=session.is_interactive,
                confinement=session.workshop.confinement.under(policy),
            )
            return {**own, **self.tools}

        return make

    def listen(self, tell: Callable[[str], None]) -> None:
        """Hand what the person should know to `tell`, one line each, from now on."""
        self._tell = tell
        if self.mcp is not None:
            self.mcp.listen(tell)

    @property
    def commands(self) -> tuple[SlashEntry, ...]:
        """What a person can call: skills and commands, and prompts of MCP servers that run."""
        prompts = self.mcp.prompts() if self.mcp is not None else ()
        rows = [
            SlashEntry(name, prompt.description, prompt.hint, "mcp", Path(server.origin))
            for name, prompt, server in prompts
        ]
        return (*self.skills.commands, *rows)

    def is_call(self, text: str) -> bool:
        """True for a text that calls a skill, a command or a prompt of an MCP server."""
        if self.skills.find(text) is not None:
            return True
        if self.mcp is None:
            return False
        from keen.extend.mcp_messages import is_prompt

        return is_prompt(text, self.mcp)

    def is_to_spell_out(self, text: str) -> bool:
        """True where `spelled_out` may change a message of this text."""
        return "@" in text or self.is_call(text)

    async def spelled_out(self, user: User, context: Context, emit: Emit | None = None) -> User:
        """What a typed message stands for: called skills and prompts, resources that it names.

        `emit` takes questions to the person; None: a server that would need one is not started.
        Raises: ToolError where a prompt cannot be had.
        """
        typed = user.text
        message = await asyncio.to_thread(self.skills.expand, typed)
        if message is not None:
            user = replace(user, text=message)
        is_call = message is None and self.mcp is not None and self.is_call(typed)
        names_some = "@" in typed and (self.mcp is not None or "://" in typed)
        if not is_call and not names_some:
            return user
        from keen.extend import mcp_messages

        if emit is not None:
            context = replace(context, ask=mcp_messages.asking(emit))
        if is_call and self.mcp is not None:
            user = await mcp_messages.with_prompt(user, self.mcp, context)
        user, notices = await mcp_messages.with_resources(user, typed, self.mcp, context)
        for notice in notices:
            self._tell(notice)
        return user

    async def aclose(self) -> None:
        """End what was started."""
        if self.mcp is not None:
            await self.mcp.aclose()


def found(options: Options, chosen: Chosen, environment: Mapping[str, str]) -> Extensions:
    """Look in the person's folders and, where it is trusted, in the project. Blocking."""
    paths = chosen.paths
    root = trust.project_root(options.cwd) if chosen.is_trusted else None
    home = Path(os.path.expanduser("~"))
    return Extensions(
        Skills.read(user_folders(paths), root, options.cwd, state_file=paths.state_file),
        load_profiles(paths.config, home, options.cwd, root),
        mcp_config.servers(
            chosen.settings,
            root,
            options.mcp_config,
            environment,
            user_file=paths.config / mcp_config.USER_FILE,
            given=options.mcp_servers,
        ),
        hooks=_project_hooks(root, paths),
    )


def _project_hooks(root: Path | None, paths: Paths) -> ProjectHooks | None:
    """The hooks of a trusted project, read only where it has some."""
    if root is None or not os.path.lexists(root / ".keen" / "hooks.toml"):
        return None
    from keen.extend.project_hooks import ProjectHooks

    return ProjectHooks.of(root, paths)


def _gate(
    settings: Settings, session: Session, project: ProjectHooks | None
) -> tuple[Gate, tuple[str, ...]]:
    """The hooks of the person and the project, and what is wrong with the person's events."""
    if not settings.hooks and project is None:
        return OPEN, ()
    from keen.extend.hooks import Hooks, Surroundings, unknown_events

    context, policy, recorder = session.context, session.workshop.policy, session.recorder
    log = recorder.log if recorder is not None else None
    place = Surroundings(
        context.cwd,
        context.roots,
        context.environment,
        session_id=recorder.session_id if recorder is not None else "",
        transcript_path=str(log.path) if log is not None and log.path is not None else "",
        mode=lambda: policy.mode,
        has_person=session.is_interactive,
    )
    return Hooks(settings.hooks, place, project), unknown_events(settings.hooks)

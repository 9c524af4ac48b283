"""The one place where settings, wire, tools, policy, session and conversation are put together."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from keen import providers, scratch, trust
from keen._settings import Settings
from keen.agent.compaction import (
    CheckpointStrategy,
    Compactor,
    RecentStrategy,
    Summariser,
    WindowStrategy,
)
from keen.agent.conversation import Conversation, as_it_is
from keen.agent.prompts import system_prompt
from keen.agent.sampling import Sampler
from keen.agent.toolbox import Toolbox
from keen.choice import Chosen
from keen.core.budget import safety_margin
from keen.core.errors import ConfigError
from keen.core.messages import History
from keen.core.models import Effort
from keen.engine import Engine
from keen.extend.instructions import Instructions, instructions
from keen.extend.subagents import Parts
from keen.extensions import Extensions, Session, found
from keen.options import Options
from keen.seal import seal
from keen.session.checkpoint import Recorder
from keen.session.projection import remembered
from keen.tools._environment import command_environment
from keen.tools.base import Context, Tool
from keen.toolset import open_workshop
from keen.wire import catalogue
from keen.wire.registry import wire_for

_LEAST_ROOM: Final = 1_024
"""Tokens that system prompt and tools must leave of the budget."""
_SMALL_BUDGET: Final = 20_000
"""Effective tokens under which the optional tools are left out."""
_OPTIONAL: Final = ("task", "skill", "recall", "todo", "web_fetch")


async def compose(
    options: Options,
    chosen: Chosen,
    environment: Mapping[str, str],
    *,
    recorder: Recorder | None,
    history: History = (),
    search: Callable[[str], str] | None = None,
    is_interactive: bool = False,
) -> Engine:
    """Put an engine together. The recorder is owned by it from here on.

    Raises: ConfigError for a model whose window is too small, or what the settings lack.
    """
    settings = chosen.settings
    sampler = await sampler_of(
        chosen,
        (chosen.provider, chosen.model, chosen.effort),
        environment,
        threshold=threshold(settings.compaction.threshold),
    )
    words = await asyncio.to_thread(_instructions, options, chosen)
    extensions = await asyncio.to_thread(found, options, chosen, environment)
    name = recorder.session_id if recorder is not None else str(uuid.uuid4())
    await asyncio.to_thread(seal)
    place = await asyncio.to_thread(scratch.directory, chosen.paths.cache, name)
    context = _context(options, chosen, environment, place, search)
    workshop = await asyncio.to_thread(
        open_workshop,
        chosen.loaded,
        context,
        chosen.paths,
        is_interactive=is_interactive,
        readable=extensions.skills.readable,
    )
    session = Session(context, workshop, recorder, is_interactive)
    await asyncio.to_thread(extensions.open, chosen, environment, session)
    summariser = await _summariser(chosen, environment)

    def system(tools: Collection[str]) -> str:
        skills = extensions.skills.words if "skill" in tools else ""
        return system_prompt(
            facts(options.cwd), words.text, skills, options.appended_prompt, tools=tools
        )

    parts = _parts(
        chosen, environment, session, extensions=extensions, sampler=sampler, system=system
    )
    parts.summariser = summariser
    extensions.add_subagents(parts)
    tools = {**workshop.tools, **extensions.tools}
    notices = [*chosen.notices, *workshop.notices, *_about(words), *extensions.notices]
    if sampler.budget.effective < _SMALL_BUDGET:
        tools, note = without_optional(tools, sampler)
        notices.append(note)
    compactor, is_automatic = strategy(settings, sampler, recorder, summariser)
    conversation = Conversation(
        sampler=sampler,
        toolbox=Toolbox(
            tools, workshop.policy, context, extensions.undeclared, gate=extensions.gate
        ),
        system=system(tools),
        history=history,
        compactor=compactor,
        is_automatic=is_automatic,
        remember=as_it_is if settings.session.tool_history == "full" else _remembered,
        cache_key=recorder.session_id if recorder is not None else "",
        scratch=place,
        gate=extensions.gate,
    )
    if recorder is not None:
        conversation.commit = recorder.commit
    check_room(conversation)
    engine = Engine(
        conversation,
        recorder,
        settings,
        options.cwd,
        workshop.jobs,
        tuple(notices),
        summariser=summariser,
        extensions=extensions,
    )
    parts.limits = lambda: engine.limits
    return engine


def _parts(
    chosen: Chosen,
    environment: Mapping[str, str],
    session: Session,
    *,
    extensions: Extensions,
    sampler: Sampler,
    system: Callable[[Collection[str]], str],
) -> Parts:
    """What the subagents of a session are made of."""
    recorder = session.recorder
    return Parts(
        sampler=sampler,
        policy=session.workshop.policy,
        make_tools=extensions.subagent_tools(session),
        strategy=lambda own, other: strategy(chosen.settings, own, recorder, other),
        system=system,
        make_sampler=lambda named: sampler_of(chosen, catalogue.parse_model(named), environment),
        cache_key=recorder.session_id if recorder is not None else "",
    )


async def sampler_of(
    chosen: Chosen,
    named: tuple[str, str, Effort | None],
    environment: Mapping[str, str],
    *,
    threshold: int = 90,
) -> Sampler:
    """What asks a model: `named` is its provider, its name there and the effort.

    Raises: ConfigError for a provider that is not set up.
    """
    provider, model, effort = named
    settings = chosen.settings
    endpoint = providers.endpoint(settings, provider, environment, chosen.paths)
    spec = await asyncio.to_thread(
        providers.model_spec, settings, provider, model, paths=chosen.paths
    )
    spec = await providers.asked(settings, spec, endpoint)
    wire = wire_for(spec.client, endpoint)
    return Sampler(wire, spec, effort=effort, threshold=threshold)


def _about(words: Instructions) -> list[str]:
    """What the person should know of the instruction files that were read."""
    notices: list[str] = []
    if words.hidden:
        notices.append(
            f"{words.hidden} invisible characters in {', '.join(map(str, words.files))} were left "
            "out: somebody may have hidden instructions there."
        )
    if words.is_cut:
        notices.append("The instruction files (AGENTS.md) are over 32 KiB together and were cut.")
    return notices


def _remembered(history: History) -> History:
    """The whole history as turn memory; what is turn memory already stays as it is."""
    return remembered(history, 0)


def threshold(setting: float) -> int:
    """The setting as a percentage, or, above 1, as tokens."""
    return round(setting * 100) if setting <= 1 else max(101, round(setting))


async def _summariser(chosen: Chosen, environment: Mapping[str, str]) -> Sampler | None:
    """The model that `compaction.model` names, None where it is the conversation's own.

    Raises: ConfigError for a provider that is not set up.
    """
    settings = chosen.settings
    if not settings.compaction.model:
        return None
    named = catalogue.parse_model(settings.compaction.model)
    if named[:2] == (chosen.provider, chosen.model):
        return None
    return await sampler_of(chosen, named, environment)


def strategy(
    settings: Settings,
    sampler: Sampler,
    recorder: Recorder | None,
    other: Sampler | None = None,
) -> tuple[Compactor, bool]:
    """The compactor of the settings, and whether it acts by itself. `other` writes the summaries.

    A summary of another model is asked for in the size that fits that model's own window.
    """
    wanted = settings.compaction
    key = f"{recorder.session_id}-compact" if recorder is not None else "compact"
    summariser = Summariser(sampler, key)
    if other is not None:
        summariser = Summariser(other, key, payer=sampler)
        sampler.summarises_with = other.model.name
    is_automatic = wanted.auto and wanted.strategy != "off"
    match wanted.strategy:
        case "recent":
            return RecentStrategy(summariser, wanted.keep_recent_tokens), is_automatic
        case "window":
            return WindowStrategy(sampler, wanted.keep_recent_tokens), is_automatic
        case _:
            return CheckpointStrategy(summariser), is_automatic


def without_optional(tools: Mapping[str, Tool], sampler: Sampler) -> tuple[dict[str, Tool], str]:
    """The tools a small window has room for, and the line that says so."""
    kept = {name: tool for name, tool in tools.items() if name not in _OPTIONAL}
    budget = sampler.budget
    return kept, (
        f"{sampler.model.name} leaves {budget.effective:,} tokens for input: the tools "
        f"{', '.join(name for name in _OPTIONAL if name in tools)} are left out."
    )


def check_room(conversation: Conversation) -> None:
    """Refuse to start where system prompt and tools leave no room for a conversation.

    Raises: ConfigError with the numbers and the settings that help.
    """
    sampler = conversation.sampler
    fixed = conversation.size_of(())
    budget = sampler.budget
    if budget.effective - fixed >= _LEAST_ROOM:
        return
    raise ConfigError(
        f"{sampler.model.name} has a window of {budget.window:,} tokens; {budget.reserve:,} are "
        f"reserved for the answer and {safety_margin(budget.window):,} for safety, and system "
        f"prompt and tools need {fixed:,}. Use a model with a larger window, or correct "
        f"context_window and max_output_tokens in [providers.{sampler.model.provider}.models."
        f'"{sampler.model.id}"].'
    )


def facts(cwd: Path) -> list[str]:
    """What the model should know of the machine; fixed for a session, so that caches hold."""
    is_repository = (trust.project_root(cwd) / ".git").exists()
    repository = "in a git repository" if is_repository else "in no git repository"
    return [
        f"Working directory: {cwd} ({repository})",
        f"System: {os.uname().sysname}",
    ]


def _instructions(options: Options, chosen: Chosen) -> Instructions:
    root = trust.project_root(options.cwd) if chosen.is_trusted else None
    return instructions(options.cwd, root, chosen.paths.config / "AGENTS.md")


def _context(
    options: Options,
    chosen: Chosen,
    environment: Mapping[str, str],
    place: Path,
    search: Callable[[str], str] | None,
) -> Context:
    roots = (options.cwd, *options.directories)
    return Context(
        cwd=options.cwd,
        roots=roots,
        scratch=place,
        search=search,
        environment=command_environment(
            environment,
            roots,
            added=chosen.settings.permissions.env,
            is_trusted=chosen.is_trusted,
        ),
    )

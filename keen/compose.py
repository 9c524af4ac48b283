"""The one place where settings, wire, tools, policy, session and conversation are put together."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen import config, credentials, log, providers, scratch, state, trust
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
from keen.config import Loaded
from keen.core.budget import safety_margin
from keen.core.errors import ConfigError
from keen.core.messages import History, User
from keen.core.models import Effort
from keen.engine import Engine
from keen.extend.instructions import Instructions, instructions
from keen.options import Options
from keen.paths import Paths
from keen.proxies import spare_loopback
from keen.seal import seal
from keen.session.checkpoint import Recorder
from keen.session.projection import remembered
from keen.tools._environment import command_environment
from keen.tools.base import Context, Tool
from keen.tools.confinement import Confinement
from keen.tools.file_memory import FileMemory
from keen.tools.jobs import Jobs
from keen.tools.sandbox import Sandbox
from keen.toolset import built_in_tools, policy, sandbox
from keen.wire import catalogue
from keen.wire._sdk import preload
from keen.wire.local import LocalServer
from keen.wire.registry import sdk_of, wire_for

_LEAST_ROOM: Final = 1_024
"""Tokens that system prompt and tools must leave of the budget."""
_SMALL_BUDGET: Final = 20_000
"""Effective tokens under which the optional tools are left out."""
_OPTIONAL: Final = ("task", "recall", "todo", "web_fetch")
_NO_MODEL: Final = """\
No model is set up. One of these helps:
- set a key in the environment, for example ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY
- keep a key with `keen auth login PROVIDER`
- start a local server (Ollama, llama.cpp, LM Studio, vLLM) and use `-m ollama/MODEL`
- look around without any of them: `keen demo`, or `keen run -m demo/guide "what is here?"`"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Everything known before the session is opened."""

    loaded: Loaded
    paths: Paths
    provider: str
    model: str
    effort: Effort | None
    is_trusted: bool
    notices: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        return self.loaded.settings


class NoModel(ConfigError):
    """Neither a flag, a setting, a key nor a server says which model to use."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(_NO_MODEL)
        self.settings = settings


def choose(
    options: Options, environment: Mapping[str, str], *, local: Sequence[LocalServer] = ()
) -> Chosen:
    """Settings and model of a start, read without touching the network or an SDK. Blocking.

    `local`: servers that were found, for when nothing else names a model.

    Raises:
        NoModel: nothing names a model.
        ConfigError: naming what to change.
    """
    paths = Paths.from_environment(environment)
    log.configure(paths.logs, is_debugging=options.is_debugging)
    spare_loopback(os.environ)
    if options.is_trusting:
        trust.trust(options.cwd, paths)
    is_trusted = trust.is_trusted(options.cwd, paths)
    flags = options.settings()
    if options.model:
        flags["model"] = options.model
    loaded = config.load(
        options.cwd,
        flags=flags,
        environment=environment,
        trusted=is_trusted,
        paths=paths,
        file=options.config,
    )
    credentials.learn_secrets(loaded.settings, environment, paths.auth_file)
    name = providers.choose_model(
        loaded.settings, environment, state.read_state(paths), paths, local=local
    )
    try:
        if not name:
            raise NoModel(loaded.settings)
        provider, model, effort = catalogue.parse_model(name)
        client = providers.client_of(loaded.settings, provider)
    except ConfigError as error:
        for warning in loaded.warnings:  # a misspelt key may be the reason
            error.add_note(warning)
        raise
    if (sdk := sdk_of(client)) is not None:
        preload(sdk)
    notices = list(loaded.warnings)
    ignored = () if is_trusted else trust.what_would_take_effect(options.cwd)
    if ignored:
        notices.append(
            f"This folder is not trusted: {', '.join(ignored)} ignored. --trust once uses them."
        )
    if local:
        notices.append(f"No model is set: using {name}, which runs on this machine.")
    return Chosen(loaded, paths, provider, model, effort, is_trusted, tuple(notices))


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
    endpoint = providers.endpoint(settings, chosen.provider, environment, chosen.paths)
    spec = await asyncio.to_thread(
        providers.model_spec, settings, chosen.provider, chosen.model, paths=chosen.paths
    )
    spec = await providers.asked(settings, spec, endpoint)
    sampler = Sampler(
        wire_for(spec.client, endpoint),
        spec,
        threshold=threshold(settings.compaction.threshold),
        effort=chosen.effort,
    )
    words = await asyncio.to_thread(_instructions, options, chosen)
    name = recorder.session_id if recorder is not None else str(uuid.uuid4())
    await asyncio.to_thread(seal)
    place = await asyncio.to_thread(scratch.directory, chosen.paths.cache, name)
    context = _context(options, chosen, environment, place, search)
    held = await asyncio.to_thread(sandbox, chosen.loaded, chosen.paths)
    if not is_interactive:
        check_sandbox(held)
    decide = policy(
        chosen.loaded, context, chosen.paths, is_interactive=is_interactive, level=held.level
    )
    jobs = Jobs()
    tools = built_in_tools(
        FileMemory(),
        jobs,
        is_left_out=decide.is_unreadable,
        is_interactive=is_interactive,
        confinement=Confinement(held, decide),
    )
    notices = [*chosen.notices]
    if is_interactive and held.level != "full" and settings.permissions.sandbox != "off":
        notices.append(
            f"Commands will ask: no full sandbox ({held.reason}). keen doctor says what to install."
        )
    if sampler.budget.effective < _SMALL_BUDGET:
        tools, note = without_optional(tools, sampler)
        notices.append(note)
    toolbox = Toolbox(tools, decide, context)
    system = system_prompt(facts(options.cwd), words.text, options.appended_prompt, tools=tools)
    if words.hidden:
        notices.append(
            f"{words.hidden} invisible characters in {', '.join(map(str, words.files))} were left "
            "out: somebody may have hidden instructions there."
        )
    if words.is_cut:
        notices.append("The instruction files (AGENTS.md) are over 32 KiB together and were cut.")
    summariser = await _summariser(chosen, environment)
    compactor, is_automatic = strategy(settings, sampler, recorder, summariser)
    conversation = Conversation(
        sampler=sampler,
        toolbox=toolbox,
        system=system,
        history=history,
        compactor=compactor,
        is_automatic=is_automatic,
        remember=as_it_is if settings.session.tool_history == "full" else _remembered,
        cache_key=recorder.session_id if recorder is not None else "",
        scratch=place,
    )
    if recorder is not None:
        conversation.commit = recorder.commit
    check_room(conversation)
    return Engine(
        conversation,
        recorder,
        settings,
        options.cwd,
        jobs,
        tuple(notices),
        summariser=summariser,
    )


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
    provider, model, effort = catalogue.parse_model(settings.compaction.model)
    if (provider, model) == (chosen.provider, chosen.model):
        return None
    endpoint = providers.endpoint(settings, provider, environment, chosen.paths)
    spec = await asyncio.to_thread(
        providers.model_spec, settings, provider, model, paths=chosen.paths
    )
    spec = await providers.asked(settings, spec, endpoint)
    return Sampler(wire_for(spec.client, endpoint), spec, effort=effort)


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
    fixed = conversation.turn(User("")).size_of(())
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


def check_sandbox(held: Sandbox) -> None:
    """Refuse to start where a sandbox is required that is not there. Raises: ConfigError."""
    if held.is_required and held.level != "full":
        raise ConfigError(
            f'permissions.sandbox is "require", but {held.reason}. `keen doctor` says what to '
            "install."
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

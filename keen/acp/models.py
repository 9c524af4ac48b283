"""The models an editor may offer, and going on with another one in the same session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from keen import providers
from keen._settings import Settings
from keen.acp.files import EditorFiles
from keen.choice import choose
from keen.compose import compose
from keen.core.errors import ConfigError
from keen.engine import Engine
from keen.options import Options
from keen.paths import Paths

_ASKING: Final = "ask_user"


def offered(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Models of all providers that have a key. Blocking: it reads the catalogues."""
    paths = Paths.from_environment(environment)
    return tuple(
        described.spec.name
        for provider in providers.provider_names(settings)
        if providers.key_source(settings, provider, environment, paths)
        for described in providers.known_models(settings, environment, paths, provider=provider)
    )


async def with_model(
    engine: Engine, options: Options, environment: Mapping[str, str], name: str
) -> Engine:
    """An engine that goes on with the same session and this model; the old one is closed.

    Settings, instructions and skills are read anew. What was allowed for the session is asked
    again.

    Raises: ConfigError for a model that is not set up or that the conversation does not fit; the
    old engine then goes on.
    """
    talk = engine.conversation
    wanted = replace(options, model=name)
    chosen = await asyncio.to_thread(choose, wanted, environment)
    fresh = await compose(
        wanted,
        chosen,
        environment,
        recorder=engine.recorder,
        history=talk.history,
        search=talk.toolbox.context.search,
        is_interactive=True,
    )
    size = fresh.conversation.size_of(talk.history)
    room = fresh.conversation.sampler.budget.effective
    if size > room:
        await _let_go(fresh)
        raise ConfigError(
            f"The conversation measures about {size:,} tokens and {name} leaves {room:,} for "
            "input: /compact first."
        )
    fresh.conversation.toolbox.policy.set_mode(talk.toolbox.policy.mode)
    mine = fresh.conversation.toolbox
    mine.context = replace(mine.context, keep=talk.toolbox.context.keep)
    if engine.recorder is not None and fresh.model != engine.model:
        await engine.recorder.model_changed(fresh.model)
    await _let_go(engine)
    return fresh


def for_editor(engine: Engine, files: EditorFiles | None) -> Engine:
    """The engine with the editor's `files`, and without `ask_user`.

    The protocol has no question of free words, so the model asks in its answer.
    """
    toolbox = engine.conversation.toolbox
    tools = {name: tool for name, tool in toolbox.tools.items() if name != _ASKING}
    context = replace(toolbox.context, editor=files)
    engine.conversation.toolbox = replace(toolbox, tools=tools, context=context)
    return engine


async def _let_go(engine: Engine) -> None:
    """Close everything of an engine but the session, which another one has."""
    engine.recorder = None
    await engine.aclose()

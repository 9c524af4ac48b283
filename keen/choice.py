"""Which settings and which model a start works with, decided before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keen import config, credentials, log, providers, state, trust
from keen._settings import Settings
from keen.config import Loaded
from keen.core.errors import ConfigError
from keen.core.models import Effort
from keen.options import Options
from keen.paths import Paths
from keen.proxies import faults, spare_loopback
from keen.wire import catalogue
from keen.wire._sdk import preload
from keen.wire.local import LocalServer
from keen.wire.registry import sdk_of

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

    def __init__(self, settings: Settings, reason: str = "") -> None:
        super().__init__(f"{reason}\n{_NO_MODEL}".lstrip())
        self.settings = settings


class Hindrance(ConfigError):
    """What no choice of a model cures: a mistake in the settings, a network set up wrongly."""


def choose(
    options: Options, environment: Mapping[str, str], *, local: Sequence[LocalServer] = ()
) -> Chosen:
    """Settings and model of a start, read without touching the network or an SDK. Blocking.

    `local`: servers that were found, for when nothing else names a model.

    Raises:
        NoModel: nothing names a model.
        Hindrance: a wrong setting, or a network that no connection could use.
        ConfigError: naming what to change.
    """
    paths = Paths.from_environment(environment)
    log.configure(paths.logs, is_debugging=options.is_debugging)
    spare_loopback(os.environ)
    notices = list(_remember_trust(options, paths))
    is_trusted = options.is_trusting or trust.is_trusted(options.cwd, paths)
    flags = options.settings()
    if options.model:
        flags["model"] = options.model
    try:
        loaded = config.load(
            options.cwd,
            flags=flags,
            environment=environment,
            trusted=is_trusted,
            paths=paths,
            file=options.config,
        )
    except ConfigError as error:
        raise Hindrance(str(error)) from error
    credentials.learn_secrets(loaded.settings, environment, paths.auth_file)
    name = providers.choose_model(
        loaded.settings, environment, state.read_state(paths), paths, local=local
    )
    try:
        if not name:
            raise NoModel(loaded.settings, credentials.damage(paths.auth_file))
        provider, model, effort = catalogue.parse_model(name)
        client = providers.client_of(loaded.settings, provider)
    except ConfigError as error:
        for warning in loaded.warnings:  # a misspelt key may be the reason
            error.add_note(warning)
        raise
    if (sdk := sdk_of(client)) is not None:
        preload(sdk)
        for fault in faults(environment, client):
            raise Hindrance(fault)
    notices += loaded.warnings
    ignored = () if is_trusted else trust.what_would_take_effect(options.cwd)
    if ignored:
        notices.append(
            f"This folder is not trusted: {', '.join(ignored)} ignored; --trust uses them."
        )
    if local:
        notices.append(f"No model is set: using {name}, which runs on this machine.")
    return Chosen(loaded, paths, provider, model, effort, is_trusted, tuple(notices))


def _remember_trust(options: Options, paths: Paths) -> Iterator[str]:
    """What is to be told of `--trust`, which holds where it cannot be kept, as in a container."""
    if options.is_trusting:
        try:
            trust.trust(options.cwd, paths)
        except ConfigError as error:
            yield f"This folder is trusted for this start only: {error}"

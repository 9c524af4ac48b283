"""Providers and models as the settings and the catalogue together describe them."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from keen import credentials
from keen._settings import ModelSettings, Settings
from keen.core.errors import ConfigError
from keen.core.models import UNKNOWN_WINDOW, ModelSpec, Price
from keen.paths import Paths
from keen.state import State
from keen.wire import catalogue
from keen.wire.base import Credential, Endpoint
from keen.wire.local import LocalModel, LocalServer, ask, find, usual_addresses


@dataclass(frozen=True, slots=True)
class Described:
    """A model and where its window comes from, in words for a person."""

    spec: ModelSpec
    window_source: str


def endpoint(
    settings: Settings, provider: str, environment: Mapping[str, str], paths: Paths
) -> Endpoint:
    """Where and as whom to talk to a provider.

    Raises: ConfigError for a provider that is neither built in nor set up. A missing key raises
    only when it is asked for.
    """
    client = client_of(settings, provider)
    table, row = settings.provider(provider), catalogue.providers().get(provider)
    address = base_url(settings, provider)
    kin = row or catalogue.provider_at(address)
    return Endpoint(
        provider=provider,
        credential=_credential(settings, provider, environment, paths),
        base_url=address,
        headers=dict(table.headers),
        quirks=kin.quirks if kin else frozenset(),
        region=table.region
        or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION", client=client),
        profile=table.profile or _first(environment, "AWS_PROFILE", client=client),
    )


def client_of(settings: Settings, provider: str) -> str:
    """The protocol a provider is spoken to in. Raises: ConfigError when it is unknown."""
    table, row = settings.providers.get(provider), catalogue.providers().get(provider)
    if table is not None and table.client:
        return table.client
    if row is not None:
        return row.client
    if table is not None:
        raise ConfigError(
            f"providers.{provider} needs a client: chat, responses, anthropic, google or bedrock. "
            'Most servers speak "chat".'
        )
    raise ConfigError(_unknown_provider(settings, provider))


def base_url(settings: Settings, provider: str) -> str:
    """The base URL of a provider; empty where the SDK itself knows (bedrock, demo)."""
    client = client_of(settings, provider)
    table, row = settings.provider(provider), catalogue.providers().get(provider)
    address = table.base_url or (row.base_url if row else "")
    address = address or catalogue.CLIENT_ADDRESSES.get(client, "")
    if not address and client == "chat":
        raise ConfigError(
            f"providers.{provider} needs a base_url, such as "
            '"http://127.0.0.1:8080/v1": the part before /chat/completions.'
        )
    return address


def is_local(settings: Settings, provider: str) -> bool:
    """True for a model server on this machine."""
    row = catalogue.providers().get(provider)
    return (row is not None and row.local) or catalogue.is_loopback(base_url(settings, provider))


def model_spec(
    settings: Settings,
    provider: str,
    model_id: str,
    *,
    paths: Paths | None = None,
    found: LocalModel | None = None,
) -> ModelSpec:
    """What is known of a model. `found`: a local server's answer; `paths`: keeps what was found."""
    return describe(settings, provider, model_id, paths=paths, found=found).spec


def describe(
    settings: Settings,
    provider: str,
    model_id: str,
    *,
    paths: Paths | None = None,
    found: LocalModel | None = None,
) -> Described:
    """`model_spec`, and which of the sources told the window.

    Settings beat the server's own word, which beats the catalogue; genai-prices comes last and is
    only asked when something is still missing.
    """
    client = client_of(settings, provider)
    told = settings.provider(provider).models.get(model_id, ModelSettings())
    limits = catalogue.limits(provider, model_id)
    price: Price | None = None
    priced_window: int | None = None
    if client != "demo" and not is_local(settings, provider):
        figures = catalogue.figures(
            provider,
            model_id,
            address=base_url(settings, provider),
            cache_directory=paths.cache if paths else None,
        )
        price, priced_window = figures.price, figures.window
    windows = (
        (settings.compaction.context_window_tokens, "compaction.context_window_tokens"),
        (told.context_window, "settings"),
        (found.window if found else None, "server"),
        (limits.window, "built-in"),
        (priced_window, "genai-prices"),
    )
    window, source = next(((size, name) for size, name in windows if size), (UNKNOWN_WINDOW, ""))
    spec = ModelSpec(
        provider=provider,
        id=model_id,
        client=client,
        window=window,
        is_window_known=bool(source),
        max_output=limits.max_output,
        asked_output=told.max_output_tokens,
        max_input=None if told.context_window else limits.max_input,
        reasoning=_settled(told.reasoning, found.reasoning if found else None, limits.reasoning),
        images=_settled(told.images, found.images if found else None, limits.images),
        price=price,
        is_local=client != "demo" and is_local(settings, provider),
    )
    return Described(spec, source or "unknown, counts as 200,000")


async def asked(settings: Settings, spec: ModelSpec, endpoint: Endpoint) -> ModelSpec:
    """The spec with what a local server says of its model; unchanged for others and in silence."""
    if not spec.is_local or _is_told(settings, spec):
        return spec
    server = await ask(
        spec.provider,
        endpoint.base_url,
        key=await endpoint.credential.secret(),
        model=spec.id,
    )
    found = next((one for one in server.models if one.id == spec.id), None) if server else None
    return model_spec(settings, spec.provider, spec.id, found=found) if found else spec


def _is_told(settings: Settings, spec: ModelSpec) -> bool:
    """True when the settings leave nothing to ask a server that keeps its model loaded."""
    told = settings.provider(spec.provider).models.get(spec.id, ModelSettings())
    return bool(told.context_window and told.max_output_tokens) and spec.provider != "ollama"


def choose_model(
    settings: Settings,
    environment: Mapping[str, str],
    state: State,
    paths: Paths,
    *,
    local: Sequence[LocalServer] = (),
) -> str:
    """The model to start with, as `provider/model[:effort]`; empty when nothing is set up.

    Flag, KEEN_MODEL and settings (all three are in `settings.model`), the last one used, the first
    key found in the order of the provider list, then a `local` server that was found.
    """
    if settings.model:
        return settings.model
    if state.model and _is_usable(settings, state.model):
        return state.model
    for name in _with_keys(settings, environment, paths):
        if model := _first_model(settings, name):
            return f"{name}/{model}"
    return next((f"{one.provider}/{one.models[0].id}" for one in local if one.models), "")


async def local_servers(settings: Settings, *, only: str = "") -> tuple[LocalServer, ...]:
    """The servers of this machine that answer: the usual ones, and those the settings name."""
    addresses = {
        name: base_url(settings, name)
        for name in provider_names(settings)
        if _is_chat(settings, name) and is_local(settings, name) and only in ("", name)
    }
    usual = usual_addresses()
    found = await find({name: at for name, at in addresses.items() if name in usual})
    own = await asyncio.gather(
        *(ask(name, at) for name, at in addresses.items() if name not in usual)
    )
    return (*found, *(server for server in own if server is not None))


def known_models(
    settings: Settings,
    environment: Mapping[str, str],
    paths: Paths,
    *,
    provider: str = "",
    local: Sequence[LocalServer] = (),
) -> tuple[Described, ...]:
    """Models of one provider; without a name those of all, one each of those without a key.

    Imports genai-prices. Raises: ConfigError for an unknown provider.
    """
    if provider:
        client_of(settings, provider)
        ids = {provider: _model_ids(settings, provider, local)}
    else:
        ids = {
            name: _model_ids(settings, name, local)
            for name in (
                *_with_keys(settings, environment, paths),
                *(one.provider for one in local),
            )
        }
        for name in provider_names(settings):
            if name not in ids and (model := _first_model(settings, name)):
                ids[name] = (model,)
    found = {(one.provider, model.id): model for one in local for model in one.models}
    return tuple(
        describe(settings, name, model, paths=paths, found=found.get((name, model)))
        for name, models in ids.items()
        for model in dict.fromkeys(models)
    )


def key_source(
    settings: Settings, provider: str, environment: Mapping[str, str], paths: Paths
) -> str:
    """Where a provider's key would come from, in words; empty when there is none."""
    row = catalogue.providers().get(provider)
    words = credentials.source(provider, settings.provider(provider), row, environment, paths)
    chained = (name for name in (row.chain if row else ()) if environment.get(name))
    return words or next((f"AWS chain ({name})" for name in chained), "")


def provider_names(settings: Settings) -> tuple[str, ...]:
    """Built-in providers in their order, then the user's own."""
    return tuple(dict.fromkeys((*catalogue.providers(), *settings.providers)))


def _credential(
    settings: Settings, provider: str, environment: Mapping[str, str], paths: Paths
) -> Credential:
    table, row = settings.provider(provider), catalogue.providers().get(provider)
    client = client_of(settings, provider)
    if client == "codex" and not (table.api_key or table.api_key_env or table.api_key_helper):
        from keen.auth import CodexSignIn

        return CodexSignIn(paths.auth_file, provider, account_id=table.account_id)
    found = credentials.credential(
        provider,
        client=client,
        table=table,
        row=row,
        environment=environment,
        paths=paths,
        is_local=is_local(settings, provider),
    )
    if client != "codex" or table.account_id:
        return found
    from keen.auth import with_account

    return with_account(found)


def _is_chat(settings: Settings, name: str) -> bool:
    table = settings.providers.get(name)
    return not (table and name not in usual_addresses() and not table.base_url) and (
        client_of(settings, name) == "chat"
    )


def _with_keys(settings: Settings, environment: Mapping[str, str], paths: Paths) -> Iterator[str]:
    """Providers with a key of their own, then those that only AWS's general chain speaks for.

    AWS variables are often set for other work, so they decide only when no other key does.
    """
    chained: list[str] = []
    for name in provider_names(settings):
        row = catalogue.providers().get(name)
        if credentials.source(name, settings.provider(name), row, environment, paths):
            yield name
        elif key_source(settings, name, environment, paths):
            chained.append(name)
    yield from chained


def _first_model(settings: Settings, provider: str) -> str:
    row = catalogue.providers().get(provider)
    return row.model if row and row.model else next(iter(settings.provider(provider).models), "")


def _model_ids(settings: Settings, provider: str, local: Sequence[LocalServer]) -> tuple[str, ...]:
    row = catalogue.providers().get(provider)
    served = (model.id for one in local if one.provider == provider for model in one.models)
    default = (row.model,) if row and row.model else ()
    listed = catalogue.known_models(provider)
    return (*settings.provider(provider).models, *served, *default, *listed)


def _is_usable(settings: Settings, model: str) -> bool:
    try:
        name, _, _ = catalogue.parse_model(model)
        client_of(settings, name)
    except ConfigError:
        return False
    return True


def _settled(*opinions: bool | None) -> bool:
    return next((one for one in opinions if one is not None), True)


def _first(environment: Mapping[str, str], *names: str, client: str) -> str:
    if client != "bedrock":
        return ""
    return next((environment[name] for name in names if environment.get(name)), "")


def _unknown_provider(settings: Settings, provider: str) -> str:
    names = provider_names(settings)
    near = difflib.get_close_matches(provider, names, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return (
        f'There is no provider "{provider}". {hint}Known are {", ".join(names)}; '
        f"another one needs a table [providers.{provider}] with client and base_url."
    )

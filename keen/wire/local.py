"""Model servers on this machine: which of them run, what they serve, and how large it really is.

A local server cuts models to the memory it has, so its own word on the window is the only one
that counts; Ollama even drops the beginning of a longer prompt without a word.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from keen.wire.catalogue import providers

if TYPE_CHECKING:
    from httpx2 import AsyncClient

FIND_SECONDS: Final = 0.3
ASK_SECONDS: Final = 3.0
LOAD_SECONDS: Final = 120.0

_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_MODELS: Final = 64


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model as its server describes it. None: the server did not say.

    `window` is what the server grants in tokens. `is_live` is False when it is only what the model
    could have and the server may grant less, as long as the model is not loaded.
    """

    id: str
    window: int | None = None
    is_live: bool = False
    images: bool | None = None
    reasoning: bool | None = None


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server and its models."""

    provider: str
    base_url: str
    models: tuple[LocalModel, ...]


async def find(
    addresses: Mapping[str, str] | None = None, *, seconds: float = FIND_SECONDS
) -> tuple[LocalServer, ...]:
    """The servers that answer within `seconds`, in the order of `addresses` (provider: base URL).

    By default the usual ports on loopback. Sends no key.
    """
    places = usual_addresses() if addresses is None else addresses
    listening = await asyncio.gather(*(_listens(address, seconds) for address in places.values()))
    open_places = [
        place for place, answers in zip(places.items(), listening, strict=True) if answers
    ]
    if not open_places:
        return ()
    await asyncio.to_thread(importlib.import_module, "httpx2")
    found = await asyncio.gather(*(_probe(*place, seconds=seconds) for place in open_places))
    return tuple(server for server in found if server is not None)


async def ask(
    provider: str, base_url: str, *, key: str = "", model: str = "", seconds: float = ASK_SECONDS
) -> LocalServer | None:
    """What one server says of its models; None when it does not answer.

    With `model`, Ollama is made to load it, because only then does it tell the window it grants;
    the request that follows would have waited for the same load.
    """
    await asyncio.to_thread(importlib.import_module, "httpx2")
    async with _client(base_url, key, seconds) as client:
        server = _Server(client, base_url)
        models = await server.models(provider)
        wanted = next((one for one in models or () if one.id == model), None)
        if provider == "ollama" and wanted is not None and not wanted.is_live:
            await server.load(model)
            models = await server.models(provider)
    return LocalServer(provider, base_url, models) if models is not None else None


def usual_addresses() -> dict[str, str]:
    """The local providers and where each listens by default."""
    return {row.name: row.base_url for row in providers().values() if row.local}


async def _listens(address: str, seconds: float) -> bool:
    """True when something accepts a connection: tells without importing an HTTP library."""
    parts = urlsplit(address)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _probe(provider: str, address: str, *, seconds: float) -> LocalServer | None:
    async with _client(address, "", seconds) as client:
        models = await _Server(client, address, seconds).models(provider)
    return LocalServer(provider, address, models) if models is not None else None


def _client(address: str, key: str, seconds: float) -> AsyncClient:
    from httpx2 import AsyncClient

    # Reading the system's certificates takes longer than the whole search is allowed to.
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return AsyncClient(
        timeout=seconds,
        trust_env=False,  # a proxy has no business between keen and this machine
        follow_redirects=False,
        verify=plain if address.startswith("http://") else True,
        headers={"Authorization": f"Bearer {key}"} if key else {},
    )


@dataclass(slots=True)
class _Server:
    """One server's endpoints. Answers that are late, no JSON or of another shape are no answer."""

    client: AsyncClient
    base_url: str
    seconds: float = ASK_SECONDS

    @property
    def root(self) -> str:
        return self.base_url.rstrip("/").removesuffix("/v1")

    async def models(self, provider: str) -> tuple[LocalModel, ...] | None:
        """The models of a server of this kind; of any kind where the provider is the user's own."""
        kinds = {
            "ollama": self._ollama,
            "llamacpp": self._llama_cpp,
            "lmstudio": self._lm_studio,
            "vllm": self._vllm,
        }
        if provider in kinds:
            return await kinds[provider]()
        answers = await asyncio.gather(*(kind() for kind in kinds.values()))
        known = next((models for models in answers if models is not None), None)
        return known if known is not None else await self._any_openai()

    async def load(self, model: str) -> None:
        """Have Ollama load a model; an empty prompt generates nothing."""
        await self._json("/api/generate", {"model": model}, seconds=LOAD_SECONDS)

    async def _ollama(self) -> tuple[LocalModel, ...] | None:
        tags, running = await asyncio.gather(self._json("/api/tags"), self._json("/api/ps"))
        if not isinstance(_at(tags, "models"), list):
            return None
        live = {
            _text(one, "model", "name"): _number(one, "context_length") for one in _rows(running)
        }
        ids = [name for one in _rows(tags) if (name := _text(one, "model", "name"))]
        shown = await asyncio.gather(*(self._json("/api/show", {"model": one}) for one in ids))
        return tuple(
            _ollama_model(name, live.get(name), show)
            for name, show in zip(ids, shown, strict=True)
            if _can_chat(show)
        )

    async def _llama_cpp(self) -> tuple[LocalModel, ...] | None:
        listed, props = await asyncio.gather(self._json("/v1/models"), self._json("/props"))
        rows = _rows(listed)
        settings = _at(props, "default_generation_settings")
        is_llama = settings is not None or any(_at(one, "owned_by") == "llamacpp" for one in rows)
        if not rows or not is_llama:
            return None
        window = _number(settings, "n_ctx") or _number(props, "n_ctx")
        sees = _at(_at(props, "modalities"), "vision")
        images = sees if isinstance(sees, bool) else None
        return tuple(
            LocalModel(name, window, is_live=window is not None, images=images)
            for one in rows
            if (name := _text(one, "id"))
        )

    async def _lm_studio(self) -> tuple[LocalModel, ...] | None:
        listed = await self._json("/api/v0/models")
        rows = _rows(listed)
        if not any(_at(one, "max_context_length") for one in rows):
            return None
        models: list[LocalModel] = []
        for one in rows:
            kind, loaded = _at(one, "type"), _number(one, "loaded_context_length")
            if kind in ("llm", "vlm") and (name := _text(one, "id")):
                window = loaded or _number(one, "max_context_length")
                models.append(LocalModel(name, window, is_live=bool(loaded), images=kind == "vlm"))
        return tuple(sorted(models, key=lambda model: not model.is_live))

    async def _vllm(self) -> tuple[LocalModel, ...] | None:
        rows = _rows(await self._json("/v1/models"))
        is_vllm = any(_at(one, "owned_by") == "vllm" or _at(one, "max_model_len") for one in rows)
        if not is_vllm:
            return None
        return tuple(
            LocalModel(name, window := _number(one, "max_model_len"), is_live=window is not None)
            for one in rows
            if (name := _text(one, "id"))
        )

    async def _any_openai(self) -> tuple[LocalModel, ...] | None:
        listed = await self._json("/v1/models")
        if not isinstance(_at(listed, "data"), list):
            return None
        return tuple(LocalModel(name) for one in _rows(listed) if (name := _text(one, "id")))

    async def _json(
        self, path: str, body: dict[str, str] | None = None, *, seconds: float = 0.0
    ) -> object:
        """The answer's JSON, or None."""
        from httpx2 import HTTPError

        url = f"{self.root}{path}"
        content = bytearray()
        try:
            async with (
                asyncio.timeout(seconds or self.seconds),
                self.client.stream(
                    "POST" if body else "GET",
                    url,
                    json=body,
                    timeout=seconds or self.seconds,
                ) as response,
            ):
                if response.status_code != 200:
                    return None
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        return None
            return cast("object", json.loads(content))
        except (HTTPError, OSError, TimeoutError, ValueError, RecursionError):
            return None


def _ollama_model(name: str, live: int | None, show: object) -> LocalModel:
    """Running: what it was loaded with. Else what its own parameters ask for, else its training."""
    asked = re.search(r"^num_ctx\s+(\d+)", str(_at(show, "parameters") or ""), re.MULTILINE)
    told = live or (int(asked.group(1)) if asked else None)
    abilities = _abilities(show)
    return LocalModel(
        name,
        told or _trained_window(_at(show, "model_info")),
        is_live=told is not None,
        images="vision" in abilities if abilities else None,
        reasoning="thinking" in abilities if abilities else None,
    )


def _trained_window(details: object) -> int | None:
    """`context_length` under the name of whatever architecture the model has."""
    facts = cast("dict[str, object]", details) if isinstance(details, dict) else {}
    name = next((key for key in facts if key.endswith(".context_length")), "")
    return _number(facts, name)


def _can_chat(show: object) -> bool:
    """False for a model that only embeds; older servers do not say."""
    abilities = _abilities(show)
    return not abilities or "completion" in abilities


def _abilities(show: object) -> list[Any]:
    abilities = _at(show, "capabilities")
    return cast("list[Any]", abilities) if isinstance(abilities, list) else []


def _rows(answer: object) -> list[object]:
    """The list under `data` (OpenAI's shape) or `models` (Ollama's)."""
    for name in ("data", "models"):
        if isinstance(rows := _at(answer, name), list):
            return cast("list[object]", rows)[:_MOST_MODELS]
    return []


def _at(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _number(value: object, name: str) -> int | None:
    number = _at(value, name)
    return (
        number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None
    )


def _text(value: object, *names: str) -> str:
    """The first of these fields that holds a usable name; control characters make it unusable."""
    for name in names:
        word = _at(value, name)
        if isinstance(word, str) and 0 < len(word) <= 500 and word.isprintable():
            return word
    return ""

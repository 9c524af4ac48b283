"""What is known of providers and models without asking them: a built-in table and genai-prices."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.core.models import EFFORTS, Effort, Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

TABLE: Final = Path(__file__).with_name("providers.toml")

CLIENT_ADDRESSES: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
    "responses": "https://api.openai.com/v1",
    "codex": "https://chatgpt.com/backend-api/codex",
}
"""Where a provider of the user's own is when its table names no base URL."""

_NO_CHAT: Final = re.compile(
    r"embed|tts|audio|image|live|realtime|transcri|whisper|moderation|guard|ocr|voice|sonic|orpheus"
)
"""Names of models that no conversation can be held with."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A row of providers.toml; the comments there say what each column means."""

    name: str
    client: str
    base_url: str = ""
    keys: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    """Variables that show that the provider's own credential chain will find something."""
    addresses: tuple[str, ...] = ()
    model: str = ""
    prices: str = ""
    windows: str = ""
    quirks: frozenset[str] = frozenset()
    local: bool = False

    def address_from(self, environment: Mapping[str, str]) -> tuple[str, str]:
        """The variable that moves this provider and the base URL it gives; empty when none does."""
        for variable in self.addresses:
            if value := environment.get(variable, "").strip():
                return variable, ollama_address(value) if self.name == "ollama" else value
        return "", ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What providers.toml says about a model. None: nobody said."""

    window: int | None = None
    max_output: int | None = None
    max_input: int | None = None
    images: bool = True
    reasoning: bool = True
    as_of: date | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What genai-prices says about a model. None: it does not know."""

    window: int | None = None
    price: Price | None = None


@cache
def providers() -> Mapping[str, Provider]:
    """The built-in providers by name, in their order."""
    rows = cast("dict[str, dict[str, Any]]", _table()["providers"])
    return {
        name: Provider(
            name=name,
            client=row["client"],
            base_url=row.get("base_url", ""),
            keys=tuple(row.get("keys", ())),
            chain=tuple(row.get("chain", ())),
            addresses=tuple(row.get("addresses", ())),
            model=row.get("model", ""),
            prices=row.get("prices", ""),
            windows=row.get("windows", row.get("prices", "")),
            quirks=frozenset(row.get("quirks", ())),
            local=row.get("local", False),
        )
        for name, row in rows.items()
    }


def provider_at(address: str) -> Provider | None:
    """The built-in provider whose own host `address` is at; local ones never match."""
    host = urlsplit(address).hostname
    found = (row for row in providers().values() if urlsplit(row.base_url).hostname == host)
    return next((row for row in found if host and not row.local), None)


def limits(provider: str, model: str) -> Limits:
    """Caps and abilities of a model, by the longest prefix its name begins with."""
    if (row := providers().get(provider)) is not None and row.local:
        return Limits()  # a local build of a known model is cut to the machine it runs on
    best: dict[str, Any] = {}
    name = _normal(model)
    for candidate in _models():
        owner = candidate.get("provider", "")
        if owner not in ("", provider):
            continue
        weight = (owner != "", len(candidate["prefix"]))
        beaten = best and weight <= (best.get("provider", "") != "", len(best["prefix"]))
        if not beaten and re.search(rf"(?:^|[/-]){re.escape(_normal(candidate['prefix']))}", name):
            best = candidate
    known = {key: value for key, value in best.items() if key not in ("prefix", "provider")}
    return Limits(**known)


def parse_model(text: str) -> tuple[str, str, Effort | None]:
    """`provider/model[:effort]` in its parts. Only a known effort word is cut off the id.

    Raises: ConfigError when there is no provider or no model in it.
    """
    provider, _, model = text.strip().partition("/")
    head, colon, tail = model.rpartition(":")
    effort: Effort | None = None
    if colon and head:
        effort = next((word for word in EFFORTS if word == tail), None)
    model = head if effort else model
    if not provider or not model:
        raise ConfigError(
            f'"{text}" names no model. Write provider/model, such as '
            '"anthropic/claude-sonnet-5" or "ollama/qwen3:8b".'
        )
    return provider, model, effort


def figures(
    provider: str, model: str, *, address: str = "", cache_directory: Path | None = None
) -> Figures:
    """Window and price of a model as genai-prices knows them.

    `address` is the base URL of a provider that is not built in. What was found is kept in
    `cache_directory` until another genai-prices is installed, because the package is slow to
    import: a start that asks for a model a second time does without it.
    """
    row = providers().get(provider)
    source = row.windows if row else ""
    if row is not None and not source:
        return Figures()
    name = f"{provider}/{model}" if row else f"{address} {model}"
    stored = _Stored.read(cache_directory)
    if (entry := stored.entries.get(name)) is not None:
        return _figures_from(entry)
    found = _looked_up(source, model, address)
    if row is not None and not row.prices:
        found = Figures(found.window)
    stored.add(name, found)
    return found


def known_models(provider: str) -> tuple[str, ...]:
    """Model ids that genai-prices lists for a built-in provider. Imports that package."""
    row = providers().get(provider)
    if row is None or not row.windows:
        return ()
    from genai_prices.data import providers as priced

    listed = next((one for one in priced if one.id == row.windows), None)
    if listed is None:
        return ()
    return tuple(
        one.id
        for one in listed.models
        if one.context_window and not one.deprecated and not _NO_CHAT.search(one.id)
    )


def ollama_address(host: str) -> str:
    """The /v1 base URL of OLLAMA_HOST, which may be a host, host:port, or URL.

    0.0.0.0 is where a server listens; a client reaches it at 127.0.0.1.
    """
    address = host if "://" in host else f"http://{host}"
    parts = urlsplit(address)
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else name
    try:
        port = parts.port
    except ValueError:
        port = None
    port = port or (443 if parts.scheme == "https" else 11434 if "://" not in host else 80)
    bracketed = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{bracketed}:{port}{path}/v1"


def is_loopback(address: str) -> bool:
    """True when a base URL stays on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _models() -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", _table()["models"])


def _normal(model: str) -> str:
    return model.lower().replace(".", "-")


def _looked_up(source: str, model: str, address: str) -> Figures:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    attempts: list[tuple[str | None, str | None]] = []
    if source:
        attempts.append((source, None))
    elif not is_loopback(address):
        attempts += [(None, address or None), (None, None)]
    for provider_id, url in attempts:
        try:
            _, info = snapshot.find_provider_model(model, None, provider_id, url)
        except LookupError:
            continue
        # A maker's price list does not hold at somebody's gateway; the window does.
        is_their_price = bool(provider_id or url)
        return Figures(info.context_window, _price(info) if is_their_price else None)
    return Figures()


def _price(info: ModelInfo) -> Price | None:
    from datetime import UTC, datetime

    prices = info.get_prices(datetime.now(UTC))
    amounts: dict[str, float | None] = {}
    for key in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"):
        value: Any = getattr(prices, key)
        base = getattr(value, "base", value)  # a tiered price starts at its base
        amounts[key] = None if base is None else float(base)
    if amounts["input_mtok"] is None or amounts["output_mtok"] is None:
        return None
    return Price(
        amounts["input_mtok"],
        amounts["output_mtok"],
        amounts["cache_read_mtok"],
        amounts["cache_write_mtok"],
    )


@dataclass(slots=True)
class _Stored:
    """The looked-up figures of one version of genai-prices. A lost or broken file costs time only.

    The version is told by the package's data file, whose size and time change with every release:
    asking importlib.metadata would cost as much as it saves.
    """

    path: Path | None
    version: str
    entries: dict[str, JsonObject]

    @classmethod
    def read(cls, directory: Path | None) -> _Stored:
        path = directory / "models.json" if directory else None
        version = _prices_version()
        if path is None:
            return cls(None, version, {})
        try:
            value: Any = json.loads(path.read_text(encoding="utf-8"))
            if value["version"] == version and isinstance(value["entries"], dict):
                return cls(path, version, value["entries"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return cls(path, version, {})

    def add(self, name: str, found: Figures) -> None:
        if self.path is None:
            return
        price: Json = None
        if found.price:
            one = found.price
            price = [one.input, one.output, one.cached, one.cache_write]
        self.entries[name] = {"window": found.window, "price": price}
        draft = self.path.with_name(f".{self.path.name}.{id(self):x}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps({"version": self.version, "entries": self.entries})
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path)
        except OSError:
            return


def _figures_from(entry: JsonObject) -> Figures:
    window, price = entry.get("window"), entry.get("price")
    amounts = cast("list[float | None]", price) if isinstance(price, list) else []
    if len(amounts) == 4 and amounts[0] is not None and amounts[1] is not None:
        found = Price(amounts[0], amounts[1], amounts[2], amounts[3])
    else:
        found = None
    return Figures(window if isinstance(window, int) else None, found)


def _prices_version() -> str:
    spec = importlib.util.find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return ""
    try:
        facts = Path(spec.origin).with_name("data.py").stat()
    except OSError:
        return spec.origin
    return f"{facts.st_size}-{facts.st_mtime_ns}"

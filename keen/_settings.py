"""The tables of config.toml as frozen values, with what each key may hold."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Client: TypeAlias = Literal["chat", "responses", "codex", "anthropic", "google", "bedrock", "demo"]
Mode: TypeAlias = Literal["plan", "build", "yolo"]
Strategy: TypeAlias = Literal["checkpoint", "recent", "window", "off"]


def _as_tuple(value: object) -> object:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _model_name(value: str) -> str:
    provider, slash, model = value.partition("/")
    if value and not (slash and provider.strip() and model.strip()):
        raise ValueError('"provider/model", such as "anthropic/claude-sonnet-5"')
    return value


def _web_address(value: str) -> str:
    try:
        is_whole = bool(urlsplit(value).hostname) and urlsplit(value).port != 0
    except ValueError:  # a bracket without its partner, a port that is no number
        is_whole = False
    if value and not (is_whole and value.startswith(("http://", "https://"))):
        raise ValueError("an address that starts with http:// or https://, then a host")
    return value.rstrip("/")


def _threshold(value: float) -> float:
    if not (0.10 <= value <= 0.95 or 1 < value < float("inf")):
        raise ValueError("a share from 0.10 to 0.95, or a number of tokens above 1")
    return value


def _matcher(value: str) -> str:
    try:
        re.compile("" if value == "*" else value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f'a regular expression, or "*" for all ({error})') from error
    return value


def _program(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value[0].strip():
        raise ValueError("a program first, then its arguments")
    if any("\0" in word for word in value):
        raise ValueError("words without the character NUL")
    return value


def _program_or_none(value: tuple[str, ...]) -> tuple[str, ...]:
    return _program(value) if value else value


def _key(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ValueError("a key: one line of plain ASCII characters")
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"header names of letters, digits and dashes; {name!r} is none")
        if not text.isascii() or not text.isprintable():
            raise ValueError(f"one line of plain ASCII characters as the value of {name}")
    return value


_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

Key: TypeAlias = Annotated[str, AfterValidator(_key)]
Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_headers)]
Strings: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Command: TypeAlias = Annotated[Strings, Field(min_length=1), AfterValidator(_program)]
CommandOrNone: TypeAlias = Annotated[Strings, AfterValidator(_program_or_none)]
ModelName: TypeAlias = Annotated[str, AfterValidator(_model_name)]
WebAddress: TypeAlias = Annotated[str, AfterValidator(_web_address)]
Tokens: TypeAlias = Annotated[int, Field(gt=0)]


class Table(BaseModel):
    """A table that names every key it knows; TOML's own types are taken as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class ModelSettings(Table):
    """What the user knows about a model better than any catalogue."""

    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None
    reasoning: bool | None = None
    images: bool | None = None


class ProviderSettings(Table):
    """Where a provider is and who the user is there."""

    client: Client | None = None
    base_url: WebAddress = ""
    api_key: Key = Field(default="", repr=False)
    api_key_env: str = ""
    api_key_helper: str = ""
    headers: Headers = Field(default_factory=dict, repr=False)
    region: str = ""
    profile: str = ""
    account_id: str = ""
    models: dict[str, ModelSettings] = Field(default_factory=dict)


class CompactionSettings(Table):
    """When and how a conversation is shortened."""

    auto: bool = True
    threshold: Annotated[float, AfterValidator(_threshold)] = 0.90
    strategy: Strategy = "checkpoint"
    keep_recent_tokens: Tokens = 20_000
    context_window_tokens: Annotated[int, Field(ge=0)] = 0
    model: ModelName = ""


class PermissionSettings(Table):
    """What may run unasked. Rules read `tool(pattern)`; the permission policy parses them."""

    mode: Mode = "build"
    allow: Strings = ()
    ask: Strings = ()
    deny: Strings = ()
    sandbox: Literal["auto", "require", "off"] = "auto"
    network: bool = False
    writable: Strings = ()
    env: Strings = ()


class UiSettings(Table):
    """How the terminal app looks and behaves."""

    theme: str = "keen-dark"
    notification_seconds: Annotated[float, Field(gt=0)] = 2
    show_thinking: bool = False
    mouse: bool = True
    copy_on_select: bool = True
    while_running: Literal["queue", "steer"] = "queue"
    notify: Literal["off", "unfocused", "always"] = "unfocused"
    notify_command: CommandOrNone = ()
    status_command: CommandOrNone = ()


class SessionSettings(Table):
    """What a conversation keeps between turns."""

    tool_history: Literal["none", "full"] = "none"


class McpServer(Table):
    """One MCP server: a command to start, or an address to call."""

    command: Strings = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    url: WebAddress = ""
    headers: Headers = Field(default_factory=dict, repr=False)


class McpSettings(Table):
    """The user's MCP servers by name."""

    servers: dict[str, McpServer] = Field(default_factory=dict)


class Hook(Table):
    """A command that runs at an event, for the tools that `matcher` names (all when empty).

    `timeout` in seconds.
    """

    command: Command
    matcher: Annotated[str, AfterValidator(_matcher)] = ""
    timeout: Annotated[float, Field(ge=1, le=600)] = 60


class Settings(Table):
    """Everything config.toml, a trusted project, the environment and the flags decided."""

    model: ModelName = ""
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    compaction: CompactionSettings = CompactionSettings()
    permissions: PermissionSettings = PermissionSettings()
    ui: UiSettings = UiSettings()
    session: SessionSettings = SessionSettings()
    mcp: McpSettings = McpSettings()
    hooks: dict[str, Annotated[tuple[Hook, ...], BeforeValidator(_as_tuple)]] = Field(
        default_factory=dict
    )
    keys: dict[str, Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]] = Field(
        default_factory=dict
    )

    def provider(self, name: str) -> ProviderSettings:
        """The user's table for a provider; an empty one when there is none."""
        return self.providers.get(name) or ProviderSettings()


EXPECTED: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "tuple_type": "a list of texts",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "missing": "a value, because this key is required",
    "too_short": "a list with at least one entry",
}
"""What a kind of mistake wanted, in a user's words."""


def expectation(kind: str, message: str, context: dict[str, object]) -> str:
    """What the key should have held, from pydantic's account of the mistake."""
    if words := EXPECTED.get(kind):
        return words
    match kind:
        case "literal_error":
            return f"one of {context.get('expected')}"
        case "greater_than":
            return f"a number above {context.get('gt')}"
        case "greater_than_equal":
            return f"a number of at least {context.get('ge')}"
        case "less_than_equal":
            return f"a number of at most {context.get('le')}"
        case "value_error":
            return str(context.get("error"))
        case _:
            return message

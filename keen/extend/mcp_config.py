"""Which MCP servers are configured, and by whom; nothing is started to know it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from keen._settings import McpServer, Settings
from keen.core.messages import Json, JsonObject
from keen.tools._environment import command_environment

Scope: TypeAlias = Literal["user", "project", "flag"]
Transport: TypeAlias = Literal["stdio", "http", "sse"]

PROJECT_FILE: Final = ".mcp.json"
USER_FILE: Final = "mcp.json"
"""Beside config.toml; `keen mcp add` writes it."""
FILE_BYTES: Final = 262_144
_MOST_SERVERS: Final = 64
_KINDS: Final[dict[str, Transport]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server as it would be started: a command, or an address to call."""

    name: str
    scope: Scope
    origin: str
    """The file it comes from, for a person."""
    transport: Transport = "stdio"
    command: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None
    """Where it starts; None: in the working directory of the session."""
    shown: str = ""
    """Command or address as the file spells it, values of variables not filled in."""
    key: str = ""
    """A hash over the entry as the file spells it and where it starts: what an approval is for."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What was found, and a sentence for each thing that was left out."""

    configs: tuple[ServerConfig, ...] = ()
    notices: tuple[str, ...] = ()


class _WrongEntry(Exception):
    """An entry that names no server that could be started."""


def servers(
    settings: Settings,
    project_root: Path | None,
    extra_file: Path | None,
    environment: Mapping[str, str],
    *,
    user_file: Path | None = None,
    given: JsonObject | None = None,
) -> Servers:
    """Every configured server, one for each name, in the order of their names. Blocking, quick.

    `project_root` None: the folder is not trusted, its file is not read. A name is decided by
    what an editor has `given`, before `extra_file` (--mcp-config), before config.toml, before
    `user_file`, before the project.
    """
    found: dict[str, ServerConfig] = {}
    notices: list[str] = []
    for config in _all(
        settings,
        project_root,
        extra_file,
        environment=environment,
        user_file=user_file,
        given=given or {},
        notices=notices,
    ):
        if config.name not in found:
            found[config.name] = config
        elif config.scope == "project":
            notices.append(
                f"{config.origin}: mcpServers.{config.name} is ignored: {found[config.name].origin}"
                " has a server of that name."
            )
    ordered = [found[name] for name in sorted(found)]
    if len(ordered) > _MOST_SERVERS:
        notices.append(f"Only the first {_MOST_SERVERS} of {len(ordered)} MCP servers are used.")
    return Servers(tuple(ordered[:_MOST_SERVERS]), tuple(notices))


def read_entries(path: Path) -> tuple[JsonObject, str]:
    """The entries of a file by name, and what is wrong with the file; a missing one is empty."""
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}."
    if len(content) > FILE_BYTES:
        return {}, f"{path} is over {FILE_BYTES // 1024} KiB; its MCP servers are ignored."
    try:
        value: object = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return {}, f"{path} is not valid JSON: {error}. Its MCP servers are ignored."
    table = cast("JsonObject", value) if isinstance(value, dict) else {}
    entries = table.get("mcpServers", {} if table else None)
    if not isinstance(entries, dict):
        return {}, f'{path}: mcpServers should hold a table, as in {{"mcpServers": {{"NAME": …}}}}.'
    return entries, ""


def _all(
    settings: Settings,
    project_root: Path | None,
    extra_file: Path | None,
    *,
    environment: Mapping[str, str],
    user_file: Path | None,
    given: JsonObject,
    notices: list[str],
) -> Iterator[ServerConfig]:
    own = _own_variables(environment)
    editor = _Reader("flag", own, None, notices)
    for name, entry in given.items():
        yield from editor.one(name, entry, "the editor", name)
    if extra_file is not None:
        if not extra_file.exists():
            notices.append(f"--mcp-config {extra_file}: there is no such file.")
        yield from _Reader("flag", own, None, notices).file(extra_file)
    user = _Reader("user", own, None, notices)
    for name, entry in settings.mcp.servers.items():
        yield from user.one(name, _as_json(entry), "config.toml", f"mcp.servers.{name}")
    if user_file is not None:
        yield from user.file(user_file)
    if project_root is not None:
        known = command_environment(
            environment, (project_root,), added=settings.permissions.env, is_trusted=True
        )
        project = _Reader("project", known, project_root, notices)
        yield from project.file(project_root / PROJECT_FILE)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads entries of one scope. `variables`: what `${NAME}` may stand for."""

    scope: Scope
    variables: Mapping[str, str]
    root: Path | None
    notices: list[str]

    def file(self, path: Path) -> Iterator[ServerConfig]:
        entries, wrong = read_entries(path)
        if wrong:
            self.notices.append(wrong)
        for name, entry in entries.items():
            yield from self.one(name, entry, str(path), f"mcpServers.{name}")

    def one(self, name: str, entry: Json, origin: str, field_name: str) -> Iterator[ServerConfig]:
        if isinstance(entry, dict) and entry.get("disabled") is True:
            return
        try:
            yield self._config(name, entry, origin)
        except _WrongEntry as error:
            self.notices.append(f"{origin}: {field_name}{error} This server is left out.")

    def _config(self, name: str, entry: Json, origin: str) -> ServerConfig:
        if not name.strip() or not name.isprintable() or len(name) > 64:
            raise _WrongEntry(" should have a name of 1 to 64 printable characters.")
        if not isinstance(entry, dict):
            raise _WrongEntry(' should be a table, such as {"command": "npx", "args": […]}.')
        command, url = _command(entry), _text(entry, "url")
        if bool(command) == bool(url):
            raise _WrongEntry(" should have either command or url.")
        transport = _transport(entry, bool(url))
        filled = tuple(
            self._filled(word, "args" if i else "command") for i, word in enumerate(command)
        )
        headers = {
            key: self._filled(value, f"headers.{key}")
            for key, value in _texts(entry, "headers").items()
        }
        _check_headers(headers)
        return ServerConfig(
            name=name,
            scope=self.scope,
            origin=origin,
            transport=transport,
            command=filled,
            environment={
                key: self._filled(value, f"env.{key}")
                for key, value in _texts(entry, "env").items()
            },
            url=_checked_url(self._filled(url, "url")) if url else "",
            headers=headers,
            cwd=self.root,
            shown=_shown(command, url, entry),
            key=_key(name, self.scope, entry, command, self.root),
        )

    def _filled(self, text: str, field_name: str) -> str:
        """`text` with `${NAME}` and `${NAME:-default}` filled in."""

        def value(match: re.Match[str]) -> str:
            name, default = match[1], cast("str | None", match[2])
            if known := self.variables.get(name):
                return known
            if default is not None:
                return default
            if name in self.variables:
                return ""
            hint = " or is not let through: permissions.env lists what is"
            raise _WrongEntry(
                f".{field_name} needs ${{{name}}}, which is not set"
                f"{hint if self.scope == 'project' else ''}."
            )

        filled = _VARIABLE.sub(value, text)
        if "\0" in filled:
            raise _WrongEntry(f".{field_name} holds a NUL character.")
        return filled


def _own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's own files may name any variable but those that pay for models."""
    kept = command_environment(environment, (), added=tuple(environment))
    return {name: value for name, value in environment.items() if name in kept}


def _as_json(entry: McpServer) -> JsonObject:
    return {
        "command": [*entry.command],
        "env": {**entry.env},
        "url": entry.url,
        "headers": {**entry.headers},
    }


def _command(entry: JsonObject) -> tuple[str, ...]:
    """`command` as text with `args`, or as the whole list."""
    command, arguments = entry.get("command"), entry.get("args", [])
    words: list[Json] = [command] if isinstance(command, str) and command else []
    if isinstance(command, list):
        words = command
    elif command is not None and not isinstance(command, str):
        raise _WrongEntry(".command should be text, the program to start.")
    if not isinstance(arguments, list):
        raise _WrongEntry(".args should be a list of texts.")
    words = [*words, *arguments]
    if not all(isinstance(word, str) for word in words):
        raise _WrongEntry(".args should be a list of texts.")
    texts = cast("list[str]", words)
    if texts and not texts[0].strip():
        raise _WrongEntry(".command is empty.")
    return tuple(texts)


def _text(entry: JsonObject, name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise _WrongEntry(f".{name} should be text.")
    return value.strip()


def _texts(entry: JsonObject, name: str) -> dict[str, str]:
    value = entry.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _WrongEntry(f".{name} should be a table of texts.")
    if any(not key or "=" in key or "\0" in key for key in value):
        raise _WrongEntry(f".{name} has a name that cannot be used.")
    return cast("dict[str, str]", {**value})


def _transport(entry: JsonObject, has_url: bool) -> Transport:
    kind = _text(entry, "type") or ("http" if has_url else "stdio")
    transport = _KINDS.get(kind)
    if transport is None or (transport == "stdio") == has_url:
        wanted = '"http" or "sse" beside a url' if has_url else '"stdio" beside a command'
        raise _WrongEntry(f".type should be {wanted}.")
    return transport


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise _WrongEntry(f".headers.{name} is no header of one line of ASCII.")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isprintable() or not url.isascii():
        raise _WrongEntry(".url should start with http:// or https://, then a host.")
    return url


def _shown(command: Iterable[str], url: str, entry: JsonObject) -> str:
    words = [*command]
    if not words:
        names = ", ".join(_texts(entry, "headers"))
        return f"{url} (headers: {names})" if names else url
    from shlex import join  # keeps the words apart that a person reads

    names = ", ".join(_texts(entry, "env"))
    return f"{join(words)} (environment: {names})" if names else join(words)


def _key(
    name: str, scope: Scope, entry: JsonObject, command: tuple[str, ...], root: Path | None
) -> str:
    """Covers the values of `env` and `headers` as they are spelt, too.

    A changed value under the same name (PYTHONPATH, NODE_OPTIONS) starts other code.
    """
    parts: Json = [
        name,
        scope,
        [*command],
        _text(entry, "url"),
        _text(entry, "type"),
        {**_texts(entry, "env")},
        {**_texts(entry, "headers")},
        os.path.realpath(root) if root is not None else "",
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]

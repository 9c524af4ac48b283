"""Where a provider's key comes from: settings, a command, the environment, auth.json, a keyring."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keen import _files
from keen._settings import ProviderSettings, Settings
from keen.core.errors import ConfigError, Unauthorized
from keen.core.messages import JsonObject
from keen.paths import Paths
from keen.secrets import register
from keen.wire import catalogue
from keen.wire.base import Credential, FixedKey
from keen.wire.catalogue import Provider

HELPER_SECONDS: Final = 60.0
"""A key helper may ask for a fingerprint or a second factor, but not forever."""

LOCAL_KEY: Final = "local"
"""Sent to servers on this machine, which want a bearer token of any kind or none at all."""

KEYRING_SERVICE: Final = "keen"

_AWS_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SECRET_NAME: Final = re.compile(r"key|token|secret|pass|cred|auth|cookie", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"^[a-z0-9+.-]+://[^/@:]*:([^/@]+)@", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AmbientKey:
    """No key of keen's: the SDK's own chain (AWS profiles, roles, metadata) finds one."""

    async def secret(self) -> str:
        return ""

    async def renew(self) -> bool:
        return False

    async def account(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class MissingKey:
    """There is no key; saying so waits until one is needed."""

    message: str

    async def secret(self) -> str:
        raise Unauthorized(self.message)

    async def renew(self) -> bool:
        return False

    async def account(self) -> str:
        return ""


@dataclass(slots=True)
class StoredKey:
    """A key that `keen auth login` stored, read again after a refusal."""

    provider: str
    auth_file: Path
    missing: str
    _key: str = field(default="", repr=False)

    async def secret(self) -> str:
        if not self._key:
            self._key = await asyncio.to_thread(stored_key, self.auth_file, self.provider)
            _register_key(self._key)
        if not self._key:
            raise Unauthorized(self.missing)
        return self._key

    async def renew(self) -> bool:
        before, self._key = self._key, ""
        with suppress(Unauthorized):
            return await self.secret() != before
        return False

    async def account(self) -> str:
        return ""


@dataclass(slots=True)
class HelperKey:
    """A key that a command of the user's prints; run again after a refusal."""

    provider: str
    command: str
    environment: Mapping[str, str] = field(repr=False)
    account_id: str = ""
    _key: str = field(default="", repr=False)
    _running: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def secret(self) -> str:
        async with self._running:
            if not self._key:
                self._key = await self._run()
            return self._key

    async def renew(self) -> bool:
        async with self._running:
            before, self._key = self._key, await self._run()
            return self._key != before

    async def account(self) -> str:
        return self.account_id

    async def _run(self) -> str:
        # In the root directory: a helper that looks for files beside it must not find a project's.
        process = await asyncio.create_subprocess_exec(
            *(["/bin/sh", "-c"] if sys.platform != "win32" else ["cmd", "/c"]),
            self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=os.sep,
            env=dict(self.environment),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(HELPER_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"gave no key within {HELPER_SECONDS:.0f} s") from error
        finally:
            # Also when the shell itself has ended: a child of it may hold the pipe open.
            if not process.stdout or not process.stdout.at_eof() or process.returncode is None:
                _kill_group(process.pid)
                await process.wait()
        key = output.decode("utf-8", "replace").strip()
        _register_key(key)
        if process.returncode != 0:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise self._failed(f"ended with code {process.returncode}: {last or 'no message'}")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise self._failed("printed no key. It must print the key and nothing else")
        return key

    def _failed(self, what: str) -> Unauthorized:
        return Unauthorized(
            f"api_key_helper of {self.provider} {what}. "
            f"Mend providers.{self.provider}.api_key_helper in config.toml."
        )


def learn_secrets(
    settings: Settings, environment: Mapping[str, str], auth_file: Path | None = None
) -> None:
    """Register every key that could be used from here on, so that none is shown or kept.

    What a helper command or the keyring gives is registered when it comes. Blocking.
    """
    for key in (*_of_settings(settings), *_of_environment(settings, environment)):
        _register_key(key)
    if auth_file is not None:
        with suppress(ConfigError):
            for entry in _files.read_json(auth_file).values():
                if isinstance(entry, dict):
                    fields = (entry.get(name) for name in ("key", "access_token", "refresh_token"))
                    for value in fields:
                        _register_key(value if isinstance(value, str) else "")


def _register_key(key: str) -> None:
    """The key as it is, and of AWS's ACCESS_KEY_ID:SECRET[:TOKEN] the secret parts alone too."""
    register(key, *key.split(":")[1:])


def _of_settings(settings: Settings) -> Iterator[str]:
    for table in settings.providers.values():
        yield table.api_key
        yield from _named_secret(table.headers)
        yield from _PASSWORD.findall(table.base_url)
    for server in settings.mcp.servers.values():
        yield from _named_secret(server.headers)
        yield from _named_secret(server.env)


def _named_secret(values: Mapping[str, str]) -> Iterator[str]:
    """Values whose names say that they are secret; of "Bearer x" the x."""
    for name, value in values.items():
        if _SECRET_NAME.search(name):
            yield value.rpartition(" ")[2]


def _of_environment(settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    rows = catalogue.providers()
    names = [table.api_key_env for table in settings.providers.values()]
    for name in (*rows, *settings.providers):
        names.extend(key_variables(name, rows.get(name)))
    for name in (*names, *_AWS_SECRETS):
        yield environment.get(name, "").strip()
    for name in _PROXIES:
        for spelling in (name, name.lower()):
            yield from _PASSWORD.findall(environment.get(spelling, ""))


def credential(
    name: str,
    *,
    client: str,
    table: ProviderSettings,
    row: Provider | None,
    environment: Mapping[str, str],
    paths: Paths,
    is_local: bool,
) -> Credential:
    """The first source that has a key for this provider, in the order of the module's sentence."""
    if table.api_key:
        return FixedKey(table.api_key, table.account_id)
    if variable := table.api_key_env:
        key = environment.get(variable, "").strip()
        message = (
            f"{variable} is empty: providers.{name}.api_key_env names it as the key of {name}."
        )
        return _from_variable(variable, key, table) if key else MissingKey(message)
    if table.api_key_helper:
        return HelperKey(name, table.api_key_helper, environment, table.account_id)
    for variable in key_variables(name, row):
        if key := environment.get(variable, "").strip():
            return _from_variable(variable, key, table)
    if has_stored_key(paths.auth_file, name):
        return StoredKey(name, paths.auth_file, missing_key(name, row))
    if client == "bedrock":
        return AmbientKey()
    if client == "demo" or is_local:
        return FixedKey(LOCAL_KEY)
    return MissingKey(damage(paths.auth_file, name) or missing_key(name, row))


def _from_variable(variable: str, key: str, table: ProviderSettings) -> Credential:
    """A key that no request could carry is said to be one, not tried."""
    if not key.isascii() or not key.isprintable():
        return MissingKey(f"{variable} holds no key: a key is one line of plain ASCII characters.")
    return FixedKey(key, table.account_id)


def source(
    name: str,
    table: ProviderSettings,
    row: Provider | None,
    environment: Mapping[str, str],
    paths: Paths,
) -> str:
    """Where this provider's key would come from, in words; empty when there is none."""
    if table.api_key:
        return "api_key in the settings"
    if table.api_key_env:
        return table.api_key_env if environment.get(table.api_key_env, "").strip() else ""
    if table.api_key_helper:
        return "api_key_helper in the settings"
    for variable in key_variables(name, row):
        if environment.get(variable, "").strip():
            return variable
    entry = _entry(paths.auth_file, name)
    if entry.get("access_token"):
        return f"sign-in stored in {paths.auth_file}"
    if entry.get("keyring"):
        return "the system's keyring"
    return str(paths.auth_file) if entry.get("key") else ""


def key_variables(name: str, row: Provider | None) -> tuple[str, ...]:
    """Environment variables that hold a provider's key: NAME_API_KEY for one of the user's own.

    Never another provider's variable, whatever protocol is spoken: its key belongs to its maker.
    """
    if row is not None:
        return row.keys
    word = "".join(letter if letter.isalnum() else "_" for letter in name.upper())
    return (f"{word}_API_KEY",)


def missing_key(name: str, row: Provider | None) -> str:
    """What to do when there is no key."""
    variables = " or ".join(key_variables(name, row))
    login = f"run `keen auth login {name}`"
    return f"There is no key for {name}: " + (
        f"set {variables}, or {login}." if variables else f"{login}."
    )


def damage(auth_file: Path, provider: str = "") -> str:
    """Why what is stored for a provider, or for all, cannot be read; empty when it can."""
    try:
        entries = _files.read_json(auth_file)
    except ConfigError as error:
        return f"The stored keys cannot be read. {error}"
    for name in (provider,) if provider else entries:
        if not isinstance(entries.get(name, {}), dict):
            wrong = f'{auth_file} holds no entry such as {{"key": "…"}} for {name}.'
            return f"{wrong} Put it right with `keen auth login {name}`."
    return ""


def has_stored_key(auth_file: Path, provider: str) -> bool:
    """True when `keen auth login` left a key. An unreadable file has none: see `damage`."""
    entry = _entry(auth_file, provider)
    return bool(entry.get("key") or entry.get("keyring"))


def stored_key(auth_file: Path, provider: str) -> str:
    """The stored key, from the file or from the keyring that it refers to; else empty."""
    entry = _entry(auth_file, provider)
    if entry.get("keyring"):
        return _from_keyring(provider)
    key = entry.get("key")
    return key if isinstance(key, str) else ""


def store_key(auth_file: Path, provider: str, key: str) -> str:
    """Keep a key in the system's keyring where there is one, else in auth.json, 0600.

    Returns: where it is now, in words. Raises: ConfigError when it cannot be kept.
    """
    _register_key(key)
    in_keyring = _to_keyring(provider, key)
    entry: JsonObject = {"keyring": True} if in_keyring else {"key": key}
    _files.update_json(auth_file, lambda value: value.update({provider: entry}))
    return "the system's keyring" if in_keyring else str(auth_file)


def forget(auth_file: Path, provider: str) -> bool:
    """Delete a stored key or sign-in; False when there was none. Raises: ConfigError."""
    entry = _files.read_json(auth_file).get(provider)
    if entry is None:
        return False
    if isinstance(entry, dict) and entry.get("keyring"):
        _drop_from_keyring(provider)

    def remove(value: JsonObject) -> None:
        value.pop(provider, None)

    _files.update_json(auth_file, remove)
    return True


def _entry(auth_file: Path, provider: str) -> JsonObject:
    try:
        entry = _files.read_json(auth_file).get(provider)
    except ConfigError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _from_keyring(provider: str) -> str:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return ""
    try:
        return keyring.get_password(KEYRING_SERVICE, provider) or ""
    except keyring.errors.KeyringError as error:
        raise Unauthorized(f"The keyring gave no key for {provider}: {error}") from error


def _to_keyring(provider: str, key: str) -> bool:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return False
    try:
        keyring.set_password(KEYRING_SERVICE, provider, key)
    except keyring.errors.KeyringError:
        return False  # installed, but this machine has no keyring: the file takes the key
    return True


def _drop_from_keyring(provider: str) -> None:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return
    with suppress(keyring.errors.KeyringError):
        keyring.delete_password(KEYRING_SERVICE, provider)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)

"""keen auth: give keen a key, take it away, see where each provider's key comes from."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from pathlib import Path

from keen import _files, auth, credentials, providers
from keen._settings import Settings
from keen.browser import open_page
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.saying import err, out
from keen.core.errors import UsageError
from keen.wire import catalogue


def add_parser(subparsers: Subparsers) -> None:
    """`keen auth login|logout|status [PROVIDER]`."""
    parser = subparsers.add_parser("auth", help="keys and sign-in: login, logout, status")
    parser.add_argument("action", choices=("login", "logout", "status"))
    parser.add_argument("provider", nargs="?", default="", metavar="PROVIDER")
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do the action.

    Returns: 1 for the status of a named provider without a key, or of a damaged file.
    Raises: ConfigError, UsageError.
    """
    place = place_of(arguments)
    settings = place.load().settings
    provider: str = arguments.provider
    if provider:
        providers.client_of(settings, provider)
    match arguments.action:
        case "login":
            return _login(place, settings, provider or _asked_provider(settings))
        case "logout":
            return _logout(place, provider)
        case _:
            return _status(place, settings, provider)


def _login(place: Place, settings: Settings, provider: str) -> int:
    client = providers.client_of(settings, provider)
    if client == "demo":
        raise UsageError(f"{provider} needs no key.")
    auth_file = place.paths.auth_file
    if client == "codex" and sys.stdin.isatty():
        asyncio.run(auth.sign_in(auth_file, _open_page, provider=provider))
        out(f"Signed in to {provider}; the sign-in is kept in {auth_file}.")
        return 0
    if client == "codex":
        raise UsageError(f"{provider} is signed in to with a browser: run this in a terminal.")
    kept = credentials.store_key(auth_file, provider, _asked_key(provider))
    out(f"The key of {provider} is kept in {kept}.")
    source = providers.key_source(settings, provider, place.environment, place.paths)
    if source not in (kept, str(auth_file)):
        err(f"keen: {source} is set too and is used first.")
    return 0


def _logout(place: Place, provider: str) -> int:
    auth_file = place.paths.auth_file
    stored = list(_files.read_json(auth_file))
    if not provider and len(stored) != 1:
        known = f"Keys are kept for {', '.join(stored)}." if stored else "No key is kept."
        raise UsageError(f"{known} Name the provider: keen auth logout PROVIDER")
    name = provider or stored[0]
    if credentials.forget(auth_file, name):
        out(f"The key of {name} is deleted.")
    else:
        out(f"No key of {name} was kept.")
    return 0


def _status(place: Place, settings: Settings, provider: str) -> int:
    names = (provider,) if provider else providers.provider_names(settings)
    width = max(map(len, names))
    has_key = False
    for name in names:
        words = providers.key_source(settings, name, place.environment, place.paths)
        has_key = has_key or bool(words)
        if not words and _needs_none(settings, name):
            words = "needs none"
            has_key = True
        out(f"{name.ljust(width)}  {words or _no_key(name)}")
    if wrong := credentials.damage(place.paths.auth_file, provider):
        err(f"keen: {wrong}")
    return 1 if wrong or (provider and not has_key) else 0


def _no_key(name: str) -> str:
    variables = credentials.key_variables(name, catalogue.providers().get(name))
    return f"no key ({' or '.join(variables)})" if variables else "not signed in"


def _needs_none(settings: Settings, name: str) -> bool:
    row = catalogue.providers().get(name)
    if row is not None:
        return row.local or row.client == "demo"
    table = settings.provider(name)
    return bool(table.client and table.base_url) and catalogue.is_loopback(table.base_url)


def _asked_provider(settings: Settings) -> str:
    names = [name for name in providers.provider_names(settings) if not _needs_none(settings, name)]
    if not sys.stdin.isatty():
        raise UsageError(f"Name the provider: keen auth login PROVIDER ({', '.join(names)})")
    out(f"Providers: {', '.join(names)}")
    name = input("Provider: ").strip()
    providers.client_of(settings, name)
    return name


def _asked_key(provider: str) -> str:
    """The key from the terminal, unseen, or from standard input."""
    if sys.stdin.isatty():
        key = getpass.getpass(f"Key of {provider} (it is not shown): ").strip()
    else:
        key = sys.stdin.readline().strip()
    if not key:
        raise UsageError("There was no key. Nothing has changed.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError("This is no key: it holds spaces or other signs. Nothing has changed.")
    return key


async def _open_page(address: str) -> None:
    out(f"Sign in here, in a browser on this machine:\n\n{address}\n")
    sys.stdout.flush()
    await asyncio.to_thread(open_page, address, Path.cwd(), os.environ)

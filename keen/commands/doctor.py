"""keen doctor: what works, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from keen import __version__, config, credentials, providers, proxies, sanitize, trust
from keen._settings import Settings
from keen.commands._place import Place, Subparsers, add_place, place_of
from keen.commands.models import local_servers
from keen.commands.saying import out
from keen.core.errors import ConfigError
from keen.state import read_state
from keen.tools.sandbox import probe as sandbox
from keen.wire.catalogue import is_loopback
from keen.wire.local import LocalServer

_SMALL_WINDOW = 16_384
_LITTLE_SPACE = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. A fault keeps keen from working; a note is worth knowing."""

    kind: Literal["ok", "note", "fault"]
    subject: str
    words: str
    advice: str = ""


def add_parser(subparsers: Subparsers) -> None:
    """`keen doctor`."""
    add_place(subparsers.add_parser("doctor", help="check the installation, with advice"))


def run(arguments: argparse.Namespace) -> int:
    """Print every finding. Returns: 1 when something that is needed is broken."""
    place = place_of(arguments)
    worst = 0
    for finding in findings(place):
        mark = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}[finding.kind]
        out(f"{mark}  {finding.subject:<10}  {sanitize.line(finding.words)}")
        if finding.advice:
            out(f"       {'':<10}  → {sanitize.line(finding.advice)}")
        worst = max(worst, int(finding.kind == "fault"))
    return worst


def findings(place: Place) -> Iterator[Finding]:
    """Everything that was looked at, in the order a person would want to mend it."""
    yield Finding("ok", "keen", f"{__version__}, Python {sys.version.split()[0]}, {sys.platform}")
    yield from _terminal(place.environment)
    yield from _settings(place)
    yield from _directories(place)
    try:
        settings = place.load().settings
    except ConfigError:
        settings = Settings()
    servers = asyncio.run(local_servers(settings))
    yield from _way(place)
    yield from _models(place, settings, servers)
    yield from _servers(servers)
    yield from _trust(place)
    yield _sandbox(place, settings)
    yield _tool(place, "ripgrep", "rg", "grep works without it, but slower: install ripgrep.")
    yield _tool(place, "git", "git", "keen works without it; diffs and branch names are missing.")


def _terminal(environment: Mapping[str, str]) -> Iterator[Finding]:
    name = environment.get("TERM", "")
    # Within the screen sys.stdout is a stand-in that knows less.
    stdout = sys.__stdout__ or sys.stdout
    if not stdout.isatty():
        yield Finding("note", "terminal", "output is no terminal", "Here only `keen run` works.")
    elif name in ("", "dumb"):
        words = f"TERM is {name or 'not set'}"
        yield Finding("note", "terminal", words, "Use --screen-reader, or set TERM.")
    else:
        size = shutil.get_terminal_size()
        yield Finding("ok", "terminal", f"{name}, {size.columns}×{size.lines}")
    encoding = (stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        words = f"the terminal's encoding is {encoding or 'unknown'}"
        yield Finding("note", "terminal", words, "Set LANG to a UTF-8 locale, such as C.UTF-8.")


def _settings(place: Place) -> Iterator[Finding]:
    mistakes, warnings = config.check(
        place.cwd,
        environment=place.environment,
        trusted=place.is_trusted,
        paths=place.paths,
        file=place.file,
    )
    for words in mistakes:
        yield Finding("fault", "settings", words, "Correct that line.")
    for words in warnings:
        yield Finding("note", "settings", words)
    file = place.file or place.paths.config_file
    if not mistakes and not warnings:
        there = str(file) if file.exists() else f"{file} (not there; all built-in)"
        yield Finding("ok", "settings", there)
    for path in (file, place.paths.auth_file):
        if _others_can_read(path):
            yield Finding("note", "settings", f"others can read {path}", f"chmod 600 {path}")


def _others_can_read(path: Path) -> bool:
    if sys.platform == "win32":
        return False
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _directories(place: Place) -> Iterator[Finding]:
    for subject, path in (("sessions", place.paths.sessions), ("cache", place.paths.cache)):
        nearest = next((one for one in (path, *path.parents) if one.exists()), path)
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            advice = "Make it writable, or set KEEN_HOME to a directory that is."
            yield Finding("note", subject, f"{path} cannot be written", advice)
        elif shutil.disk_usage(nearest).free < _LITTLE_SPACE:
            advice = "Make room, or set KEEN_HOME to a directory on another disk."
            yield Finding("note", subject, f"the disk of {path} is full", advice)
        else:
            yield Finding("ok", subject, str(path))


def _way(place: Place) -> Iterator[Finding]:
    for words in proxies.faults(place.environment):
        what, _, advice = words.partition(". ")
        yield Finding("fault", "network", what, advice)
    if words := credentials.damage(place.paths.auth_file):
        what, _, advice = words.partition(". ")
        yield Finding("fault", "key", what, advice)


def _models(
    place: Place, settings: Settings, servers: tuple[LocalServer, ...]
) -> Iterator[Finding]:
    keyed = {
        name: words
        for name in providers.provider_names(settings)
        if (words := providers.key_source(settings, name, place.environment, place.paths))
    }
    for name, words in keyed.items():
        yield Finding("ok", "key", f"{name}: {words}")
        address = _base_url(settings, name)
        if address.startswith("http://") and not is_loopback(address):
            words = f"the key of {name} goes unencrypted to {address}"
            yield Finding("note", "key", words, f"Use https in providers.{name}.base_url.")
    state = read_state(place.paths)
    model = providers.choose_model(settings, place.environment, state, place.paths, local=servers)
    if not model:
        yield Finding(
            "fault",
            "model",
            "there is no key and no local server",
            "Run `keen auth login PROVIDER`, set its variable, or start a local model server; "
            "`keen demo` shows keen without either.",
        )
        return
    provider = model.partition("/")[0]
    try:
        providers.endpoint(settings, provider, place.environment, place.paths)
    except ConfigError as error:
        yield Finding("fault", "model", f"{model} is chosen", str(error))
        return
    has_way = provider in keyed or provider in {server.provider for server in servers}
    if has_way or provider == "demo" or providers.client_of(settings, provider) == "bedrock":
        yield Finding("ok", "model", f"{model} starts")
    elif providers.is_local(settings, provider):
        words = f"{model} is chosen, but {provider} does not answer"
        advice = f"Start it, or correct providers.{provider}.base_url."
        yield Finding("fault", "model", words, advice)
    else:
        advice = f"Run `keen auth login {provider}`, or choose another model with -m."
        yield Finding("fault", "model", f"{model} is chosen, but {provider} has no key", advice)


def _base_url(settings: Settings, provider: str) -> str:
    try:
        return providers.base_url(settings, provider)
    except ConfigError:
        return ""


def _servers(servers: tuple[LocalServer, ...]) -> Iterator[Finding]:
    if not servers:
        yield Finding("ok", "local", "no model server runs on this machine")
    for server in servers:
        yield Finding("ok", "local", f"{server.provider} at {server.base_url}: {_count(server)}")
        for model in server.models:
            if model.window and model.window < _SMALL_WINDOW:
                words = f"{server.provider}/{model.id} has a window of {model.window:,} tokens"
                yield Finding("note", "local", words, _larger(server.provider))


def _count(server: LocalServer) -> str:
    return f"{len(server.models)} model{'' if len(server.models) == 1 else 's'}"


def _larger(provider: str) -> str:
    return {
        "ollama": "Start Ollama with OLLAMA_CONTEXT_LENGTH=32768 or more.",
        "llamacpp": "Start llama-server with -c 32768 or more.",
        "lmstudio": "Load the model with a larger context length.",
        "vllm": "Start vLLM with a larger --max-model-len.",
    }.get(provider, "Start the server with a larger context.")


def _trust(place: Place) -> Iterator[Finding]:
    names = trust.what_would_take_effect(place.cwd)
    if place.is_trusted:
        yield Finding("ok", "trust", f"{trust.project_root(place.cwd)} is trusted")
    elif names:
        words = f"this folder is not trusted; ignored: {', '.join(names)}"
        yield Finding("note", "trust", words, "Use /trust or --trust if you know who wrote it.")


def _sandbox(place: Place, settings: Settings) -> Finding:
    wanted = settings.permissions.sandbox
    if wanted == "off":
        return Finding("note", "sandbox", 'permissions.sandbox is "off"')
    found = sandbox.renewed(place.paths.cache)
    words = {"full": "full", "fs-only": "files only (Landlock)", "none": "none"}[found.level]
    if found.level == "full":
        return Finding("ok", "sandbox", f"{words}: {found.program}")
    kind: Literal["note", "fault"] = "fault" if wanted == "require" else "note"
    return Finding(kind, "sandbox", f"{words}; {found.reason}", _sandbox_advice(found.reason))


def _sandbox_advice(reason: str) -> str:
    if "not installed" in reason:
        return "Install bubblewrap. Commands ask before they run instead."
    if sys.platform == "linux":
        return "Allow user namespaces for bubblewrap, or go on with being asked."
    return "Commands ask before they run instead."


def _tool(place: Place, subject: str, name: str, advice: str) -> Finding:
    program = find_program(name, place)
    if program is None:
        return Finding("note", subject, f"{name} was not found", advice)
    return Finding("ok", subject, program)


def find_program(name: str, place: Place) -> str | None:
    """The absolute path of a program; never one from the project or a relative entry of PATH."""
    root = trust.project_root(place.cwd)

    def is_foreign(entry: str) -> bool:
        real = Path(os.path.realpath(entry))
        return os.path.isabs(entry) and real != root and root not in real.parents

    entries = place.environment.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(is_foreign, entries)))

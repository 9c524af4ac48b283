"""The environment that commands get: an allow list, without secrets, without anything that asks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_KEPT: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ",
    "COLUMNS", "LINES", "NO_COLOR", "CI", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYENV_VERSION", "UV_CACHE_DIR", "PIP_CACHE_DIR", "NVM_DIR",
    "NVM_BIN", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "GOPATH", "GOROOT", "GOCACHE",
    "GOMODCACHE", "GOFLAGS", "GOPROXY", "CARGO_HOME", "RUSTUP_HOME", "RUSTFLAGS", "JAVA_HOME",
    "GRADLE_USER_HOME", "M2_HOME", "MAVEN_OPTS", "DOTNET_ROOT", "ANDROID_HOME", "ANDROID_SDK_ROOT",
    "SDKROOT", "DEVELOPER_DIR", "GEM_HOME", "GEM_PATH", "RBENV_ROOT", "CC", "CXX", "CFLAGS",
    "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "HOMEBREW_PREFIX",
    "NIX_PATH", "NIX_PROFILES", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "XDG_STATE_HOME",
})  # fmt: skip

_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"})

_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)

_PROVIDERS: Final = re.compile(
    r"(?:ANTHROPIC|OPENAI|GEMINI|GOOGLE|OPENROUTER|DEEPSEEK|MISTRAL|GROQ|XAI|MOONSHOT|ZAI|MINIMAX)_"
    r"\w*(?:KEY|TOKEN|CREDENTIALS)|AWS_\w*(?:KEY|TOKEN|SECRET|CREDENTIALS)\w*|KEEN_\w+",
    re.IGNORECASE,
)
"""What pays for models. No setting lets a command see it."""

_BEND: Final = frozenset({
    "BASH_ENV", "ENV", "CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS", "IFS", "PS4",
    "PROMPT_COMMAND", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
})  # fmt: skip
"""What makes bash or every program do something else than was judged; no setting lets it in."""

_SET: Final[dict[str, str]] = {
    # Nothing may wait for a person: there is no terminal behind a command.
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "LESSSECURE": "1",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "npm_config_yes": "false",
    "PIP_NO_INPUT": "1",
    # A repository's own configuration must not make git start a program to look at files.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_OPTIONAL_LOCKS": "0",
}

_USUAL_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def command_environment(
    inherited: Mapping[str, str],
    roots: tuple[Path, ...],
    *,
    added: Iterable[str] = (),
    is_trusted: bool = False,
) -> dict[str, str]:
    """What commands see of `inherited`.

    `added`: names the user lets through, also ones that look like secrets; keys of model providers
    never pass. `is_trusted`: programs of a virtual environment inside `roots` are found by name.
    """
    wanted = {name for name in added if not _PROVIDERS.fullmatch(name)} - _BEND
    environment = {
        name: value for name, value in inherited.items() if name in wanted or _is_kept(name, value)
    }
    environment |= _SET
    environment["PATH"] = command_path(inherited.get("PATH", ""), roots, is_trusted=is_trusted)
    environment.setdefault("HOME", os.path.expanduser("~"))
    return environment


def command_path(path: str, roots: tuple[Path, ...], *, is_trusted: bool = False) -> str:
    """PATH without relative and empty entries and without directories of the workspace."""
    kept: list[str] = []
    for entry in path.split(os.pathsep):
        if not os.path.isabs(entry):
            continue
        places = (Path(os.path.normpath(entry)), Path(os.path.realpath(entry)))
        is_inside = any(place.is_relative_to(root) for place in places for root in roots)
        if not is_inside or (is_trusted and _is_virtual_environment(places[0])):
            kept.append(entry)
    return os.pathsep.join(dict.fromkeys(kept)) or _USUAL_PATH


def _is_kept(name: str, value: str) -> bool:
    if name.upper() in _PROXIES:
        return "@" not in value  # a proxy's password stands before the @
    is_known = name in _KEPT or name.startswith("LC_")
    return is_known and _SECRET.search(name) is None


def _is_virtual_environment(directory: Path) -> bool:
    return directory.name in ("bin", "Scripts") and (directory.parent / "pyvenv.cfg").is_file()

"""What the environment says of the way to a server: its proxies, and whom to trust on it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final
from urllib.parse import urlsplit

_HERE: Final = ("localhost", "127.0.0.1", "::1")
_PROXIES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_SOCKS: Final = ("socks5", "socks5h")


def faults(environment: Mapping[str, str], client: str = "") -> Iterator[str]:
    """Why a client of this protocol could reach no server, a sentence each.

    A proxy's address is not repeated: it may hold a password.
    """
    for name in _PROXIES:
        # The lower-case spelling wins, as it does in every SDK.
        spelling = name.lower() if environment.get(name.lower()) else name
        if (value := environment.get(spelling, "")) and (wrong := _proxy_fault(value)):
            yield f"{spelling} {wrong}. Correct it, or unset it to go without a proxy."
    for name in ("SSL_CERT_FILE", *(("AWS_CA_BUNDLE",) if client == "bedrock" else ())):
        if (value := environment.get(name, "")) and (wrong := _certificate_fault(value)):
            yield (
                f"{name} names {value}, which {wrong}. Name a file of certificates in PEM form, "
                "or unset it to use the usual ones."
            )


def variable_for(host: str) -> str:
    """The variable that sends requests for a host through a proxy; empty where none does."""
    from urllib.request import proxy_bypass

    if proxy_bypass(host):
        return ""
    spellings = (spelling for name in _PROXIES for spelling in (name.lower(), name))
    return next((name for name in spellings if os.environ.get(name)), "")


def _proxy_fault(value: str) -> str:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        _ = parts.port
    except ValueError:
        return "is no address: it should read like http://host:port"
    if parts.scheme in _SOCKS and importlib.util.find_spec("socksio") is None:
        return "names a SOCKS proxy, for which the package socksio is missing beside keen"
    if value != value.strip() or parts.scheme not in ("http", "https", *_SOCKS):
        return "is no address of a proxy: it should read like http://host:port"
    return "" if parts.hostname else "names no host: it should read like http://host:port"


def _certificate_fault(value: str) -> str:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(value)
    except ssl.SSLError:
        return "holds no certificate that can be read"
    except OSError as error:
        words = (error.strerror or "no reason given").lower()
        return f"cannot be read ({words})" if os.path.lexists(value) else "is not there"
    return ""


def spare_loopback(environment: MutableMapping[str, str]) -> None:
    """Add this machine to NO_PROXY, so that no key or conversation for it goes to another host.

    Every SDK reads these variables by itself; the lower-case spelling is the one that wins.
    """
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    named = [entry.strip() for entry in before.split(",") if entry.strip()]
    if "*" in named:
        return
    after = ",".join(dict.fromkeys((*named, *_HERE)))
    environment.update({"NO_PROXY": after, "no_proxy": after})

"""Which addresses of the network a fetch may reach: public ones, judged after resolution."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from keen.core.errors import ToolError

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC: Final = re.compile(r"([0-9]+|0x[0-9a-f]*)")
_UNWRITABLE: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_MOST_URL: Final = 8_000

_EMBEDDING: Final = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)
"""IPv6 that leads to an IPv4 address: the network, and the bits behind that address."""

_REFUSED: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's metadata stands on a public address
        "192.88.99.0/24",  # the 6to4 relays
        "64:ff9b:1::/48",  # NAT64 of a local network
        "2001::/23",  # Teredo and other special purposes
        "fec0::/10",  # site-local
        "3fff::/20",  # for documentation
        "::/96",  # IPv4-compatible
    )
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was understood whole. `host` is ASCII, an IPv6 address without brackets."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and, where it is not the usual one, port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def is_literal(self) -> bool:
        """True when the host is an address already."""
        return _literal(self.host) is not None


def target_of(text: str) -> Target:
    """Understand a URL, or refuse it.

    Raises:
        ToolError: no http or https, a user name, or a host that programs read in different ways.
    """
    text = text.strip()
    if "://" not in text:
        text = f"https://{text}"
    if len(text) > _MOST_URL or _UNWRITABLE.search(text):
        raise ToolError("The URL is too long, or has blanks, backslashes or control characters.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ToolError(f"The URL cannot be read: {error}.") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise ToolError(f"Only http and https can be fetched, not {scheme}.")
    if "@" in parts.netloc:
        raise ToolError("The URL must not carry a user name or password.")
    host = _host(parts)
    number = port if port is not None else {"http": 80, "https": 443}[scheme]
    if number == 0:
        raise ToolError("The URL has no usable port.")
    target = Target("", scheme, host, number)
    clean = parts._replace(scheme=scheme, netloc=target.authority, fragment="")
    return Target(clean.geturl(), scheme, host, number)


async def addresses(target: Target, *, allow_private: bool) -> tuple[str, ...]:
    """The addresses of the host, each checked.

    Raises:
        ToolError: the host is unknown, or one of its addresses is not public.
    """
    literal = _literal(target.host)
    if literal is not None:
        found = [str(literal)]
    else:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"{target.host} cannot be resolved: {error}.") from error
        found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    if not allow_private:
        for address in found:
            if not is_public(ipaddress.ip_address(address)):
                raise ToolError(
                    f"{target.host} is {address}, which is not a public address; keen fetches"
                    " nothing from this machine or its local network."
                )
    return tuple(found)


def is_public(address: _Address) -> bool:
    """True for addresses of the open internet, and only for those."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        for network, behind in _EMBEDDING:
            if address in network:
                inner = int(address) >> behind & 0xFFFFFFFF
                return is_public(ipaddress.IPv4Address(inner))
    if any(address.version == network.version and address in network for network in _REFUSED):
        return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified
    local = address.is_private or address.is_loopback or address.is_link_local
    return address.is_global and not special and not local


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if parts.netloc.startswith("["):
        literal = _literal(host)
        if literal is None or "%" in host:
            raise ToolError(f"{host!r} is no IPv6 address.")
        return str(literal)
    try:
        ascii_host = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        ascii_host = ""
    if not _HOST.fullmatch(ascii_host):
        raise ToolError(f"{host!r} is no host name.")
    if _NUMERIC.fullmatch(ascii_host.rpartition(".")[2]) and _literal(ascii_host) is None:
        raise ToolError(f"{host!r} is a number; write an address as four plain decimal numbers.")
    return ascii_host


def _literal(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

"""A proxy of the environment has no business between keen and a server on this machine."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

_HERE: Final = ("localhost", "127.0.0.1", "::1")


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

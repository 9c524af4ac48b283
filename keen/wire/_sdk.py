"""Imports an SDK off the event loop, once, however many wait for it."""

from __future__ import annotations

import asyncio
import importlib
import threading
from concurrent.futures import Future
from contextlib import suppress
from types import ModuleType
from typing import Final

_FIRST_CONNECTION: Final = ("anyio.streams.stapled", "anyio._backends._asyncio")
"""What the HTTP stack of the SDKs imports when it first connects: 50 to 90 ms."""
_imports: Final[dict[str, Future[ModuleType]]] = {}
_lock: Final = threading.Lock()


def preload(name: str) -> Future[ModuleType]:
    """Start importing `name` in a thread of its own; every later caller gets the same future.

    A daemon thread: leaving keen while an SDK is still loading must not wait for it.
    """
    with _lock:
        future = _imports.get(name)
        if future is None:
            future = _imports[name] = Future()
            # Running from the start, so that no waiter can cancel it for the others.
            future.set_running_or_notify_cancel()
            threading.Thread(target=_load, args=(name, future), daemon=True).start()
    return future


async def loaded(name: str) -> ModuleType:
    """The module, imported by now. Raises: ImportError."""
    return await asyncio.wrap_future(preload(name))


def import_connection() -> None:
    """Import what the first connection would else import on the event loop."""
    for module in _FIRST_CONNECTION:
        with suppress(ImportError):
            importlib.import_module(module)


def _load(name: str, future: Future[ModuleType]) -> None:
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # whatever a module does when imported belongs to who waits
        with _lock:
            _imports.pop(name, None)
        future.set_exception(error)
    else:
        future.set_result(module)

"""Rows about starting: the version, the first request, what it holds and what it costs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench_parts.machine import SCRIPTS, Failed, Place, Server, memory_of, wait_for
from bench_parts.rows import KEEN, Figure, Once, Row, Samples, above, at_most

_DIALECTS: Final = ("chat", "responses", "anthropic", "google", "bedrock")
_PROMPT: Final = ("run", "Say something.")
_SDK: Final = "bare SDK"
_PYTHON: Final = "python -c pass"


@contextmanager
def version(place: Place) -> Generator[Once]:
    def once() -> Samples:
        seconds = {
            KEEN: place.keen("--version").seconds,
            _PYTHON: place.python("-c", "pass").seconds,
        }
        return {"wall": seconds}

    yield once


@contextmanager
def first_request(place: Place, dialect: str) -> Generator[Once]:
    with place.server(dialect, "answer") as server:

        def once() -> Samples:
            ran = place.keen(*_PROMPT)
            keen = _only(server) - ran.started
            bare = place.bare("sdk", dialect, server.url)
            wall = {KEEN: keen, _SDK: _only(server) - bare.started}
            return {"wall": wall, "CPU": {KEEN: ran.cpu, _SDK: bare.cpu}}

        yield once


def _only(server: Server) -> float:
    seen = server.seen()
    if len(seen) != 1:
        raise Failed(f"{len(seen)} requests came, not one")
    return seen[0].at


@contextmanager
def request_size(place: Place, dialect: str) -> Generator[Once]:
    with place.server(dialect, "answer") as server:

        def once() -> Samples:
            place.keen(*_PROMPT)
            return {"first request": {KEEN: server.seen()[0].bytes / 1000}}

        yield once


@contextmanager
def memory(place: Place, dialect: str) -> Generator[Once]:
    """At the first request, when the answer has begun and nothing else happens."""
    with place.server(dialect, "hold") as server:
        bare = (str(SCRIPTS / "bench_parts" / "bare.py"), "sdk", dialect, server.url)

        def held(*words: str) -> tuple[float, float]:
            with place.running(*words) as pid:
                wait_for(server.seen, pid)
                return memory_of(pid)

        def once() -> Samples:
            keen, alone = held("-m", "keen", *_PROMPT), held(*bare)
            return {
                "RSS": {KEEN: keen[0], _SDK: alone[0]},
                "PSS": {KEEN: keen[1], _SDK: alone[1]},
            }

        yield once


ROWS: Final = (
    Row("version", "keen --version", {"wall": Figure("s")}, version),
    *(
        Row(
            f"start-{dialect}",
            "keen run: launch to first request",
            {"wall": Figure("s", above(_SDK, 0.25)), "CPU": Figure("s")},
            partial(first_request, dialect=dialect),
        )
        for dialect in _DIALECTS
    ),
    *(
        Row(
            f"size-{dialect}",
            "first request with all built-in tools",
            {"first request": Figure("kB", at_most(9))},
            partial(request_size, dialect=dialect),
        )
        for dialect in _DIALECTS
    ),
    *(
        Row(
            f"memory-{dialect}",
            "keen run: memory at the first request",
            {"RSS": Figure("MB"), "PSS": Figure("MB", at_most(110))},
            partial(memory, dialect=dialect),
        )
        for dialect in _DIALECTS
    ),
)

"""Rows about a running turn: tool rounds, long answers, the measure of the next request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench_parts.machine import Failed, Place, Ran, Server
from bench_parts.rows import KEEN, Aim, Figure, Once, Row, Samples, Values, at_most, times

_SOCKET: Final = "bare socket"
_SDK: Final = "bare SDK"
_ROUNDS: Final = 200
_MANY: Final = 1_000
_CHUNKS: Final = 20_000
_WIDE: Final = 1_000_000
"""A window in which 200 rounds need no compaction."""
_LINE: Final = "a line of a file that is read in a tool round\n"


def _write_files(place: Place) -> None:
    for number in range(16):
        (place.work / f"part-{number}.txt").write_text(_LINE * 22)


@contextmanager
def tool_rounds(place: Place, dialect: str) -> Generator[Once]:
    """Between the first request and the last; CPU is what 200 rounds cost more than none."""
    _write_files(place)
    with place.server(dialect, "rounds", "0", window=_WIDE) as server:
        idle = {
            KEEN: _least_cpu(partial(_keen, place)),
            _SOCKET: _least_cpu(partial(place.bare, "rounds", dialect, server.url)),
        }
    with place.server(dialect, "rounds", str(_ROUNDS), window=_WIDE) as server:

        def once() -> Samples:
            server.seen()
            keen = _keen(place)
            wall = {KEEN: _span(server)}
            bare = place.bare("rounds", dialect, server.url)
            wall[_SOCKET] = _span(server)
            cpu = {KEEN: keen.cpu, _SOCKET: bare.cpu}
            return {
                "wall": {subject: value * 1000 / _ROUNDS for subject, value in wall.items()},
                "CPU": {s: (cpu[s] - idle[s]) * 1000 / _ROUNDS for s in cpu},
            }

        yield once


def _least_cpu(start: Callable[[], Ran]) -> float:
    """What a process costs that does next to nothing; more than once, since imports vary."""
    return min(start().cpu for _ in range(3))


def _keen(place: Place) -> Ran:
    return place.keen("run", "Read every part, one after another.")


def _span(server: Server) -> float:
    seen = server.seen()
    if len(seen) != _ROUNDS + 1:
        raise Failed(f"{len(seen)} requests came for {_ROUNDS} rounds")
    return seen[-1].at - seen[0].at


@contextmanager
def many_rounds(place: Place, dialect: str, window: int) -> Generator[Once]:
    """1,000 rounds in one turn; the second half against the first."""
    _write_files(place)
    with place.server(dialect, "rounds", "100", window=window) as server:
        small = _keen(place)
    with place.server(dialect, "rounds", str(_MANY), window=window) as server:

        def once() -> Samples:
            server.seen()
            ran = _keen(place)
            seen = server.seen()
            if len(seen) <= _MANY:
                raise Failed(f"{len(seen)} requests came for {_MANY} rounds")
            middle = seen[len(seen) // 2].at
            first, second = middle - seen[0].at, seen[-1].at - middle
            return {
                "second half / first": {KEEN: second / first},
                "wall a round": {KEEN: (first + second) * 1000 / _MANY},
                "peak RSS": {KEEN: ran.peak, "100 rounds": small.peak},
            }

        yield once


@contextmanager
def long_answer(place: Place, dialect: str, form: str) -> Generator[Once]:
    """From the request to the end of the process; CPU is what it costs above a short answer."""
    with place.server(dialect, "answer") as server:
        idle = {
            KEEN: _least_cpu(partial(place.keen, "run", "--format", form, "Say something.")),
            _SDK: _least_cpu(partial(place.bare, "sdk", dialect, server.url)),
            _SOCKET: _least_cpu(partial(place.bare, "socket", dialect, server.url)),
        }
    with place.server(dialect, "chunks", str(_CHUNKS)) as server:

        def once() -> Samples:
            wall: Values = {}
            cpu: Values = {}
            for subject, start in (
                (KEEN, partial(place.keen, "run", "--format", form, "Say something.")),
                (_SDK, partial(place.bare, "sdk", dialect, server.url)),
                (_SOCKET, partial(place.bare, "socket", dialect, server.url)),
            ):
                server.seen()
                ran = start()
                wall[subject] = ran.ended - server.seen()[0].at
                cpu[subject] = ran.cpu - idle[subject]
            return {"wall": wall, "CPU": cpu}

        yield once


@contextmanager
def estimate(place: Place, dialect: str) -> Generator[Once]:
    """What a round's measure costs behind 1,000 messages, against behind 100."""

    def once() -> Samples:
        few = place.inside("estimate", dialect, "100").json
        many = place.inside("estimate", dialect, "1000").json
        return {
            name: {KEEN: many[name] * 1e6, "at 100 messages": few[name] * 1e6}
            for name in ("measure", "encode and measure")
        }

    yield once


_GROWTH: Final = Aim("≤ 1.3", lambda medians: medians[KEEN] <= 1.3)

ROWS: Final = (
    *(
        Row(
            f"rounds-{dialect}",
            f"{_ROUNDS} rounds of read_file, a round",
            {"wall": Figure("ms", at_most(20)), "CPU": Figure("ms", at_most(12))},
            partial(tool_rounds, dialect=dialect),
        )
        for dialect in ("chat", "anthropic")
    ),
    *(
        Row(
            f"many-rounds-{dialect}-{name}",
            f"{_MANY} rounds in one turn, {name} window",
            {
                "second half / first": Figure("×", _GROWTH if name == "small" else None),
                "wall a round": Figure("ms"),
                "peak RSS": Figure("MB"),
            },
            partial(many_rounds, dialect=dialect, window=window),
        )
        for dialect in ("chat", "anthropic")
        for name, window in (("small", 64_000), ("wide", _WIDE))
    ),
    *(
        Row(
            f"chunks-{dialect}-{form}",
            f"{_CHUNKS:,} chunks through keen run, {form}",
            {"wall": Figure("s", at_most(1.0)), "CPU": Figure("s", at_most(1.0))},
            partial(long_answer, dialect=dialect, form=form),
        )
        for dialect in ("chat", "responses", "anthropic")
        for form in ("text", "stream-json")
    ),
    *(
        Row(
            f"estimate-{dialect}",
            "size of the next request at 1,000 messages",
            {
                "measure": Figure("µs", times("at 100 messages", 1.5)),
                "encode and measure": Figure("µs", times("at 100 messages", 1.5)),
            },
            partial(estimate, dialect=dialect),
        )
        for dialect in ("chat", "responses", "anthropic")
    ),
)

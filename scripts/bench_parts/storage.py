"""Rows about sessions on disk: appending, resuming, listing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bench_parts.machine import Place
from bench_parts.rows import KEEN, Figure, Once, Row, Samples, at_most, times

_RECORDS: Final = 100_000
_SESSIONS: Final = 1_000
_MEGABYTES: Final = 100
_FEW: Final = "at 10 records"


@contextmanager
def append(place: Place) -> Generator[Once]:
    small, large = place.root / "small.jsonl", place.root / "large.jsonl"
    place.inside("session-of", str(small), "10")
    place.inside("session-of", str(large), str(_RECORDS))

    def once() -> Samples:
        many = place.inside("append", str(large)).json
        few = place.inside("append", str(small)).json
        return {
            name: {KEEN: many[name] * 1e6, _FEW: few[name] * 1e6}
            for name in ("wall", "without fsync")
        }

    yield once


@contextmanager
def resume(place: Place) -> Generator[Once]:
    """A session of rounds and compactions as keen writes them, read back and projected."""
    path = place.root / "session.jsonl"
    place.inside("session-of-megabytes", str(path), str(_MEGABYTES))

    def once() -> Samples:
        told = place.inside("resume", str(path)).json
        return {figure: {KEEN: told[figure]} for figure in _BOUNDED}

    yield once


@contextmanager
def resume_run(place: Place) -> Generator[Once]:
    """The same through `keen run -c`: launch to first request, against a new session's."""
    with place.server("chat", "answer") as server:
        place.inside("session-in", str(place.home), str(_MEGABYTES))

        def once() -> Samples:
            fresh = place.keen("run", "--no-session", "Say something.")
            alone = server.seen()[0].at - fresh.started
            ran = place.keen("run", "-c", "Say something.")
            return {
                "wall": {KEEN: server.seen()[0].at - ran.started - alone},
                "CPU": {KEEN: ran.cpu - fresh.cpu},
                "peak RSS": {KEEN: ran.peak, "new session": fresh.peak},
            }

        yield once


@contextmanager
def listing(place: Place) -> Generator[Once]:
    sessions = place.home / "sessions"
    place.inside("sessions-in", str(sessions), str(_SESSIONS))

    def once() -> Samples:
        told = place.inside("list", str(sessions)).json
        command = place.keen("sessions", "list", "--all")
        plain = place.python("-c", "pass")
        return {
            "wall": {KEEN: told["wall"]},
            "CPU": {KEEN: told["CPU"]},
            "keen sessions list --all": {KEEN: command.seconds, "python -c pass": plain.seconds},
        }

    yield once


_BOUNDED: Final = {
    "wall": Figure("s", at_most(2)),
    "CPU": Figure("s", at_most(2)),
    "peak RSS": Figure("MB", at_most(300)),
}

ROWS: Final = (
    Row(
        "append",
        f"session append at {_RECORDS:,} records",
        {"wall": Figure("µs"), "without fsync": Figure("µs", times(_FEW, 1.5))},
        append,
    ),
    Row("resume", f"open a session of {_MEGABYTES} MB", _BOUNDED, resume),
    Row("resume-run", f"keen run -c, {_MEGABYTES} MB, above a new session", _BOUNDED, resume_run),
    Row(
        "listing",
        f"list {_SESSIONS:,} sessions",
        {
            "wall": Figure("s", at_most(0.3)),
            "CPU": Figure("s", at_most(0.3)),
            "keen sessions list --all": Figure("s"),
        },
        listing,
    ),
)

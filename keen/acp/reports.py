"""What keen tells of itself in an editor, as tables."""

from __future__ import annotations

from keen import reports, sanitize
from keen.engine import Engine
from keen.session.records import Compaction


def status(engine: Engine) -> str:
    """Session, model, folder, safety, and what it has used."""
    return _table([*reports.status(engine), *reports.usage(engine)])


def permissions(engine: Engine) -> str:
    """The mode and the rules in force."""
    return _table(reports.permissions(engine))


async def context(engine: Engine) -> str:
    """Where the window goes, and every compaction of the session."""
    total = sum(reports.divided(engine).values())
    room = engine.conversation.sampler.budget.effective
    lines = [
        f"About {total:,} of {room:,} tokens are used.\n",
        _table(reports.context(engine)),
    ]
    records = await engine.recorder.records() if engine.recorder is not None else []
    lines += [
        f"- compaction, {reports.compaction(record.ts, past)}"
        for record in records
        if isinstance(past := record.payload, Compaction)
    ]
    return "\n".join(lines)


def _table(rows: reports.Rows) -> str:
    lines = [f"| {name} | {sanitize.line(value).replace('|', '¦')} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines, ""])

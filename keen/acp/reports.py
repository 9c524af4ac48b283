"""What /status and /context say in an editor."""

from __future__ import annotations

from keen import sanitize
from keen.agent.shares import shares
from keen.engine import Engine
from keen.session.records import Compaction


def status(engine: Engine) -> str:
    """Session, model, folder, safety."""
    talk = engine.conversation
    budget = talk.sampler.budget
    used, cost = engine.usage, engine.cost_usd
    rows = [
        ("model", engine.model),
        ("thinking", talk.sampler.effort or "the model decides"),
        ("window", f"{budget.window:,} tokens, {budget.reserve:,} for the answer"),
        ("compacts from", f"{budget.trigger:,} of {budget.effective:,} tokens"),
        ("mode", talk.toolbox.policy.mode),
        ("folder", engine.cwd),
        ("sandbox", talk.toolbox.policy.sandbox),
        ("session", engine.session_id or "not saved"),
        ("used", f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"),
        ("cost", "no price is known" if cost is None else f"${cost:.2f}"),
        ("tools", ", ".join(talk.toolbox.tools)),
    ]
    if engine.recorder is not None and engine.recorder.reason:
        rows.append(("not saved", engine.recorder.reason))
    return _table(rows)


async def context(engine: Engine) -> str:
    """Where the window goes, and every compaction of the session."""
    budget = engine.conversation.sampler.budget
    talk = engine.conversation
    divided = shares(talk, engine.turn.history if engine.turn is not None else talk.history)
    total = sum(divided.values())
    rows = [(str(kind), f"{amount:,}") for kind, amount in divided.items()]
    rows += [
        ("free", f"{max(budget.effective - total, 0):,}"),
        ("kept for the answer", f"{budget.reserve:,}"),
        ("window", f"{budget.window:,}"),
        ("compacts from", f"{budget.trigger:,}"),
    ]
    lines = [f"About {total:,} of {budget.effective:,} tokens are used.\n", _table(rows)]
    records = await engine.recorder.records() if engine.recorder is not None else []
    for record in records:
        if isinstance(past := record.payload, Compaction):
            after = "?" if past.tokens_after is None else f"{past.tokens_after:,}"
            when = record.ts[:16].replace("T", " ")
            lines.append(
                f"- compaction, {when}, {past.trigger or 'manual'}: "
                f"{past.tokens_before:,} → {after} tokens"
            )
    return "\n".join(lines)


def _table(rows: list[tuple[str, str]]) -> str:
    lines = [f"| {name} | {sanitize.line(value).replace('|', '¦')} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines, ""])

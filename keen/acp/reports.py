"""What /status and /context say in an editor."""

from __future__ import annotations

from keen import sanitize
from keen.agent.compaction import message_tokens
from keen.core.estimate import json_tokens, text_tokens
from keen.core.messages import Assistant, Results, User
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
    parts = _parts(engine)
    total = sum(amount for _, amount in parts)
    rows = [(name, f"{amount:,}") for name, amount in parts]
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


def _parts(engine: Engine) -> list[tuple[str, int]]:
    """Estimated tokens of everything a request holds, by kind."""
    talk = engine.conversation
    ratio = talk.sampler.meter.ratio
    tools = sum(
        json_tokens(spec.schema) + text_tokens(spec.description) for spec in talk.toolbox.specs
    )
    sizes = {"your messages": 0, "summaries": 0, "answers": 0, "tool results": 0}
    for message in engine.turn.history if engine.turn is not None else talk.history:
        match message:
            case User(checkpoint=None):
                kind = "your messages"
            case User():
                kind = "summaries"
            case Assistant():
                kind = "answers"
            case Results():
                kind = "tool results"
        sizes[kind] += message_tokens(message)
    parts = [("system prompt", text_tokens(talk.system)), ("tools", tools), *sizes.items()]
    return [(name, round(amount * ratio)) for name, amount in parts]


def _table(rows: list[tuple[str, str]]) -> str:
    lines = [f"| {name} | {sanitize.line(value).replace('|', '¦')} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines, ""])

"""What /status, /usage, /context and /permissions tell, as rows: the same for every front end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from keen.engine import Engine
    from keen.session.records import Compaction

Rows: TypeAlias = list[tuple[str, str]]
"""A name and what it is. Not yet made harmless for a terminal."""


def status(engine: Engine) -> Rows:
    """Session, model, folder, safety."""
    talk = engine.conversation
    budget = talk.sampler.budget
    rows = [
        ("model", engine.model),
        ("thinking", talk.sampler.effort or "the model decides"),
        ("window", f"{budget.window:,} tokens, {budget.reserve:,} for the answer"),
        ("compacts from", f"{budget.trigger:,} of {budget.effective:,} tokens"),
        ("mode", talk.toolbox.policy.mode),
        ("folder", engine.cwd),
        ("sandbox", talk.toolbox.policy.sandbox),
        ("session", engine.session_id or "not saved"),
        ("tools", ", ".join(talk.toolbox.tools)),
    ]
    if engine.recorder is not None and engine.recorder.reason:
        rows.append(("not saved", engine.recorder.reason))
    return rows


def usage(engine: Engine) -> Rows:
    """Tokens and cost since the session was opened."""
    used, cost = engine.usage, engine.cost_usd
    return [
        ("input", f"{used.input_tokens:,} tokens"),
        ("  of it cached", f"{used.cached_tokens:,}"),
        ("  written to cache", f"{used.cache_write_tokens:,}"),
        ("output", f"{used.output_tokens:,} tokens"),
        ("  of it reasoning", f"{used.reasoning_tokens:,}"),
        ("requests", f"{engine.requests:,}"),
        ("cost", "no price is known for this model" if cost is None else _dollars(cost)),
    ]


def divided(engine: Engine) -> dict[str, int]:
    """Estimated tokens of everything the next request holds, by kind."""
    from keen.agent.shares import shares

    talk = engine.conversation
    return shares(talk, engine.turn.history if engine.turn is not None else talk.history)


def context(engine: Engine) -> Rows:
    """Where the window goes."""
    budget = engine.conversation.sampler.budget
    parts = divided(engine)
    return [
        *((kind, f"{amount:,}") for kind, amount in parts.items()),
        ("free", f"{max(budget.effective - sum(parts.values()), 0):,}"),
        ("kept for the answer", f"{budget.reserve:,}"),
        ("window", f"{budget.window:,}"),
        ("compacts from", f"{budget.trigger:,}"),
    ]


def compaction(when: str, past: Compaction) -> str:
    """One compaction in a line. `when`: the record's time stamp."""
    after = "?" if past.tokens_after is None else f"{past.tokens_after:,}"
    spent = past.usage.total_tokens if past.usage is not None else 0
    return (
        f"{when[:16].replace('T', ' ')}  {past.trigger or 'manual'}  "
        f"{past.tokens_before:,} → {after}  {past.seconds:.0f} s  cost {spent:,} tokens"
    )


def permissions(engine: Engine) -> Rows:
    """The mode and the rules in force."""
    policy = engine.conversation.toolbox.policy
    return [
        ("mode", policy.mode),
        *((rule.kind, f"{rule.text}  ({rule.place})") for rule in policy.rules),
        *(("allowed in this session", rule) for rule in policy.granted),
    ]


def _dollars(amount: float) -> str:
    """To the cent, and small amounts to the hundredth of one."""
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4f}"

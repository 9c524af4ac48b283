"""How many facts of three recorded sessions the embedded provider's summaries keep."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keen.agent.compaction import Job, Summariser, checkpoint_message
from keen.agent.prompts import compaction_system
from keen.agent.sampling import Sampler
from keen.core.estimate import text_tokens
from keen.core.messages import (
    Assistant,
    History,
    Message,
    Results,
    Text,
    ToolCall,
    ToolResult,
    User,
)
from keen.core.models import ModelSpec
from keen.wire.base import Endpoint, FixedKey
from keen.wire.demo import OUTPUT_CAP, WINDOW, DemoWire
from tests.agent.data.make_sessions import PLANS, ROUNDS, session

DATA = Path(__file__).parent / "data"
NAMES = [plan.name for plan in PLANS]
HEADINGS = [line for line in compaction_system(is_automatic=True).splitlines() if line[:3] == "## "]
FLOORS = {"scheduler": (18, 18), "settings": (18, 18), "thumbnails": (18, 18)}
"""Facts kept of 20: by one summary of the whole, and by three that were merged."""


@dataclass(frozen=True)
class Recorded:
    """A session as a history, and its facts with their kinds."""

    history: History
    facts: tuple[tuple[str, str], ...]

    def kept(self, text: str) -> Counter[str]:
        return Counter(kind for kind, fact in self.facts if fact in text)

    def lost(self, text: str) -> list[str]:
        return [fact for _, fact in self.facts if fact not in text]


def recorded(name: str) -> Recorded:
    told: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    history: list[Message] = []
    for number, entry in enumerate(told["rounds"]):
        if entry["user"]:
            history.append(User(entry["user"], steering=number > 0))
        call = ToolCall(f"call-{number}", entry["tool"], entry["input"])
        code = entry["exit_code"]
        result = ToolResult(call.id, call.name, entry["output"], bool(code), exit_code=code)
        history += [Assistant((Text(entry["text"]), call)), Results((result,))]
    return Recorded(tuple(history), tuple((f["kind"], f["text"]) for f in told["facts"]))


def a_summariser() -> Summariser:
    model = ModelSpec("demo", "guide", "demo", WINDOW, True, OUTPUT_CAP)
    endpoint = Endpoint("demo", FixedKey(""), quirks=frozenset({"instant"}))
    return Summariser(Sampler(DemoWire(endpoint), model))


async def summarised(history: History) -> str:
    return await a_summariser().summary(Job(history, ()))


async def in_three(history: History) -> str:
    """The summary of the third of three compactions, each of which merges the one before."""
    thirds = [0, len(history) // 3, 2 * len(history) // 3, len(history)]
    summary = ""
    for start, end in itertools.pairwise(thirds):
        before: History = ()
        if summary:
            before = (checkpoint_message(summary, (), is_automatic=True),)
        summary = await summarised((*before, *history[start:end]))
    return summary


def test_the_recorded_sessions_are_what_the_script_makes() -> None:
    for plan in PLANS:
        stored = json.loads((DATA / f"{plan.name}.json").read_text(encoding="utf-8"))
        assert stored == session(plan)


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_is_planted_once_in_forty_rounds(name: str) -> None:
    told = recorded(name)
    whole = (DATA / f"{name}.json").read_text(encoding="utf-8")
    assert sum(isinstance(message, Assistant) for message in told.history) == ROUNDS
    assert len(told.facts) == 20
    for _, fact in told.facts:
        assert json.dumps(fact, ensure_ascii=False)[1:-1] in whole


@pytest.mark.parametrize("name", NAMES)
async def test_facts_survive_one_compaction_and_three(name: str) -> None:
    told = recorded(name)
    once, thrice = await summarised(told.history), await in_three(told.history)
    for label, text in (("once", once), ("in three", thrice)):
        kept = told.kept(text)
        print(
            f"\n{name:11} {label:9} {kept.total():2} of 20 {dict(kept)} "
            f"{text_tokens(text):,} tokens; lost: {told.lost(text)}"
        )
        assert [line for line in text.splitlines() if line[:3] == "## "] == HEADINGS
        assert text_tokens(text) <= OUTPUT_CAP
    assert told.kept(once).total() >= FLOORS[name][0]
    assert told.kept(thrice).total() >= FLOORS[name][1]

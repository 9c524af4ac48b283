"""A working day over each of the six protocols through `keen run`, without one violation."""

from __future__ import annotations

import pytest

from keen.core.messages import Json
from tests.fakes.dialects import DIALECTS, Dialect
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place

ROUNDS = 20
pytestmark = pytest.mark.timeout(120)


async def test_reasoning_parallel_tools_twenty_rounds_an_edit_and_a_resume(
    dialect: Dialect, place: Place
) -> None:
    source = place.work / "counter.py"
    source.write_text("count = 0\n")
    rounds: list[int] = []

    def answer(request: Recorded) -> Scripted:
        number = len(rounds)
        rounds.append(request.number)
        if number < ROUNDS - 1:
            pair: list[tuple[str, dict[str, Json]]] = [
                ("read_file", {"path": "counter.py"}),
                ("glob", {"pattern": "*.py"}),
            ]
            return dialect.calls_many(*pair, text=f"Step {number}.", reasoning="Thinking of it.")
        if number == ROUNDS - 1:
            edits: list[Json] = [{"old": "count = 0", "new": "count = 1"}]
            change: dict[str, Json] = {"path": "counter.py", "edits": edits}
            return dialect.calls_many(("edit_file", change), text="Changing it.")
        return dialect.says("All done.", reasoning="That was it.")

    async with FakeProvider(answer) as provider:
        place.configure(dialect, provider.url)
        ran = await place.run("run", "raise the count", "--format", "stream-json")
        again = await place.run("run", "and now?", "--continue", "--format", "json")
        last = dialect.read(provider.requests[-1])

    assert (ran.code, again.code) == (0, 0), ran.stderr + again.stderr
    assert source.read_text() == "count = 1\n"
    kinds = [line["type"] for line in ran.lines]
    assert kinds.count("tool_started") == kinds.count("tool_finished") == 2 * (ROUNDS - 1) + 1
    assert "reasoning" in kinds
    assert ran.result["requests"] == ROUNDS + 1
    said = "\n".join(entry.text for entry in last.messages)
    assert all(words in said for words in ("raise the count", "Step 0.", "All done.", "and now?"))
    assert len(last.calls) == len(last.results) == 2 * (ROUNDS - 1) + 1
    assert "count = 0" not in "".join(result.output for result in last.results)
    assert provider.violations == []


async def test_a_session_goes_on_with_another_provider(dialect: Dialect, place: Place) -> None:
    other = DIALECTS[(DIALECTS.index(dialect) + 1) % len(DIALECTS)]
    look: tuple[str, dict[str, Json]] = ("glob", {"pattern": "*"})
    async with (
        FakeProvider(
            dialect.calls_many(look, text="Looking.", reasoning="hm"), dialect.says("One.")
        ) as first,
        FakeProvider(other.calls_many(look, reasoning="hm"), other.says("Two.")) as second,
    ):
        place.configure(dialect, first.url)
        one = await place.run("run", "start", "--format", "json")
        place.configure(other, second.url)
        two = await place.run("run", "go on", "--continue", "--format", "json")
        texts = [request.text for request in second.requests]

    assert (one.code, two.code) == (0, 0), one.stderr + two.stderr
    assert one.result["session_id"] == two.result["session_id"]
    assert one.result["model"] != two.result["model"]
    assert all("start" in text and "One." in text for text in texts)
    assert [r["kind"] for r in place.records()].count("model_changed") == 1
    assert first.violations == second.violations == []

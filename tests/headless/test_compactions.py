"""Compactions of `keen run` from outside: what is private, what is told, what can be taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from keen.core.messages import Usage
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import Place, Ran

CHAT = dialect_named("chat")
MARKER = "PRIVATE-SUMMARY-7f3a"
WINDOW = 34_000
"""Two results of the big file fill it, and all tools have room."""
USAGE = Usage(1_000, 0, 0, 20)
pytestmark = pytest.mark.timeout(90)


@dataclass
class Reader:
    """Reads the big file `rounds` times; its summaries, good or cut, hold the marker."""

    dialect: Dialect
    rounds: int = 5
    is_cut: bool = False
    reads: int = 0
    summaries: int = 0
    seen: list[str] = field(default_factory=list[str])

    def answer(self, request: Recorded) -> Scripted:
        self.seen.append(request.text)
        if not self.dialect.read(request).tools:
            self.summaries += 1
            if self.is_cut:
                return self.dialect.truncated(f"## Goal\n{MARKER}")
            return self.dialect.says(f"## Goal\n{MARKER}", reasoning=f"thinking {MARKER}")
        if self.reads == self.rounds:
            return self.dialect.says("All read.", usage=None)
        self.reads += 1
        call = ("read_file", {"path": "big.txt"})
        return self.dialect.calls_many(call, text=f"Part {self.reads}.", usage=None)


def big(place: Place) -> None:
    (place.work / "big.txt").write_text("a line of the big text\n" * 900)


def logs(place: Place) -> str:
    found = [path for path in (place.home / "logs").rglob("*") if path.is_file()]
    return "".join(path.read_text() for path in found)


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
@pytest.mark.parametrize("is_cut", [False, True], ids=["applied", "failed"])
async def test_no_summary_is_on_stdout_stderr_or_in_a_log(
    place: Place, form: str, is_cut: bool
) -> None:
    big(place)
    model = Reader(CHAT, is_cut=is_cut, rounds=3 if is_cut else 6)
    async with FakeProvider(model.answer) as provider:
        place.configure(CHAT, provider.url, window=WINDOW)
        ran = await place.run("run", "read it all", "--format", form)

    assert ran.code == 0, ran.stderr
    assert model.summaries > 0
    assert MARKER not in ran.stdout
    assert MARKER not in ran.stderr
    assert MARKER not in logs(place)
    told = [record["kind"] for record in place.records() if MARKER in json.dumps(record)]
    assert set(told) == (set() if is_cut else {"compaction_applied"})
    assert len(ran.stderr.splitlines()) == (1 if is_cut else 0), ran.stderr
    assert provider.violations == []


async def test_the_stream_tells_each_compaction_and_never_its_summary(
    dialect: Dialect, place: Place
) -> None:
    big(place)
    model = Reader(dialect)
    async with FakeProvider(model.answer) as provider:
        place.configure(dialect, provider.url, window=WINDOW)
        ran = await place.run("run", "read it all", "--format", "stream-json")
        sent = len(provider.requests)

    assert ran.code == 0, ran.stderr
    kinds = [str(line["type"]) for line in ran.lines]
    marks = [kind for kind in kinds if kind.startswith("compaction_")]
    assert marks == ["compaction_started", "compaction_applied"] * model.summaries
    assert model.summaries > 0
    assert sent == ran.result["requests"] == model.reads + 1 + model.summaries
    assert ran.result["text"] == "\n\n".join([*(f"Part {n + 1}." for n in range(5)), "All read."])
    applied = next(line for line in ran.lines if line["type"] == "compaction_applied")
    assert set(applied) == {"type", "tokens_before", "tokens_after", "usage"}
    assert MARKER not in ran.stdout + ran.stderr + logs(place)
    assert provider.violations == []


@pytest.mark.parametrize("name", ["chat", "anthropic"])
async def test_undoing_a_compaction_brings_the_conversation_back_for_the_next_run(
    place: Place, name: str
) -> None:
    big(place)
    dialect = dialect_named(name)
    model = Reader(dialect, rounds=3)
    async with FakeProvider(model.answer) as provider:
        place.configure(dialect, provider.url, window=WINDOW)
        ran = await place.run("run", "read it all", "--format", "json")
        identity = str(ran.result["session_id"])
        compacted = await place.run("run", "and now?", "--continue")
        undone = await place.run("sessions", "undo-compaction", identity[:8])
        shown = await place.run("sessions", "show", identity[:8])
        again = await place.run("run", "and again?", "--continue")
        before, after = provider.requests[-2], provider.requests[-1]
        nothing_left = await place.run("sessions", "undo-compaction", identity[:8])

    assert model.summaries == 1
    assert (compacted.code, undone.code, again.code) == (0, 0, 0), undone.stderr + again.stderr
    assert MARKER in before.text
    assert MARKER not in after.text
    said = dialect.read(after)
    assert [call.name for call in said.calls] == ["read_file"] * 3
    words = "\n".join(entry.text for entry in said.messages)
    asked = ("read it all", "Part 1.", "Part 2.", "and now?", "and again?")
    places = [words.index(word) for word in asked]
    assert places == sorted(places)
    assert MARKER not in undone.stdout + shown.stdout
    assert nothing_left.code != 0
    assert "no compaction to take back" in nothing_left.stderr
    assert provider.violations == []


def another(dialect: Dialect, url: str, window: int) -> str:
    """A second provider's tables, and the setting that lets its model write summaries."""
    region = 'region = "us-east-1"\n' if dialect.name == "bedrock" else ""
    return (
        f'\n[compaction]\nmodel = "second/small-writer"\n\n[providers.second]\n'
        f'client = "{dialect.name}"\nbase_url = "{url}{dialect.path}"\n'
        f'api_key = "{dialect.key}"\n{region}\n'
        f'[providers.second.models."small-writer"]\ncontext_window = {window}\n'
    )


async def with_another(place: Place, dialect: Dialect, window: int) -> tuple[Ran, Reader, int]:
    big(place)
    model, sizes = Reader(CHAT), list[int]()

    def summarise(request: Recorded) -> Scripted:
        assert not dialect.read(request).tools
        sizes.append(len(request.text) * 2 // 7)
        if sizes[-1] > window:
            return dialect.overflow(actual=sizes[-1], limit=window)
        return dialect.says(f"## Goal\n{MARKER}", usage=USAGE)

    async with FakeProvider(model.answer) as main, FakeProvider(summarise) as second:
        place.configure(CHAT, main.url, window=WINDOW, extra=another(dialect, second.url, window))
        ran = await place.run("run", "read it all", "--format", "json")
        assert main.violations == second.violations == []
    return ran, model, len(sizes)


async def test_another_model_writes_the_summaries_and_the_run_pays(
    dialect: Dialect, place: Place
) -> None:
    await paid_by_the_run(place, dialect, window=60_000)


async def test_another_model_with_a_smaller_window_gets_less_to_read(place: Place) -> None:
    await paid_by_the_run(place, CHAT, window=12_000)


async def paid_by_the_run(place: Place, dialect: Dialect, window: int) -> None:
    ran, model, summaries = await with_another(place, dialect, window)

    assert ran.code == 0, ran.stderr
    assert summaries > 0
    assert model.summaries == 0
    assert ran.result["requests"] == model.reads + 1 + summaries
    compactions = ran.result["compactions"]
    assert isinstance(compactions, list)
    assert len(compactions) == summaries
    usage = ran.result["usage"]
    assert isinstance(usage, dict)
    assert usage["input_tokens"] == 1_000 * summaries
    applied = [r["payload"] for r in place.records() if r["kind"] == "compaction_applied"]
    models = [payload["model"] for payload in applied if isinstance(payload, dict)]
    assert models == ["second/small-writer"] * summaries
    assert MARKER not in ran.stdout + ran.stderr


async def test_a_session_compacted_by_another_model_goes_on_with_its_own(place: Place) -> None:
    await with_another(place, CHAT, 60_000)
    async with FakeProvider(CHAT.says("Going on.")) as provider:
        place.configure(CHAT, provider.url, window=WINDOW)
        ran = await place.run("run", "go on", "--continue")

    assert ran.code == 0, ran.stderr
    assert [r for r in place.records() if r["kind"] == "model_changed"] == []


@pytest.mark.parametrize(
    ("model", "code"),
    [("nobody/model", 4), ("anthropic/claude-sonnet-5", 0)],
    ids=["unknown", "without a key"],
)
async def test_a_summariser_that_cannot_be_asked_is_told(
    place: Place, model: str, code: int
) -> None:
    big(place)
    reader = Reader(CHAT, rounds=3)
    async with FakeProvider(reader.answer) as provider:
        extra = f'\n[compaction]\nmodel = "{model}"\n'
        place.configure(CHAT, provider.url, window=WINDOW, extra=extra)
        ran = await place.run("run", "read it all", "--format", "json")

    assert ran.code == code, ran.stderr
    assert model.partition("/")[0] in ran.stderr
    if code == 0:
        compactions = ran.result["compactions"]
        assert isinstance(compactions, list)
        assert [c["outcome"] for c in compactions if isinstance(c, dict)] == ["failed"]
        assert reader.summaries == 0


async def test_the_projects_rules_are_in_every_request_after_a_compaction(place: Place) -> None:
    big(place)
    (place.work / "AGENTS.md").write_text("NEVER-USE-TABS\n")
    model = Reader(CHAT)
    async with FakeProvider(model.answer) as provider:
        place.configure(CHAT, provider.url, window=WINDOW)
        ran = await place.run("run", "read it all", "--trust")

    assert ran.code == 0, ran.stderr
    assert model.summaries > 0
    main = [text for text in model.seen if '"tools"' in text]
    assert all("NEVER-USE-TABS" in text for text in main)
    assert len(main) == model.reads + 1

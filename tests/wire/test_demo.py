from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from keen.core.errors import ContextOverflow
from keen.core.events import TextDelta
from keen.core.messages import (
    Assistant,
    History,
    JsonObject,
    Message,
    Results,
    ToolResult,
    ToolSpec,
    User,
    tool_calls,
    visible_text,
)
from keen.core.models import ModelSpec
from keen.wire._guide import INTRODUCTION, intent, search_word
from keen.wire.base import Endpoint, FixedKey, Reply, Request
from keen.wire.demo import OUTPUT_CAP, WINDOW, DemoWire

MODEL = ModelSpec("demo", "guide", "demo", window=WINDOW, max_output=OUTPUT_CAP)
HEADLESS = ("glob", "read_file", "grep", "bash", "write_file")
INTERACTIVE = (*HEADLESS, "ask_user")
FILES = {
    "README.md": "1\t# The Weather Project\n2\tIt forecasts rain.",
    "src/rain.py": "1\tdef rain(): ...",
}


def a_wire() -> DemoWire:
    return DemoWire(Endpoint("demo", FixedKey(""), quirks=frozenset({"instant"})))


async def answer(history: History, tools: tuple[str, ...]) -> Reply:
    specs = tuple(ToolSpec(name, "", {"type": "object"}) for name in tools)
    wire = a_wire()
    body = wire.encode(Request(MODEL, "system", history, specs, output_tokens=OUTPUT_CAP))
    shown: list[str] = []
    async for item in wire.stream(body):
        if isinstance(item, Reply):
            assert "".join(shown) == visible_text(item.message)
            return item
        assert isinstance(item, TextDelta)
        shown.append(item.text)
    raise AssertionError("no reply")


async def work(task: str, tools: tuple[str, ...] = HEADLESS) -> AsyncIterator[Message]:
    """The whole task against tools that answer from FILES."""
    history: list[Message] = [User(task)]
    for _ in range(12):
        reply = await answer(tuple(history), tools)
        yield reply.message
        calls = tool_calls(reply.message)
        if not calls:
            return
        results = tuple(ToolResult(c.id, c.name, _result(c.name, c.input)) for c in calls)
        history += [reply.message, Results(results)]
    raise AssertionError("it never ends")


def _result(name: str, values: JsonObject) -> str:
    match name:
        case "glob":
            return "\n".join(FILES)
        case "read_file":
            return FILES[str(values["path"])]
        case "grep":
            return "src/rain.py:1:def rain(): ..."
        case _:
            return "done"


async def said(task: str, tools: tuple[str, ...] = HEADLESS) -> tuple[str, list[str]]:
    texts: list[str] = []
    called: list[str] = []
    async for message in work(task, tools):
        assert isinstance(message, Assistant)
        texts.append(visible_text(message))
        called += [call.name for call in tool_calls(message)]
    return "\n".join(texts), called


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("what is in this directory?", "list"),
        ("read all the files", "read_all"),
        ("please summarise everything here", "read_all"),
        ("read README.md", "read"),
        ("where is rain defined?", "search"),
        ("run a command", "run"),
        ("create a demo file", "create"),
        ("remove keen-demo.md", "remove"),
        ("hello", "tour"),
    ],
)
def test_the_words_decide_what_is_done(task: str, wanted: str) -> None:
    assert intent(task) == wanted


def test_what_to_search_for_is_the_quoted_part_or_the_telling_word() -> None:
    assert search_word("find `def rain`") == "def rain"
    assert search_word("where is the forecast in here?") == "forecast"


async def test_it_says_first_that_it_is_a_program() -> None:
    for task in ("hello", "what is here?", "find rain", "run something", "create a file"):
        text, _ = await said(task)
        assert text.startswith(INTRODUCTION), task


async def test_a_listing_tells_of_the_real_files() -> None:
    text, called = await said("what is in this directory?")

    assert called == ["glob", "glob", "read_file"]
    assert "2 files" in text
    assert "README.md" in text
    assert "The Weather Project" in text


async def test_reading_everything_reads_each_file_once() -> None:
    text, called = await said("read all of it")

    assert called.count("read_file") == len(FILES)
    assert "I read 2 files." in text


async def test_headless_it_changes_nothing() -> None:
    text, called = await said("create a demo file", HEADLESS)

    assert called == []
    assert "only read" in text


async def test_with_somebody_there_it_proposes_one_file_and_removes_it_on_request() -> None:
    assert (await said("create a demo file", INTERACTIVE))[1] == ["write_file"]
    assert (await said("remove keen-demo.md", INTERACTIVE))[1] == ["bash"]


async def test_equal_requests_get_equal_bodies() -> None:
    wire = a_wire()
    request = Request(MODEL, "system", (User("x"),))

    assert wire.encode(request) == wire.encode(request)


async def test_what_exceeds_its_window_is_refused_with_the_numbers() -> None:
    with pytest.raises(ContextOverflow) as caught:
        await answer((User("word " * 40_000),), HEADLESS)

    assert caught.value.limit == WINDOW
    assert caught.value.actual is not None
    assert caught.value.actual > WINDOW


async def test_a_summary_request_gets_the_five_sections_from_what_was_said() -> None:
    transcript = (
        "<conversation>\n[USER]\nFix it. Never touch tests.\n\n"
        '[AGENT CALLS read_file]\n{"path": "a.py"}\n\n'
        "[RESULT OF read_file: ok]\n1\tNOTE: port is 8080\n2\tvalue error: boom\n\n"
        '[AGENT CALLS bash]\n{"command": "make"}\n\n'
        "[RESULT OF bash: failed, exit code 2]\nmake: *** error 1\n</conversation>\n\nWrite."
    )
    reply = await answer((User(transcript),), ())
    text = visible_text(reply.message)

    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Goal",
        "## Key Instructions",
        "## Discoveries",
        "## Accomplished",
        "## Relevant Files",
    ]
    for fact in ("Never touch tests.", "port is 8080", "read_file a.py: ok", "exit code 2"):
        assert fact in text
    assert tool_calls(reply.message) == ()

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.core.events import Question
from keen.core.messages import Json
from keen.tools.ask_user import AskUser
from keen.tools.base import Tool
from keen.tools.edit_file import EditFile
from keen.tools.file_memory import FileMemory
from keen.tools.glob import Glob
from keen.tools.grep import Grep
from keen.tools.read_file import ReadFile
from keen.tools.recall import Recall
from keen.tools.todo import Todo
from keen.tools.web_fetch import WebFetch
from keen.tools.write_file import WriteFile
from tests.tools.calls import call, context_in, output

MEMORY = FileMemory()
TOOLS: tuple[Tool, ...] = (
    ReadFile(MEMORY), WriteFile(MEMORY), EditFile(MEMORY), Glob(), Grep(), Todo(), AskUser(),
    Recall(), WebFetch(),
)  # fmt: skip


def test_all_descriptions_and_schemas_together_are_small() -> None:
    sent = [[t.spec.name, t.spec.description, t.spec.schema] for t in TOOLS]

    assert len(json.dumps(sent)) < 3_800


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.spec.name)
def test_every_tool_tells_how_it_is_called(tool: Tool, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        tool.prepare({"nonsense": 1}, context_in(tmp_path))

    example = json.loads(str(caught.value).partition("A valid call: ")[2])
    context = replace(context_in(tmp_path), search=str)
    assert tool.prepare(example, context)
    assert set(example) <= set(json.loads(json.dumps(tool.spec.schema))["properties"])


async def test_a_list_is_repeated_with_its_marks(tmp_path: Path) -> None:
    items: list[Json] = [
        {"text": "one", "status": "done"},
        {"text": "two\nlines", "status": "active"},
        {"text": "three"},
    ]

    text = await output(Todo(), context_in(tmp_path), items=items)

    assert text == "[x] one\n[>] two lines\n[ ] three"
    assert await output(Todo(), context_in(tmp_path), items=[]) == "The list is empty."


async def test_questions_reach_the_person_and_answers_come_back(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def ask(questions: tuple[Question, ...]) -> tuple[str, ...] | None:
        asked.extend(questions)
        return ("SQLite", "")

    context = replace(context_in(tmp_path), ask=ask)
    questions: list[Json] = [
        {"text": "Which?", "options": ["SQLite", "Postgres"], "several": True},
        {"text": "Why?"},
    ]

    text = await output(AskUser(), context, questions=questions)

    assert asked == [Question("Which?", ("SQLite", "Postgres"), True), Question("Why?")]
    assert text == "Which?\n> SQLite\n\nWhy?\n> (empty)"


async def test_nobody_to_answer_is_said(tmp_path: Path) -> None:
    outcome = await call(AskUser(), context_in(tmp_path), questions=[{"text": "Which?"}])

    assert outcome.is_error
    assert outcome.output.startswith("Nobody answered.")


async def test_recall_searches_the_session(tmp_path: Path) -> None:
    def search(query: str) -> str:
        return "" if query == "y" else f"found {query}"

    context = replace(context_in(tmp_path), search=search)

    assert await output(Recall(), context, query="x") == "found x"
    assert "Nothing in this session" in await output(Recall(), context, query="y")
    with pytest.raises(ToolError, match="not recorded"):
        await call(Recall(), context_in(tmp_path), query="x")

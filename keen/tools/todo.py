"""The tool `todo`: the model's own list of what is to be done, which the person sees."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools.base import Context, Effect, Outcome, PreparedCall

_MARKS: Final = {"pending": "[ ]", "active": "[>]", "done": "[x]"}


class TodoItem(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, max_length=500)
    status: Literal["pending", "active", "done"] = "pending"


class TodoArguments(Arguments):
    """What the model sends: always the whole list."""

    example: ClassVar[JsonObject] = {
        "items": [
            {"text": "Find the cause", "status": "done"},
            {"text": "Write a failing test", "status": "active"},
        ]
    }

    items: tuple[TodoItem, ...] = Field(max_length=100)


class Todo:
    """Keeps nothing: the list lives in the calls, so that rewinding a session rewinds it too."""

    effect: Effect = "read"
    spec: ToolSpec = tool_spec(
        "todo",
        "Plan work of several steps; the user sees it. Send the whole list each time; one active.",
        TodoArguments,
    )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        items = parse(TodoArguments, input, "todo").items

        async def run() -> Outcome:
            lines = [f"{_MARKS[item.status]} {' '.join(item.text.split())}" for item in items]
            return Outcome("\n".join(lines) or "The list is empty.")

        return PreparedCall((), run)

"""The tool `recall`: what this session said and did before, compacted away or not."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._blocking import in_thread
from keen.tools.base import Context, Effect, Outcome, PreparedCall


class RecallArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"query": "error message of the failing migration"}

    query: str = Field(min_length=1, max_length=1_000)


class Recall:
    """Stands on `Context.search`, which the session provides."""

    effect: Effect = "read"
    spec: ToolSpec = tool_spec(
        "recall",
        "Search this whole session, also what a summary left out.",
        RecallArguments,
    )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        query = parse(RecallArguments, input, "recall").query
        search = context.search
        if search is None:
            raise ToolError("This session is not recorded, so there is nothing to search.")

        async def run() -> Outcome:
            found = await in_thread(lambda _stop: search(query))
            return Outcome(found or f"Nothing in this session matches {query!r}.")

        return PreparedCall((), run)

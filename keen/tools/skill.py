"""The tool `skill`: instructions for a kind of work, read when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pydantic import Field

from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._blocking import in_thread
from keen.tools.base import Context, Effect, Outcome, PreparedCall


class SkillArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"name": "pdf-forms", "arguments": "fill form.pdf"}

    name: str = Field(default="", max_length=200, description="none: list all skills")
    arguments: str = Field(default="", max_length=20_000)


class SkillTool:
    """Stands on `load`: a skill's text for a name and arguments; blocking, may raise ToolError."""

    effect: Effect = "read"
    spec: ToolSpec = tool_spec(
        "skill",
        "Read the instructions of a skill, by its name, before you do work that it is for.",
        SkillArguments,
    )

    def __init__(self, load: Callable[[str, str], str]) -> None:
        self._load = load

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        wanted = parse(SkillArguments, input, "skill")

        async def run() -> Outcome:
            text = await in_thread(lambda _stop: self._load(wanted.name, wanted.arguments))
            return Outcome(text)

        return PreparedCall((), run)

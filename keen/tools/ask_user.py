"""The tool `ask_user`: questions only the person can answer."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from keen.core.events import Question
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools.base import Context, Effect, Outcome, PreparedCall

_NOBODY: Final = (
    "Nobody answered. Do what is safest and say what you assumed, or stop and say what you need."
)


class AskedQuestion(BaseModel):
    """One question; without options the answer is free text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, max_length=2_000)
    options: tuple[str, ...] = Field(default=(), max_length=8)
    several: bool = Field(default=False, description="several options may be chosen")


class AskUserArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {
        "questions": [{"text": "Which database?", "options": ["SQLite", "PostgreSQL"]}]
    }

    questions: tuple[AskedQuestion, ...] = Field(min_length=1, max_length=4)


class AskUser:
    """The answers come back beside their questions."""

    effect: Effect = "ask"
    spec: ToolSpec = tool_spec(
        "ask_user",
        "Ask what only the user can decide. Not for permission: tools ask for that themselves.",
        AskUserArguments,
    )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        asked = parse(AskUserArguments, input, "ask_user").questions
        questions = tuple(Question(each.text, each.options, each.several) for each in asked)

        async def run() -> Outcome:
            answers = await context.ask(questions)
            if answers is None:
                return Outcome(_NOBODY, is_error=True)
            padded = (*answers, *[""] * len(questions))
            pairs = zip(questions, padded, strict=False)
            return Outcome(
                "\n\n".join(
                    f"{question.text}\n> {answer or '(empty)'}" for question, answer in pairs
                )
            )

        return PreparedCall((), run)

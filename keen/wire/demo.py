"""The embedded provider: no network, no key, the real tools over the real directory.

It speaks the Wire protocol like the six, streams, counts tokens, has a window and refuses what
exceeds it, so that everything in keen can be seen and tested with it, compaction included.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, cast

from keen.core.errors import ContextOverflow
from keen.core.estimate import json_tokens, text_tokens
from keen.core.events import TextDelta
from keen.core.messages import (
    Assistant,
    Json,
    JsonObject,
    Message,
    Part,
    Results,
    Text,
    ToolCall,
    Usage,
    User,
    tool_calls,
    visible_text,
)
from keen.core.models import ModelSpec
from keen.wire._extract import summary
from keen.wire._guide import Done, Step, next_step
from keen.wire._history import EncodedHistory
from keen.wire.base import Body, Delta, Endpoint, Reply, Request, Wire

WINDOW: Final = 32_768
OUTPUT_CAP: Final = 4_096
_CHUNK: Final = 24
"""Characters of one streamed piece."""
_PAUSE: Final = 0.004
"""Seconds between two pieces: fast, and still visibly a stream."""
_LIVE: Final = re.compile(r"<last_user_message>\n.*?\n\n(.*)\n</last_user_message>", re.DOTALL)
_READ_BEFORE: Final = re.compile(r"^- read_file (.+): (?:ok|failed)", re.MULTILINE)


@dataclass
class DemoWire:
    """`demo/guide`. The quirk `instant` streams without pauses."""

    endpoint: Endpoint
    dialect: str = "demo"
    _history: EncodedHistory = field(default_factory=EncodedHistory)

    def asked_output(self, model: ModelSpec) -> int:
        return model.asked_output or OUTPUT_CAP

    def encode(self, request: Request) -> Body:
        messages = self._history.items(
            request, self.endpoint.provider, self.dialect, lambda message: (_native(message),)
        )
        tools: list[Json] = [
            {"name": t.name, "description": t.description, "schema": t.schema}
            for t in request.tools
        ]
        return Body(
            {
                "model": request.model.id,
                "window": request.model.window,
                "max_tokens": request.output_tokens,
                "system": request.system,
                "tools": tools,
                "messages": cast(Json, messages),
            },
            "messages",
        )

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        tokens = json_tokens(body.json)
        if tokens > WINDOW:
            raise ContextOverflow(
                f"The guide's window holds {WINDOW:,} tokens, the request has {tokens:,}.",
                actual=tokens,
                limit=WINDOW,
            )
        step = _step(body.json)
        pause = 0.0 if "instant" in self.endpoint.quirks else _PAUSE
        for start in range(0, len(step.text), _CHUNK):
            await asyncio.sleep(pause)
            yield TextDelta(step.text[start : start + _CHUNK])
        calls = tuple(
            ToolCall(f"call_{uuid.uuid4().hex[:16]}", name, arguments)
            for name, arguments in step.calls
        )
        text: tuple[Part, ...] = (Text(step.text),) if step.text else ()
        output = text_tokens(step.text) + sum(json_tokens(call.input) + 8 for call in calls)
        usage = Usage(input_tokens=tokens, output_tokens=output)
        yield Reply(Assistant((*text, *calls)), usage, "stop")

    def without(self, field: str) -> Wire:
        quirks = self.endpoint.quirks | {f"no:{field}"}
        return DemoWire(replace(self.endpoint, quirks=quirks))

    async def aclose(self) -> None:
        return


def _native(message: Message) -> JsonObject:
    match message:
        case User(text=text):
            return {"role": "user", "content": text}
        case Assistant():
            calls: list[Json] = [
                {"id": c.id, "name": c.name, "input": c.input} for c in tool_calls(message)
            ]
            return {"role": "assistant", "content": visible_text(message), "calls": calls}
        case Results(results=results):
            answers: list[Json] = [
                {"id": r.call_id, "name": r.name, "output": r.output, "is_error": r.is_error}
                for r in results
            ]
            return {"role": "tool", "results": answers}


def _step(body: JsonObject) -> Step:
    """The next step for a request: a summary where no tools are offered, else the guide's."""
    messages = cast("list[JsonObject]", body["messages"])
    tools = {str(tool["name"]) for tool in cast("list[JsonObject]", body["tools"])}
    said = [str(m["content"]) for m in messages if m["role"] == "user"]
    last = said[-1] if said else ""
    if not tools:
        return Step(summary(last))
    live = _LIVE.search(last)
    task = live[1] if live else last
    done = [*_before(last), *_done(messages)]
    return next_step(task, done, is_interactive="ask_user" in tools)


def _before(text: str) -> Iterable[Done]:
    """What the checkpoint of a compacted turn says was read already."""
    for path in _READ_BEFORE.findall(text):
        yield Done("read_file", path, "", is_error=False)


def _done(messages: list[JsonObject]) -> Iterable[Done]:
    """Calls and results since the last user message."""
    start = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
    subjects: dict[str, str] = {}
    for message in messages[start:]:
        for call in cast("list[JsonObject]", message.get("calls", [])):
            arguments = cast("JsonObject", call["input"])
            subjects[str(call["id"])] = str(next(iter(arguments.values()), ""))
        for result in cast("list[JsonObject]", message.get("results", [])):
            subject = subjects.get(str(result["id"]), "")
            name, output = str(result["name"]), str(result["output"])
            yield Done(name, subject, output, bool(result["is_error"]))

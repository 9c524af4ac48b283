"""A wire that needs no socket: it answers by a script, checks what it is sent and counts it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from keen.core.errors import ContextOverflow, Rejected, Transient
from keen.core.estimate import json_tokens
from keen.core.events import TextDelta
from keen.core.messages import (
    Assistant,
    Finish,
    History,
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
from keen.wire._encoded import Encoded
from keen.wire.base import Body, Delta, Endpoint, FixedKey, Reply, Request, Wire

Fault: TypeAlias = Literal["", "cut", "overflow", "overflow in stream", "rejected"]
SummaryKind: TypeAlias = Literal["good", "empty", "cut", "called", "overflow", "rejected", "hangs"]

SECRET: Final = "SUMMARY-SECRET"


@dataclass(frozen=True)
class Line:
    """One answer. `faults` come before it, one refusal or cut each."""

    words: int
    calls: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    finish: Finish = "stop"
    reports: int = 0
    """Percent of our own estimate that the answer reports as its prompt; 0: no report."""


@dataclass
class Script:
    """What the model says next; without a line it ends the turn."""

    lines: list[Line] = field(default_factory=list[Line])
    summaries: list[SummaryKind] = field(default_factory=list[SummaryKind])
    on_hang: Callable[[], None] = lambda: None
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


@dataclass
class ScriptedWire:
    """Every request must be valid; `requests` counts all, `bodies` keeps the main ones."""

    script: Script
    dialect: str = "scripted"
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("fake", FixedKey("")))
    requests: int = 0
    bodies: list[JsonObject] = field(default_factory=list[JsonObject])
    spent: Usage = field(default_factory=Usage)
    _pending: list[Fault] = field(default_factory=list[Fault])
    _line: Line | None = None
    _encoded: Encoded = field(default_factory=Encoded)

    def asked_output(self, model: ModelSpec) -> int:
        return model.asked_output or 2_000

    def encode(self, request: Request) -> Body:
        check_pairs(request.messages)
        items: list[Json] = []
        for message in request.messages:
            items.extend(self._encoded.of(message, lambda m=message: (_item(m),)))
        self._encoded.sweep()
        names: list[Json] = [tool.name for tool in request.tools]
        return Body({"system": request.system, "tools": names, "messages": items}, "messages")

    async def stream(self, body: Body) -> AsyncGenerator[Delta | Reply, None]:
        self.requests += 1
        await asyncio.sleep(0)
        if not body.json["tools"]:
            async for item in self._summary():
                yield item
            return
        self.bodies.append(body.json)
        if self._line is None:
            self._line = self.script.lines.pop(0) if self.script.lines else Line(3)
            self._pending = list(self._line.faults)
        fault = self._pending.pop(0) if self._pending else ""
        number = next(self.script.numbers)
        if fault in ("overflow", "rejected"):
            raise _error(fault)
        pieces = [f"<{number}.{index}>" for index in range(self._line.words)]
        for piece in pieces:
            yield TextDelta(piece)
            await asyncio.sleep(0)
        if fault:
            raise _error(fault)
        line, self._line = self._line, None
        yield self._reply(line, pieces, number, body)

    def _reply(self, line: Line, pieces: list[str], number: int, body: Body) -> Reply:
        calls = tuple(
            ToolCall(f"call-{number}-{index}", name.partition(":")[0], {"path": name})
            for index, name in enumerate(line.calls)
        )
        parts: tuple[Part, ...] = (*((Text("".join(pieces)),) if pieces else ()), *calls)
        usage = None
        if line.reports:
            usage = Usage(max(1, json_tokens(body.json) * line.reports // 100), 0, 0, 7)
            self.spent += usage
        return Reply(Assistant(parts), usage, line.finish)

    async def _summary(self) -> AsyncGenerator[Delta | Reply, None]:
        kind = self.script.summaries.pop(0) if self.script.summaries else "good"
        number = next(self.script.numbers)
        if kind == "overflow":
            raise ContextOverflow("The summary request is too long.")
        if kind == "rejected":
            raise Rejected("No summary today.", status=403)
        text = "" if kind == "empty" else f"## Goal\n{SECRET}-{number}."
        yield TextDelta(text)
        await asyncio.sleep(0)
        if kind == "hangs":
            self.script.on_hang()
            await asyncio.Event().wait()
        parts: tuple[Part, ...] = (Text(text),)
        if kind == "called":
            parts = (*parts, ToolCall("x", "read_file", {}))
        usage = Usage(100, 0, 0, 10)
        self.spent += usage
        yield Reply(Assistant(parts), usage, "length" if kind == "cut" else "stop")

    def without(self, field: str) -> Wire:
        return self

    async def aclose(self) -> None:
        return


def _error(fault: Fault) -> Exception:
    if fault == "cut":
        return Transient("cut", retry_after=0.0)
    if fault == "rejected":
        return Rejected("no", status=403)
    return ContextOverflow("too long")


def check_pairs(history: History) -> None:
    """Every call has its result and every result its call; nothing is empty."""
    for before, message in zip((None, *history), history, strict=False):
        if isinstance(before, Assistant) and tool_calls(before):
            assert isinstance(message, Results), f"unanswered calls before {message!r}"
        match message:
            case User():
                assert message.text or message.images
            case Assistant():
                assert tool_calls(message) or visible_text(message)
            case Results(results=results):
                assert isinstance(before, Assistant), "results without an answer"
                calls = [(call.id, call.name) for call in tool_calls(before)]
                assert [(r.call_id, r.name) for r in results] == calls
    assert not (history and isinstance(history[-1], Assistant) and tool_calls(history[-1]))


def _item(message: Message) -> JsonObject:
    match message:
        case User(text=text):
            return {"user": text}
        case Assistant():
            calls: list[Json] = [{"id": c.id, "input": c.input} for c in tool_calls(message)]
            return {"assistant": visible_text(message), "calls": calls}
        case Results(results=results):
            return {"results": [{"id": r.call_id, "output": r.output} for r in results]}

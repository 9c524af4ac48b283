"""What `keen run` writes to stdout: the result object, and a stream that never blocks the loop."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from keen.core.errors import KeenError
from keen.core.events import Receipt
from keen.core.messages import Json, JsonObject, Usage
from keen.secrets import masked_object

Format: TypeAlias = Literal["text", "json", "stream-json"]
StopReason: TypeAlias = Literal[
    "done", "length", "refused", "error", "context_limit", "interrupted", "max_turns", "budget"
]

FORMATS: Final[tuple[Format, ...]] = ("text", "json", "stream-json")

_ATOMIC: Final = select.PIPE_BUF
"""Bytes that a pipe reported as writable takes without blocking."""


class OutputError(KeenError):
    """stdout cannot be written: the result has nowhere to go."""


class Output:
    """A file descriptor written whole and in order; a slow reader never blocks the event loop.

    A write that is cancelled leaves its rest to the next one, so that no line is ever torn.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = memoryview(b"")

    async def write(self, text: str) -> None:
        """Raises: BrokenPipeError when the reader is gone, OutputError for a full disk."""
        self._rest = memoryview(bytes(self._rest) + text.encode("utf-8", "replace"))
        try:
            while self._rest:
                if not self._is_writable():
                    await self._until_writable()
                with suppress(BlockingIOError):
                    written = os.write(self._descriptor, self._rest[:_ATOMIC])
                    self._rest = self._rest[written:]
                if self._rest:
                    await asyncio.sleep(0)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"stdout cannot be written: {error.strerror}") from error

    def _is_writable(self) -> bool:
        return bool(select.select([], [self._descriptor], [], 0)[1])

    async def _until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(self._descriptor, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(self._descriptor)


def wanted_format(words: Sequence[str]) -> Format:
    """The format asked for, read before parsing, since wrong use is told in it too."""
    wanted: Format = "text"
    for index, word in enumerate(words):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in ("--format", "--output-format"):
            value = value if equals else "".join(words[index + 1 : index + 2])
            for form in FORMATS:
                wanted = form if form == value else wanted
    return wanted


def tell(form: Format, result: Result) -> None:
    """The result object of a run that never began; text has nothing to tell."""
    if form != "text":
        line = result.as_json() if form == "json" else {"type": "result"} | result.as_json()
        with suppress(OSError):
            os.write(1, json_line(line).encode())


def tell_interrupted(words: Sequence[str]) -> None:
    """What a run prints that was ended by a signal while it started."""
    tell(wanted_format(words), Result(stop_reason="interrupted"))


def tell_broken(words: Sequence[str], error: Exception) -> None:
    """What a run prints that ended by a fault of the machine or a mistake in keen itself."""
    tell(wanted_format(words), Result(error=KeenError(f"{type(error).__name__}: {error}")))


def json_line(value: JsonObject) -> str:
    """One object on one line, known keys masked; everything outside ASCII is escaped."""
    return json.dumps(masked_object(value), ensure_ascii=True, separators=(",", ":")) + "\n"


@dataclass
class Transcript:
    """The visible text of a turn: the texts of its answers, in order, across compactions."""

    _done: list[str] = field(default_factory=list[str])
    _running: list[str] = field(default_factory=list[str])

    def add(self, text: str) -> None:
        self._running.append(text)

    def rewind(self) -> None:
        """What streamed since the last answer's end is void."""
        self._running.clear()

    def end_answer(self) -> None:
        text = "".join(self._running).strip()
        self._running.clear()
        if text:
            self._done.append(text)

    @property
    def text(self) -> str:
        """The answers so far joined by a blank line, the running one included."""
        running = "".join(self._running).strip()
        return "\n\n".join([*self._done, running] if running else self._done)


def error_json(error: KeenError) -> JsonObject:
    """`type` is the kind of keen.core.errors, so that scripts meet no name of the inside."""
    kinds = (kind for kind in type(error).__mro__ if kind.__module__ == KeenError.__module__)
    return {"type": next(kinds, KeenError).__name__, "message": str(error)}


def compaction_json(outcome: str, receipt: Receipt) -> JsonObject:
    """One entry of `compactions`; it never holds summary text."""
    usage: Json = receipt.usage.as_json() if receipt.usage is not None else None
    return {
        "trigger": receipt.trigger,
        "outcome": outcome,
        "tokens_before": receipt.tokens_before,
        "tokens_after": receipt.tokens_after,
        "seconds": round(receipt.seconds, 3),
        "usage": usage,
        "error": receipt.error,
    }


@dataclass
class Result:
    """The result object of the contract, section 2."""

    session_id: str | None = None
    text: str = ""
    stop_reason: StopReason = "error"
    error: KeenError | None = None
    model: str | None = None
    requests: int = 0
    duration_seconds: float = 0.0
    cost_usd: float | None = None
    usage: Usage = field(default_factory=Usage)
    compactions: list[JsonObject] = field(default_factory=list[JsonObject])

    def as_json(self) -> JsonObject:
        error: Json = error_json(self.error) if self.error is not None else None
        compactions: list[Json] = [*self.compactions]
        return {
            "session_id": self.session_id,
            "text": self.text,
            "stop_reason": self.stop_reason,
            "error": error,
            "model": self.model,
            "requests": self.requests,
            "duration_seconds": round(self.duration_seconds, 3),
            "cost_usd": self.cost_usd,
            "usage": self.usage.as_json(),
            "compactions": compactions,
        }

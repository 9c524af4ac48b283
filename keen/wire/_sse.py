"""Server-sent events out of raw bytes: what every wire over HTTP reads its stream with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from keen.core.errors import Rejected, Transient
from keen.core.messages import JsonObject
from keen.wire._json import decoded

MAX_STREAM_BYTES: Final = 64 * 2**20
"""Of one answer, after decompression."""
MAX_EVENT_BYTES: Final = 8 * 2**20
DRAIN_SECONDS: Final = 0.25
"""How long the end of a finished stream is waited for, so that its connection can be used again."""
BARE: Final = "bare"
"""The event name of a body that is no event stream: JSON as it stands, or an HTML page."""
_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = "[DONE]"


@dataclass(slots=True)
class _Reader:
    """Bytes in, (event name, data) out; no I/O. The cost is linear, however the bytes split."""

    total: int = 0
    size: int = 0
    """Bytes of the event that is being read."""
    tail: list[bytes] = field(default_factory=list[bytes])
    """Pieces of the line that has not ended yet."""
    data: list[bytes] = field(default_factory=list[bytes])
    name: str = ""
    skips_newline: bool = False
    is_started: bool = False
    is_bare: bool = False

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        self.total += len(chunk)
        if self.total > MAX_STREAM_BYTES:
            raise Transient("The answer is larger than 64 MiB; keen stopped reading it.")
        chunk = self._newlines(chunk)
        if b"\n" not in chunk:
            self.tail.append(chunk)
            self._grow(len(chunk))
            return
        first, *lines = chunk.split(b"\n")
        self.tail.append(first)
        lines.insert(0, b"".join(self.tail))
        self.tail = [lines.pop()]
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        self._grow(len(self.tail[0]))

    def end(self) -> Iterator[tuple[str, str]]:
        """What is left when the stream ends without its last blank line."""
        for line in (b"".join(self.tail), b""):
            event = self._line(line)
            if event is not None:
                yield event
        if self.is_bare:
            yield BARE, b"\n".join(self.data).decode("utf-8", "replace")

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > MAX_EVENT_BYTES:
            raise Transient("One event of the answer is larger than 8 MiB; keen stopped reading.")

    def _newlines(self, chunk: bytes) -> bytes:
        """The chunk with LF for CR and CRLF, also where a CRLF is split between two chunks."""
        if self.skips_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self.skips_newline = False
        if b"\r" not in chunk:
            return chunk
        self.skips_newline = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _line(self, line: bytes) -> tuple[str, str] | None:
        if self.is_bare:
            self.data.append(line)
            self._grow(len(line))
            return None
        if not line:
            return self._dispatched()
        if not self.is_started:
            line = line.removeprefix(_BOM)
            self.is_started = bool(line.strip())
            self.is_bare = line.lstrip().startswith((b"{", b"[", b"<"))
        elif line.startswith(b"{"):  # an error object behind the events, as some gateways send it
            self.is_bare = True
        if self.is_bare:
            pending = self._dispatched()
            self.data.append(line)
            return pending
        self._grow(len(line))
        if line.startswith(b"data:"):
            self.data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            self.name = line[6:].strip().decode("utf-8", "replace")
        elif line == b"data":
            self.data.append(b"")
        return None

    def _dispatched(self) -> tuple[str, str] | None:
        data, name = self.data, self.name
        self.data, self.name, self.size = [], "", 0
        if not data:
            return None
        text = data[0] if len(data) == 1 else b"\n".join(data)
        return name, text.decode("utf-8", "replace")


async def events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[tuple[str, str], None]:
    """(event name, data) of each event; a body that is no event stream comes as one `BARE` event.

    Raises:
        Transient: one event or the whole stream is larger than keen reads.
    """
    reader = _Reader()
    try:
        async for chunk in chunks:
            for event in reader.feed(chunk):
                yield event
        for event in reader.end():
            yield event
    finally:
        if isinstance(chunks, AsyncGenerator):  # SDKs promise an iterator and give a generator
            await chunks.aclose()


def _ignore() -> None:
    return


async def json_events(
    chunks: AsyncIterable[bytes], *, on_done: Callable[[], None] = _ignore
) -> AsyncGenerator[JsonObject, None]:
    """The JSON objects of a stream; `on_done` is called when it says `[DONE]`, which ends it.

    A whole JSON answer or error in place of a stream comes as one object.

    Raises:
        Transient: broken JSON, no objects, or more than keen reads: a broken stream, another try.
        Rejected: a web page came in place of a stream.
    """
    async with aclosing(events(chunks)) as source:
        async for name, data in source:
            if data == _DONE:
                on_done()
                await _drained(source)
                return
            if name == BARE:
                for value in _bare(data):
                    yield value
            elif data and not data.isspace():
                yield _object(data)


async def _drained(source: AsyncIterator[object]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in source:
                pass


def _object(data: str) -> JsonObject:
    try:
        value = decoded(data)
    except ValueError as error:
        raise Transient(f"The answer's stream is broken: invalid JSON ({error}).") from error
    if not isinstance(value, dict):
        raise Transient(f"The answer's stream is broken: {data[:80]!r} is no JSON object.")
    return value


def _bare(text: str) -> Iterator[JsonObject]:
    """The object or objects of a JSON body. Some compatible servers wrap an error in a list."""
    if text.lstrip().startswith("<"):
        raise Rejected(
            "The server answered with a web page in place of a model's answer. "
            f"Check the provider's base_url (it often ends in /v1). The page begins: {text[:200]!r}"
        )
    try:
        value = decoded(text)
    except ValueError as error:
        raise Transient(
            f"The server answered neither a stream nor JSON: {text[:200]!r} ({error})."
        ) from error
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item

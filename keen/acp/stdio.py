"""JSON-RPC messages over two file descriptors, one a line; what is no message is answered here."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
from typing import Any, Final, TypeAlias, cast

from keen.core.errors import KeenError
from keen.core.messages import JsonObject
from keen.headless.output import Output
from keen.secrets import masked_object

Message: TypeAlias = dict[str, Any]

MOST_LINE: Final = 32 * 1024 * 1024
"""Bytes of the longest line that is read: room for several pictures."""
_CHUNK: Final = 64 * 1024
_LONG: Final = 1024 * 1024
"""Bytes from which on a line is parsed in a thread."""
_LAST_WORDS_SECONDS: Final = 2.0
DELETE: Final = "session/delete"
_EXTENSIONS: Final = frozenset({DELETE})
"""Methods of the protocol that acp routes only under the name of an extension."""
_WRITES: Final = "fs/write_text_file"
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_log: Final = logging.getLogger(__name__)


class Stdio:
    """The transport of one connection: implements acp's Transport over descriptors.

    Lines go out whole and in order, keys masked but in what a file is to hold. A client that takes
    nothing any more counts as one that has left. `end` makes the next `receive` tell the end of
    the input.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._output = Output(sink)
        self._writing = asyncio.Lock()
        self._woken = asyncio.Event()
        self._buffer = bytearray()
        self._is_ended = False
        self._is_too_long = False
        self._is_gone = False
        self._limit: asyncio.Timeout | None = None

    def end(self) -> None:
        """Nothing more is read; a client that takes nothing now is waited for only briefly."""
        if not self._is_ended and self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + _LAST_WORDS_SECONDS)
        self._is_ended = True
        self._woken.set()

    async def send(self, message: Message) -> None:
        """Raises: ConnectionError when the client is gone."""
        shown = message if message.get("method") == _WRITES else masked_object(message)
        text = json.dumps(shown, separators=(",", ":"), default=str)
        async with self._writing:
            if self._is_gone:
                raise ConnectionError("The client is gone.")
            try:
                async with asyncio.timeout(
                    _LAST_WORDS_SECONDS if self._is_ended else None
                ) as limit:
                    self._limit = limit
                    await self._output.write(text + "\n")
            except (OSError, KeenError) as error:  # a time that is over is an OSError too
                self._is_gone = True
                raise ConnectionError(f"The client is gone: {error}") from error
            finally:
                self._limit = None
                if self._is_gone:
                    self.end()

    async def receive(self) -> Message | None:
        """The next message that is one; None at the end of the input."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            message = await self._message(line)
            if message is not None:
                return message
        return None

    async def close(self) -> None:
        self.end()

    async def _line(self) -> bytes | None:
        """A line without its end. One that is too long is answered, and gone."""
        start = 0
        while not self._is_ended:
            end = self._buffer.find(b"\n", start)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                if not self._is_too_long:
                    return line
                self._is_too_long = False
                start = 0
                continue
            if len(self._buffer) > MOST_LINE or self._is_too_long:
                await self._skip()
            start = len(self._buffer)
            chunk = await self._read()
            if not chunk:
                self.end()
                return None  # what has no end was not sent as a whole
            self._buffer += chunk
        return None

    async def _skip(self) -> None:
        if not self._is_too_long:
            words = f"The message is longer than {MOST_LINE // 1024 // 1024} MiB; it was skipped."
            await self._refuse(_INVALID_REQUEST, words)
        self._is_too_long = True
        self._buffer.clear()

    async def _read(self) -> bytes:
        if not select.select([self._source], [], [], 0)[0]:
            await self._until_readable()
        else:
            await asyncio.sleep(0)  # a client that never pauses must not stop what runs
        if self._is_ended:
            return b""
        try:
            return os.read(self._source, _CHUNK)
        except BlockingIOError:
            return await self._read()
        except OSError as error:
            _log.warning("stdin cannot be read: %s", error)
            return b""

    async def _until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._woken.clear()
        if self._is_ended:
            return
        loop.add_reader(self._source, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            loop.remove_reader(self._source)

    async def _message(self, line: bytes) -> Message | None:
        """The message of a line, None for what is none and has been answered."""
        try:
            value: Any = (
                json.loads(line) if len(line) < _LONG else await asyncio.to_thread(json.loads, line)
            )
        except (ValueError, RecursionError) as error:
            await self._refuse(_PARSE_ERROR, f"Parse error: {error}")
            return None
        if not isinstance(value, dict):
            await self._refuse(_INVALID_REQUEST, "Invalid request: a message is one JSON object.")
            return None
        return await self._checked(cast("Message", value))

    async def _checked(self, message: Message) -> Message | None:
        """The message when ids, method and error have the types that JSON-RPC gives them."""
        number = message.get("id")
        if not (number is None or isinstance(number, int | str)) or isinstance(number, bool):
            await self._refuse(_INVALID_REQUEST, "Invalid request: an id is a number or a string.")
            return None
        method = message.get("method")
        if method is None:
            return _answer(message)
        if not isinstance(method, str):
            words = "Invalid request: the method is a string."
            await self._refuse(_INVALID_REQUEST, words, number)
            return None
        return {**message, "method": f"_{method}"} if method in _EXTENSIONS else message

    async def _refuse(self, code: int, words: str, number: int | str | None = None) -> None:
        _log.warning("refused: %s", words)
        error: JsonObject = {"code": code, "message": words}
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "error": error})
        except ConnectionError:
            return


def _answer(message: Message) -> Message | None:
    """An answer to a request of ours in the form acp reads; None for what answers nothing."""
    if message.get("id") is None:
        return None
    error = message.get("error")
    if error is not None and "result" not in message and not isinstance(error, dict):
        return {**message, "error": {"code": -32603, "message": str(error)}}
    return message

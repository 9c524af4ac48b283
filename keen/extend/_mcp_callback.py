"""The page on this machine that a browser comes back to after a sign-in."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from keen import _files, callback_page
from keen.core.errors import ConfigError, Unauthorized
from keen.extend._mcp_text import visible

PATH: Final = "/callback"
_MOST_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What the browser brought back."""

    code: str = field(repr=False)
    issuer: str | None = None


@dataclass(eq=False)
class Callback:
    """Listens on loopback while it is entered. It takes one answer, of one attempt, once."""

    port: int = 0
    """0: any that is free."""
    state: str = ""
    """Of this attempt; nothing else counts."""
    _answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Raises: ConfigError where the port is taken."""
        try:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, limit=callback_page.HEAD_BYTES
            )
        except OSError as error:
            raise ConfigError(
                f"Port {self.port} on 127.0.0.1 is taken ({_files.reason(error)}). Close the "
                "program that holds it, or name another with --port."
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        if self._answer.done() and not self._answer.cancelled():
            self._answer.exception()

    @property
    def address(self) -> str:
        """Where the browser is sent back to."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def answer(self) -> Answer:
        """Raises: Unauthorized where the person or the server said no."""
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await callback_page.serve(reader, writer, self._read)

    def _read(self, head: str) -> tuple[str, str]:
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        fields = (line.partition(":") for line in lines[1:])
        host = next((value.strip() for name, _, value in fields if name.lower() == "host"), "")
        address = urlsplit(rest.partition(" ")[0])
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if method != "GET" or address.path != PATH or host != f"127.0.0.1:{self.port}":
            return "404 Not Found", "There is nothing here."
        said = query.get("state", "").encode()
        if not self.state or not secrets.compare_digest(said, self.state.encode()):
            return "400 Bad Request", "This is not the sign-in that keen is waiting for."
        if self._answer.done():
            return "400 Bad Request", "This sign-in has been used already."
        if code := query.get("code"):
            self._answer.set_result(Answer(code, query.get("iss")))
            return "200 OK", "You can close this page and go back to keen."
        reason = query.get("error_description") or query.get("error") or "no reason was given"
        words = visible(reason)[0][:_MOST_WORDS]
        self._answer.set_exception(Unauthorized(f"The sign-in was refused: {words}"))
        return "200 OK", "You are not signed in. You can close this page."

"""The page that a browser comes back to after a sign-in: one request, read and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 16_384
"""Of a request; the limit for the server's reader."""
_SECONDS: Final = 30.0
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>keen</title>"
    "<body style='font: 1.2em sans-serif; margin: 4em'><p>{words}</p>"
)


async def serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    read: Callable[[str], tuple[str, str]],
) -> None:
    """Answer one request. `read` makes a status line and the page's words of its head."""
    try:
        async with asyncio.timeout(_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            status, words = read(head.decode("latin-1"))
            page = _PAGE.format(words=words).encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\n"
                "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()

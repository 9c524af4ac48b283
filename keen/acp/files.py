"""Files through the editor: what it has open unsaved is read, and it writes what changes.

That is so for text in the folders that the client named. Everything else is the disk's: pictures,
other encodings, very large files, and what lies elsewhere, such as a result too long to be shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import ClientCapabilities, FileSystemCapabilities

from keen import sanitize
from keen.acp.failures import NOT_FOUND
from keen.core.errors import ToolError
from keen.tools._text import decode, plain_ends
from keen.tools.guard import printable

Answer = TypeVar("Answer")

_MOST_BYTES: Final = 4 * 1024 * 1024
"""The largest file that goes through the editor: a message has room for it, whatever is escaped."""
_SECONDS: Final = 60.0
"""After so long an answer is taken for lost."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder the client named: where it really is, and how the client spells it."""

    real: Path
    spelled: Path


class EditorFiles:
    """Implements the tools' Editor for one session."""

    def __init__(
        self, client: Client, session_id: str, folders: Sequence[Folder], *, can_write: bool
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._folders = folders
        self._can_write = can_write

    async def read(self, path: Path, saved: bytes | None) -> bytes | None:
        """What the editor has; None where that is what is saved, or where the disk counts."""
        asked = self._spelled(path)
        if asked is None or not await asyncio.to_thread(_is_plain, saved):
            return None
        request = self._client.read_text_file(session_id=self._session_id, path=asked)
        try:
            answer = await _answered(request)
        except RequestError as error:
            if saved is None or error.code == NOT_FOUND:
                return None  # editors have many words for a file that is not there
            raise ToolError(_words("cannot read", path, error)) from error
        except (ConnectionError, ValueError, TimeoutError) as error:
            raise ToolError(_words("cannot read", path, error)) from error
        try:
            return await asyncio.to_thread(_unsaved, answer.content, saved)
        except UnicodeEncodeError as error:
            raise ToolError(_words("cannot read", path, error)) from error

    async def write(self, path: Path, content: bytes, before: bytes | None) -> bool:
        """False where the editor was not asked. It makes the change in its buffer and saves it."""
        asked = self._spelled(path)
        if asked is None or not self._can_write:
            return False
        for text in (before, content):
            if not await asyncio.to_thread(_is_plain, text):
                return False
        request = self._client.write_text_file(
            session_id=self._session_id, path=asked, content=content.decode()
        )
        try:
            await _answered(request)
        except (RequestError, ConnectionError, ValueError, TimeoutError) as error:
            words = _words("did not write", path, error)
            raise ToolError(f"{words} Read the file before you try again.") from error
        return True

    def _spelled(self, path: Path) -> str | None:
        """The path as the client knows it, None outside of what it named."""
        for folder in self._folders:
            if path.is_relative_to(folder.real):
                spelled = str(folder.spelled / path.relative_to(folder.real))
                return spelled if spelled.isprintable() else None
        return None


def editor_files(
    client: Client,
    session_id: str,
    folders: Sequence[Folder],
    capabilities: ClientCapabilities | None,
) -> EditorFiles | None:
    """What a client offers; None where keen has the disk only.

    A client that writes without being read is not asked to: its unsaved text would be lost unseen.
    """
    able = capabilities.fs if capabilities is not None else None
    if not isinstance(able, FileSystemCapabilities) or not able.read_text_file:
        return None
    return EditorFiles(client, session_id, folders, can_write=bool(able.write_text_file))


async def _answered(request: Awaitable[Answer]) -> Answer:
    async with asyncio.timeout(_SECONDS):
        return await request


def _is_plain(content: bytes | None) -> bool:
    """True for text as every editor keeps it: UTF-8 without a mark, not too long; or no file."""
    if content is None:
        return True
    if len(content) > _MOST_BYTES or (text := decode(content)) is None:
        return False
    return text.encoding == "utf-8" and not text.bom


def _unsaved(text: str, saved: bytes | None) -> bytes | None:
    """The file that the editor's text would be saved as; None: the one that is there, or none.

    Editors tell LF whatever a file has, some of them no last line end, and of no file no text.
    """
    before = decode(saved) if saved is not None else None
    if before is None:
        return text.encode() or None
    plain = plain_ends(text)
    if before.text in (plain, f"{plain}\n"):
        return None
    if "\r" in text:
        return text.encode()
    return replace(before, text=plain, endings=None).encoded()


def _words(what: str, path: Path, error: Exception) -> str:
    reason = sanitize.line(str(error)).rstrip(".") or type(error).__name__
    if isinstance(error, TimeoutError):
        reason = f"no answer within {_SECONDS:.0f} s"
    elif isinstance(error, ValueError):
        reason = "its answer was no text"
    return f"The editor {what} {printable(str(path))}: {reason}."

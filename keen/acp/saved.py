"""The sessions on disk that an editor asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from acp.exceptions import RequestError
from acp.schema import ListSessionsResponse, SessionInfo

from keen import sanitize
from keen.acp.failures import INVALID_PARAMS, NOT_FOUND
from keen.paths import Paths
from keen.session.listing import Summary
from keen.session.store import NoSession, Store

_PAGE: Final = 100


class Saved:
    """Saved sessions, by their whole ids. Everything blocks and raises RequestError."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._store = Store(Paths.from_environment(environment).sessions)

    def page(self, place: Path | None, cursor: str | None) -> ListSessionsResponse:
        """Newest first, of a directory or of all; the cursor counts those told already."""
        if not (cursor or "0").isdecimal():
            raise RequestError(INVALID_PARAMS, f"The cursor {cursor!r} was not given out by keen.")
        start = int(cursor or 0)
        found = self._store.sessions(place)
        end = start + _PAGE
        return ListSessionsResponse(
            sessions=[_info(summary) for summary in found[start:end] if os.path.isabs(summary.cwd)],
            next_cursor=str(end) if end < len(found) else None,
        )

    def path(self, session_id: str) -> Path:
        """The file of a session."""
        try:
            path = self._store.find(session_id, None)
        except NoSession as error:
            raise RequestError(NOT_FOUND, str(error)) from error
        if path.stem != session_id:
            raise RequestError(NOT_FOUND, f"There is no session with the id {session_id!r}.")
        return path

    def delete(self, session_id: str) -> None:
        """For good. Raises: SessionError while another process has it."""
        self._store.delete(self.path(session_id))


def _info(summary: Summary) -> SessionInfo:
    return SessionInfo(
        session_id=summary.session_id,
        cwd=summary.cwd,
        title=sanitize.line(summary.name or summary.title),
        updated_at=summary.time.isoformat().replace("+00:00", "Z"),
    )

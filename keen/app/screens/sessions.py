"""The picker of saved sessions."""

from __future__ import annotations

from collections.abc import Sequence

from keen import sanitize
from keen.app.blocks import Block, Words
from keen.app.desk import SessionRow, Wanted
from keen.app.screens.opening import Opening
from keen.app.screens.sheet import LineSheet, ListSheet, Row
from keen.app.units import several
from keen.core.errors import KeenError

_HINT = "Enter opens · F2 renames · F3 copies · F8 deletes · F5 all folders · Esc closes"


async def pick(screen: Opening) -> None:
    """Let the person choose a session; nothing changes when they do not."""
    rows = await screen.desk.sessions(everywhere=False)
    picker = _Picker(screen, rows)
    screen.host.push_screen(picker.sheet, picker.chosen)


class _Picker:
    def __init__(self, screen: Opening, rows: Sequence[SessionRow]) -> None:
        self._screen = screen
        self._everywhere = False
        self.sheet = ListSheet(
            "Sessions",
            list(map(_row, rows)),
            screen.look,
            hint=_HINT,
            preview=self._preview,
            keys={
                "f2": self._rename,
                "f3": self._fork,
                "f5": lambda _id: self._toggle(),
                "f8": self._delete,
            },
        )

    def chosen(self, session_id: str | None) -> None:
        """Open what was chosen; a first start without a choice begins a new session."""
        screen = self._screen
        if session_id is not None:
            screen.open(Wanted("resume", session_id))
        elif screen.opened is None:
            screen.open(Wanted("new"))

    async def _preview(self, session_id: str) -> list[Block]:
        from keen.app.replay import preview

        try:
            return preview(await self._screen.desk.preview(session_id))
        except KeenError as error:
            return [Words(sanitize.block(str(error)), "warning")]

    async def _reload(self) -> None:
        rows = await self._screen.desk.sessions(everywhere=self._everywhere)
        self.sheet.replace(list(map(_row, rows)))

    def _toggle(self) -> None:
        self._everywhere = not self._everywhere
        self._screen.run_quietly(self._reload(), "sessions")

    def _rename(self, session_id: str) -> None:
        def named(name: str | None) -> None:
            if name and name.strip():
                self._screen.run_quietly(self._renamed(session_id, name.strip()), "sessions")

        sheet = LineSheet("New name", self._screen.look, hint="Enter renames · Esc closes")
        self._screen.host.push_screen(sheet, named)

    async def _renamed(self, session_id: str, name: str) -> None:
        await self._screen.desk.rename(session_id, name)
        await self._reload()

    def _fork(self, session_id: str) -> None:
        self.sheet.dismiss(None)
        self._screen.open(Wanted("fork", session_id))

    def _delete(self, session_id: str) -> None:
        rows = [Row("no", "No, keep it"), Row("yes", "Yes, delete it for good")]

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self._screen.run_quietly(self._deleted(session_id), "sessions")

        self._screen.host.push_screen(
            ListSheet("Delete this session?", rows, self._screen.look), answered
        )

    async def _deleted(self, session_id: str) -> None:
        await self._screen.desk.delete(session_id)
        await self._reload()


def _row(session: SessionRow) -> Row:
    details = [session.when, several(session.turns, "turn")]
    if session.model:
        details.append(session.model)
    if not session.is_here:
        details.append(session.place)
    if session.is_locked:
        details.append("in use")
    return Row(session.id, sanitize.line(session.title), sanitize.line(" · ".join(details)))

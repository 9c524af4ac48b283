"""The picker of saved sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from keen import sanitize
from keen.app.blocks import Block, Words, cropped
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
        self._titles: dict[str, str] = {}
        self.sheet = ListSheet(
            "Sessions",
            self._rows(rows),
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

    @property
    def _present(self) -> str:
        """The session that is open here."""
        engine = self._screen.engine
        return (engine.session_id or "") if engine is not None else ""

    def _rows(self, rows: Sequence[SessionRow]) -> list[Row]:
        self._titles = {row.id: _short(row.title) for row in rows}
        return [_row(row, is_present=row.id == self._present) for row in rows]

    async def _reload(self) -> None:
        rows = await self._screen.desk.sessions(everywhere=self._everywhere)
        self.sheet.replace(self._rows(rows))

    async def _told(self, work: Awaitable[None]) -> None:
        """Do it and show the list anew; what hinders it is told where it is seen."""
        try:
            await work
        except KeenError as error:
            self.sheet.tell(sanitize.block(str(error)))
        else:
            self.sheet.tell(_HINT)
            await self._reload()

    def _toggle(self) -> None:
        self._everywhere = not self._everywhere
        self._screen.run_quietly(self._reload(), "sessions")

    def _rename(self, session_id: str) -> None:
        def named(name: str | None) -> None:
            if name and name.strip():
                work = self._renamed(session_id, name.strip())
                self._screen.run_quietly(self._told(work), "sessions")

        title = f"New name for “{self._titles.get(session_id, '')}”"
        sheet = LineSheet(title, self._screen.look, hint="Enter renames · Esc closes")
        self._screen.host.push_screen(sheet, named)

    async def _renamed(self, session_id: str, name: str) -> None:
        if session_id == self._present:
            from keen.app.session_doings import rename

            # Its one writer is here.
            await rename(self._screen, name)
        else:
            await self._screen.desk.rename(session_id, name)

    def _fork(self, session_id: str) -> None:
        self.sheet.dismiss(None)
        self._screen.open(Wanted("fork", session_id))

    def _delete(self, session_id: str) -> None:
        if session_id == self._present:
            self.sheet.tell("This session is open here: /new first, then it can be deleted.")
            return
        rows = [Row("no", "No, keep it"), Row("yes", "Yes, delete it for good")]

        def answered(answer: str | None) -> None:
            if answer == "yes":
                work = self._screen.desk.delete(session_id)
                self._screen.run_quietly(self._told(work), "sessions")

        title = f"Delete “{self._titles.get(session_id, '')}”?"
        self._screen.host.push_screen(ListSheet(title, rows, self._screen.look), answered)


def _short(title: str) -> str:
    return cropped(sanitize.line(title), 40)


def _row(session: SessionRow, *, is_present: bool) -> Row:
    details = [session.when, several(session.turns, "turn")]
    if session.model:
        details.append(session.model)
    if not session.is_here:
        details.append(session.place)
    if is_present:
        details.append("this one")
    elif session.is_locked:
        details.append("in use")
    return Row(session.id, sanitize.line(session.title), sanitize.line(" · ".join(details)))

"""Going back to before a message: the conversation, files that keen edited, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keen import sanitize
from keen.app.desk import Wanted
from keen.app.doings import present_model
from keen.app.screens.opening import Opening
from keen.app.screens.sheet import ListSheet, Row
from keen.app.units import several
from keen.session.records import UserMessage

if TYPE_CHECKING:
    from keen.app.rewinding import Change

_HINT: Final = "Enter goes back to before it · Esc closes"
_OUTSIDE: Final = "What commands changed is not known and stays as it is · Esc closes"
_NAMED: Final = 4
"""Files that are named; more are counted."""


async def pick(screen: Opening) -> None:
    """Let the person choose a message; nothing changes when they do not."""
    engine = screen.engine
    if engine is None or engine.recorder is None or not engine.conversation.history:
        screen.notify_person("There is nothing to go back to yet.")
        return
    records = await engine.recorder.records()
    said = {
        record.seq: record.payload.content
        for record in records
        if isinstance(record.payload, UserMessage) and not record.payload.steering
    }
    rows = [
        Row(str(seq), sanitize.line(" ".join(text[:200].split())))
        for seq, text in reversed(said.items())
    ]
    log, session_id = engine.recorder.log.path, engine.session_id or ""

    def chosen(seq: str | None) -> None:
        if seq is not None:
            rewinding = _Rewinding(screen, int(seq), said[int(seq)], session_id, log)
            screen.run_quietly(rewinding.ask(), "rewind")

    sheet = ListSheet("Rewind to before", rows, screen.look, hint=_HINT, narrows=True)
    screen.host.push_screen(sheet, chosen)


@dataclass
class _Rewinding:
    """One way back, from the chosen message to the end of what is to be done."""

    screen: Opening
    seq: int
    text: str
    session_id: str
    log: Path | None
    changes: Sequence[Change] = ()

    async def ask(self) -> None:
        """What to bring back, where keen's edits left something to bring back."""
        if self.log is not None:
            from keen.app.rewinding import changes

            self.changes = await asyncio.to_thread(changes, self.log, self.seq)
        if not self.changes:
            self._bring_back_conversation()
            return
        names = _named(self.changes)
        rows = [
            Row("both", "Conversation and files", names),
            Row("conversation", "Conversation only", "files stay as they are"),
            Row("files", "Files only", names),
        ]
        sheet = ListSheet("What goes back?", rows, self.screen.look, hint=_OUTSIDE)
        self.screen.host.push_screen(sheet, self._answered)

    def _answered(self, what: str | None) -> None:
        match what:
            case "conversation":
                self._bring_back_conversation()
            case "both" | "files":
                self._ask_about_others(is_all=what == "both")
            case _:
                return

    def _ask_about_others(self, *, is_all: bool) -> None:
        """Files that somebody else changed since are overwritten only when the person says so."""
        ready = [change for change in self.changes if change.state == "ready"]
        changed = [change for change in self.changes if change.state == "changed"]
        if not changed:
            self._start(ready, is_all=is_all)
            return
        rows = [
            Row("keep", "Keep these as they are"),
            Row("overwrite", "Bring them back too", "what they hold now is lost"),
        ]

        def answered(way: str | None) -> None:
            if way is not None:
                wanted = [*ready, *changed] if way == "overwrite" else ready
                self._start(wanted, is_all=is_all)

        title = f"Changed since keen's last edit: {_named(changed)}"
        self.screen.host.push_screen(ListSheet(title, rows, self.screen.look), answered)

    def _start(self, wanted: Sequence[Change], *, is_all: bool) -> None:
        self.screen.run_quietly(self._bring_back(wanted, is_all=is_all), "rewind")

    async def _bring_back(self, wanted: Sequence[Change], *, is_all: bool) -> None:
        from keen.app.rewinding import restore

        assert self.log is not None
        engine = self.screen.engine
        recorder = engine.recorder if engine is not None else None
        seq = recorder.message_seq if recorder is not None else 0
        restored = await asyncio.to_thread(restore, self.log, wanted, seq or self.seq)
        count = several(len(restored.paths), "file")
        words = f"{count} brought back to before “{_short(self.text)}”."
        left = [c for c in self.changes if c.path not in restored.paths]
        if left:
            words += f" Left as they are: {_named(left)}."
        for fault in restored.faults:
            words += f"\n{sanitize.line(fault)}"
        if is_all:
            self._bring_back_conversation(words)
        else:
            self.screen.say(words)

    def _bring_back_conversation(self, words: str = "") -> None:
        screen = self.screen

        def told() -> None:
            screen.say(words)

        if words and screen.outbox.is_held:
            screen.notify_person(words, seconds=10.0)
        elif words:
            screen.afterwards = told
        screen.open(Wanted("fork", self.session_id, present_model(screen), upto=self.seq - 1))
        screen.prompt.set_text(self.text)
        screen.prompt_changed()


def _named(changes: Sequence[Change]) -> str:
    names = [sanitize.line(change.path.name) for change in changes]
    lost = sum(change.state == "lost" for change in changes)
    shown = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        shown += f" and {len(names) - _NAMED} more"
    return shown + (f" ({lost} too large to bring back)" if lost else "")


def _short(text: str) -> str:
    line = sanitize.line(" ".join(text[:80].split()))
    return line if len(line) <= 40 else line[:39] + "…"

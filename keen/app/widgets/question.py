"""Questions of the model, one after another, in the prompt's place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from keen import sanitize
from keen.app.blocks import cropped, wrapped
from keen.app.look import Look
from keen.app.messages import AnswerWanted
from keen.app.widgets.lines import Lines
from keen.app.widgets.permission import GUARD_SECONDS

_QUESTION_LINES: Final = 12


class QuestionCard(Lines, can_focus=True):
    """One question at a time; `on_done` gets all answers, or None when it was cancelled."""

    def __init__(
        self,
        look: Look,
        *,
        on_stray: Callable[[events.Key], None],
        on_command: Callable[[str], bool],
        on_done: Callable[[AnswerWanted, tuple[str, ...] | None], None],
        keymap: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
    ) -> None:
        super().__init__(look, id=id)
        self.display = False
        self.asked: AnswerWanted | None = None
        self.index = 0
        self._answers: list[str] = []
        self._chosen: set[int] = set()
        self._row = 0
        self._on_stray = on_stray
        self._on_command = on_command
        self._on_done = on_done
        self._keymap = keymap
        self._clock = clock
        self._quiet_until = 0.0

    def ask(self, asked: AnswerWanted) -> None:
        """Show the first of these questions."""
        self.asked = asked
        self.index = 0
        self._answers = []
        self._next()
        self.display = True

    def hush(self) -> None:
        """Take no key for a moment."""
        self._quiet_until = self._clock() + GUARD_SECONDS

    @property
    def takes_text(self) -> bool:
        """True when the answer is to be written: without options, or on the last row."""
        asked = self.asked
        if asked is None:
            return False
        return self._row >= len(asked.questions[self.index].options)

    def _chooses(self, character: str) -> bool:
        """True for a key that takes or marks one of the options."""
        asked = self.asked
        question = asked.questions[self.index] if asked is not None else None
        if question is None or not question.options:
            return False
        return character.isdigit() or (character == " " and question.several)

    @property
    def _rows(self) -> int:
        """Options, and the row for an answer of one's own where there is one."""
        asked = self.asked
        if asked is None:
            return 0
        return len(asked.questions[self.index].options) + (not asked.is_closed)

    def _next(self) -> None:
        self._row = 0
        self._chosen = set()
        self.hush()
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        command = self._keymap.get(event.key, "")
        asked = self.asked
        if asked is None:
            # Answered, and the focus has not moved on yet: the key is the prompt's.
            self._on_stray(event)
            return
        if command in ("escape", "cancel"):
            if command == "cancel" or self._clock() >= self._quiet_until:
                self._on_command(command)
            return
        if self._clock() < self._quiet_until:
            if event.is_printable or command:
                self.hush()
                self._on_stray(event)
            return
        if event.is_printable and not asked.is_closed and not self._chooses(event.character or ""):
            # The first letter of an answer is a part of it. And a message that somebody writes
            # without looking up must not end in an Enter that takes the first option.
            self._row = len(asked.questions[self.index].options)
            self._on_command("question_write")
            self._on_stray(event)
            return
        self._take(command, event.character or "")

    def _take(self, command: str, character: str) -> None:
        asked = self.asked
        if asked is None:
            return
        question = asked.questions[self.index]
        rows = self._rows
        if command in ("up", "down"):
            self._row = (self._row + (1 if command == "down" else -1)) % rows
        elif command == "send":
            if self.takes_text:
                self._on_command("question_write")
            else:
                self.answer(self._picked(question.options, is_several=question.several))
            return
        elif character == " " and question.several and not self.takes_text:
            self._chosen ^= {self._row}
        elif character.isdigit() and 1 <= int(character) <= rows:
            self._row = int(character) - 1
            if not question.several and not self.takes_text:
                self.answer(question.options[self._row])
                return
        elif command in ("unfold", "redraw", "suspend", "todo", "page_up", "page_down"):
            self._on_command(command)
        self.redraw()
        if self.takes_text and character.isdigit():
            self._on_command("question_write")

    def _picked(self, options: tuple[str, ...], *, is_several: bool) -> str:
        if is_several and self._chosen:
            return ", ".join(options[row] for row in sorted(self._chosen))
        return options[self._row]

    def answer(self, text: str) -> None:
        """The answer to the question shown; the next one follows, or it is done."""
        asked = self.asked
        if asked is None:
            return
        self._answers.append(text)
        self.index += 1
        if self.index < len(asked.questions):
            self._next()
            self._on_command("question_next")
            return
        self.finish(tuple(self._answers))

    def finish(self, answers: tuple[str, ...] | None) -> None:
        """Hand over the answers; None: not answered."""
        asked, self.asked = self.asked, None
        if asked is not None:
            self._on_done(asked, answers)

    def draw(self, width: int) -> list[Strip]:
        asked, look = self.asked, self.look
        if asked is None:
            return []
        question = asked.questions[min(self.index, len(asked.questions) - 1)]
        bold = look.accent + Style(bold=True)
        count = len(asked.questions)
        of = f" ({self.index + 1} of {count})" if count > 1 else ""
        who = f"{sanitize.line(asked.agent)} asks: " if asked.agent else ""
        text = who + sanitize.block(question.text) + of
        drawn = [Strip([Segment(line, bold)]) for line in wrapped(text, width, look)]
        drawn = drawn[:_QUESTION_LINES]
        other = () if asked.is_closed else ("something else…",)
        for row, option in enumerate((*question.options, *other) if question.options else ()):
            is_here = row == self._row
            box = ""
            if question.several and row < len(question.options):
                box = "[x] " if row in self._chosen else "[ ] "
            words = cropped(f"{row + 1} {box}{sanitize.line(option)}", width - 2)
            style = bold if is_here else look.text
            mark = Segment("❯ " if is_here else "  ", look.accent)
            drawn.append(Strip([mark, Segment(words, style)]))
        hint = "Enter answers · Esc leaves it unanswered"
        if question.several:
            hint = "Space marks · " + hint
        elif not question.options:
            hint = "Write your answer · " + hint
        drawn.append(Strip([Segment(cropped(hint, width), look.muted)]))
        return drawn

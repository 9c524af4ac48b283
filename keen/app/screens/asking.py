"""Open questions in the prompt's place, and the prompt's line lent to them."""

from __future__ import annotations

from textual import events

from keen.app.messages import AnswerWanted, PermissionWanted
from keen.app.screens.opening import Opening
from keen.core.events import Decision


class Asking(Opening):
    """Cards and questions of the running turn, the oldest one first."""

    writing = ""
    """What the prompt's line is for while a question is open: `rule`, `say` or `answer`."""
    _draft = ""
    """The prompt's text while a question has its place."""

    def refuse(self) -> None:
        """Esc: no to what is asked; the turn goes on."""
        match self.pending[0]:
            case PermissionWanted() as asked:
                self.permission_answered(asked, Decision("deny"))
            case AnswerWanted() as asked:
                self.question_answered(asked, None)

    def _do_card_rule(self) -> bool:
        asked = self.pending[0] if self.pending else None
        if isinstance(asked, PermissionWanted):
            self._write("rule", asked.rule)
        return True

    def _do_card_say(self) -> bool:
        self._write("say", "")
        return True

    def _do_question_write(self) -> bool:
        self._write("answer", "")
        return True

    def _do_question_next(self) -> bool:
        self.stop_writing()
        return True

    def _write(self, purpose: str, text: str) -> None:
        """Use the prompt's line for an answer; the draft is kept aside."""
        if not self.writing:
            self._draft = self.prompt.text
        self.writing = purpose
        self.card.editing = purpose if purpose != "answer" else ""
        self.card.redraw()
        self.prompt.set_text(text)
        self.query_one("#line").display = True
        self.focus_right()

    def stop_writing(self) -> None:
        """The line is the prompt's again."""
        if self.writing:
            self.writing = ""
            self.prompt.set_text(self._draft)
            self._draft = ""
        self.card.editing = ""
        self.card.hush()
        self.show_question()

    def written(self) -> None:
        """Enter in the borrowed line."""
        text, purpose = self.prompt.text.strip(), self.writing
        if purpose in ("rule", "answer") and not text:
            return
        self.writing = ""
        self.prompt.set_text(self._draft)
        self._draft = ""
        self.card.editing = ""
        if purpose == "answer":
            self.question.answer(text)
        elif purpose == "rule":
            self.card.answer(Decision("project", rule=text))
        else:
            self.card.answer(Decision("deny", message=text))

    def stray(self, event: events.Key) -> None:
        self.prompt.press(event.key, event.character, is_printable=event.is_printable)
        self.card.draft = self.prompt.text
        self.card.redraw()

    def show_question(self) -> None:
        asked = self.pending[0] if self.pending else None
        if asked is None and self.writing:
            self.writing = ""
            self.prompt.set_text(self._draft)
            self._draft = ""
        self.set_class(asked is not None, "-asking")
        is_permission = isinstance(asked, PermissionWanted)
        permissions = sum(isinstance(each, PermissionWanted) for each in self.pending)
        self.card.display = is_permission
        self.question.display = asked is not None and not is_permission
        self.card.draft = self._draft if self.writing else self.prompt.text
        self.card.number, self.card.waiting = self.answered + 1, self.answered + permissions
        if isinstance(asked, PermissionWanted) and self.card.asked is not asked:
            self.card.ask(asked)
        elif isinstance(asked, AnswerWanted) and self.question.asked is not asked:
            self.question.ask(asked)
        if asked is None:
            self.card.asked = self.question.asked = None
            self.card.editing = ""
        self.card.redraw()
        self.query_one("#line").display = asked is None or bool(self.writing)
        self.focus_right()

    def focus_right(self) -> None:
        """Give the focus to what is to be answered, else to the prompt."""
        if self.pending and not self.writing:
            is_card = isinstance(self.pending[0], PermissionWanted)
            (self.card if is_card else self.question).focus()
        else:
            self.prompt.focus()

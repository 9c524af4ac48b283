"""The conversation's keys, in one place, and what is sent when."""

from __future__ import annotations

from typing import Final

from textual import events

from keen.app.commands import find, unknown
from keen.app.completion import Completion
from keen.app.desk import Desk
from keen.app.look import Look
from keen.app.messages import PermissionWanted
from keen.app.screens.asking import Asking
from keen.app.skills import is_call, is_to_spell_out, slash_entries, spelled_out
from keen.app.widgets.permission import SHORT
from keen.core.messages import User

_AGAIN_SECONDS: Final = 2.0
_EXIT_WORDS: Final = frozenset({"exit", "quit", ":q"})
QUEUE_FULL: Final = "Queue is full"
QUEUE_CLEARED: Final = "Queue cleared"
EXIT_AGAIN: Final = "Press Ctrl+C again to exit"
COPIED: Final = "Copied"


class ChatScreen(Asking):
    """Routes keys. Every key does its work before the next one is looked at."""

    _exit_until = 0.0
    _escape_until = 0.0

    def __init__(self, desk: Desk, look: Look) -> None:
        super().__init__(desk, look)
        # Keys that were typed before the start come before the screen is mounted.
        self.completion = Completion(self)
        self.prompt.on_symbol = self._symbol
        self.prompt.on_image_path = self._image_path

    def on_mount(self) -> None:
        self.start()

    def on_screen_resume(self) -> None:
        self.focus_right()

    def on_text_selected(self) -> None:
        """Something was selected with the mouse."""
        settings = self.desk.settings()
        if settings is None or settings.ui.copy_on_select:
            text = self.get_selected_text()
            if text:
                self.copy(text)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT, "-short")

    def on_key(self, event: events.Key) -> None:
        """Nothing had the focus yet: a key typed into the very first frame is the prompt's."""
        event.stop()
        event.prevent_default()
        self.focus_right()
        if not self.pending:
            self.prompt.press(event.key, event.character, is_printable=event.is_printable)

    # Keys.

    def perform(self, command: str) -> bool:
        action = getattr(self, f"_do_{command}", None)
        if command != "cancel":
            self._exit_until = 0.0
        if command != "escape":
            self._escape_until = 0.0
        return bool(action()) if action is not None else False

    def _do_send(self) -> bool:
        if self.writing:
            self.written()
        elif self.completion.takes_enter:
            self.completion.accept()
        else:
            self.submit(self.prompt.text)
        return True

    def _do_newline(self) -> bool:
        return False

    def _do_steer(self) -> bool:
        text = self.prompt.text
        if self.writing or not text.strip():
            return True
        if self.driver.is_idle:
            self.submit(text)
        elif self._while_running() == "steer":
            self._queue(text)
        else:
            self._steer(text)
        return True

    def _do_escape(self) -> bool:
        if self.suggestions.display:
            self.completion.close()
        elif self.writing:
            self.stop_writing()
        elif self.driver.is_quiet:
            pass
        elif self.pending:
            self.refuse()
        elif self.driver.is_idle:
            self._escape_idle()
        else:
            self.driver.escape()
            self.show_stopping()
        return True

    def _escape_idle(self) -> None:
        text = self.prompt.text
        if text:
            self.history.add(text)
            self.prompt.set_text("")
        elif self.stop_shell():
            pass
        elif self.now() < self._escape_until:
            self._escape_until = 0.0
            self.run_command("rewind", "")
        else:
            self._escape_until = self.now() + 1.0

    def _do_cancel(self) -> bool:
        if self.copy_selection():
            return True
        if self.driver.cancel():
            self.show_stopping()
            return True
        if self.stop_shell():
            return True
        text = self.prompt.text
        if text:
            self.history.add(text)
            self.prompt.set_text("")
        elif self.outbox.clear():
            self.queue_panel.update()
            self.notify_person(QUEUE_CLEARED)
        elif self.now() < self._exit_until:
            self.leave()
        else:
            self._exit_until = self.now() + _AGAIN_SECONDS
            self.notify_person(EXIT_AGAIN, seconds=_AGAIN_SECONDS)
        return True

    def _do_leave(self) -> bool:
        if self.prompt.text or self.writing:
            return False
        self.leave()
        return True

    def _do_accept(self) -> bool:
        if self.writing == "rule" and isinstance(asked := self.pending[0], PermissionWanted):
            if asked.prefix:
                self.prompt.set_text(asked.prefix)
        elif self.suggestions.chosen is not None:
            self.completion.accept()
        return True

    def _do_up(self) -> bool:
        if self.suggestions.display:
            if not self.completion.move(-1):
                self.suggestions.move(-1)
            return True
        if self.writing or not self.prompt.is_at_first_row:
            return False
        if not self.prompt.text and (message := self.outbox.take_newest()) is not None:
            self.queue_panel.update()
            self.prompt.set_text(message.text)
            return True
        older = self.history.older(self.prompt.text)
        if older is not None:
            self.prompt.set_text(older)
            self.completion.hush()
        return True

    def _do_down(self) -> bool:
        if self.suggestions.display:
            if not self.completion.move(1):
                self.suggestions.move(1)
            return True
        if self.writing or not self.prompt.is_at_last_row:
            return False
        newer = self.history.newer()
        if newer is not None:
            self.prompt.set_text(newer)
            self.completion.hush()
        return True

    def _do_history(self) -> bool:
        if not self.writing:
            self.completion.search_history()
        return True

    def _do_mode(self) -> bool:
        self.next_mode()
        return True

    def _do_editor(self) -> bool:
        self.edit_outside()
        return True

    def _do_paste(self) -> bool:
        self.run_quietly(self.paste_clipboard(), "paste")
        return True

    def _do_unfold(self) -> bool:
        self.transcript.unfold(not self.transcript.is_unfolded)
        return True

    def _do_todo(self) -> bool:
        self.todo.display = not self.todo.display
        self.todo.redraw()
        return True

    def _do_search(self) -> bool:
        if not self.writing:
            self.completion.search_transcript()
        return True

    def _do_page_up(self) -> bool:
        self.transcript.scroll_pages(-1)
        return True

    def _do_page_down(self) -> bool:
        self.transcript.scroll_pages(1)
        return True

    def _do_top(self) -> bool:
        self.transcript.scroll_top()
        return True

    def _do_bottom(self) -> bool:
        self.transcript.follow()
        return True

    def _do_home(self) -> bool:
        return not self.prompt.text and self._do_top()

    def _do_end(self) -> bool:
        return not self.prompt.text and self._do_bottom()

    def _do_redraw(self) -> bool:
        self.host.repaint()
        return True

    def _do_suspend(self) -> bool:
        self.host.action_suspend_process()
        return True

    # Sending.

    def submit(self, text: str) -> None:
        """Send, queue, run a command or a shell line: whatever the prompt's text asks for."""
        if self.is_leaving:
            return
        offered, self.plan_offer = self.plan_offer, False
        stripped = text.strip()
        if not stripped:
            self._submit_nothing(offered)
            return
        if stripped in _EXIT_WORDS:
            self.leave()
            return
        if self._is_command(text):
            self._clear(text)
            name, _, argument = stripped[1:].partition(" ")
            self.run_command(name, argument.strip())
            return
        if text.startswith("!") and len(stripped) > 1:
            self._clear(text)
            is_private = stripped.startswith("!!")
            self.run_shell(stripped.lstrip("!").strip(), is_private=is_private)
            return
        if self.is_busy:
            (self._steer if self._while_running() == "steer" else self._queue)(text)
            return
        self._clear(text)
        self.send(self.prompt.chips.message(text))

    def _is_command(self, text: str) -> bool:
        """True for a slash command; what calls a skill is a message, put into words when sent."""
        if not text.startswith("/") or is_call(self.engine, text):
            return False
        return self.completion.is_command(text.strip())

    def _submit_nothing(self, was_offered: bool) -> None:
        if self.is_busy:
            newest = self.outbox.take_newest()
            if newest is not None:
                self.queue_panel.update()
                self._steer_message(newest)
        elif not was_offered and (message := self.outbox.take_next()) is not None:
            self.outbox.is_held = False
            self.queue_panel.update()
            self.send(message)

    def _clear(self, text: str) -> None:
        self.history.add(text)
        self.keep_prompt(text)
        self.prompt.set_text("")

    def _queue(self, text: str) -> None:
        if self.outbox.is_full:
            self.notify_person(QUEUE_FULL, "warning")
            return
        self._clear(text)
        self.outbox.add(self.prompt.chips.message(text))
        self.queue_panel.update()

    def _steer(self, text: str) -> None:
        self._clear(text)
        self._steer_message(self.prompt.chips.message(text))

    def _steer_message(self, message: User) -> None:
        if is_to_spell_out(self.engine, message.text):
            self.run_quietly(self._steer_expanded(message), "steer")
        else:
            self._deliver(message)

    async def _steer_expanded(self, message: User) -> None:
        """A turn that runs takes messages as they are: what this one calls is read here."""
        if (spelled := await spelled_out(self, message)) is not None:
            self._deliver(spelled)

    def _deliver(self, message: User) -> None:
        turn = self.engine.turn if self.engine is not None else None
        if self.driver.steer(turn, message):
            self.queue_panel.steering.append(message.text)
        elif not self.outbox.add(message):
            self.outbox.put_back((message,))
        self.queue_panel.update()

    def _while_running(self) -> str:
        settings = self.desk.settings()
        return settings.ui.while_running if settings is not None else "queue"

    def turn_over(self, *, is_by_itself: bool) -> None:
        afterwards, self.afterwards = self.afterwards, None
        if afterwards is not None and is_by_itself:
            afterwards()
        elif is_by_itself and (message := self.outbox.take_next()) is not None:
            self.outbox.is_held = False
            self.queue_panel.update()
            self.send(message)

    def run_command(self, name: str, argument: str) -> None:
        command = find(name)
        if self.is_opening and (command is None or command.when == "idle"):
            # Typed into the first second: it is done as soon as there is an engine.
            self.afterwards = lambda: self.run_command(name, argument)
        elif command is None:
            self._run_added(name, argument)
        elif command.when == "idle" and self.is_busy and not self.is_without_engine:
            self.notify_person(f"/{command.name} waits until nothing runs.", "warning")
        else:
            work = command.run(self, argument)
            if work is not None:
                self.run_quietly(work, f"command-{command.name}")

    def _run_added(self, name: str, argument: str) -> None:
        text = f"/{name} {argument}".rstrip()
        if is_call(self.engine, text):
            self.submit(text)
        else:
            others = [entry.name for entry in slash_entries(self.engine)]
            self.say(unknown(name, others), "warning")

    # The prompt.

    def prompt_changed(self) -> None:
        if not self.writing:
            text = self.prompt.text
            self.mark.show("!" if text.startswith("!") else "❯")
            self.completion.update()
        if self.pending:
            self.card.hush()
            self.question.hush()

    def _symbol(self, character: str) -> bool:
        if self.writing:
            return False
        if self.plan_offer and character == "y":
            self.plan_offer = False
            self.set_mode("build")
            self.send(User("Build it now, as planned."))
            return True
        self.plan_offer = False
        if character == "?":
            self.run_command("help", "")
            return True
        return False

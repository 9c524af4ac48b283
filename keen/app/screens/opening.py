"""The engine behind the screen: opened, replaced, driven, closed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.worker import WorkerError

from keen import sanitize
from keen.app.blocks import Banner
from keen.app.desk import Opened, Wanted
from keen.app.messages import AnswerWanted
from keen.app.screens.driving import Driving
from keen.app.tally import Tally
from keen.app.widgets.panels import todo_items
from keen.core.errors import ConfigError, KeenError, SessionError
from keen.core.events import Question
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.app.screens.sheet import Row
    from keen.engine import Engine
    from keen.session.checkpoint import Recorder

_SAVING_SECONDS = 5.0
_UNTRUSTED = "This folder is not trusted"
"""How the engine's notice begins; it names the flag, and on the screen there is a command."""


class Opening(Driving):
    """Starts with no engine: the first frame and the first key do not wait for one."""

    _unsaved: str | None = None
    """Why the session is not being saved, as far as that was told."""
    is_leaving = False

    # Opening.

    def start(self) -> None:
        """The first frame; everything slow comes after it."""
        early = self.desk.early
        self.status_line.status.place = _short(str(early.cwd))
        self.focus_right()
        self.show_status()
        for fault in early.faults:
            self.notify_person(fault, "warning", 8.0)
        self.set_interval(_SAVING_SECONDS, self._watch_saving)
        self.call_after_refresh(self._begin)

    def focus_right(self) -> None:
        """Give the focus where keys belong."""
        raise NotImplementedError

    def run_command(self, name: str, argument: str) -> None:
        """Run a slash command by name."""
        raise NotImplementedError

    def _begin(self) -> None:
        early = self.desk.early
        if early.prompt:
            self.outbox.add(User(early.prompt))
            self.queue_panel.update()
        self.run_quietly(self._load_history(), "history")
        if early.is_picking:
            self.run_command("sessions", "")
        else:
            self.open(Wanted())

    async def _load_history(self) -> None:
        self.history.load(await self.desk.prompts())
        await self.look_at_branch()

    def keep_prompt(self, text: str) -> None:
        """Remember what was sent, for later sessions."""
        self.run_quietly(self.desk.keep_prompt(text), "keep")

    def open(self, wanted: Wanted) -> None:
        """Open an engine in the place of the present one."""
        if not self.is_opening and self.driver.is_idle:
            self.is_opening = True
            self.run_quietly(self._open(wanted), "open")

    async def _open(self, wanted: Wanted) -> None:
        before = self.opened
        try:
            await self._swap(wanted, before)
        except ConfigError as error:
            self.afterwards = None
            await self._reopen(before)
            self.is_opening = False
            self._stopped(error, wanted)
        except KeenError as error:
            self.afterwards = None
            await self._reopen(before)
            self.is_opening = False
            self.say(sanitize.block(str(error)), "error")
            if before is None:
                self._no_session(error, wanted)
            elif isinstance(error, SessionError) and wanted.kind == "resume":
                self._offer_copy(wanted)
        finally:
            self.is_opening = False
            self.show_status()
            self.queue_panel.update()
        opened = self.opened
        if opened is None or not self.driver.is_idle:
            return
        if wanted.kind == "start" and opened.asks_trust and before is None:
            await self._ask_trust()
        else:
            self.turn_over(is_by_itself=not self.outbox.is_held)

    async def _ask_trust(self) -> None:
        """Whether this folder's own files may take effect. What waits to be sent waits for it."""
        names = await self.desk.trust()
        shown = ", ".join(map(sanitize.line, names))
        question = Question(
            f"Do you trust this folder? These files of it would take effect: {shown}",
            ("No, work without them: /trust asks again", "Yes, and remember it"),
        )

        def answered(answers: tuple[str, ...] | None) -> None:
            if answers and answers[0].startswith("Yes"):
                self.is_opening = True
                self.run_quietly(self.trusted(is_trusted=True), "trust")
                return
            if answers:
                self.run_quietly(self.desk.set_trust(is_trusted=False), "trust")
            self.turn_over(is_by_itself=not self.outbox.is_held)

        self.post_message(AnswerWanted((question,), answered, is_closed=True))

    async def _tell_untrusted(self) -> None:
        if names := await self.desk.trust():
            shown = ", ".join(map(sanitize.line, names))
            self.say(f"This folder is not trusted: {shown} ignored. /trust asks again.", gap=0)

    async def trusted(self, *, is_trusted: bool) -> None:
        """Remember the answer and begin again with what it lets in; nothing is sent meanwhile."""
        self.is_opening = True
        try:
            await self.desk.set_trust(is_trusted)
        finally:
            self.is_opening = False
        engine = self.engine
        has_history = engine is not None and bool(engine.conversation.history)
        session_id = engine.session_id if engine is not None and has_history else ""
        model = model_of(engine) if engine is not None else ""
        self.open(Wanted("resume" if session_id else "new", session_id or "", model))

    def _watch_saving(self) -> None:
        """Say once when the session is not being saved, and try again."""
        recorder = self.engine.recorder if self.engine is not None else None
        reason = recorder.reason if recorder is not None else None
        if reason != self._unsaved:
            self._unsaved = reason
            said = f"Not saved: {reason}" if reason else "The session is being saved again."
            self.notify_person(sanitize.line(said), "warning", 8.0)
        if recorder is not None and reason:
            self.run_quietly(self._heal(recorder), "heal")

    async def _heal(self, recorder: Recorder) -> None:
        await recorder.heal()

    def _offer_copy(self, wanted: Wanted) -> None:
        """The session cannot be written to, most often because another keen does."""
        from keen.app.screens.sheet import ListSheet, Row

        rows = [Row("fork", "Open a copy of it"), Row("no", "Leave it")]

        def chosen(answer: str | None) -> None:
            if answer == "fork":
                self.open(Wanted("fork", wanted.session_id, wanted.model))

        title = "This session is in use or cannot be written to."
        self.host.push_screen(ListSheet(title, rows, self.look), chosen)

    async def _swap(self, wanted: Wanted, before: Opened | None) -> None:
        if before is not None:
            # The mode is the person's, not the session's.
            self.wanted_mode = before.engine.conversation.toolbox.policy.mode
            # The session's lock goes first: the next engine may want the same session.
            self.opened = None
            await before.engine.aclose()
        opened = await self.desk.open(wanted)
        if before is not None and before.engine.session_id != opened.engine.session_id:
            self.tally = Tally(changed=self.tally.changed, started=self.tally.started)
        self._adopt(opened, is_same=_is_same(before, opened))

    async def _reopen(self, before: Opened | None) -> None:
        """What was open before is opened again after a failure."""
        if before is None or self.opened is not None:
            return
        session_id = before.engine.session_id or ""
        model = model_of(before.engine)
        with suppress(KeenError):
            kind = "resume" if before.engine.conversation.history else "new"
            self._adopt(await self.desk.open(Wanted(kind, session_id, model)), is_same=True)

    def _adopt(self, opened: Opened, *, is_same: bool) -> None:
        self.opened = opened
        self.is_opening = False
        policy = opened.engine.conversation.toolbox.policy
        wanted, self.wanted_mode = self.wanted_mode, None
        if wanted is not None:
            policy.set_mode(wanted)
        self.allows_yolo = self.allows_yolo or policy.mode == "yolo"
        settings = opened.engine.settings
        self.transcript.is_unfolded = self.transcript.is_unfolded or settings.ui.show_thinking
        if not is_same:
            self._show(opened)
        for notice in opened.engine.notices:
            if not notice.startswith(_UNTRUSTED):
                self.say(sanitize.line(notice), "muted", gap=0)
        if not opened.is_trusted and not opened.asks_trust and not is_same:
            self.run_quietly(self._tell_untrusted(), "trust")
        opened.engine.listen(lambda text: self.say(sanitize.line(text), "muted", gap=0))
        self.host.settings_known(settings)
        self.show_status()

    def _show(self, opened: Opened) -> None:
        """A new session's head, or all of an older one."""
        self.transcript.clear()
        self.transcript.add(self.banner(opened))
        if opened.records:
            from keen.app.replay import replayed

            replay = replayed(opened.records)
            self.transcript.extend(replay.blocks)
            self.history.load(replay.prompts)
            self.last_answer = replay.last_answer
            self.todo.update(todo_items(replay.todo) if replay.todo is not None else [])
            self.tally.compactions = replay.compactions
            self.tally.context = replay.context_tokens
            self.tally.budget = opened.engine.conversation.sampler.budget.effective
            self.status_line.status.name = sanitize.line(replay.name)
        else:
            self.todo.update([])
            self.status_line.status.name = ""
        self.transcript.follow()

    def banner(self, opened: Opened) -> Banner:
        """What stands on top."""
        from keen import __version__

        engine = opened.engine
        rows = [("model", engine.model), ("folder", _short(engine.cwd))]
        return Banner(tuple(rows), f"keen {__version__}")

    def cannot_start(self, reason: str) -> None:
        """There is no model, or a setting is wrong: the setup screen."""
        from keen.app.screens.setup import SetupScreen

        def done(model: str | None) -> None:
            if model:
                self.open(Wanted("new", model=model))
            elif self.opened is None:
                self.leave()

        sheet = SetupScreen(self.desk, self.look, reason, is_first=self.opened is None)
        self.host.push_screen(sheet, done)

    def _stopped(self, error: ConfigError, wanted: Wanted) -> None:
        """Ask for what this start lacks; what no model cures can only be put right outside."""
        from keen.app.screens.sheet import Row
        from keen.choice import Hindrance

        words = "\n".join([str(error), *getattr(error, "__notes__", ())])
        if not isinstance(error, Hindrance):
            self.cannot_start(words)
            return
        again = Row("again", "Try again, once it is put right")
        self._ask_way("keen cannot start like this", words, [again], wanted)

    def _no_session(self, error: KeenError, wanted: Wanted) -> None:
        """The session that the command line asked for cannot be had."""
        from keen.app.screens.sheet import Row

        ways = [Row("new", "Start a new session")]
        if isinstance(error, SessionError):
            ways.insert(0, Row("fork", "Open a copy of it"))
        self._ask_way("This session cannot be opened", str(error), ways, wanted)

    def _ask_way(self, title: str, words: str, ways: list[Row], wanted: Wanted) -> None:
        from keen.app.screens.hindered import HinderedScreen
        from keen.app.screens.sheet import Row

        def taken(way: str | None) -> None:
            match way:
                case "again":
                    self.open(wanted)
                case "new":
                    self.open(Wanted("new", model=wanted.model))
                case "fork":
                    self.open(Wanted("fork", wanted.session_id, wanted.model))
                case _ if self.opened is None:
                    self.host.fault = words
                    self.leave()
                case _:
                    return

        leaving = Row("leave", "Leave keen" if self.opened is None else "Close")
        sheet = HinderedScreen(self.look, title, words, [*ways, leaving])
        self.host.push_screen(sheet, taken)

    def work_failed(self, group: str, words: str) -> None:
        """Without an engine nothing else says why; and whoever wants to go can go."""
        if group == "open":
            self.say(words, "error")
        elif group == "leave":
            self.host.fault = words
            self.host.exit()
        else:
            super().work_failed(group, words)

    # Leaving.

    def leave(self) -> None:
        """Stop what runs, save, and go."""
        if not self.is_leaving:
            self.is_leaving = True
            self.run_worker(self._leave(), group="leave", exit_on_error=False)

    async def _leave(self) -> None:
        self.stop_shell()
        worker = self.turn_worker
        if self.driver.cancel() and worker is not None:
            self.show_stopping()
            with suppress(WorkerError):
                await worker.wait()
        self.host.farewell(self.opened, self.tally)
        if self.opened is not None:
            await self.opened.engine.aclose()
        self.host.exit()


def _is_same(before: Opened | None, opened: Opened) -> bool:
    return (
        before is not None
        and before.engine.session_id == opened.engine.session_id
        and bool(opened.records)
    )


def model_of(engine: Engine) -> str:
    """The model as it is asked for, its effort included."""
    effort = engine.conversation.sampler.effort
    return engine.model + (f":{effort}" if effort else "")


def _short(path: str) -> str:
    """A path with ~ for the home directory."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path

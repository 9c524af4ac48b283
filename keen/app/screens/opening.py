"""The engine behind the screen: opened, replaced, driven, closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.worker import Worker, WorkerError

from keen import sanitize
from keen.app.blocks import Banner, Prose
from keen.app.desk import Opened, Wanted
from keen.app.driver import Run
from keen.app.modes import Mode
from keen.app.screens.outside import Outside
from keen.app.tally import Tally
from keen.core.errors import ConfigError, KeenError, SessionError
from keen.core.events import Emit
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.app.screens.sheet import Sheet


class Opening(Outside):
    """Starts with no engine: the first frame and the first key do not wait for one."""

    is_opening = False
    afterwards: Callable[[], None] | None = None
    """What is to be done when the compaction that runs has ended well."""
    _turn_worker: Worker[None] | None = None
    _is_leaving = False

    @property
    def is_busy(self) -> bool:
        """True when a message has to wait."""
        return not self.driver.is_idle or self.engine is None or self.is_opening

    @property
    def is_without_engine(self) -> bool:
        """True when nothing runs because there is nothing that could: no model is set up."""
        return self.engine is None and not self.is_opening

    # Opening.

    def start(self) -> None:
        """The first frame; everything slow comes after it."""
        early = self.desk.early
        self.status_line.status.place = _short(str(early.cwd))
        self.focus_right()
        self.show_status()
        for fault in early.faults:
            self.notify_person(fault, "warning", 8.0)
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
        self.status_line.status.branch = sanitize.line(await self.desk.branch())
        self.status_line.redraw()

    def keep_prompt(self, text: str) -> None:
        """Remember what was sent, for later sessions."""
        self.run_quietly(self.desk.keep_prompt(text), "keep")

    def open(self, wanted: Wanted) -> None:
        """Open an engine in the place of the present one."""
        if not self.is_opening:
            self.is_opening = True
            self.run_quietly(self._open(wanted), "open")

    async def _open(self, wanted: Wanted) -> None:
        before = self.opened
        try:
            await self._swap(wanted, before)
        except ConfigError as error:
            await self._reopen(before)
            self.is_opening = False
            self.cannot_start(str(error))
        except KeenError as error:
            await self._reopen(before)
            self.is_opening = False
            self.say(sanitize.block(str(error)), "error")
            if isinstance(error, SessionError) and wanted.kind == "resume":
                self._offer_copy(wanted)
            if before is None and wanted.kind == "start":
                self.host.fault = str(error)
        finally:
            self.is_opening = False
            self.show_status()
            self.queue_panel.update()
        if self.opened is not None and self.driver.is_idle:
            self.turn_over(is_by_itself=not self.outbox.is_held)

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
        model = before.engine.model
        with suppress(KeenError):
            kind = "resume" if before.engine.conversation.history else "new"
            self._adopt(await self.desk.open(Wanted(kind, session_id, model)), is_same=True)

    def _adopt(self, opened: Opened, *, is_same: bool) -> None:
        self.opened = opened
        self.is_opening = False
        policy = opened.engine.conversation.toolbox.policy
        self.allows_yolo = self.allows_yolo or policy.mode == "yolo"
        settings = opened.engine.settings
        self.transcript.is_unfolded = self.transcript.is_unfolded or settings.ui.show_thinking
        if not is_same:
            self._show(opened)
        for notice in opened.engine.notices:
            self.say(sanitize.line(notice), "muted", gap=0)
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
            self.tally.compactions = replay.compactions
            self.tally.context = replay.context_tokens
            self.tally.budget = opened.engine.conversation.sampler.budget.effective
            self.status_line.status.name = sanitize.line(replay.name)
        else:
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

        self.host.push_screen(SetupScreen(self.desk, self.look, reason), done)

    # Driving.

    def send(self, user: User) -> None:
        """One turn with this message."""
        engine = self.engine
        if engine is None or not self.driver.is_idle:
            self.outbox.put_back((user,))
            self.queue_panel.update()
            return
        self.plan_offer = False
        self.last_answer = ""
        self.show_mine(user)
        self.transcript.follow()
        self.tally.begin(engine.cost_usd)
        self.spinner.start()
        self.driver.begin()
        self._drive(lambda emit: engine.run(user, emit))

    def compact(self, focus: str, *, is_preview: bool = False) -> None:
        """Compact by hand; a preview shows the summary before anything is replaced."""
        engine = self.engine
        if engine is None or not self.driver.is_idle:
            return
        talk = engine.conversation
        self._begin_aside(is_compaction=True)
        compactor = talk.compactor
        if not is_preview or compactor is None:
            self._drive(lambda emit: talk.compact(focus, emit))
            return

        async def previewed(emit: Emit) -> None:
            from keen.app.preview import Previewed

            talk.compactor = Previewed(compactor, self.ask_summary)
            try:
                await talk.compact(focus, emit)
            finally:
                talk.compactor = compactor

        self._drive(previewed)

    async def ask_summary(self, summary: str) -> str | None:
        """Show a summary; returns it, edited perhaps, or None when it is dropped."""
        from keen.app.screens.sheet import TextSheet

        while True:
            sheet = TextSheet(
                "This would take the place of the conversation",
                [Prose(sanitize.block(summary), gap=0)],
                self.look,
                hint="Enter applies · e edits · Esc drops it",
                choices={"enter": "apply", "e": "edit"},
            )
            said = await self._answer_of(sheet)
            if said != "edit":
                return summary if said == "apply" else None
            summary = await self.edited(summary, ".md") or summary

    async def _answer_of(self, sheet: Sheet[str]) -> str | None:
        """Show a sheet and wait for what it closes with."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.host.push_screen(sheet, lambda said: _settle(answer, said))
        try:
            return await answer
        except asyncio.CancelledError:
            if sheet.is_current:
                sheet.dismiss(None)
            raise

    def ask_aside(self, instruction: str, *, may_read: bool = False) -> None:
        """A turn beside the conversation, which leaves no trace in it."""
        engine = self.engine
        if engine is None or not self.driver.is_idle:
            return
        from keen.app.aside import aside

        self._begin_aside(is_compaction=False)
        self._drive(lambda emit: aside(engine, instruction, emit, may_read=may_read))

    def _begin_aside(self, *, is_compaction: bool) -> None:
        engine = self.engine
        self.transcript.mark()
        self.transcript.follow()
        self.tally.begin(engine.cost_usd if engine is not None else None)
        self.spinner.start()
        self.driver.begin(is_compaction=is_compaction)

    def _drive(self, run: Run) -> None:
        worker = self.run_worker(
            self.driver.consume(run),
            group="turn",
            exclusive=True,
            exit_on_error=False,
        )
        self._turn_worker = worker
        self.driver.attach(worker.cancel)

    # Modes.

    def next_mode(self) -> None:
        """Plan and build in turn; yolo only once it was chosen by name."""
        engine = self.engine
        if engine is None:
            return
        modes: list[Mode] = ["build", "plan"]
        if self.allows_yolo:
            modes.append("yolo")
        present = engine.conversation.toolbox.policy.mode
        self.set_mode(
            modes[(modes.index(present) + 1) % len(modes)] if present in modes else "build"
        )

    def set_mode(self, mode: Mode) -> None:
        """Another mode; it holds from the next call on."""
        engine = self.engine
        if engine is None:
            return
        engine.conversation.toolbox.policy.set_mode(mode)
        self.allows_yolo = self.allows_yolo or mode == "yolo"
        self.show_status()

    # Leaving.

    def leave(self) -> None:
        """Stop what runs, save, and go."""
        if not self._is_leaving:
            self._is_leaving = True
            self.run_worker(self._leave(), group="leave", exit_on_error=False)

    async def _leave(self) -> None:
        self.stop_shell()
        worker = self._turn_worker
        if self.driver.cancel() and worker is not None:
            with suppress(WorkerError):
                await worker.wait()
        self.host.farewell(self.opened, self.tally)
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.engine.aclose()
        self.host.exit()


def _settle(answer: asyncio.Future[str | None], said: str | None) -> None:
    if not answer.done():
        answer.set_result(said)


def _is_same(before: Opened | None, opened: Opened) -> bool:
    return (
        before is not None
        and before.engine.session_id == opened.engine.session_id
        and bool(opened.records)
    )


def _short(path: str) -> str:
    """A path with ~ for the home directory."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path

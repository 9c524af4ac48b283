"""What the conversation's screen is made of, and what it knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker, WorkerState

from keen import sanitize
from keen.app.blocks import Tone, Words
from keen.app.desk import Desk, Early, Opened
from keen.app.driver import Driver
from keen.app.history import History
from keen.app.host import Host, host_of
from keen.app.look import Look
from keen.app.messages import AnswerWanted, PermissionWanted
from keen.app.modes import Mode
from keen.app.outbox import Outbox
from keen.app.tally import Tally
from keen.app.widgets.lines import Lines
from keen.app.widgets.notices import Notices
from keen.app.widgets.panels import QueuePanel, Suggestions, TodoPanel
from keen.app.widgets.permission import PermissionCard
from keen.app.widgets.prompt import Prompt
from keen.app.widgets.question import QuestionCard
from keen.app.widgets.spinner import Spinner
from keen.app.widgets.status import StatusLine
from keen.app.widgets.transcript import Transcript
from keen.core.messages import JsonObject

if TYPE_CHECKING:
    from keen.engine import Engine


_log: Final = logging.getLogger(__name__)
_STATUS_SECONDS: Final = 0.5
"""How long changes are gathered before a status command is asked."""


class Mark(Lines):
    """The sign in front of the prompt."""

    sign = "❯"

    def draw(self, width: int) -> list[Strip]:
        return [Strip([Segment(self.sign, self.look.accent)])]

    def show(self, sign: str) -> None:
        """Another sign: `!` while a shell command is written."""
        if sign != self.sign:
            self.sign = sign
            self.redraw()


class ConversationScreen(Screen[None], inherit_bindings=False):
    """Widgets and state. What happens to them is told in the classes built on this one."""

    _is_status_asked = False
    _is_status_stale = False

    def __init__(self, desk: Desk, look: Look) -> None:
        super().__init__()
        self.desk = desk
        self.look = look
        early = desk.early
        self.opened: Opened | None = None
        self.driver = Driver(self.post_message)
        self.outbox = Outbox()
        self.history = History()
        self.tally = Tally()
        self.pending: list[PermissionWanted | AnswerWanted] = []
        """Questions of the running turn, oldest first; the first one is shown."""
        self.answered = 0
        """Permission questions of this batch that were answered."""
        self.previews: dict[str, str] = {}
        """Changes that were shown for approval, by call."""
        self.last_answer = ""
        """The visible text of the last turn, as the model wrote it."""
        self.last_words = ""
        """What is said below the running turn once it has ended, however it ends."""
        self.allows_yolo = early.mode == "yolo"
        self.wanted_mode: Mode | None = None
        """A mode chosen while there was no engine yet."""
        self.plan_offer = False
        """True while `y` on the empty prompt means: build what was planned."""
        self._make_widgets(early)

    def _make_widgets(self, early: Early) -> None:
        look, keymap = self.look, early.keymap
        self.transcript = Transcript(look, id="transcript")
        self.spinner = Spinner(look, is_calm=early.is_calm, id="spinner")
        self.notices = Notices(look, id="notices")
        self.queue_panel = QueuePanel(look, self.outbox, id="queue")
        self.todo = TodoPanel(look, id="todo")
        self.suggestions = Suggestions(look, id="suggestions")
        self.prompt = Prompt(keymap, self.perform, self.prompt_changed, id="prompt")
        self.mark = Mark(look, id="mark")
        self.card = PermissionCard(
            look,
            on_stray=self.stray,
            on_command=self.perform,
            on_answer=self.permission_answered,
            keymap=keymap,
            id="card",
        )
        self.question = QuestionCard(
            look,
            on_stray=self.stray,
            on_command=self.perform,
            on_done=self.question_answered,
            keymap=keymap,
            id="question",
        )
        self.status_line = StatusLine(look, id="status")

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.spinner
        yield self.todo
        yield self.queue_panel
        yield self.notices
        yield self.suggestions
        with Vertical(id="foot"):
            yield self.card
            yield self.question
            with Horizontal(id="line"):
                yield self.mark
                yield self.prompt
        yield self.status_line

    # For the classes built on this one.

    def perform(self, command: str) -> bool:
        """What a key means; False: nothing here."""
        raise NotImplementedError

    def prompt_changed(self) -> None:
        """The prompt's text is another one."""
        raise NotImplementedError

    def stray(self, event: Any) -> None:
        """A key that was meant for the prompt."""
        raise NotImplementedError

    def permission_answered(self, asked: PermissionWanted, decision: Any) -> None:
        """A card was answered."""
        raise NotImplementedError

    def question_answered(self, asked: AnswerWanted, answers: tuple[str, ...] | None) -> None:
        """A question was answered."""
        raise NotImplementedError

    # Small things that all of them need.

    @property
    def engine(self) -> Engine | None:
        """The engine, once it is there."""
        return self.opened.engine if self.opened is not None else None

    @property
    def width(self) -> int:
        return self.size.width

    def notify_person(self, text: str, tone: Tone = "muted", seconds: float | None = None) -> None:
        """A remark that goes by itself."""
        self.notices.say(text, tone, self.notice_seconds if seconds is None else seconds)

    @property
    def notice_seconds(self) -> float:
        settings = self.desk.settings()
        return max(settings.ui.notification_seconds, 0.5) if settings is not None else 2.0

    def say(self, text: str, tone: Tone = "muted", *, gap: int = 1) -> None:
        """A line that stays in the conversation."""
        self.transcript.add(Words(text, tone, gap=gap))

    def run_quietly(self, work: Coroutine[Any, Any, None], group: str) -> None:
        """Start work of the screen's own; a failure is told, not fatal."""
        self.run_worker(self._guarded(work), group=group, exit_on_error=False)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        from keen.core.errors import KeenError

        try:
            await work
        except (KeenError, OSError) as error:
            self.notify_person(str(error), "error", 8.0)

    def on_worker_state_changed(self, change: Worker.StateChanged) -> None:
        """A mistake of keen's own in such work is told and logged; the screen goes on."""
        # Textual leaves out the parameter of Worker here, so that its type is unknown to a checker.
        worker = cast("Worker[object]", change.worker)  # pyright: ignore[reportUnknownMemberType]
        error = worker.error
        if change.state is WorkerState.ERROR and error is not None:
            _log.error("work of the screen failed: %s", worker.group, exc_info=error)
            words = f"keen failed: {type(error).__name__}: {error}"
            self.work_failed(worker.group, sanitize.line(words))

    def work_failed(self, group: str, words: str) -> None:
        """Work of the screen's own ended with a mistake of keen's."""
        self.notify_person(words, "error", 8.0)

    @property
    def present_mode(self) -> str:
        """The mode that holds, or will hold once there is an engine."""
        if self.engine is not None:
            return self.engine.conversation.toolbox.policy.mode
        return self.wanted_mode or self.desk.early.mode

    def show_status(self) -> None:
        """Bring the last line up to date."""
        status, engine, opened = self.status_line.status, self.engine, self.opened
        if engine is not None and opened is not None:
            sampler = engine.conversation.sampler
            effort = f":{sampler.effort}" if sampler.effort else ""
            status.model = engine.model + effort
            status.cost = engine.cost_usd
            status.safety = "untrusted" if not opened.is_trusted else self._sandbox(opened)
        status.mode = self.present_mode
        status.used, status.budget = self.tally.known, self.tally.budget
        status.compactions = self.tally.compactions
        self.status_line.redraw()
        self._ask_for_status()

    async def look_at_branch(self) -> None:
        """A command, the person's or the model's, may have changed it."""
        branch = sanitize.line(await self.desk.branch())
        if branch != self.status_line.status.branch:
            self.status_line.status.branch = branch
            self.status_line.redraw()

    def estimate_context(self) -> None:
        """A provider that reports no usage still has a window that fills."""
        engine = self.engine
        if engine is None or self.tally.context is not None:
            return
        from keen.agent.shares import shares

        talk = engine.conversation
        self.tally.estimated = sum(shares(talk, talk.history).values())
        self.tally.budget = talk.sampler.budget.effective

    def _ask_for_status(self) -> None:
        """Have the person's own command say something, not at every change but after some."""
        settings = self.desk.settings()
        if settings is None or not settings.ui.status_command:
            return
        self._is_status_stale = True
        if self._is_status_asked:
            return
        self._is_status_asked = True
        self.set_timer(_STATUS_SECONDS, lambda: self.run_quietly(self._show_told(), "status"))

    async def _show_told(self) -> None:
        self._is_status_stale = False
        try:
            told = await self.desk.told_status(self._facts())
        finally:
            self._is_status_asked = False
        if self._is_status_stale:
            self._ask_for_status()
        if sanitize.line(told) != self.status_line.status.told:
            self.status_line.status.told = sanitize.line(told)
            self.status_line.redraw()

    def _facts(self) -> JsonObject:
        """What a status command is given."""
        status, engine = self.status_line.status, self.engine
        return {
            "model": status.model,
            "mode": status.mode,
            "session_id": engine.session_id if engine is not None else None,
            "session_name": status.name,
            "cwd": str(self.desk.early.cwd),
            "branch": status.branch,
            "context_tokens": status.used,
            "context_budget": status.budget,
            "cost_usd": status.cost,
            "compactions": status.compactions,
        }

    def _sandbox(self, opened: Opened) -> str:
        return f"sandbox {opened.sandbox}" if opened.sandbox else ""

    def restyle(self, look: Look) -> None:
        """Another theme for everything that draws itself."""
        self.look = look
        for widget in self.walk_children(Widget):
            if isinstance(widget, Lines | Transcript):
                widget.restyle(look)

    def now(self) -> float:
        return time.monotonic()

    @property
    def host(self) -> Host:
        """The app, for what only it can do."""
        return host_of(self)

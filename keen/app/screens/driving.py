"""What runs: turns, compactions by hand, turns beside the conversation; and the modes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.worker import Worker

from keen import sanitize
from keen.app.blocks import Prose
from keen.app.driver import Run
from keen.app.modes import Mode
from keen.app.screens.outside import Outside
from keen.app.units import dollars, tokens
from keen.app.widgets.spinner import STOPPING
from keen.core.events import Emit
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.agent.sampling import Sampler
    from keen.app.screens.sheet import Sheet


class Driving(Outside):
    """One thing runs at a time; the driver tells what it does."""

    is_opening = False
    afterwards: Callable[[], None] | None = None
    """What is to be done when the compaction that runs has ended well."""
    turn_worker: Worker[None] | None = None

    @property
    def is_busy(self) -> bool:
        """True when a message has to wait."""
        return not self.driver.is_idle or self.engine is None or self.is_opening

    @property
    def is_without_engine(self) -> bool:
        """True when nothing runs because there is nothing that could: no model is set up."""
        return self.engine is None and not self.is_opening

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

    def ask_aside(self, instruction: str, *, may_read: bool = False, model: str = "") -> None:
        """A turn beside the conversation, which leaves no trace in it; `model` may answer it."""
        engine = self.engine
        if engine is None or not self.driver.is_idle:
            return
        from keen.app.aside import aside

        async def asked(emit: Emit) -> None:
            other = await self.desk.sampler(model) if model else None
            try:
                await aside(engine, instruction, emit, may_read=may_read, other=other)
            finally:
                if other is not None:
                    await other.wire.aclose()
                    self.last_words = told(other)

        def told(other: Sampler) -> str:
            price, used = other.model.price, other.spent.total_tokens
            cost = f" · {dollars(price.cost(other.spent))}" if price is not None else ""
            return f"{other.model.name}: {tokens(used)} tokens{cost}, beside this session's own"

        self._begin_aside(is_compaction=False)
        self._drive(asked)

    def _begin_aside(self, *, is_compaction: bool) -> None:
        engine = self.engine
        self.transcript.mark()
        self.transcript.follow()
        self.tally.begin(engine.cost_usd if engine is not None else None, is_aside=True)
        self.spinner.start()
        self.driver.begin(is_compaction=is_compaction)

    def _drive(self, run: Run) -> None:
        worker = self.run_worker(
            self.driver.consume(run),
            group="turn",
            exclusive=True,
            exit_on_error=False,
        )
        self.turn_worker = worker
        self.driver.attach(worker.cancel)

    def show_stopping(self) -> None:
        """The turn was told to stop; what it runs may take a moment to end."""
        if self.driver.is_cancelled:
            self.spinner.hint = ""
            self.spinner.say(STOPPING)

    # Modes.

    def next_mode(self) -> None:
        """Plan and build in turn; yolo only once it was chosen by name."""
        modes: list[Mode] = ["build", "plan"]
        if self.allows_yolo:
            modes.append("yolo")
        present = self.present_mode
        place = modes.index(present) + 1 if present in modes else 0
        self.set_mode(modes[place % len(modes)])

    def set_mode(self, mode: Mode) -> None:
        """Another mode; it holds from the next call on, and for an engine that is still to come."""
        self.allows_yolo = self.allows_yolo or mode == "yolo"
        if self.engine is not None:
            self.engine.conversation.toolbox.policy.set_mode(mode)
        else:
            self.wanted_mode = mode
        self.show_status()


def _settle(answer: asyncio.Future[str | None], said: str | None) -> None:
    if not answer.done():
        answer.set_result(said)

"""What the screen does when the running turn tells it something."""

from __future__ import annotations

from textual import on

from keen import sanitize
from keen.app import messages as ui
from keen.app.blocks import Mine
from keen.app.desk import Attention
from keen.app.screens.conversation import ConversationScreen
from keen.app.units import duration
from keen.app.widgets.panels import todo_items
from keen.app.widgets.spinner import COMPACTING, INTERRUPTS, THINKING, WAITING
from keen.core.events import Decision
from keen.core.messages import User

COMPACTED_BY_ITSELF = "Context compacted automatically."
COMPACTED = "Context compacted."
CANCELLED = "Compaction cancelled."
INTERRUPTED = "Interrupted. What should keen do instead?"
_BUILD = "Build this? y: build · Enter: keep planning"
_ENDINGS: dict[ui.Outcome, str] = {
    "length": "The answer was cut at the output limit.",
    "refused": "The model declined to go on.",
    "max_turns": "The limit of answers was reached.",
    "budget": "The budget of this run was reached.",
}


class TurnView(ConversationScreen):
    """Handlers of the driver's messages; they change widgets and the tally, nothing else."""

    @on(ui.Said)
    def _said(self, message: ui.Said) -> None:
        self._at_work()
        text = sanitize.block(message.text)
        if message.channel == "text":
            self.last_answer += text
            self.transcript.say(text)
        else:
            self.transcript.think(text)

    def _at_work(self) -> None:
        """An answer has begun: no countdown any more."""
        if self.spinner.says.startswith("Retrying"):
            self.spinner.say(THINKING)

    @on(ui.ToolOpened)
    def _tool_opened(self, message: ui.ToolOpened) -> None:
        call = message.call
        diff = self.previews.pop(call.id, "")
        self.transcript.open_tool(call, diff)
        self.last_answer += "\n\n" if self.last_answer.strip() else ""

    @on(ui.ToolOutput)
    def _tool_output(self, message: ui.ToolOutput) -> None:
        card = self.transcript.card(message.call_id)
        if card is not None:
            card.show_output(message.text)
            self.transcript.card_changed(message.call_id)

    @on(ui.SubagentMoved)
    def _subagent_moved(self, message: ui.SubagentMoved) -> None:
        card = self.transcript.card(message.call_id)
        if card is not None:
            card.show_subagent(message.told)
            self.transcript.card_changed(message.call_id)

    @on(ui.ToolClosed)
    def _tool_closed(self, message: ui.ToolClosed) -> None:
        card = self.transcript.card(message.result.call_id)
        if card is None:
            return
        card.close(message.result, message.seconds)
        if card.call.name == "todo" and not message.result.is_error:
            self.todo.update(todo_items(card.call))
        self.tally.finished(card.call, message.result)
        self.transcript.card_changed(message.result.call_id)
        self.transcript.mark()

    @on(ui.Voided)
    def _voided(self, message: ui.Voided) -> None:
        self.transcript.void()
        if message.is_overflow:
            return
        words = f"Retrying (attempt {message.attempt})..."
        if message.detail:
            words += f" {sanitize.line(message.detail).rstrip('.')}"
        self.spinner.say(words, countdown=message.delay)

    @on(ui.Measured)
    def _measured(self, message: ui.Measured) -> None:
        self.tally.measured(message.usage, message.budget)
        self.spinner.sent, self.spinner.received = self.tally.sent, self.tally.received
        self.show_status()

    @on(ui.SteeringArrived)
    def _steering_arrived(self, message: ui.SteeringArrived) -> None:
        text = message.message.text
        if text in self.queue_panel.steering:
            self.queue_panel.steering.remove(text)
            self.queue_panel.update()
        self.transcript.add(Mine(sanitize.block(text), is_steering=True))
        self.transcript.mark()

    # Compaction.

    @on(ui.CompactionBegan)
    def _compaction_began(self, message: ui.CompactionBegan) -> None:
        if message.is_automatic:
            self.transcript.mark()
        self.spinner.hint = "Esc cancels it" if message.is_automatic else "Esc cancels"
        self.spinner.say(COMPACTING)

    @on(ui.CompactionEnded)
    def _compaction_ended(self, message: ui.CompactionEnded) -> None:
        self.spinner.hint = INTERRUPTS
        self.spinner.say(THINKING)
        if message.outcome == "applied":
            self.transcript.mark()
            self.tally.compacted(message.tokens_after)
            self.show_status()
        if message.is_automatic:
            self._automatic_ended(message)
        else:
            self._manual_ended(message)

    def _automatic_ended(self, message: ui.CompactionEnded) -> None:
        match message.outcome:
            case "applied":
                self.notify_person(COMPACTED_BY_ITSELF)
            case "cancelled":
                self.notify_person(CANCELLED)
            case "failed":
                reason = sanitize.line(message.reason)
                self.notify_person(f"Compaction failed: {reason}", "warning", 6.0)

    def _manual_ended(self, message: ui.CompactionEnded) -> None:
        if message.outcome == "applied":
            self.say(COMPACTED)
            return
        self.transcript.void()
        if message.outcome == "cancelled":
            self.say(CANCELLED)
        else:
            self.say(f"Compaction failed: {sanitize.line(message.reason)}", "error")

    @on(ui.CompactionSuspended)
    def _suspended(self, message: ui.CompactionSuspended) -> None:
        self.notify_person(
            "Automatic compaction is off until your next message: a request still measures "
            f"{message.measured:,} of {message.trigger:,} tokens.",
            "warning",
            8.0,
        )

    # Questions.

    @on(ui.PermissionWanted)
    def _permission_wanted(self, message: ui.PermissionWanted) -> None:
        preview = message.preview
        if isinstance(preview, dict) and isinstance(diff := preview.get("diff"), str):
            self.previews[message.call.id] = diff
        self.pending.append(message)
        self.spinner.hint = "Esc says no"
        self.spinner.say(WAITING)
        self.show_question()
        self.attend("permission_asked", "keen asks for permission")

    @on(ui.AnswerWanted)
    def _answer_wanted(self, message: ui.AnswerWanted) -> None:
        self.pending.append(message)
        self.spinner.hint = "Esc leaves it unanswered"
        self.spinner.say(WAITING)
        self.show_question()
        self.attend("question_asked", "keen has a question")

    def attend(self, kind: Attention, words: str) -> None:
        """Call the person, and tell the hooks that somebody is waited for."""
        self.host.call_attention(kind, words)
        if self.engine is not None:
            self.run_quietly(
                self.engine.gate.notify("idle" if kind == "turn_done" else kind, words), "hooks"
            )

    def show_question(self) -> None:
        """The oldest open question in the prompt's place, or the prompt again."""
        raise NotImplementedError

    def permission_answered(self, asked: ui.PermissionWanted, decision: Decision) -> None:
        if asked in self.pending:
            self.pending.remove(asked)
        self.answered = self.answered + 1 if self.pending else 0
        asked.reply(decision)
        if decision.choice == "project":
            self.set_timer(0.2, self._tell_faults)
        self._answered()

    def question_answered(self, asked: ui.AnswerWanted, answers: tuple[str, ...] | None) -> None:
        if asked in self.pending:
            self.pending.remove(asked)
        asked.reply(answers)
        self._answered()

    def _tell_faults(self) -> None:
        """A rule that could not be saved holds for this session only."""
        faults = self.engine.conversation.toolbox.policy.faults if self.engine is not None else []
        if faults:
            self.notify_person(sanitize.line(faults[-1]), "warning", 8.0)
            faults.clear()

    def _answered(self) -> None:
        if not self.pending and self.spinner.says == WAITING:
            self.spinner.hint = INTERRUPTS
            self.spinner.say(THINKING)
        self.show_question()

    # The end.

    @on(ui.TurnEnded)
    def _turn_ended(self, message: ui.TurnEnded) -> None:
        self.spinner.stop()
        self.spinner.hint = INTERRUPTS
        self.transcript.stop_cards()
        self.pending.clear()
        self.answered = 0
        self.show_question()
        self.queue_panel.steering.clear()
        self.outbox.put_back(message.undelivered)
        if message.is_compaction:
            self._compaction_run_ended(message)
        else:
            self._say_ending(message)
        if self.last_words:
            self.say(self.last_words, gap=0)
            self.last_words = ""
        self.transcript.mark()
        self.estimate_context()
        self.show_status()
        self.run_quietly(self.look_at_branch(), "branch")
        is_by_itself = message.outcome not in ("failed", "interrupted")
        if not is_by_itself:
            self.outbox.hold()
        self.queue_panel.update()
        self.turn_over(is_by_itself=is_by_itself)

    def turn_over(self, *, is_by_itself: bool) -> None:
        """Everything below the turn is done; the next message may go."""
        raise NotImplementedError

    def _compaction_run_ended(self, message: ui.TurnEnded) -> None:
        if message.outcome == "interrupted":
            self.transcript.void()
            self.say(CANCELLED)
        elif message.outcome == "failed":
            self.transcript.void()
            self.say(sanitize.block(message.reason), "warning")

    def _say_ending(self, message: ui.TurnEnded) -> None:
        cost = self.engine.cost_usd if self.engine is not None else None
        match message.outcome:
            case "interrupted":
                self.say(INTERRUPTED, "warning")
                return
            case "failed":
                self.say(sanitize.block(message.reason), "error")
                self.say(self.tally.receipt(cost, "✗"))
                return
            case outcome:
                if words := _ENDINGS.get(outcome, ""):
                    self.say(words, "warning")
        self.say(self.tally.receipt(cost))
        engine = self.engine
        if engine is not None and engine.conversation.toolbox.policy.mode == "plan":
            self.plan_offer = True
            self.say(_BUILD, "accent", gap=0)
        self.attend("turn_done", f"keen is done ({duration(self.spinner.last_seconds)})")

    def show_mine(self, user: User) -> None:
        """A message of the person's, as it was sent."""
        self.transcript.add(Mine(sanitize.block(user.text)))
        self.transcript.mark()

"""The person's own programs that the app tells: of what waits for them, and for a status line."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from keen.app.desk import Attention
from keen.core.messages import JsonObject

if TYPE_CHECKING:
    from keen.engine import Engine
    from keen.extend.notify import Place, StatusCommand

_log: Final = logging.getLogger(__name__)


@dataclass
class Programs:
    """`[ui] notify_command` and `status_command` of one engine; neither runs where it is empty."""

    engine: Engine
    _status: StatusCommand | None = None

    async def told_status(self, facts: JsonObject) -> str:
        """The first line of the status command, or the last one where it is too early to ask."""
        from keen.extend.notify import Status, StatusCommand

        command = self.engine.settings.ui.status_command
        if not command:
            return ""
        if self._status is None:
            self._status = StatusCommand(command, self._place())
        used = facts.get("context_tokens")
        status = Status(
            model=str(facts.get("model") or ""),
            mode=str(facts.get("mode") or ""),
            cwd=self.engine.cwd,
            session_id=self.engine.session_id or "",
            context_used=used if isinstance(used, int) else None,
            context_window=self.engine.conversation.sampler.budget.effective,
            cost_usd=self.engine.cost_usd,
        )
        before = self._status.fault
        line = await self._status.read(status)
        if self._status.fault not in ("", before):
            _log.warning("%s", self._status.fault)
        return line

    async def call(self, kind: Attention, words: str) -> None:
        """Tell the notify command that something waits."""
        from keen.extend.notify import notify

        if not (command := self.engine.settings.ui.notify_command):
            return
        if fault := await notify(command, kind, words, self._place()):
            _log.warning("%s", fault)

    def _place(self) -> Place:
        from keen.extend.notify import Place

        context = self.engine.conversation.toolbox.context
        return Place(context.cwd, context.roots, context.environment, self.engine.session_id or "")

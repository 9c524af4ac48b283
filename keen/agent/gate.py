"""What somebody outside may say to a turn: refuse, ask, add. By default nobody says anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from keen.core.events import Trigger
from keen.core.messages import ToolCall, ToolResult

Source: TypeAlias = Literal["startup", "resume"]
Occasion: TypeAlias = Literal["permission_asked", "question_asked", "idle"]


@dataclass(frozen=True, slots=True)
class ToolWord:
    """About a call that is to run. Empty texts: nothing against it.

    `refusal` is the sentence the model reads; `asks` is why the person shall be asked although
    the policy would not. There is no word that allows what the policy asks or refuses.
    """

    refusal: str = ""
    asks: str = ""


@dataclass(frozen=True, slots=True)
class CompactionWord:
    """About a compaction that is to begin: why not, and what the summary shall attend to."""

    veto: str = ""
    focus: str = ""


@dataclass(frozen=True, slots=True)
class PromptWord:
    """About a message of the person's: why it is not sent, and what the model gets beside it."""

    refusal: str = ""
    context: str = ""


NO_WORD: Final = ToolWord()
_NO_COMPACTION_WORD: Final = CompactionWord()
_NO_PROMPT_WORD: Final = PromptWord()


class Gate(Protocol):
    """Somebody who is told what a turn is about to do. Cancelling a call leaves nothing running.

    No method raises but for cancellation: what goes wrong here goes to `listen`, never to a turn.
    """

    async def before_tool(self, call: ToolCall) -> ToolWord:
        """Before a valid call that the policy does not refuse, and before the person is asked."""
        ...

    async def after_tool(self, call: ToolCall, result: ToolResult) -> str:
        """What the model is told behind the result of a call that ran; empty for nothing."""
        ...

    async def before_compaction(self, trigger: Trigger, focus: str) -> CompactionWord:
        """A veto of a forced compaction counts for nothing: without it the turn would end."""
        ...

    async def after_compaction(self, trigger: Trigger, summary: str) -> None: ...

    async def before_prompt(self, text: str) -> PromptWord: ...

    async def before_stop(self, *, is_again: bool) -> str:
        """Why the turn has to go on, empty to let it end. `is_again`: it went on before."""
        ...

    async def session_started(self, source: Source) -> str:
        """What the model gets beside the first message; empty for nothing."""
        ...

    async def session_ended(self) -> None: ...

    async def notify(self, occasion: Occasion, message: str) -> None:
        """The person is waited for."""
        ...

    def listen(self, tell: Callable[[str], None]) -> None:
        """Hand what the person should know to `tell`, one line each, from now on."""
        ...


class OpenGate:
    """Lets everything through, at no cost."""

    async def before_tool(self, call: ToolCall) -> ToolWord:
        del call
        return NO_WORD

    async def after_tool(self, call: ToolCall, result: ToolResult) -> str:
        del call, result
        return ""

    async def before_compaction(self, trigger: Trigger, focus: str) -> CompactionWord:
        del trigger, focus
        return _NO_COMPACTION_WORD

    async def after_compaction(self, trigger: Trigger, summary: str) -> None:
        del trigger, summary

    async def before_prompt(self, text: str) -> PromptWord:
        del text
        return _NO_PROMPT_WORD

    async def before_stop(self, *, is_again: bool) -> str:
        del is_again
        return ""

    async def session_started(self, source: Source) -> str:
        del source
        return ""

    async def session_ended(self) -> None:
        return

    async def notify(self, occasion: Occasion, message: str) -> None:
        del occasion, message

    def listen(self, tell: Callable[[str], None]) -> None:
        del tell


OPEN: Final[Gate] = OpenGate()

"""One session of the editor's: its engine, and the prompt that runs in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, TypeAlias

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PromptResponse,
    SessionInfoUpdate,
    StopReason,
)
from acp.schema import Usage as TurnUsage

from keen.acp import choices, commands, permissions
from keen.acp.calls import WRITE, content_before
from keen.acp.failures import failure
from keen.acp.files import EditorFiles
from keen.acp.models import for_editor, with_model
from keen.acp.prompts import Block, user_message, words_of
from keen.acp.replay import replayed
from keen.acp.translate import Translator
from keen.acp.trusting import ask_trust
from keen.acp.updates import CallIds, Update, used
from keen.acp.words import said
from keen.agent.stream import events, finished, reaped
from keen.core.errors import CompactionError, KeenError
from keen.core.events import (
    Decision,
    Emit,
    Event,
    PermissionRequested,
    QuestionAsked,
    SubagentProgress,
    ToolProgress,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from keen.core.messages import Usage, User
from keen.engine import Engine
from keen.options import Options
from keen.paths import Paths
from keen.reports import divided
from keen.session.records import Record

Run: TypeAlias = Callable[[Emit], Coroutine[Any, Any, object]]

_LIVE_SECONDS: Final = 0.1
"""Between two updates of outputs that grow."""
_TITLE: Final = 100
_STOPS: Final[Mapping[str, StopReason]] = {
    "done": "end_turn",
    "length": "max_tokens",
    "refused": "refusal",
    "max_turns": "max_turn_requests",
    "budget": "max_turn_requests",
}
_log: Final = logging.getLogger(__name__)


class Session:
    """Runs one prompt at a time. `options` opened it; `notices` are told with the first prompt."""

    def __init__(
        self,
        client: Client,
        engine: Engine,
        options: Options,
        environment: Mapping[str, str],
        files: EditorFiles | None = None,
    ) -> None:
        self.engine = for_editor(engine, files)
        self.models: Sequence[str] = ()
        self.notices: list[str] = [*engine.notices]
        self._client = client
        self._options = options
        self._environment = environment
        self._files = files
        self._ids = CallIds()
        self._id = engine.session_id or ""
        self._running: asyncio.Task[PromptResponse] | None = None
        self._reopening = asyncio.Lock()
        """Held while another model takes over; a prompt that comes meanwhile waits for it."""
        self._aside: set[asyncio.Task[None]] = set()
        self._is_cancelled = False
        self._is_named = bool(engine.conversation.history)
        self._paid: float | None = 0.0
        """What engines before this one cost, in dollars."""
        self._stop: StopReason = "end_turn"
        self._is_live = False

    @property
    def id(self) -> str:
        """The id in the client's words and on disk."""
        return self._id

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """One turn to its end.

        Raises: RequestError when one is running already, for a prompt that cannot be sent, and
        for a turn that failed.
        """
        if self._running is not None:
            raise RequestError(
                -32600,
                "A prompt is running in this session already. Wait for its end, or cancel it.",
            )
        self._is_cancelled = False
        task = self._running = asyncio.ensure_future(self._prompt(blocks))
        try:
            async with reaped(task):
                await asyncio.wait([task])
        finally:
            self._running = None
        if self._is_cancelled or task.cancelled():
            _log_lost(task)
            return PromptResponse(stop_reason="cancelled")
        return task.result()

    def cancel(self) -> None:
        """Stop the running prompt, whatever it does; without one nothing happens."""
        if self._running is not None and not self._is_cancelled:
            # Once: a second cancellation would interrupt the clean-up of the first.
            self._is_cancelled = True
            self._running.cancel()

    def announce(self, models: Callable[[], Coroutine[Any, Any, Sequence[str]]]) -> None:
        """Tell commands and models as soon as the client knows of the session."""
        self._beside(self._announced(models))

    async def replay(self, records: Sequence[Record]) -> None:
        """Tell all that was said and done in the session."""
        self._ids = CallIds()
        for update in replayed(records, self.engine.cwd, self._ids):
            await self._tell(update)

    async def set_mode(self, name: str) -> None:
        """Raises: RequestError for a mode that is not offered."""
        mode = choices.mode_named(self.engine, name)
        if mode is None:
            known = ", ".join(choices.allowed_modes(self.engine))
            hint = ". yolo is there after `keen acp --yolo`" if name == "yolo" else ""
            raise RequestError(-32602, f"There is no mode {name!r}: {known}{hint}.")
        self.engine.conversation.toolbox.policy.set_mode(mode)

    async def set_option(self, name: str, value: str | bool) -> None:
        """Raises: RequestError for an option or value that is not offered."""
        if not isinstance(value, str):
            raise RequestError(-32602, f"{name} takes one of its options.")
        match name:
            case choices.MODE:
                await self.set_mode(value)
            case choices.THINKING if choices.is_effort(value):
                self.engine.conversation.sampler.effort = choices.effort_named(value)
            case choices.MODEL:
                await self._set_model(value)
            case _:
                raise RequestError(-32602, f"There is no option {name!r} with {value!r}.")

    async def tell_choices(self) -> None:
        """Say what is chosen now, in both ways the protocol has."""
        mode = self.engine.conversation.toolbox.policy.mode
        await self._tell(
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        )
        await self._tell(
            ConfigOptionUpdate(
                session_update="config_option_update",
                config_options=choices.config_options(self.engine, self.models),
            )
        )

    async def aclose(self) -> None:
        """Stop what runs, save and let go. Idempotent."""
        self.cancel()
        for task in [*self._aside]:
            task.cancel()
            await finished(task)
        if self._running is not None:
            await finished(self._running)
        async with self._reopening:
            await self.engine.aclose()

    async def _set_model(self, name: str) -> None:
        async with self._reopening:
            if name == self.engine.model:
                return
            if self.is_busy:
                words = "A prompt is running: choose the model before or after it."
                raise RequestError(-32600, words)
            try:
                await self._reopen(name)
            except KeenError as error:
                raise failure(error) from error

    async def _reopen(self, model: str) -> None:
        """Go on in the same session with all that is read at its start. Raises: ConfigError."""
        engine = await with_model(self.engine, self._options, self._environment, model)
        if self.engine.usage.total_tokens:
            self._paid = self._cost()
        self.engine = for_editor(engine, self._files)

    def _cost(self) -> float | None:
        """Dollars since the session was opened, None where a price is not known."""
        cost = self.engine.cost_usd
        return None if cost is None or self._paid is None else self._paid + cost

    async def _announced(self, models: Callable[[], Coroutine[Any, Any, Sequence[str]]]) -> None:
        await self._tell(commands.available(self.engine))
        if self.engine.conversation.history:
            window = self.engine.conversation.sampler.budget.window
            await self._tell(used(sum(divided(self.engine).values()), window, None))
        self.models = await models()
        if not {self.engine.model}.issuperset(self.models):
            await self.tell_choices()

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(_quietly(work))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return task

    async def _tell(self, update: Update) -> None:
        await self._client.session_update(session_id=self._id, update=update)

    async def _prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        async with self._reopening:
            engine = self.engine
        before = engine.usage
        stop = await self._answered(blocks)
        return PromptResponse(stop_reason=stop, usage=_usage(engine.usage - before))

    async def _answered(self, blocks: Sequence[Block]) -> StopReason:
        if self.notices:
            told = "\n".join(f"- {notice}" for notice in self.notices)
            self.notices.clear()
            await self._tell(said(f"{told}\n\n"))
        words = words_of(blocks)
        command = commands.command_of(words)
        try:
            if command is not None and not commands.is_custom(self.engine, words):
                return await self._command(*command)
            user = await asyncio.to_thread(user_message, blocks)
            await self._name(user)
            return await self._turn(lambda emit: self.engine.run(user, emit))
        except KeenError as error:
            raise failure(error) from error

    async def _command(self, name: str, argument: str) -> StopReason:
        if name == commands.TRUST:
            await self._trust()
            return "end_turn"
        if name != commands.COMPACT or argument == "undo":
            await self._tell(said(await commands.answer(self.engine, name, argument)))
            return "end_turn"
        try:
            return await self._turn(lambda emit: self.engine.conversation.compact(argument, emit))
        except CompactionError as error:
            await self._tell(said(str(error)))
            return "end_turn"

    async def _trust(self) -> None:
        """Ask, and go on with what the folder has, or without it."""
        call_id, paths = self._ids.fresh("trust"), Paths.from_environment(self._environment)
        folder = self.engine.working_directory
        is_trusted = await ask_trust(self._client, self._id, call_id, folder, paths)
        if is_trusted is None:
            return
        await self._reopen(self.engine.model)
        words = "Trusted." if is_trusted else "Not trusted: its files are ignored."
        await self._tell(said(words))
        await self._tell(commands.available(self.engine))
        await self.tell_choices()

    async def _name(self, user: User) -> None:
        title = " ".join(user.text.split())[:_TITLE]
        if title and not self._is_named:
            await self._tell(SessionInfoUpdate(session_update="session_info_update", title=title))
        self._is_named = True

    async def _turn(self, run: Run) -> StopReason:
        """Take the events of `run` to their end. Raises: RequestError when the turn failed."""
        talk = self.engine.conversation
        translator = Translator(
            self.engine.cwd,
            self._ids,
            window=lambda: talk.sampler.budget.window,
            cost=self._cost,
            estimate=lambda: sum(divided(self.engine).values()),
        )
        self._stop, self._is_live = "end_turn", False
        beside: set[asyncio.Task[None]] = set()
        try:
            async with aclosing(events(lambda emit: self._watched(run, emit, translator))) as seen:
                async for event in seen:
                    for update in translator.updates(event):
                        await self._tell(update)
                    self._react(event, translator, beside)
        finally:
            for task in beside:
                task.cancel()
                await finished(task)
            with suppress(ConnectionError):
                for update in translator.rest():
                    await self._tell(update)
        return self._stop

    async def _watched(self, run: Run, emit: Emit, translator: Translator) -> None:
        """Run, and keep what a file held before it is replaced, for the client's diff."""

        async def watch(event: Event) -> None:
            match event:
                case PermissionRequested(call=call) | ToolStarted(call=call) if call.name == WRITE:
                    if call.id not in translator.before:
                        toolbox = self.engine.conversation.toolbox
                        translator.before[call.id] = await content_before(call.input, toolbox)
                case _:
                    pass
            await emit(event)

        await run(watch)

    def _react(self, event: Event, translator: Translator, beside: set[asyncio.Task[None]]) -> None:
        match event:
            case PermissionRequested():
                beside.add(self._beside(self._ask(event, translator)))
            case QuestionAsked(reply=reply):
                reply(None)  # the protocol has no question of free words
            case ToolProgress() | SubagentProgress() if not self._is_live:
                self._is_live = True
                beside.add(self._beside(self._live(translator)))
            case TurnFinished(stop=stop):
                self._stop = _STOPS[stop]
            case TurnFailed(error=error):
                raise failure(error)
            case _:
                pass

    async def _live(self, translator: Translator) -> None:
        while True:
            for update in translator.live():
                await self._tell(update)
            await asyncio.sleep(_LIVE_SECONDS)

    async def _ask(self, event: PermissionRequested, translator: Translator) -> None:
        """Put the question; a client that cannot ask says no, one that was cancelled ends it."""
        decision: Decision | None = Decision("deny", message="The editor could not ask.")
        try:
            response = await self._client.request_permission(
                session_id=self._id,
                tool_call=translator.question(event),
                options=permissions.options(event.choices),
            )
            decision = permissions.decision(response, event.choices)
        except (RequestError, ConnectionError, ValueError) as error:
            _log.warning("the client did not answer a permission request: %s", error)
        event.reply(decision or Decision("deny", message="The turn was cancelled."))
        if decision is None:
            self.cancel()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Do what happens beside a prompt: a client that is gone is told nothing."""
    with suppress(ConnectionError):
        await work


def _log_lost(task: asyncio.Task[PromptResponse]) -> None:
    """What went wrong while a prompt was being cancelled concerns nobody but the log."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a cancelled prompt failed: %s", error)


def _usage(used: Usage) -> TurnUsage:
    return TurnUsage(
        total_tokens=used.total_tokens,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        thought_tokens=used.reasoning_tokens,
        cached_read_tokens=used.cached_tokens,
        cached_write_tokens=used.cache_write_tokens,
    )

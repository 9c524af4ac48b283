"""Commands of the person's that run at events of a turn: they may refuse, ask and add.

No answer of a hook allows what the permission policy asks or refuses.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from keen import sanitize
from keen._settings import Hook
from keen.agent.gate import CompactionWord, Occasion, PromptWord, Source, ToolWord
from keen.core.errors import ConfigError
from keen.core.events import Trigger
from keen.core.messages import JsonObject, ToolCall, ToolResult
from keen.extend._hooks_answer import Answer, answer, noticed, tidy
from keen.extend._hooks_process import resolved, run

EVENTS: Final = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "SubagentStop",
    "Notification",
    "PreCompact",
    "PostCompact",
)

OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "bash": ("Bash",),
    "edit_file": ("Edit", "MultiEdit"),
    "write_file": ("Write",),
    "read_file": ("Read",),
    "glob": ("Glob",),
    "grep": ("Grep",),
    "web_fetch": ("WebFetch",),
    "todo": ("TodoWrite",),
    "task": ("Task", "Agent"),
    "ask_user": ("AskUserQuestion",),
}
"""Names by which a matcher may mean a tool besides its own."""

_OCCASIONS: Final[Mapping[Occasion, str]] = {
    "permission_asked": "permission_prompt",
    "question_asked": "elicitation_dialog",
    "idle": "idle_prompt",
}
_FOCUS_LENGTH: Final = 4_000
_AT_ONCE: Final = 8
"""Hooks that run at the same time, of all calls that run side by side."""
_MOST_NOTICES: Final = 200


def _build() -> str:
    return "build"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where hooks run. Paths are real; `environment` is the scrubbed one that commands get."""

    cwd: Path
    roots: tuple[Path, ...]
    environment: Mapping[str, str]
    session_id: str = ""
    transcript_path: str = ""
    mode: Callable[[], str] = _build


@dataclass
class _Voice:
    """Tells the person; what is said before anybody listens waits. The same line comes once."""

    tell: Callable[[str], None] | None = None
    waiting: list[str] = field(default_factory=list[str])
    said: set[str] = field(default_factory=set[str])

    def say(self, text: str) -> None:
        if text in self.said or len(self.said) >= _MOST_NOTICES:
            return
        self.said.add(text)
        if self.tell is not None:
            self.tell(text)
        else:
            self.waiting.append(text)


@dataclass
class Hooks:
    """The gate of a conversation whose person has hooks. `agent`: the subagent it stands in."""

    table: Mapping[str, Sequence[Hook]]
    place: Surroundings
    agent: str = ""
    _voice: _Voice = field(default_factory=_Voice)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def of_agent(self, name: str) -> Hooks:
        """The same hooks for a subagent: its end is `SubagentStop`."""
        return replace(self, agent=name)

    def listen(self, tell: Callable[[str], None]) -> None:
        voice = self._voice
        voice.tell, waiting, voice.waiting = tell, voice.waiting, []
        for text in waiting:
            tell(text)

    async def before_tool(self, call: ToolCall) -> ToolWord:
        about: JsonObject = {"tool_name": call.name, "tool_input": call.input}
        answers = await self._ask("PreToolUse", about, *_names(call.name))
        if reason := _joined(answer.blocked for answer in answers):
            return ToolWord(f"A hook refused this call: {reason}\nDo not try to get around it.")
        asks = _joined(answer.asks for answer in answers)
        return ToolWord(asks=f"A hook wants you to decide: {asks}" if asks else "")

    async def after_tool(self, call: ToolCall, result: ToolResult) -> str:
        response: JsonObject = {
            "output": result.output,
            "is_error": result.is_error,
            "exit_code": result.exit_code,
        }
        about: JsonObject = {
            "tool_name": call.name,
            "tool_input": call.input,
            "tool_response": response,
        }
        answers = await self._ask("PostToolUse", about, *_names(call.name))
        added = _joined(text for one in answers for text in (one.blocked, one.context))
        return tidy(f"[hook] {added}") if added else ""

    async def before_compaction(self, trigger: Trigger, focus: str) -> CompactionWord:
        kind = "manual" if trigger == "manual" else "auto"
        about: JsonObject = {"trigger": kind, "custom_instructions": focus}
        answers = await self._ask("PreCompact", about, kind)
        veto = _joined(answer.blocked for answer in answers)
        if veto and trigger == "forced":
            self._voice.say(
                "PreCompact hook: its veto counts for nothing here, the conversation does not fit "
                "the window without a compaction"
            )
        wanted = tidy(_joined(answer.context for answer in answers), _FOCUS_LENGTH)
        return CompactionWord(f"A hook vetoed it: {veto}" if veto else "", wanted)

    async def after_compaction(self, trigger: Trigger, summary: str) -> None:
        kind = "manual" if trigger == "manual" else "auto"
        await self._ask("PostCompact", {"trigger": kind, "compact_summary": summary}, kind)

    async def before_prompt(self, text: str) -> PromptWord:
        answers = await self._ask("UserPromptSubmit", {"prompt": text})
        reason = _joined(answer.blocked for answer in answers)
        context = tidy(_joined(answer.context for answer in answers))
        return PromptWord(f"A hook blocked this message: {reason}" if reason else "", context)

    async def before_stop(self, *, is_again: bool) -> str:
        event = "SubagentStop" if self.agent else "Stop"
        about: JsonObject = {"stop_hook_active": is_again}
        answers = await self._ask(event, about, *filter(None, (self.agent,)))
        reason = _joined(answer.blocked for answer in answers)
        if not reason or any(answer.ends for answer in answers):
            return ""
        return f"A {event} hook of the person's says that the work is not done: {reason}"

    async def session_started(self, source: Source) -> str:
        answers = await self._ask("SessionStart", {"source": source}, source)
        return tidy(_joined(answer.context for answer in answers))

    async def session_ended(self) -> None:
        await self._ask("SessionEnd", {"reason": "other"}, "other")

    async def notify(self, occasion: Occasion, message: str) -> None:
        kind = _OCCASIONS[occasion]
        await self._ask("Notification", {"message": message, "notification_type": kind}, kind)

    async def _ask(self, event: str, about: JsonObject, *names: str) -> tuple[Answer, ...]:
        """The answers of the hooks of an event that match one of `names`, all run side by side."""
        chosen = [hook for hook in self.table.get(event, ()) if _matches(hook.matcher, names)]
        if not chosen:
            return ()
        place = self.place
        base: JsonObject = {
            "session_id": place.session_id,
            "transcript_path": place.transcript_path,
            "cwd": str(place.cwd),
            "permission_mode": place.mode(),
            "hook_event_name": event,
        }
        if self.agent:
            base["agent_type"] = self.agent
        said = json.dumps(base | about).encode()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._one(event, hook, said)) for hook in chosen]
        return tuple(task.result() for task in running)

    async def _one(self, event: str, hook: Hook, said: bytes) -> Answer:
        place = self.place
        project = str(place.cwd)
        environment = {
            **place.environment,
            "KEEN_PROJECT_DIR": project,
            "CLAUDE_PROJECT_DIR": project,
        }
        try:
            argv = resolved(hook.command, environment.get("PATH", ""), place.roots)
            async with self._slots:
                ended = await run(argv, said, place.cwd, environment, hook.timeout)
            spoken = answer(event, ended, hook.timeout)
        except ConfigError as error:
            spoken = Answer(notices=(str(error),))
        except OSError as error:
            spoken = Answer(notices=(f"cannot run: {error.strerror or error}",))
        for notice in spoken.notices:
            self._voice.say(sanitize.line(f"{event} hook {_label(hook)}: {notice}"))
        return spoken


def unknown_events(table: Mapping[str, Sequence[Hook]]) -> tuple[str, ...]:
    """One line for each event of the settings at which nothing ever runs."""
    lines: list[str] = []
    for event in table:
        if event not in EVENTS:
            near = get_close_matches(event, EVENTS, n=1, cutoff=0.6)
            hint = f" (did you mean {near[0]}?)" if near else ""
            lines.append(f"hooks.{event}: there is no such event{hint}, so it never runs.")
    return tuple(lines)


def _names(tool: str) -> tuple[str, ...]:
    return (tool, *OTHER_NAMES.get(tool, ()))


def _matches(matcher: str, names: Sequence[str]) -> bool:
    """True for every event that has no names to match, and where the whole of a name matches."""
    if matcher in ("", "*") or not names:
        return True
    return any(re.fullmatch(matcher, name) for name in names)


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, texts))


def _label(hook: Hook) -> str:
    return noticed(shlex.join(hook.command))[:60]

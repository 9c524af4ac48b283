"""Commands of the person's and of a project that run at events of a turn: they refuse, ask, add.

No answer of a hook allows what the permission policy asks or refuses.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keen import sanitize
from keen._settings import Hook
from keen.agent.gate import CompactionWord, Occasion, PromptWord, Source, ToolWord
from keen.core.errors import ConfigError
from keen.core.events import Trigger
from keen.core.messages import JsonObject, ToolCall, ToolResult
from keen.extend._hooks_answer import Answer, answer, noticed, tidy, unknown_event
from keen.extend._hooks_process import resolved, run
from keen.processes import in_thread

if TYPE_CHECKING:
    from keen.extend.project_hooks import ProjectHooks

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
_NOBODY: Final = (
    "Nobody can be asked in `keen run`, and no rule and no mode allows what a hook asks about. "
    "Do what is possible without this call, or end and say what the person has to decide."
)


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
    has_person: bool = True
    """Whether somebody is there to decide what a hook asks about."""


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
    """The gate of a conversation that has hooks. `agent`: the subagent it stands in.

    `table`: the person's own. `project`: those of the project, of which the approved ones run.
    """

    table: Mapping[str, Sequence[Hook]]
    place: Surroundings
    project: ProjectHooks | None = None
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
        asking = [answer for answer in answers if answer.asks]
        if not asking or self.place.has_person:
            wants = (f"The hook {one.hook} wants you to decide: {one.asks}" for one in asking)
            return ToolWord(asks=_joined(wants))
        leaves = (f"The hook {one.hook} leaves this to the person: {one.asks}" for one in asking)
        return ToolWord(f"{_joined(leaves)}\n{_NOBODY}")

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
        chosen = [*await self._chosen(event, names)]
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
            running = [tasks.create_task(self._one(event, said, *one)) for one in chosen]
        return tuple(task.result() for task in running)

    async def _chosen(self, event: str, names: Sequence[str]) -> Sequence[tuple[Hook, Path | None]]:
        """The hooks to run, each with the project that it is of, None for the person's own."""
        own = [hook for hook in self.table.get(event, ()) if _matches(hook.matcher, names)]
        project, chosen = self.project, [*((hook, None) for hook in own)]
        if project is None:
            return chosen
        theirs = [
            one for one in project.hooks if one.event == event and _matches(one.hook.matcher, names)
        ]
        if theirs:
            runnable, faults = await in_thread(lambda: project.runnable(theirs))
            chosen += [(one.hook, one.root) for one in runnable]
            for fault in faults:
                self._voice.say(sanitize.line(fault))
        return chosen

    async def _one(self, event: str, said: bytes, hook: Hook, project: Path | None) -> Answer:
        place = self.place
        cwd = project or place.cwd
        environment = {
            **place.environment,
            "KEEN_PROJECT_DIR": str(cwd),
            "CLAUDE_PROJECT_DIR": str(cwd),
        }
        try:
            argv = resolved(hook.command, environment.get("PATH", ""), place.roots, project)
            async with self._slots:
                ended = await run(argv, said, cwd, environment, hook.timeout)
            spoken = answer(event, ended, hook.timeout)
        except ConfigError as error:
            spoken = Answer(notices=(str(error),))
        except OSError as error:
            spoken = Answer(notices=(f"cannot run: {error.strerror or error}",))
        label = _label(hook)
        for notice in spoken.notices:
            self._voice.say(sanitize.line(f"{event} hook {label}: {notice}"))
        return replace(spoken, hook=label)


def unknown_events(table: Mapping[str, Sequence[Hook]]) -> tuple[str, ...]:
    """One line for each event of the settings at which nothing ever runs."""
    return tuple(filter(None, map(unknown_event, table)))


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

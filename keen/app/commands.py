"""The slash commands in one table: names, arguments, help, and when each may run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

from keen import sanitize
from keen.app import context_report, doings, extension_reports, hook_doings, reports, session_doings
from keen.app import skills as skill_doings
from keen.app.screens.opening import Opening

Run: TypeAlias = Callable[[Opening, str], Coroutine[Any, Any, None] | None]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One row. `when`: `idle` commands wait for no turn; the others run at any time."""

    name: str
    help: str
    run: Run
    when: Literal["idle", "always"] = "always"
    argument: str = ""
    aliases: tuple[str, ...] = ()


COMMANDS: Final[tuple[SlashCommand, ...]] = (
    SlashCommand("help", "keys and commands", reports.help_sheet),
    SlashCommand(
        "model", "which model answers", doings.model, "idle", argument="[PROVIDER/MODEL]"
    ),
    SlashCommand(
        "thinking",
        "how hard the model thinks",
        doings.thinking,
        "idle",
        argument="[none|low|medium|high|max]",
        aliases=("effort",),
    ),
    SlashCommand("mode", "what may happen unasked", doings.mode, argument="[plan|build|yolo]"),
    SlashCommand("new", "a fresh session", session_doings.new, "idle", aliases=("clear",)),
    SlashCommand(
        "compact",
        "shorten the conversation; also: preview [focus], undo",
        session_doings.compact,
        "idle",
        argument="[focus]",
    ),
    SlashCommand("context", "where the window goes, and every compaction", context_report.context),
    SlashCommand("usage", "tokens and cost of this session", reports.usage, aliases=("cost",)),
    SlashCommand(
        "sessions", "saved sessions", session_doings.sessions, "idle",
        argument="[ID]", aliases=("resume",),
    ),
    SlashCommand("rename", "name this session", session_doings.rename, argument="NAME"),
    SlashCommand("fork", "go on in a copy of this session", session_doings.fork, "idle"),
    SlashCommand(
        "rewind", "go back to an earlier message", session_doings.rewind, "idle", aliases=("undo",)
    ),
    SlashCommand("status", "session, model, folder, safety", reports.status),
    SlashCommand("trust", "whether this folder's files take effect", doings.trust, "idle"),
    SlashCommand("tasks", "background commands", reports.tasks, argument="[stop NUMBER]"),
    SlashCommand("add-dir", "let edits reach another folder", doings.add_directory, argument="DIR"),
    SlashCommand("login", "set up a provider's key", doings.login, "idle", argument="[PROVIDER]"),
    SlashCommand("logout", "forget a provider's key", doings.logout, argument="PROVIDER"),
    SlashCommand(
        "btw", "ask aside: the answer does not enter the conversation", doings.aside, "idle",
        argument="QUESTION",
    ),
    SlashCommand(
        "review", "a critical look at what was done; its answer is not kept", doings.review, "idle",
        argument="[-m PROVIDER/MODEL] [focus]", aliases=("adversary",),
    ),
    SlashCommand(
        "export", "write this session as a document", session_doings.export,
        argument="[md|html|json]",
    ),
    SlashCommand("copy", "the last answer to the clipboard", doings.copy),
    SlashCommand("diff", "what has changed in the working tree", reports.diff),
    SlashCommand("permissions", "the rules in force", reports.permissions),
    SlashCommand("memory", "the instructions keen reads", reports.memory),
    SlashCommand("init", "have an AGENTS.md written for this project", doings.init, "idle"),
    SlashCommand(
        "skills", "skills and commands of yours and the project's", skill_doings.skills,
        argument="[reload|on NAME|off NAME]",
    ),
    SlashCommand("agents", "the profiles of subagents", extension_reports.agents),
    SlashCommand(
        "mcp", "MCP servers, and how they are; sign in to one", extension_reports.mcp,
        argument="[login NAME|logout NAME]",
    ),
    SlashCommand(
        "hooks", "what runs at events, and the project's hooks", hook_doings.hooks,
        argument="[approve N|revoke N]",
    ),
    SlashCommand("theme", "colours", doings.theme, argument="[NAME]"),
    SlashCommand("config", "where settings come from", reports.config),
    SlashCommand("show-thinking", "show or fold reasoning and outputs", doings.show_thinking),
    SlashCommand(
        "tool-history", "keep raw outputs for later turns", doings.tool_history,
        argument="full|none",
    ),
    SlashCommand("queue", "what waits to be sent", doings.queue, argument="[clear]"),
    SlashCommand("doctor", "check the installation", reports.doctor),
    SlashCommand("exit", "leave keen", doings.leave, aliases=("quit",)),
)  # fmt: skip


def find(name: str) -> SlashCommand | None:
    """The command of that name or alias."""
    wanted = name.casefold()
    return next(
        (one for one in COMMANDS if wanted == one.name or wanted in one.aliases),
        None,
    )


def unknown(name: str, others: Iterable[str] = ()) -> str:
    """What is said of a name that is none. `others`: names that are no commands of keen's."""
    names = [*(name for one in COMMANDS for name in (one.name, *one.aliases)), *others]
    near = get_close_matches(name.casefold(), names, n=1)
    hint = f" Did you mean /{near[0]}?" if near else " /help lists what there is."
    return f"Unknown command: /{sanitize.line(name)}.{hint}"

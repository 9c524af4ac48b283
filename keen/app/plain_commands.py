"""The slash commands of the plain line mode: one table, each a question and its answer in lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from keen import reports, sanitize
from keen.app.desk import Wanted
from keen.app.modes import mode_named
from keen.app.units import several
from keen.core.errors import CompactionError, KeenError
from keen.core.models import EFFORTS, Effort

if TYPE_CHECKING:
    from keen.app.plain import Plain

Run: TypeAlias = Callable[["Plain", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LineCommand:
    """One row."""

    name: str
    help: str
    run: Run
    argument: str = ""
    aliases: tuple[str, ...] = ()


async def _help(plain: Plain, _argument: str) -> None:
    plain.say("Write a message and press Enter. Ctrl+C interrupts what runs.")
    plain.say("@path names a file. !command runs a shell command of your own.")
    for one in COMMANDS:
        plain.say(f"{' '.join(filter(None, (f'/{one.name}', one.argument)))}: {one.help}.")
    plain.say("/exit or Ctrl+D: leave.")


async def _new(plain: Plain, _argument: str) -> None:
    await plain.open(Wanted("new", model=plain.engine.model))
    plain.say("A fresh session.")


async def _model(plain: Plain, argument: str) -> None:
    if not argument:
        plain.say(f"Model: {plain.engine.model}. Others:")
        for row in await plain.desk.models():
            plain.say(f"{row.name}: {row.detail}")
        return
    engine = plain.engine
    if engine.conversation.history and not engine.fits(await plain.desk.model(argument)):
        plain.say(f"The conversation does not fit {argument}: /compact first.")
        return
    session = (engine.session_id or "") if engine.conversation.history else ""
    await plain.open(Wanted("resume" if session else "new", session, argument))
    await plain.desk.remember(model=argument)
    plain.say(f"Model: {plain.engine.model}.")


async def _thinking(plain: Plain, argument: str) -> None:
    sampler = plain.engine.conversation.sampler
    effort: Effort | None = next((word for word in EFFORTS if word == argument), None)
    if argument and effort is None and argument not in ("auto", "default"):
        plain.say(f"/thinking takes one of: {', '.join(EFFORTS)}, auto.")
        return
    if argument:
        sampler.effort = effort
        await plain.desk.remember(thinking=argument)
    plain.say(f"Thinking: {sampler.effort or 'the model decides'}.")


async def _mode(plain: Plain, argument: str) -> None:
    policy = plain.engine.conversation.toolbox.policy
    if argument and (chosen := mode_named(argument)) is not None:
        policy.set_mode(chosen)
    elif argument:
        plain.say("/mode takes plan, build or yolo.")
        return
    plain.say(f"Mode: {policy.mode}.")


async def _compact(plain: Plain, argument: str) -> None:
    if argument != "undo":
        await plain.compact(argument)
        return
    if plain.engine.recorder is None:
        plain.say("Without a saved session no compaction can be taken back.")
        return
    try:
        undone = await plain.engine.undo_compaction()
    except CompactionError as error:
        plain.say(str(error))
    else:
        plain.say(f"The last compaction was taken back: about {undone.tokens:,} tokens.")


async def _context(plain: Plain, _argument: str) -> None:
    from keen.session.records import Compaction

    plain.rows(reports.context(plain.engine))
    recorder = plain.engine.recorder
    for record in await recorder.records() if recorder is not None else ():
        if isinstance(past := record.payload, Compaction):
            plain.say(f"Compaction: {reports.compaction(record.ts, past)}")


async def _usage(plain: Plain, _argument: str) -> None:
    plain.rows(reports.usage(plain.engine))


async def _status(plain: Plain, _argument: str) -> None:
    plain.rows(reports.status(plain.engine))


async def _permissions(plain: Plain, _argument: str) -> None:
    plain.rows(reports.permissions(plain.engine))


async def _sessions(plain: Plain, argument: str) -> None:
    if argument:
        await plain.open(Wanted("resume", argument))
        return
    rows = await plain.desk.sessions(everywhere=False)
    for row in rows:
        plain.say(f"{row.id[:8]}: {row.title}, {row.when}, {several(row.turns, 'turn')}")
    plain.say("/sessions ID opens one." if rows else "No session is saved here.")


async def _rename(plain: Plain, argument: str) -> None:
    recorder = plain.engine.recorder
    if not argument or recorder is None:
        plain.say("/rename NAME" if recorder is not None else "This session is not saved.")
        return
    await recorder.renamed(argument)
    plain.say("Renamed.")


async def _fork(plain: Plain, _argument: str) -> None:
    engine = plain.engine
    if not engine.session_id or not engine.conversation.history:
        plain.say("There is nothing to copy yet.")
        return
    await plain.open(Wanted("fork", engine.session_id, engine.model))
    plain.say("This is a copy now.")


async def _export(plain: Plain, argument: str) -> None:
    form = argument.lower() or "md"
    recorder = plain.engine.recorder
    if form not in ("md", "html", "json"):
        plain.say("/export takes md, html or json.")
    elif recorder is None:
        plain.say("This session is not saved.")
    else:
        plain.say(f"Written: {await plain.desk.export(await recorder.records(), form)}")


async def _trust(plain: Plain, _argument: str) -> None:
    names = ", ".join(await plain.desk.trust()) or "nothing yet"
    answer = await plain.ask(f"May this folder's files take effect? Found: {names}. y or n: ")
    if answer is None:
        return
    is_trusted = answer.strip().lower() in ("y", "yes")
    await plain.desk.set_trust(is_trusted)
    engine = plain.engine
    session = (engine.session_id or "") if engine.conversation.history else ""
    await plain.open(Wanted("resume" if session else "new", session, engine.model))
    plain.say("Trusted." if is_trusted else "Not trusted: its files are ignored.")


async def _skills(plain: Plain, _argument: str) -> None:
    extensions = plain.engine.extensions
    commands = extensions.skills.commands if extensions is not None else ()
    for one in commands:
        plain.say(f"/{one.name}: {one.description}")
    if not commands:
        plain.say("There are no skills or commands of yours or the project's.")


def _program(what: Literal["doctor", "config", "memory"]) -> Run:
    async def run(plain: Plain, _argument: str) -> None:
        plain.say(await plain.desk.report(what))

    return run


COMMANDS: Final[tuple[LineCommand, ...]] = (
    LineCommand("help", "this list", _help),
    LineCommand("model", "which model answers", _model, "[PROVIDER/MODEL]"),
    LineCommand("thinking", "how hard the model thinks", _thinking, "[EFFORT]", ("effort",)),
    LineCommand("mode", "what may happen unasked", _mode, "[plan|build|yolo]"),
    LineCommand("new", "a fresh session", _new, aliases=("clear",)),
    LineCommand("compact", "shorten the conversation, or undo", _compact, "[focus|undo]"),
    LineCommand("context", "where the window goes, and every compaction", _context),
    LineCommand("usage", "tokens and cost", _usage, aliases=("cost",)),
    LineCommand("status", "session, model, folder, safety", _status),
    LineCommand("sessions", "saved sessions, or go on with one", _sessions, "[ID]", ("resume",)),
    LineCommand("rename", "name this session", _rename, "NAME"),
    LineCommand("fork", "go on in a copy of this session", _fork),
    LineCommand("export", "write this session as a document", _export, "[md|html|json]"),
    LineCommand("trust", "whether this folder's files take effect", _trust),
    LineCommand("permissions", "the rules in force", _permissions),
    LineCommand("skills", "skills and commands of yours and the project's", _skills),
    LineCommand("memory", "the instructions keen reads", _program("memory")),
    LineCommand("config", "where settings come from", _program("config")),
    LineCommand("doctor", "check the installation", _program("doctor")),
)


def find(name: str) -> LineCommand | None:
    """The command of that name or alias."""
    wanted = name.casefold()
    return next((one for one in COMMANDS if wanted == one.name or wanted in one.aliases), None)


async def run(plain: Plain, name: str, argument: str) -> bool:
    """Do what a command asks for; False when there is none of that name."""
    command = find(name)
    if command is None:
        return False
    try:
        await command.run(plain, argument)
    except KeenError as error:
        plain.say(f"Failed: {sanitize.block(str(error))}")
    return True

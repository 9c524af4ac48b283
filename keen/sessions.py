"""From what a start asked for to an engine with its session: new, resumed or forked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from keen import __version__
from keen.choice import Chosen, NoModel, choose
from keen.compose import compose
from keen.core.errors import UsageError
from keen.core.messages import Assistant
from keen.engine import Engine
from keen.options import PICK, Options
from keen.providers import local_servers
from keen.session import snapshots
from keen.session.checkpoint import Recorder
from keen.session.log import Log
from keen.session.projection import conversation, last_usage
from keen.session.records import AssistantTurn, Compaction, Record
from keen.session.store import NoSession, Store, recall


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine, and the records of the session that it goes on with (empty for a new one)."""

    engine: Engine
    records: tuple[Record, ...] = ()


async def open_session(
    options: Options, environment: Mapping[str, str], *, is_interactive: bool = False
) -> Opened:
    """Read settings, open the session, put the engine together.

    Raises:
        UsageError: no session fits.
        SessionError: the session is in use by another process, or cannot be read.
        ConfigError: no model, a wrong setting, a window that is too small.
    """
    chosen = await _chosen(options, environment)
    store = Store(chosen.paths.sessions)
    log, records = await asyncio.to_thread(_log, options, chosen, store)
    recorder = Recorder(log)
    try:
        engine = await compose(
            options,
            chosen,
            environment,
            recorder=recorder,
            history=conversation(records),
            search=lambda query: recall(log.path, query) if log.path is not None else _UNSAVED,
            is_interactive=is_interactive,
        )
        _continue_measure(engine, records)
        await asyncio.to_thread(_keep_files, engine, recorder, records)
        await _note_model(engine, recorder, records)
    except BaseException:
        await recorder.aclose()
        raise
    if log.reason is not None:
        engine.notices = (*engine.notices, f"Nothing is saved: {log.reason}")
    return Opened(engine, tuple(records))


async def _chosen(options: Options, environment: Mapping[str, str]) -> Chosen:
    """What settings and keys say; where they say nothing, what runs on this machine."""
    try:
        return await asyncio.to_thread(choose, options, environment)
    except NoModel as error:
        servers = await local_servers(error.settings)
        if not any(server.models for server in servers):
            raise
    return await asyncio.to_thread(choose, options, environment, local=servers)


_UNSAVED = "This session is kept in memory only; there is no log to search."


def _log(options: Options, chosen: Chosen, store: Store) -> tuple[Log, list[Record]]:
    """The log to write to, and what stands in it."""
    path = _wanted(options, store)
    if path is None:
        model = f"{chosen.provider}/{chosen.model}"
        cwd = options.cwd
        log = store.draft(cwd, model=model, keen_version=__version__, is_saved=options.is_saved)
        return log, []
    if options.is_fork:
        path = store.fork(path, options.cwd)
    return store.resume(path)


def _wanted(options: Options, store: Store) -> Path | None:
    """The file of the session to go on with, None for a new one."""
    if not options.is_continued and options.resume is None:
        if options.is_fork:
            raise UsageError("--fork-session needs --continue or --resume ID.")
        return None
    if options.resume == PICK:
        raise UsageError("--resume needs an ID or a name here. `keen sessions list` shows them.")
    try:
        if options.resume is not None:
            return store.find(options.resume, options.cwd)
        return store.latest(options.cwd, is_copied=options.is_fork)
    except NoSession as error:
        raise UsageError(str(error)) from error


def _keep_files(engine: Engine, recorder: Recorder, records: list[Record]) -> None:
    """Have edits note what they replace, for /rewind; a session in memory only keeps nothing."""
    if recorder.log.path is not None:
        kept = snapshots.opened(recorder.log.path, records, lambda: recorder.message_seq)
        toolbox = engine.conversation.toolbox
        toolbox.context = replace(toolbox.context, keep=kept.keep)


def _continue_measure(engine: Engine, records: list[Record]) -> None:
    """Start from the last report where nothing of what it counted was dropped since."""
    measured = last_usage(records)
    turns = [r.payload for r in records if isinstance(r.payload, AssistantTurn)]
    sampler = engine.conversation.sampler
    history = engine.conversation.history
    if measured is None or measured.model != sampler.model.name:
        return
    if turns[-1].turn_memory or not turns[-1].usage.context_tokens:
        return
    reported = history[:-1] if history and isinstance(history[-1], Assistant) else history
    request = replace(engine.conversation.dialogue().request, messages=reported)
    sampler.meter.report(sampler.encode(request), measured.context_tokens)


async def _note_model(engine: Engine, recorder: Recorder, records: list[Record]) -> None:
    """A resumed session that another model answers says so in its log."""
    if not records:
        return
    before = ""
    for record in records:
        if not isinstance(record.payload, Compaction):  # which may be by another model
            before = getattr(record.payload, "model", "") or before
    if before and before != engine.model:
        await recorder.model_changed(engine.model)

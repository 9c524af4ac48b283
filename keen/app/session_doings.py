"""Slash commands that concern the session: new, compacted, forked, rewound, exported."""

from __future__ import annotations

from keen import sanitize
from keen.app.desk import Wanted
from keen.app.doings import present_model
from keen.app.screens.opening import Opening
from keen.core.errors import CompactionError


def new(screen: Opening, _argument: str) -> None:
    """A fresh session; the old one stays saved."""
    screen.open(Wanted("new", model=present_model(screen)))


def compact(screen: Opening, argument: str) -> None:
    """Shorten the conversation by its summary, look at one first, or take the last one back."""
    word, _, rest = argument.partition(" ")
    if word == "undo" and not rest:
        screen.run_quietly(undo_compaction(screen), "undo")
    elif word == "preview":
        screen.compact(rest.strip(), is_preview=True)
    else:
        screen.compact(argument)


async def undo_compaction(screen: Opening) -> None:
    """Put the conversation back to what it was before the last compaction."""
    engine = screen.engine
    if engine is None or engine.recorder is None:
        screen.say("Without a saved session no compaction can be taken back.", "warning")
        return
    try:
        undone = await engine.undo_compaction()
    except CompactionError as error:
        screen.say(sanitize.block(str(error)), "warning")
        return
    screen.tally.context = None
    screen.estimate_context()
    screen.show_status()
    results = (
        "Raw tool outputs from before it are back too."
        if undone.is_raw
        else "Raw tool outputs from before it are gone; what was called and how it ended is there."
    )
    screen.say(f"The last compaction was taken back: about {undone.tokens:,} tokens. {results}")


def sessions(screen: Opening, argument: str) -> None:
    """Saved sessions: one by its id or name, or the picker."""
    if argument:
        screen.open(Wanted("resume", argument))
        return
    from keen.app.screens.sessions import pick

    screen.run_quietly(pick(screen), "pick")


async def rename(screen: Opening, argument: str) -> None:
    """Name this session."""
    engine = screen.engine
    if not argument.strip():
        screen.notify_person("Write the name behind it: /rename NAME", "warning")
    elif engine is not None and engine.recorder is not None:
        await engine.recorder.renamed(argument.strip())
        screen.status_line.status.name = sanitize.line(argument.strip())
        screen.status_line.redraw()
        screen.notify_person("Renamed")


def fork(screen: Opening, _argument: str) -> None:
    """Go on in a copy."""
    engine = screen.engine
    if engine is None or not engine.session_id or not engine.conversation.history:
        screen.notify_person("There is nothing to copy yet.")
        return
    words = "This is a copy. The session it was made of stays as it is."
    if not screen.outbox.is_held:
        screen.afterwards = lambda: screen.say(words)
    screen.open(Wanted("fork", engine.session_id, present_model(screen)))


async def rewind(screen: Opening, _argument: str) -> None:
    """Back to before one of the person's messages: conversation, files, or both."""
    from keen.app.screens.rewind import pick

    await pick(screen)


async def export(screen: Opening, argument: str) -> None:
    """Write this session as a document."""
    engine = screen.engine
    form = argument.strip().lower() or "md"
    if form not in ("md", "html", "json"):
        screen.notify_person("/export takes md, html or json.", "warning")
    elif engine is not None and engine.recorder is not None:
        path = await screen.desk.export(await engine.recorder.records(), form)
        screen.notify_person(f"Written: {path}", seconds=6.0)

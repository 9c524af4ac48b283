"""Slash commands that concern the session: new, compacted, forked, rewound, exported."""

from __future__ import annotations

from keen import sanitize
from keen.app.desk import Wanted
from keen.app.doings import present_model
from keen.app.screens.opening import Opening
from keen.core.messages import User


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
    from keen.session.projection import conversation, last_compaction
    from keen.session.records import CompactionReverted, Record

    records = await engine.recorder.records()
    last = last_compaction(records)
    if last is None:
        screen.say("There is no compaction to take back.", "warning")
        return
    reverted = CompactionReverted(seq=last.seq)
    undone = Record(records[-1].seq + 1, records[-1].ts, CompactionReverted.kind, reverted)
    history = conversation([*records, undone])
    talk = engine.conversation
    size, room = talk.turn(User("")).size_of(history), talk.sampler.budget.effective
    if size > room:
        screen.say(
            f"The conversation before it measures {size:,} tokens and {room:,} fit: it stays "
            "compacted.",
            "warning",
        )
        return
    await engine.recorder.reverted(last.seq)
    talk.history = history
    talk.sampler.meter.reset()
    talk.sampler.view.reset()
    screen.tally.context = None
    screen.show_status()
    screen.say(
        f"The last compaction was taken back: about {size:,} tokens. Raw tool outputs from before "
        "it are gone; what was called and how it ended is there."
    )


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
        screen.notify_person("/rename NAME", "warning")
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
    screen.open(Wanted("fork", engine.session_id, present_model(screen)))


async def rewind(screen: Opening, _argument: str) -> None:
    """Back to before one of the person's messages, in a copy of the session."""
    engine = screen.engine
    if engine is None or engine.recorder is None or not engine.conversation.history:
        screen.notify_person("There is nothing to go back to yet.")
        return
    from keen.app.screens.sheet import ListSheet, Row
    from keen.session.records import UserMessage

    records = await engine.recorder.records()
    said = {
        str(record.seq): record.payload.content
        for record in records
        if isinstance(record.payload, UserMessage) and not record.payload.steering
    }
    rows = [
        Row(seq, sanitize.line(" ".join(text[:200].split())))
        for seq, text in reversed(said.items())
    ]
    session_id, present = engine.session_id or "", present_model(screen)

    def chosen(seq: str | None) -> None:
        if seq is not None:
            screen.open(Wanted("fork", session_id, present, upto=int(seq) - 1))
            screen.prompt.set_text(said[seq])
            screen.prompt_changed()

    hint = "Enter goes back to before it, in a copy · files are not changed back · Esc closes"
    screen.host.push_screen(ListSheet("Rewind to before", rows, screen.look, hint=hint), chosen)


async def export(screen: Opening, argument: str) -> None:
    """Write this session as a document."""
    engine = screen.engine
    form = argument.strip().lower() or "md"
    if form not in ("md", "html", "json"):
        screen.notify_person("/export takes md, html or json.", "warning")
    elif engine is not None and engine.recorder is not None:
        path = await screen.desk.export(await engine.recorder.records(), form)
        screen.notify_person(f"Written: {path}", seconds=6.0)

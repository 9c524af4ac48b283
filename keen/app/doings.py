"""Slash commands that do something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from keen import sanitize
from keen.app.desk import ModelRow, Wanted
from keen.app.modes import mode_named
from keen.app.screens.opening import Opening, model_of
from keen.core.errors import ConfigError
from keen.core.messages import User
from keen.core.models import EFFORTS, Effort

_INIT: Final = (
    "Look at this project and write AGENTS.md in its root: what it is, how it is built, tested and "
    "checked (exact commands), how the code is laid out, and the conventions a newcomer would get "
    "wrong. Short, facts only. If the file exists, improve it and keep what people wrote."
)


def model(screen: Opening, argument: str) -> None:
    """Another model, by name or from the list."""
    if argument:
        switch(screen, argument)
    else:
        screen.run_quietly(_pick_model(screen), "pick")


async def _pick_model(screen: Opening) -> None:
    from keen.app.screens.sheet import ListSheet, Row

    rows: Sequence[ModelRow] = await screen.desk.models()
    present = screen.engine.model if screen.engine is not None else ""
    sheet = ListSheet(
        f"Model (now {present or 'none'}) · window, $ per million tokens in / out",
        [Row(row.name, row.name, row.detail) for row in rows],
        screen.look,
        hint="Enter takes · Esc closes · /model PROVIDER/MODEL takes any other",
        narrows=True,
    )

    def chosen(name: str | None) -> None:
        if name:
            switch(screen, name)

    screen.host.push_screen(sheet, chosen)


def switch(screen: Opening, name: str) -> None:
    """Go on with another model; a conversation that would not fit is compacted first."""
    screen.run_quietly(_switch(screen, name), "switch")


async def _switch(screen: Opening, name: str) -> None:
    engine = screen.engine
    if engine is None or not engine.conversation.history:
        _open_with(screen, name)
        return
    spec = await screen.desk.model(name)
    if engine.fits(spec):
        _open_with(screen, name)
        return
    from keen.app.screens.sheet import ListSheet, Row

    rows = [
        Row("compact", f"Compact with {engine.model} first, then switch"),
        Row("switch", "Switch at once", "it is compacted by the new model as far as that can"),
    ]

    def chosen(way: str | None) -> None:
        if way == "compact":
            screen.afterwards = lambda: _open_with(screen, name)
            screen.compact("")
        elif way == "switch":
            _open_with(screen, name)

    title = f"The conversation does not fit {spec.name}, whose window is {spec.window:,} tokens."
    screen.host.push_screen(ListSheet(title, rows, screen.look), chosen)


def _open_with(screen: Opening, name: str) -> None:
    engine = screen.engine
    has_history = engine is not None and bool(engine.conversation.history)
    session_id = engine.session_id if engine is not None and has_history else ""
    screen.run_quietly(screen.desk.remember(model=name), "remember")
    screen.open(Wanted("resume" if session_id else "new", session_id or "", name))


def thinking(screen: Opening, argument: str) -> None:
    """How hard the model thinks."""
    engine = screen.engine
    if engine is None:
        return
    sampler = engine.conversation.sampler
    wanted = argument.strip().lower()
    if not wanted:
        screen.notify_person(f"Thinking: {sampler.effort or 'the model decides'}.")
        return
    if wanted in ("auto", "default"):
        sampler.effort = None
    else:
        effort: Effort | None = next((word for word in EFFORTS if word == wanted), None)
        if effort is None:
            screen.notify_person(f"/thinking takes one of: {', '.join(EFFORTS)}, auto.", "warning")
            return
        sampler.effort = effort
    screen.run_quietly(screen.desk.remember(thinking=wanted), "remember")
    screen.show_status()


def mode(screen: Opening, argument: str) -> None:
    """What may happen unasked."""
    wanted = argument.strip().lower()
    if not wanted:
        screen.next_mode()
    elif (chosen := mode_named(wanted)) is not None:
        screen.set_mode(chosen)
    else:
        screen.notify_person("/mode takes plan, build or yolo.", "warning")


def present_model(screen: Opening) -> str:
    """The model as it is asked for, its effort included; empty without one."""
    return model_of(screen.engine) if screen.engine is not None else ""


async def trust(screen: Opening, _argument: str) -> None:
    """Say whether this folder may influence keen."""
    from keen.app.screens.sheet import ListSheet, Row

    names = await screen.desk.trust()
    shown = ", ".join(map(sanitize.line, names)) or "nothing yet"
    rows = [
        Row("no", "No, ignore them"),
        Row("yes", "Yes, I trust this folder"),
    ]

    def chosen(answer: str | None) -> None:
        if answer is not None:
            screen.run_quietly(screen.trusted(is_trusted=answer == "yes"), "trust")

    title = f"May this folder's files take effect? Found: {shown}"
    screen.host.push_screen(ListSheet(title, rows, screen.look), chosen)


def add_directory(screen: Opening, argument: str) -> None:
    """Let edits reach another folder, for this session."""
    engine = screen.engine
    path = Path(argument.strip()).expanduser()
    if engine is None or not argument.strip():
        screen.notify_person("Name the folder: /add-dir DIR", "warning")
        return
    real = (screen.desk.early.cwd / path).resolve()
    if not real.is_dir():
        screen.notify_person(f"{sanitize.line(argument)} is no folder.", "warning")
        return
    toolbox = engine.conversation.toolbox
    if real not in toolbox.context.roots:
        toolbox.context = replace(toolbox.context, roots=(*toolbox.context.roots, real))
        toolbox.policy.set_context(toolbox.context)
    screen.notify_person(f"{real} belongs to the workspace now.")


def login(screen: Opening, argument: str) -> None:
    """Set up a provider."""
    from keen.app.screens.setup import SetupScreen

    known = [row.name for row in screen.desk.providers()]
    if argument.strip() and argument.strip() not in known:
        words = f"{argument.strip()} is no provider with a key: {', '.join(known)}."
        screen.notify_person(sanitize.line(words), "warning", 6.0)
        return

    def done(name: str | None) -> None:
        if name:
            switch(screen, name)

    sheet = SetupScreen(screen.desk, screen.look, "", argument.strip(), is_first=False)
    screen.host.push_screen(sheet, done)


async def logout(screen: Opening, argument: str) -> None:
    """Forget a provider's key."""
    name = argument.strip()
    if not name:
        screen.notify_person("Name the provider: /logout PROVIDER", "warning")
    elif await screen.desk.forget_key(name):
        screen.notify_person(f"The key of {sanitize.line(name)} is forgotten.")
    else:
        screen.notify_person(f"keen keeps no key of {sanitize.line(name)}.", "warning")


def aside(screen: Opening, argument: str) -> None:
    """A question whose answer does not enter the conversation."""
    if argument:
        from keen.app.aside import QUESTION

        screen.show_mine(User(f"/btw {argument}"))
        screen.ask_aside(QUESTION + argument)
    else:
        screen.notify_person("Write the question behind it: /btw QUESTION", "warning")


def review(screen: Opening, argument: str) -> None:
    """A critical look at what was done, with tools that only read; `-m` names another model."""
    from keen.app.aside import REVIEW

    first, _, rest = argument.partition(" ")
    name, _, focus = (
        rest.strip().partition(" ") if first in ("-m", "--model") else ("", "", argument)
    )
    if first in ("-m", "--model") and not name:
        screen.notify_person("Name the model: /review -m PROVIDER/MODEL [focus]", "warning")
        return
    screen.show_mine(User(f"/review {argument}".rstrip()))
    screen.ask_aside(REVIEW + (focus.strip() or "everything"), may_read=True, model=name)


def copy(screen: Opening, _argument: str) -> None:
    """The last answer to the clipboard."""
    if screen.last_answer.strip():
        screen.copy(screen.last_answer.strip())
    else:
        screen.notify_person("There is no answer to copy yet.")


def init(screen: Opening, _argument: str) -> None:
    """Have AGENTS.md written."""
    screen.send(User(_INIT))


def theme(screen: Opening, argument: str) -> None:
    """Other colours, by name or from the list."""
    if argument:
        _use_theme(screen, argument.strip())
        return
    from keen.app.screens.sheet import ListSheet, Row

    before = screen.look.palette.name
    rows = [Row(name, name, "now" if name == before else "") for name in screen.desk.themes()]

    def chosen(name: str | None) -> None:
        if name:
            _use_theme(screen, name)

    screen.host.push_screen(ListSheet("Theme", rows, screen.look), chosen)


def _use_theme(screen: Opening, name: str) -> None:
    try:
        palette = screen.desk.palette(name)
    except ConfigError as error:
        screen.notify_person(str(error), "warning", 6.0)
        return
    screen.host.use_palette(palette)
    screen.run_quietly(screen.desk.remember(theme=name), "remember")


def show_thinking(screen: Opening, _argument: str) -> None:
    """Show or fold reasoning and outputs."""
    screen.transcript.unfold(not screen.transcript.is_unfolded)
    state = "shown" if screen.transcript.is_unfolded else "folded"
    screen.notify_person(f"Reasoning and tool outputs are {state}.")


def tool_history(screen: Opening, argument: str) -> None:
    """Whether raw outputs stay for later turns."""
    engine = screen.engine
    if engine is None:
        return
    from keen.agent.conversation import as_it_is
    from keen.session.projection import remembered

    match argument.strip().lower():
        case "full":
            engine.conversation.remember = as_it_is
            screen.notify_person("Outputs of tools stay in memory for later turns.")
        case "none":
            engine.conversation.remember = lambda history: remembered(history, 0)
            screen.notify_person("Outputs of tools live for one turn.")
        case _:
            screen.notify_person("/tool-history takes full or none.", "warning")


def queue(screen: Opening, argument: str) -> None:
    """What waits, or an end to it."""
    count = len(screen.outbox.waiting)
    if argument.strip() not in ("", "clear"):
        screen.notify_person("/queue takes nothing or clear.", "warning")
    elif argument.strip() and count:
        screen.outbox.clear()
        screen.queue_panel.update()
        screen.notify_person("Queue cleared")
    else:
        screen.notify_person(f"{count} queued." if count else "Nothing is queued.")


def leave(screen: Opening, _argument: str) -> None:
    """Leave keen."""
    screen.leave()

"""`/skills`: what there is, what is on; and the way from a screen to the skills of its engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from keen import sanitize
from keen.app.blocks import Block, Words
from keen.app.reports import Heading, Table
from keen.app.screens.opening import Opening
from keen.app.units import several
from keen.core.errors import ConfigError, ToolError
from keen.core.messages import User

if TYPE_CHECKING:
    from keen.engine import Engine
    from keen.extend._skills_found import Entry
    from keen.extend.skills import Skills, SlashEntry


def skills_of(engine: Engine | None) -> Skills | None:
    """The skills and commands of an engine; None where it has none."""
    extensions = engine.extensions if engine is not None else None
    return extensions.skills if extensions is not None else None


def slash_entries(engine: Engine | None) -> Sequence[SlashEntry]:
    """What skills, commands and MCP servers add to the menu behind a slash."""
    extensions = engine.extensions if engine is not None else None
    return extensions.commands if extensions is not None else ()


def is_call(engine: Engine | None, text: str) -> bool:
    """True for a text that calls a skill, a command, or a prompt of an MCP server."""
    extensions = engine.extensions if engine is not None else None
    return extensions is not None and extensions.is_call(text)


def is_to_spell_out(engine: Engine | None, text: str) -> bool:
    """True for a text that a running turn cannot take as it is typed."""
    extensions = engine.extensions if engine is not None else None
    return extensions is not None and extensions.is_to_spell_out(text)


async def spelled_out(screen: Opening, user: User) -> User | None:
    """The message that a typed one stands for; None where it cannot be had, which is told."""
    engine = screen.engine
    if engine is None or engine.extensions is None:
        return user
    try:
        return await engine.extensions.spelled_out(user, engine.conversation.toolbox.context)
    except ToolError as error:
        screen.say(sanitize.line(str(error)), "warning")
        return None


async def skills(screen: Opening, argument: str) -> None:
    """List skills and commands, read them again, switch one on or off."""
    engine = screen.engine
    found = skills_of(engine)
    if engine is None or found is None:
        screen.notify_person("There are no skills before a model is set up.", "warning")
        return
    word, _, name = argument.strip().partition(" ")
    match word:
        case "":
            _show(screen, found)
        case "reload":
            before = found.words
            await asyncio.to_thread(found.reload)
            _renew(engine, found, before)
            count = several(len(found.entries), "skill or command", "skills and commands")
            screen.notify_person(f"Read again: {count}.")
            for notice in found.notices:
                screen.say(sanitize.line(notice), "muted", gap=0)
        case "on" | "off" if name.strip():
            await _switch(screen, engine, name.strip(), is_on=word == "on")
        case _:
            screen.notify_person("/skills [reload|on NAME|off NAME]", "warning")


async def _switch(screen: Opening, engine: Engine, name: str, *, is_on: bool) -> None:
    found = skills_of(engine)
    assert found is not None
    before = found.words
    try:
        entry = await asyncio.to_thread(found.switch, name, is_on=is_on)
    except ConfigError as error:
        screen.notify_person(f"For this session only: {sanitize.line(str(error))}", "warning", 8.0)
    else:
        if entry is None:
            screen.notify_person(f"There is no skill {sanitize.line(name)}.", "warning")
            return
        screen.notify_person(f"The skill {entry.name} is {'on' if is_on else 'off'}.")
    _renew(engine, found, before)


def _renew(engine: Engine, found: Skills, before: str) -> None:
    """From the next turn on the model is told of the skills as they are now."""
    talk = engine.conversation
    talk.system = found.renewed(talk.system, before)
    tool = found.tool()
    if tool is not None and not before and tool.spec.name not in talk.toolbox.tools:
        tools = {**talk.toolbox.tools, tool.spec.name: tool}
        talk.toolbox = replace(talk.toolbox, tools=tools)


def _show(screen: Opening, found: Skills) -> None:
    from keen.app.screens.sheet import TextSheet

    blocks: list[Block] = []
    for heading, kind in (("Skills", "skill"), ("Commands", "command")):
        rows = [_row(found, one) for one in found.entries if one.kind == kind]
        if rows:
            blocks += [Heading(heading), Table(rows, 0)]
    if found.shadowed:
        rows = [(one.name, sanitize.line(str(one.path))) for one in found.shadowed]
        blocks += [Heading("Not used: another one of the name is nearer"), Table(rows, 0)]
    if found.notices:
        notes = [*found.faults, *(one for one in found.notices if one.startswith("/"))]
        blocks += [Heading("To know"), *(Words(sanitize.line(one), "warning") for one in notes)]
    if not blocks:
        places = ", ".join(f"{folder}/skills" for folder in found.folders)
        blocks.append(
            Words(sanitize.line(f"There are none. They are looked for in {places}."), "muted")
        )
    title = "Skills and commands; /skills off NAME, on NAME, reload"
    screen.host.push_screen(TextSheet(title, blocks, screen.look))


def _row(found: Skills, entry: Entry) -> tuple[str, str]:
    """Name and state of an entry, and what there is to say of it."""
    is_off = entry.kind == "skill" and entry.name in found.off
    called = next((row for row in found.commands if row.path == entry.path), None)
    facts = [entry.description, entry.scope, str(entry.path), *entry.notes]
    if entry.kind == "skill" and not entry.is_for_model:
        facts.append("only the person starts it")
    if not entry.is_for_person:
        facts.append("only the model uses it")
    name = f"/{called.name} {called.argument_hint}".rstrip() if called else entry.name
    return ("off " if is_off else "on  ") + sanitize.line(name), sanitize.line(" · ".join(facts))

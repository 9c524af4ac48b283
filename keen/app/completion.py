"""What is offered while somebody writes: commands, files, earlier prompts, hits of a search."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from keen import sanitize
from keen.app import extension_reports
from keen.app.commands import COMMANDS, find
from keen.app.fuzzy import ranked, score
from keen.app.screens.opening import Opening
from keen.app.skills import slash_entries
from keen.app.widgets.panels import Suggestion

if TYPE_CHECKING:
    from keen.extend.skills import SlashEntry

Offer: TypeAlias = Literal["", "command", "file", "history", "search"]

_FILE: Final = re.compile(r"(?:^|\s)@(\S*)$")
_FILES_SECONDS: Final = 10.0
_AT_ONCE: Final = 2_000
"""Names that are ranked while a key is handled; more of them would be felt."""
_ONE_LINE: Final = 200


class Completion:
    """Offers rows beside the prompt, and puts the chosen one into it."""

    def __init__(self, screen: Opening) -> None:
        self._screen = screen
        self._offer: Offer = ""
        self._draft = ""
        self._sought = ""
        """What the search that runs has looked for."""
        self._files: Sequence[str] = ()
        self._files_read = 0.0
        self._is_ranking = False
        self._closed_at = ""
        """The text for which the person closed the list."""

    @property
    def takes_enter(self) -> bool:
        """True when Enter takes the row instead of sending the text."""
        chosen = self._screen.suggestions.chosen
        if self._offer == "command":
            return chosen is not None and chosen.value != self._screen.prompt.text.strip()
        return self._offer != ""

    def is_command(self, text: str) -> bool:
        """True for text that is a slash command, known or not; a path is none."""
        return "/" not in text[1:].split(maxsplit=1)[0] if len(text) > 1 else False

    def update(self) -> None:
        """The prompt's text has changed."""
        if self._offer in ("history", "search"):
            # A key that moves among the hits changes no text, and must not begin again.
            if self._screen.prompt.text != self._sought:
                self._narrow()
            return
        prompt = self._screen.prompt
        text = prompt.text
        if text != self._closed_at:
            self._closed_at = ""
        self._offer = ""
        rows: Sequence[Suggestion] = ()
        if self._closed_at:
            pass
        elif text.startswith("/") and "\n" not in text and " " not in text:
            self._offer, rows = "command", self._commands(text[1:])
        elif (match := _FILE.search(prompt.text_before_cursor)) is not None:
            self._offer, rows = "file", self._matching_files(match[1])
        if rows:
            self._screen.suggestions.offer(rows)
        else:
            self._offer = ""
            self._screen.suggestions.close()

    def accept(self) -> None:
        """Take the chosen row."""
        screen = self._screen
        chosen = screen.suggestions.chosen
        offer = self._offer
        if offer == "search":
            self._search(backwards=True)
            return
        if chosen is None:
            self.close()
            return
        match offer:
            case "command":
                self._accept_command(chosen)
            case "file":
                match = _FILE.search(screen.prompt.text_before_cursor)
                value = f'"{chosen.value}"' if " " in chosen.value else chosen.value
                if match is not None:
                    screen.prompt.replace_before_cursor(len(match[1]), value + " ")
                self._end()
            case _:
                self._end()
                screen.prompt.set_text(chosen.value)

    def _accept_command(self, chosen: Suggestion) -> None:
        command = find(chosen.value[1:])
        self._end()
        if command is None or command.argument:
            # What is no command of keen's is sent to the model: never by the key that completes.
            self._screen.prompt.set_text(chosen.value + " ")
        else:
            self._screen.prompt.set_text("")
            self._screen.run_command(chosen.value[1:], "")

    def close(self) -> None:
        """Offer nothing; a search gives the draft back."""
        if self._offer in ("history", "search"):
            self._screen.transcript.end_search()
            draft = self._draft
            self._end()
            self._screen.prompt.set_text(draft)
        else:
            self._closed_at = self._screen.prompt.text
            self._end()

    def hush(self) -> None:
        """Offer nothing for the text as it is: it comes from history, and Up goes on there."""
        self._closed_at = self._screen.prompt.text
        self._end()

    def _end(self) -> None:
        self._offer = ""
        self._draft = ""
        self._screen.suggestions.close()

    # Searches, which borrow the prompt's line.

    def search_history(self) -> None:
        """Look in what was sent before; again: the next older hit."""
        if self._offer == "history":
            self._screen.suggestions.move(1)
            return
        self._begin("history")

    def search_transcript(self) -> None:
        """Look in the conversation; again: the next older hit."""
        if self._offer == "search":
            self._search(backwards=True)
            return
        self._begin("search")

    def move(self, step: int) -> bool:
        """Up and Down in a search of the conversation; False elsewhere."""
        if self._offer == "search":
            self._search(backwards=step < 0)
            return True
        return False

    def _begin(self, offer: Offer) -> None:
        prompt = self._screen.prompt
        if self._offer in ("history", "search"):
            self.close()
        self._draft = prompt.text
        self._offer = offer
        prompt.set_text("")
        self._narrow()

    def _narrow(self) -> None:
        screen = self._screen
        words = self._sought = screen.prompt.text
        if self._offer == "search":
            screen.suggestions.offer((), "Search: Enter or ↑ older · ↓ newer · Esc ends")
            screen.transcript.end_search()
            if words.strip() and not screen.transcript.find(words):
                screen.suggestions.offer((), f"Nothing above holds “{words}”. Esc ends")
            return
        found = screen.history.matching(words)
        rows = [Suggestion(entry, " ".join(entry[:_ONE_LINE].split())) for entry in found]
        title = "History: Enter takes · Ctrl+R older · Esc ends" if rows else "Nothing like that."
        screen.suggestions.offer(rows, title)

    def _search(self, *, backwards: bool) -> None:
        screen = self._screen
        words = screen.prompt.text
        if words.strip() and not screen.transcript.find(words, backwards=backwards):
            where = "above" if backwards else "below"
            screen.suggestions.offer((), f"No more {where}. Esc ends")

    # Files.

    def _matching_files(self, wanted: str) -> list[Suggestion]:
        """Files, and what MCP servers that run have for `@server:address`."""
        if time.monotonic() - self._files_read > _FILES_SECONDS:
            self._files_read = time.monotonic()
            self._screen.run_quietly(self._read_files(), "files")
        self._look()
        resources = extension_reports.resources(self._screen.engine)
        if wanted and len(self._files) + len(resources) > _AT_ONCE:
            if not self._is_ranking:
                self._is_ranking = True
                self._screen.run_quietly(self._rank_aside(), "rank")
            # Until then what is left of what was offered for fewer letters.
            return [
                row
                for row in self._screen.suggestions.rows
                if score(wanted.casefold(), row.value.casefold()) is not None
            ]
        return _offered(wanted, self._files, resources)

    @property
    def _wanted_file(self) -> str | None:
        """The letters behind the `@` at the cursor."""
        match = _FILE.search(self._screen.prompt.text_before_cursor)
        return match[1] if match is not None and not self._closed_at else None

    async def _rank_aside(self) -> None:
        """Rank very many names in a thread, for the letters that stand there when it is done."""
        rows: Sequence[Suggestion] = ()
        try:
            while (wanted := self._wanted_file) is not None:
                files = self._files
                resources = extension_reports.resources(self._screen.engine)
                rows = await asyncio.to_thread(_offered, wanted, files, resources)
                if self._wanted_file == wanted and self._files is files:
                    break
        finally:
            self._is_ranking = False
        if wanted is not None and self._offer in ("", "file"):
            self._offer_files(rows)

    def _offer_files(self, rows: Sequence[Suggestion]) -> None:
        if rows:
            self._offer = "file"
            self._screen.suggestions.offer(rows)
        else:
            self._end()

    def _look(self) -> None:
        """Ask servers that run what they offer, where they were not asked yet."""
        if extension_reports.is_to_look(self._screen.engine):
            self._screen.run_quietly(self._learn_offers(), "offers")

    async def _learn_offers(self) -> None:
        if await extension_reports.look(self._screen.engine):
            self.update()

    async def _read_files(self) -> None:
        files = await self._screen.desk.files()
        if list(files) != list(self._files):
            self._files = files
            self.update()

    # Commands.

    def _commands(self, wanted: str) -> list[Suggestion]:
        """Commands that begin so, keen's own first; else what comes near."""
        self._look()
        entries = slash_entries(self._screen.engine)
        rows = _own_commands(wanted.casefold()) + _added_commands(wanted.casefold(), entries)
        if rows or len(wanted) < 2:
            # A whole name is meant before a longer one that begins with it.
            return sorted(rows, key=lambda row: row.value[1:].casefold() != wanted.casefold())
        every = {row.value: row for row in (*_own_commands(""), *_added_commands("", entries))}
        return [every[name] for name in ranked(wanted.casefold(), list(every), most=5)]


def _offered(
    wanted: str, files: Sequence[str], resources: Sequence[tuple[str, str]]
) -> list[Suggestion]:
    """What fits best. A file whose name fits as well comes first: there are more of them."""
    words = dict(resources)
    names = ranked(wanted, [*files, *words])
    return [_mentioned(name, words.get(name, "")) for name in names]


def _mentioned(name: str, words: str) -> Suggestion:
    shown = sanitize.line(name)
    return Suggestion(name, shown, sanitize.line(words)) if words else Suggestion(name, shown)


def _own_commands(beginning: str) -> list[Suggestion]:
    """Commands of keen's; those whose alias begins so come last."""
    rows: list[Suggestion] = []
    others: list[Suggestion] = []
    for command in COMMANDS:
        names = (command.name, *command.aliases)
        hit = next((name for name in names if name.startswith(beginning)), None)
        if hit is not None:
            label = f"/{hit} {command.argument}".rstrip()
            row = Suggestion(f"/{hit}", label, command.help)
            (rows if hit == command.name else others).append(row)
    return rows + others


def _added_commands(beginning: str, entries: Sequence[SlashEntry]) -> list[Suggestion]:
    """Skills and commands that are not keen's; a part behind a colon counts as a beginning."""
    found = {False: list[Suggestion](), True: list[Suggestion]()}
    for entry in entries:
        name = entry.name.casefold()
        is_first = name.startswith(beginning)
        if is_first or any(part.startswith(beginning) for part in name.split(":")):
            label = sanitize.line(f"/{entry.name} {entry.argument_hint}".rstrip())
            detail = f"{sanitize.line(entry.description)} ({entry.scope})"
            found[is_first].append(Suggestion(f"/{entry.name}", label, detail))
    return found[True] + found[False]

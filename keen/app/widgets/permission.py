"""The question before a call, in the prompt's place.

It takes no key for a moment after it appears and after the last key that was meant for the prompt:
such keys go on into the prompt's text, so that nothing is answered by accident and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from keen import sanitize
from keen.app import arguments
from keen.app.blocks import cropped, folded, wrapped
from keen.app.host import host_of
from keen.app.look import Look
from keen.app.messages import PermissionWanted
from keen.app.tool_cards import diff_lines
from keen.app.widgets.lines import Lines
from keen.app.widgets.prompt import Prompt
from keen.core.events import Decision
from keen.core.messages import Json

GUARD_SECONDS: Final = 0.3
SHORT: Final = 16
"""Rows of a screen on which only the shortest words fit."""
_LONG_BLANK: Final = 8
_MOST_DIFF: Final = 2_000


class PermissionCard(Lines, can_focus=True):
    """One question at a time. `on_stray` gets the keys that were not meant for the card."""

    def __init__(
        self,
        look: Look,
        *,
        on_stray: Callable[[events.Key], None],
        on_command: Callable[[str], bool],
        on_answer: Callable[[PermissionWanted, Decision], None],
        keymap: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
    ) -> None:
        super().__init__(look, id=id)
        self.display = False
        self.asked: PermissionWanted | None = None
        self.waiting = 1
        """Questions there are, this one included."""
        self.number = 1
        self.draft = ""
        """What stands in the prompt meanwhile."""
        self.offset_lines = 0
        self._on_stray = on_stray
        self._on_command = on_command
        self._on_answer = on_answer
        self._keymap = keymap
        self._clock = clock
        self._quiet_until = 0.0
        self._body: list[Strip] = []
        self._room = 2
        """Lines of the body that are shown at once."""
        self.editing: str = ""
        """`rule` or `say` while a line is being written."""
        self.line: Prompt | None = None

    def ask(self, asked: PermissionWanted) -> None:
        """Show a question."""
        self.asked = asked
        self.editing = ""
        self.offset_lines = 0
        self.hush()
        self.display = True
        self.redraw()

    def hush(self) -> None:
        """Take no key for a moment."""
        self._quiet_until = self._clock() + GUARD_SECONDS

    @property
    def is_hushed(self) -> bool:
        return self._clock() < self._quiet_until

    # Keys.

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        command = self._keymap.get(event.key, "")
        if self.asked is None:
            # Answered, and the focus has not moved on yet: the key is the prompt's.
            self._on_stray(event)
            return
        if command in ("escape", "cancel"):
            # Ctrl+C stops the turn whatever is asked; Esc says no, but never by an early key.
            if command == "cancel" or not self.is_hushed:
                self._on_command(command)
            return
        if self.is_hushed:
            if event.is_printable or command:
                self.hush()
                self._on_stray(event)
            return
        if command in ("up", "down", "page_up", "page_down", "home", "end"):
            self._scroll(command)
        elif command in ("unfold", "redraw", "suspend", "todo"):
            self._on_command(command)
        elif event.character:
            self._choose(event.character.lower())

    def _scroll(self, command: str) -> None:
        page = max(self._room - 1, 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page}
        last = self._last_offset()
        wanted = {"home": 0, "end": last}.get(command, self.offset_lines + steps.get(command, 0))
        self.offset_lines = max(0, min(wanted, last))
        self.redraw()

    def _choose(self, letter: str) -> None:
        asked = self.asked
        if asked is None or self.editing:
            return
        if letter in ("y", "a", "p") and not self.is_read:
            self._scroll("page_down")
            return
        match letter:
            case "y":
                self.answer(Decision("once"))
            case "a" if "session" in asked.choices:
                self.answer(Decision("session"))
            case "p" if "project" in asked.choices and asked.rule:
                self._on_command("card_rule")
            case "n":
                self.answer(Decision("deny"))
            case "e":
                self._on_command("card_say")
            case _:
                pass

    def answer(self, decision: Decision) -> None:
        """Say it, once."""
        asked, self.asked = self.asked, None
        if asked is not None:
            self._on_answer(asked, decision)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll("down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll("up")

    # What is shown.

    @property
    def is_read(self) -> bool:
        """True when the end of what is asked has been in sight."""
        return self.offset_lines >= self._last_offset()

    def _last_offset(self) -> int:
        return max(len(self._body) - self._room, 0)

    def draw(self, width: int) -> list[Strip]:
        asked, look = self.asked, self.look
        if asked is None:
            return []
        heading, self._body = self._question(asked, width)
        is_short = host_of(self).size.height < SHORT
        below = [Strip.blank(0)] if not is_short else []
        reason = f"Asks because: {sanitize.line(asked.reason)}"
        reasons = [cropped(reason, width)] if is_short else wrapped(reason, width, look)[:3]
        below += [Strip([Segment(line, look.muted)]) for line in reasons]
        below += self._choices(asked, width, is_short=is_short)
        if self.draft.strip():
            line = "Your draft is kept: " + sanitize.line(" ".join(self.draft.split()))
            below.append(Strip([Segment(cropped(line, width), look.muted)]))
        self._room = max(
            host_of(self).size.height * 4 // 5 - len(below) - (2 if is_short else 4), 2
        )
        self.offset_lines = min(self.offset_lines, self._last_offset())
        shown = self._body[self.offset_lines : self.offset_lines + self._room]
        hidden = len(self._body) - self.offset_lines - len(shown)
        if hidden > 0:
            until = "first" if is_short else "before you can say yes"
            line = f"… {_lines(hidden)} more: PgDn, {until}"
            shown.append(Strip([Segment(cropped(line, width), look.warning)]))
        return [heading, *shown, *below]

    def _question(self, asked: PermissionWanted, width: int) -> tuple[Strip, list[Strip]]:
        look = self.look
        title, body = _asked_for(asked, width, look)
        if asked.agent:
            title = f"{sanitize.line(asked.agent)} asks: {title}"
        of = f" ({self.number} of {self.waiting})" if self.waiting > 1 else ""
        heading = Strip([Segment(cropped(title + of, width), look.warning + Style(bold=True))])
        return heading, body

    def _choices(self, asked: PermissionWanted, width: int, *, is_short: bool) -> list[Strip]:
        look = self.look
        if self.editing:
            words = {
                "rule": "Enter saves this rule for the project"
                + (" · Tab widens it" if asked.prefix else "")
                + " · Esc goes back",
                "say": "Say what to do instead · Enter sends · Esc goes back",
            }
            return [Strip([Segment(cropped(words[self.editing], width), look.accent)])]
        choices = [("y", "yes, once")]
        if "session" in asked.choices:
            choices.append(("a", _always(asked)))
        if "project" in asked.choices and asked.rule:
            choices.append(("p", "always in this project"))
        choices += [("n", "no"), ("e", "no, and say what to do")]
        if is_short:
            brief = {"y": "yes", "a": "always", "p": "save", "n": "no", "e": "say"}
            choices = [(key, brief[key]) for key, _ in choices]
        between = "  " if is_short else "   "
        rows: list[list[Segment]] = [[]]
        used = 0
        for key, words in choices:
            size = len(words) + 2
            if used and used + len(between) + size > width:
                rows.append([])
                used = 0
            if used:
                rows[-1].append(Segment(between, look.muted))
                used += len(between)
            rows[-1].append(Segment(key, look.accent + Style(bold=True)))
            rows[-1].append(Segment(f" {words}", look.text))
            used += size
        return [Strip(row) for row in rows]


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _always(asked: PermissionWanted) -> str:
    match asked.call.name:
        case "bash":
            return "always: exactly this command"
        case "edit_file" | "write_file":
            preview = asked.preview
            name = str(preview.get("name", "")) if isinstance(preview, dict) else ""
            # What is outside the workspace is named whole, and allowed by itself.
            is_outside = name.startswith(("/", "~", ".."))
            return "always: this file" if is_outside else "always: edits in the workspace"
        case "web_fetch":
            return "always: this host"
        case _:
            return "always in this session"


def _asked_for(asked: PermissionWanted, width: int, look: Look) -> tuple[str, list[Strip]]:
    """The question in words, and everything that would happen."""
    preview: Json = asked.preview
    kind = preview.get("kind") if isinstance(preview, dict) else None
    if isinstance(preview, dict) and kind == "diff":
        added, removed = preview.get("added"), preview.get("removed")
        name = sanitize.line(str(preview.get("name") or preview.get("path", "")))
        does = "Create" if preview.get("is_new") else "Change"
        diff = str(preview.get("diff", ""))
        return f"{does} {name}? (+{added} -{removed})", diff_lines(diff, width, look, _MOST_DIFF)
    command = _command(asked)
    if command:
        lines = command.count("\n") + 1
        size = f" ({lines} lines, {len(command):,} characters)" if len(command) > width else ""
        shown = _without_long_blanks(sanitize.block(command))
        body = [f"$ {shown}"]
        reason = asked.call.input.get("reason")
        if isinstance(reason, str) and reason.strip():
            body.append(f"The model says: {sanitize.line(reason.strip())}")
        if (needs := asked.call.input.get("needs")) in ("network", "outside"):
            body.append(f"It asks for {'the network' if needs == 'network' else 'files outside'}.")
        return f"Run this command?{size}", _plain("\n".join(body), width, look)
    shown = _without_long_blanks(arguments.told(asked.call))
    return arguments.question(asked.call), _plain(shown, width, look)


def _command(asked: PermissionWanted) -> str:
    preview = asked.preview
    if isinstance(preview, dict) and isinstance(command := preview.get("command"), str):
        return command
    command = asked.call.input.get("command")
    return command if isinstance(command, str) and asked.call.name == "bash" else ""


def _without_long_blanks(text: str) -> str:
    """Runs of blanks that could push a part out of sight, shown as their number."""
    result: list[str] = []
    run = 0
    for character in text + "\0":
        if character == " ":
            run += 1
            continue
        result.append(f"␠×{run}" if run > _LONG_BLANK else " " * run)
        run = 0
        result.append(character)
    return "".join(result)[:-1]


def _plain(text: str, width: int, look: Look) -> list[Strip]:
    return [Strip([Segment(line, look.text)]) for line in folded(text, width)]

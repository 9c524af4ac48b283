"""Where the person writes: several lines, readline's keys, chips for long pastes.

Each key is handled at once and in order: what follows a key never overtakes what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from textual import events
from textual.widgets import TextArea

from keen.app.chips import Chips, is_long

_QUOTES: Final = "`'\""


class Prompt(TextArea, inherit_bindings=False):
    """The text that will be sent. `on_command` takes a command's name first; False leaves it."""

    def __init__(
        self,
        keymap: dict[str, str],
        on_command: Callable[[str], bool],
        on_change: Callable[[], None],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            compact=True,
            placeholder="Ask, or / for commands, @ for files, ! for a shell",
        )
        self.keymap = keymap
        self.chips = Chips()
        self.on_image_path: Callable[[str], bool] = lambda _path: False
        """Takes a pasted text that may be a picture's path; True when it was one."""
        self.on_symbol: Callable[[str], bool] = lambda _character: False
        """Takes a character typed into an empty prompt; True when it meant something."""
        self._on_command = on_command
        self._on_change = on_change
        self._killed = ""
        self.cursor_blink = False
        self._actions = self._editing()

    def _editing(self) -> dict[str, Callable[[], object]]:
        """What each editing command does."""
        return {
            "newline": lambda: self.insert_text("\n"),
            "up": self.action_cursor_up,
            "down": self.action_cursor_down,
            "home": self.action_cursor_line_start,
            "end": self.action_cursor_line_end,
            "line_start": self.action_cursor_line_start,
            "line_end": self.action_cursor_line_end,
            "left": self.action_cursor_left,
            "right": self.action_cursor_right,
            "word_left": self.action_cursor_word_left,
            "word_right": self.action_cursor_word_right,
            "delete_left": self._delete_left,
            "delete_right": self.action_delete_right,
            "leave": self.action_delete_right,
            "delete_word_left": lambda: self._kill(self.get_cursor_word_left_location()),
            "delete_word_right": lambda: self._kill(self.get_cursor_word_right_location()),
            "delete_line_start": self._kill_to_start,
            "delete_line_end": self._kill_to_end,
            "yank": lambda: self.insert_text(self._killed),
            "undo": self.undo,
            "select_left": lambda: self.action_cursor_left(select=True),
            "select_right": lambda: self.action_cursor_right(select=True),
            "select_up": lambda: self.action_cursor_up(select=True),
            "select_down": lambda: self.action_cursor_down(select=True),
            "select_all": self.select_all,
        }

    # Keys.

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.press(event.key, event.character, is_printable=event.is_printable)

    def press(self, key: str, character: str | None, *, is_printable: bool) -> None:
        """What a key does, done before this returns."""
        command = self.keymap.get(key, "")
        if command:
            if command == "send" and self._is_continued():
                return
            if not self._on_command(command) and (action := self._actions.get(command)):
                action()
        elif is_printable and character and (self.text or not self.on_symbol(character)):
            self.insert_text(character)
        self._on_change()

    def _is_continued(self) -> bool:
        """A backslash at the cursor makes Enter a new line."""
        row, column = self.cursor_location
        if column == 0 or self.document.get_line(row)[column - 1 : column] != "\\":
            return False
        self.replace("\n", (row, column - 1), (row, column))
        self._on_change()
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Text from outside: long ones become a chip, a picture's path the picture."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not text:
            return
        stripped = text.strip()
        if "\n" not in stripped and self.on_image_path(stripped.strip(_QUOTES)):
            return
        self.insert_text(self.chips.text(text) if is_long(text) else text)
        self._on_change()

    # Editing.

    def insert_text(self, text: str) -> None:
        """Put text in the place of the selection; the cursor goes behind it."""
        if text:
            start, end = self.selection
            result = self.replace(text, start, end, maintain_selection_offset=False)
            self.move_cursor(result.end_location)

    def set_text(self, text: str) -> None:
        """Another text; the cursor goes behind it."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    @property
    def text_before_cursor(self) -> str:
        """Everything in front of the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    def replace_before_cursor(self, length: int, text: str) -> None:
        """Put text in the place of the last `length` characters in front of the cursor."""
        row, column = self.cursor_location
        result = self.replace(text, (row, max(column - length, 0)), (row, column))
        self.move_cursor(result.end_location)

    def _delete_left(self) -> None:
        mark = "" if self.selected_text else self.chips.before(self.text_before_cursor)
        if mark:
            self.replace_before_cursor(len(mark), "")
        else:
            self.action_delete_left()

    def _kill(self, to: tuple[int, int]) -> None:
        start, end = sorted((self.cursor_location, to))
        self._killed = self.get_text_range(start, end) or self._killed
        self.delete(start, end)

    def _kill_to_start(self) -> None:
        row, column = self.cursor_location
        if column:
            self._kill((row, 0))
        elif row:
            self._kill((row - 1, len(self.document.get_line(row - 1))))

    def _kill_to_end(self) -> None:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column < len(line):
            self._kill((row, len(line)))
        elif row + 1 < self.document.line_count:
            self._kill((row + 1, 0))

    @property
    def is_at_first_row(self) -> bool:
        """True when Up has nowhere to go in the text as it is wrapped."""
        return self.navigator.is_first_wrapped_line(self.cursor_location)

    @property
    def is_at_last_row(self) -> bool:
        """True when Down has nowhere to go."""
        return self.navigator.is_last_wrapped_line(self.cursor_location)

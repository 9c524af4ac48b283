"""What leads out of the app: the shell, the editor, the clipboard, pictures."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from textual.app import SuspendNotSupported

from keen.app import clipboard
from keen.app.screens.turn_view import TurnView
from keen.app.shell import Shell
from keen.app.tool_cards import Card
from keen.core.messages import ToolCall

_CHIP: Final = 32 * 1024
"""Characters of a command's output that go with the next message."""
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Outside(TurnView):
    """Work in other programs; none of it blocks the screen."""

    _shell: Shell | None = None
    _shells = 0

    # The person's own commands.

    def run_shell(self, command: str, *, is_private: bool) -> None:
        """Run `command`; unless private, its output goes with the next message as a chip."""
        if self._shell is not None:
            self.notify_person("A command of yours is still running. Ctrl+C stops it.", "warning")
            return
        self._shells += 1
        call = ToolCall(f"own-{self._shells}", "!", {"command": command})
        card = Card(call, is_open=self.transcript.is_unfolded)
        self.transcript.open_card(card)
        self.run_quietly(self._run_shell(command, card, is_private), "shell")

    async def _run_shell(self, command: str, card: Card, is_private: bool) -> None:
        output: list[str] = []
        size = 0

        def on_output(text: str) -> None:
            nonlocal size
            if size < _CHIP:
                output.append(text[: _CHIP - size])
            size += len(text)
            card.add_output(text)
            self.transcript.card_changed(card.call.id)

        shell = self._shell = Shell(command, on_output)
        code = -1
        started = self.now()
        try:
            code = await shell.run()
        except OSError as error:
            on_output(f"{error}\n")
        finally:
            self._shell = None
            card.seconds = self.now() - started
            card.state = "stopped" if shell.is_stopped else "failed" if code else "done"
            self.transcript.card_changed(card.call.id)
        self.run_quietly(self.look_at_branch(), "branch")
        if is_private:
            return
        kept = "".join(output)
        if size > len(kept):
            kept += f"\n[… {size - len(kept):,} characters left out …]"
        ending = f"\n[exit code {code}]" if code else ""
        chip = self.prompt.chips.output(command, kept + ending)
        self.prompt.insert_text(chip + " ")
        self.prompt_changed()

    def stop_shell(self) -> bool:
        """Stop the person's own command; False when none runs."""
        if self._shell is None:
            return False
        self._shell.stop()
        return True

    # The editor.

    def edit_outside(self) -> None:
        """The prompt's text in $VISUAL or $EDITOR."""
        self.run_quietly(self._edit_prompt(), "editor")

    async def _edit_prompt(self) -> None:
        text = await self.edited(self.prompt.text, ".md")
        if text is not None:
            self.prompt.set_text(text.rstrip("\n"))
            self.prompt_changed()

    async def edited(self, text: str, suffix: str) -> str | None:
        """The text after the person edited it in another program; None when that failed."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        descriptor, name = tempfile.mkstemp(prefix="keen-", suffix=suffix)
        path = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            with self.host.batch_update(), self.host.suspend():
                code = await asyncio.to_thread(_call, [*shlex.split(editor), name])
            if code:
                self.notify_person(f"{editor} ended with exit code {code}.", "warning")
                return None
            return await asyncio.to_thread(path.read_text, encoding="utf-8", errors="replace")
        except SuspendNotSupported:
            self.notify_person("The editor needs a terminal of its own.", "warning")
            return None
        except OSError as error:
            self.notify_person(f"{editor} cannot be started: {error.strerror}.", "error")
            return None
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            self.host.repaint()

    # The clipboard.

    def copy_selection(self) -> bool:
        """Copy what is selected and drop the selection; False when nothing is."""
        text = self.prompt.selected_text or self.get_selected_text() or ""
        if not text:
            return False
        self.copy(text)
        self.clear_selection()
        self.prompt.move_cursor(self.prompt.cursor_location)
        return True

    def copy(self, text: str) -> None:
        """Put text on the clipboard and say so."""
        self.host.write_raw(clipboard.osc52(text))
        self.run_quietly(self._copy(text), "copy")
        self.notify_person("Copied")

    async def _copy(self, text: str) -> None:
        await clipboard.copy(text)

    async def paste_clipboard(self) -> None:
        """Text or a picture from the clipboard into the prompt."""
        data = await clipboard.paste_image()
        if data and self._add_picture("from the clipboard", data):
            return
        text = await clipboard.paste_text()
        if text:
            self.prompt.paste(text)
        else:
            self.notify_person("The clipboard has nothing that keen can read.")

    def _add_picture(self, name: str, data: bytes) -> bool:
        from keen.tools._images import image

        picture = image(data)
        if picture is None:
            return False
        self.prompt.insert_text(self.prompt.chips.image(name, picture) + " ")
        self.prompt_changed()
        return True

    def _image_path(self, text: str) -> bool:
        """True when a pasted text is the path of a picture, which is then attached."""
        plain = text.removeprefix("file://").replace("\\ ", " ")
        if not plain.lower().endswith(_PICTURES) or "\n" in plain:
            return False
        path = self.desk.early.cwd / Path(plain).expanduser()
        if not path.is_file():
            return False
        self.run_quietly(self._attach_picture(path), "image")
        return True

    async def _attach_picture(self, path: Path) -> None:
        data = await asyncio.to_thread(path.read_bytes)
        if not self._add_picture(path.name, data):
            self.notify_person(f"{path.name} is no picture that keen can send.", "warning")


def _call(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode

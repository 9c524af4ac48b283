"""The app: its screen, its colours, its terminal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver

from keen import sanitize
from keen.app.desk import Attention, Desk, Opened
from keen.app.look import look_of, textual_theme
from keen.app.screens.chat import ChatScreen
from keen.app.tally import Tally
from keen.app.terminal_events import BackgroundTold
from keen.app.units import dollars, duration, several, tokens
from keen.core.errors import ConfigError
from keen.themes import DEFAULT, DEFAULT_LIGHT, Palette

if TYPE_CHECKING:
    from keen._settings import Settings

_RELOAD_SECONDS: Final = 2.0
"""How often a theme of one's own is looked at."""
_LAST_SECONDS: Final = 5
"""After a hang-up, how long saving may take."""


class KeenApp(App[int], inherit_bindings=False):
    """One conversation at a time. `summary` is what is said on the normal screen afterwards."""

    CSS_PATH = "keen.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []
    NOTIFICATION_TIMEOUT = 4

    def __init__(self, desk: Desk) -> None:
        palette = desk.early.palette
        # Textual writes its theme's name into its variables at once; ours must be there by then.
        super().__init__(driver_class=_driver(), ansi_color=palette.is_ansi or None)
        self.desk = desk
        self.look = look_of(palette)
        self.register_theme(textual_theme(palette))
        self.theme = palette.name
        self.chat = ChatScreen(desk, self.look)
        self.summary = ""
        self.fault = ""
        """Why the start failed, told on stderr with exit code 1."""
        self._settings: Settings | None = None
        self._is_focused = True
        self._theme_seen = (0, 0)

    def get_default_screen(self) -> ChatScreen:
        """The conversation is there from the first key on."""
        return self.chat

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._hang_up, number)
        self.write_raw("\x1b[22;2t")
        self._set_title(f"keen · {self.desk.early.cwd.name}")
        self._ask_background()
        self._theme_seen = self.desk.theme_changed(self.look.palette.name)
        self.set_interval(_RELOAD_SECONDS, self._reload_theme)
        self.call_after_refresh(self._warm_up)

    def _fatal_error(self) -> None:
        # Textual would print a traceback with every local variable, secrets among them. The error
        # is raised again once the terminal is the person's; the command line logs it.
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        """What ended the app, when a mistake of keen's did."""
        return self._exception

    async def on_unmount(self) -> None:
        self.write_raw("\x1b[23;2t")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        # However the app ended: background commands stop, and the session is let go.
        opened, self.chat.opened = self.chat.opened, None
        if opened is not None:
            await opened.engine.aclose()

    def _hang_up(self, number: int) -> None:
        """The window was closed, or somebody wants keen to end: save and go."""
        self.exit_code = 128 + number
        # Whatever hangs, the process does not: a terminal that is gone may block its writers.
        signal.alarm(_LAST_SECONDS)
        self.chat.leave()

    def on_terminal_gone(self) -> None:
        """Nobody is there any more."""
        self._hang_up(signal.SIGHUP)

    exit_code = 0

    def _warm_up(self) -> None:
        """Load what the first answer will need, beside the loop."""
        # What is there by now stays: the collector need not look at it again and again.
        if not self.is_headless:
            gc.freeze()
        self.run_worker(_import_drawing, thread=True, group="warm", exit_on_error=False)

    # Colours.

    def use_palette(self, palette: Palette) -> None:
        """Another theme, at once."""
        self.look = look_of(palette)
        self.register_theme(textual_theme(palette))
        self.theme = palette.name
        self.refresh_css(animate=False)
        self.chat.restyle(self.look)
        self._theme_seen = self.desk.theme_changed(palette.name)

    def _ask_background(self) -> None:
        """Without a theme of the person's choice, keen's light one goes on a light ground."""
        ask = getattr(self._driver, "ask_background", None)
        if ask is not None and not self.desk.early.is_theme_chosen:
            ask()

    def on_background_told(self, message: BackgroundTold) -> None:
        """The terminal has answered."""
        if message.is_light and self.look.palette.name == DEFAULT:
            self.use_palette(self.desk.palette(DEFAULT_LIGHT))

    def _reload_theme(self) -> None:
        """A theme of one's own is shown as soon as its file is saved."""
        name = self.look.palette.name
        changed = self.desk.theme_changed(name)
        if changed == self._theme_seen:
            return
        try:
            self.use_palette(self.desk.palette(name))
        except ConfigError as error:
            self.chat.notify_person(str(error), "warning", 6.0)
        # What was seen before it was read: saved again meanwhile, it is read again.
        self._theme_seen = changed

    def settings_known(self, settings: Settings) -> None:
        """The settings have been read."""
        self._settings = settings

    # The terminal.

    def write_raw(self, sequence: str) -> None:
        """A control sequence of keen's own."""
        if sequence and self._driver is not None and not self.is_headless:
            self._driver.write(sequence)
            self._driver.flush()

    def repaint(self) -> None:
        """Draw everything again, whatever the terminal shows."""
        self.write_raw("\x1b[2J")
        self.refresh(repaint=True, layout=True)
        self.screen.refresh(repaint=True, layout=True)

    def _set_title(self, title: str) -> None:
        self.write_raw(f"\x1b]2;{sanitize.line(title)}\x07")

    def on_app_focus(self, _event: events.AppFocus) -> None:
        self._is_focused = True
        self.chat.card.hush()
        self.chat.question.hush()

    def on_app_blur(self, _event: events.AppBlur) -> None:
        self._is_focused = False

    def call_attention(self, kind: Attention, words: str) -> None:
        """Bell and desktop notice, as the settings want it."""
        wanted = self._settings.ui.notify if self._settings is not None else "unfocused"
        if wanted == "off" or (wanted == "unfocused" and self._is_focused):
            return
        self.run_worker(self.desk.call(kind, words), group="call", exit_on_error=False)
        said = sanitize.line(words).replace(";", ",")
        program = os.environ.get("TERM_PROGRAM", "") + os.environ.get("TERM", "")
        if "kitty" in program:
            notice = f"\x1b]99;;{said}\x1b\\"
        elif "rxvt" in program:
            notice = f"\x1b]777;notify;keen;{said}\x07"
        else:
            notice = f"\x1b]9;{said}\x07"
        if os.environ.get("TMUX"):
            notice = "\x1bPtmux;" + notice.replace("\x1b", "\x1b\x1b") + "\x1b\\"
        self.write_raw(notice + "\x07")

    # The end.

    def farewell(self, opened: Opened | None, tally: Tally) -> None:
        """What is printed once the screen is gone."""
        if opened is None or not (tally.turns or opened.engine.conversation.history):
            return
        if self.exit_code == 128 + signal.SIGHUP and not _is_there():
            return
        engine = opened.engine
        name = self.chat.status_line.status.name or "This session"
        used = engine.usage
        parts = [
            name,
            duration(self.chat.now() - tally.started),
            f"{tokens(used.total_tokens)} tokens",
        ]
        cost = engine.cost_usd
        if cost is not None:
            parts.append(dollars(cost))
        if tally.changed:
            parts.append(several(len(tally.changed), "file") + " changed")
        lines = [sanitize.line(" · ".join(parts))]
        recorder = engine.recorder
        if recorder is not None and recorder.reason:
            lines.append(sanitize.line(f"Not everything was saved: {recorder.reason}"))
        elif recorder is not None and recorder.log.path is not None:
            lines.append(f"Go on with: keen -r {engine.session_id}")
        self.summary = "\n".join(lines)


def _driver() -> type[Driver] | None:
    """keen's own driver where terminals are POSIX ones; None: Textual's."""
    if sys.platform == "win32":
        return None
    from keen.app.terminal import TerminalDriver

    return TerminalDriver


def _is_there() -> bool:
    """False once the terminal is gone: what is printed then is an error and nothing else."""
    if sys.platform == "win32":
        return True
    import termios

    try:
        termios.tcgetattr(0)
    except (OSError, termios.error):
        return False
    return True


def _import_drawing() -> None:
    """What draws Markdown and code takes a tenth of a second to load."""
    from keen.app import markdown
    from keen.app.look import look_of as look
    from keen.themes import DEFAULT, load

    markdown.lines("# a\n\n- b\n\n```python\npass\n```\n", 40, look(load(DEFAULT)))

"""Bell and desktop notice, the window's title, pictures from the clipboard and by path."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
ALWAYS = '\n[ui]\nnotify = "always"\n'


def picture() -> bytes:
    """A PNG of four red pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    rows = (b"\x00" + b"\xff\x00\x00" * 2) * 2
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    )


async def one_turn(terminal: Terminal) -> None:
    await terminal.ready()
    await terminal.say("hello")
    await terminal.until("✔ ")


@pytest.mark.parametrize(
    ("environment", "begins"),
    [
        ({}, b"\x1b]9;keen is done"),
        ({"TERM": "xterm-kitty"}, b"\x1b]99;;keen is done"),
        ({"TERM": "rxvt-unicode-256color"}, b"\x1b]777;notify;keen;keen is done"),
        ({"TMUX": "/tmp/x,1,0"}, b"\x1bPtmux;\x1b\x1b]9;keen is done"),
    ],
    ids=["osc9", "kitty", "rxvt", "tmux"],
)
async def test_the_end_of_a_turn_is_told_in_the_terminals_own_way(
    environment: dict[str, str], begins: bytes, keen: Start, chat: Dialect
) -> None:
    async with (
        FakeProvider(chat.says("Fine.")) as provider,
        keen(provider, settings=ALWAYS, environment=environment) as terminal,
    ):
        await one_turn(terminal)

        await terminal.until(lambda: begins in terminal.raw)
        await terminal.until(lambda: terminal.raw[terminal.raw.index(begins) :].count(b"\x07") > 0)


async def test_a_focused_terminal_is_left_alone_and_an_unfocused_one_is_told(
    keen: Start, chat: Dialect
) -> None:
    script = (
        chat.says("Fine."),
        chat.calls("write_file", path="new.py", content="x = 1\n"),
        chat.says("Written."),
    )
    async with FakeProvider(*script) as provider, keen(provider) as terminal:
        await one_turn(terminal)
        await terminal.quiet()
        assert b"\x1b]9;" not in terminal.raw

        terminal.type("write")
        await terminal.until(lambda: terminal.prompt == "write")
        terminal.press("enter")
        terminal.type(b"\x1b[O")  # the window loses the focus

        await terminal.until("y yes, once")
        await terminal.until(lambda: b"\x1b]9;keen asks for permission" in terminal.raw)


async def test_a_notice_can_be_off(keen: Start, chat: Dialect) -> None:
    off = '\n[ui]\nnotify = "off"\n'
    async with (
        FakeProvider(chat.says("Fine.")) as provider,
        keen(provider, settings=off) as terminal,
    ):
        await terminal.ready()
        terminal.type(b"\x1b[O")
        await one_turn(terminal)
        await terminal.quiet()

        assert b"\x1b]9;" not in terminal.raw


async def test_the_title_names_the_folder_and_the_old_one_comes_back(keen: Start) -> None:
    async with FakeProvider() as provider, keen(provider) as terminal:
        await terminal.ready()
        assert "\x1b]2;keen · project\x07".encode() in terminal.raw

        terminal.press("ctrl+d")
        await terminal.ended()

        assert terminal.raw.index(b"\x1b[22;2t") < terminal.raw.index(b"\x1b]2;")
        assert terminal.raw.rindex(b"\x1b[23;2t") > terminal.raw.rindex(b"\x1b]2;")


def tool(place: Path, png: Path) -> None:
    """A stand-in for the system's clipboard tool, outside the workspace or in it."""
    place.mkdir(exist_ok=True)
    program = place / "wl-paste"
    program.write_text(f'#!/bin/sh\n[ "$2" = image/png ] && cat "{png}"\n')
    program.chmod(0o755)


async def test_a_picture_is_pasted_from_the_clipboard_and_sent(
    keen: Start, chat: Dialect, tmp_path: Path
) -> None:
    png = tmp_path / "red.png"
    png.write_bytes(picture())
    tool(tmp_path / "bin", png)
    environment = {"WAYLAND_DISPLAY": "wayland-0", "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    async with (
        FakeProvider(chat.says("Red.")) as provider,
        keen(provider, environment=environment) as terminal,
    ):
        await terminal.ready()

        terminal.press("ctrl+v")

        await terminal.until("from the clipboard")
        await terminal.say("what is it?")
        await terminal.until("Red.")
        assert base64.b64encode(picture()).decode() in provider.requests[0].text


async def test_no_clipboard_tool_of_the_workspace_is_run(
    keen: Start, workspace: Path, tmp_path: Path
) -> None:
    png = tmp_path / "red.png"
    png.write_bytes(picture())
    tool(workspace / "bin", png)
    environment = {"WAYLAND_DISPLAY": "wayland-0", "PATH": f"{workspace / 'bin'}:/usr/bin:/bin"}
    async with FakeProvider() as provider, keen(provider, environment=environment) as terminal:
        await terminal.ready()

        terminal.press("ctrl+v")

        await terminal.until("The clipboard has nothing that keen can read.")


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{}"])
async def test_a_pasted_path_of_a_picture_is_the_picture(
    form: str, keen: Start, chat: Dialect, tmp_path: Path
) -> None:
    png = tmp_path / "red.png"
    png.write_bytes(picture())
    async with FakeProvider(chat.says("Red.")) as provider, keen(provider) as terminal:
        await terminal.ready()

        terminal.paste(form.format(png))

        await terminal.until("red.png")
        await terminal.say("what is it?")
        await terminal.until("Red.")
        assert base64.b64encode(picture()).decode() in provider.requests[0].text

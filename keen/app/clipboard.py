"""The system's clipboard: native tools first, the terminal's own way (OSC 52) besides."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from typing import Final

_SECONDS: Final = 2.0
_MOST: Final = 8 * 1024 * 1024
_LARGEST_OSC: Final = 100_000
"""Bytes of base64 that terminals take in one sequence."""


def osc52(text: str) -> str:
    """The sequence that makes a terminal copy, passed through tmux; empty when it is too long."""
    data = base64.b64encode(text.encode()).decode()
    if len(data) > _LARGEST_OSC:
        return ""
    sequence = f"\x1b]52;c;{data}\x07"
    if os.environ.get("TMUX"):
        inner = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{inner}\x1b\\"
    return sequence


def _found(name: str) -> str | None:
    """A tool of the system; never one from the workspace, whatever stands in PATH."""
    here = os.path.realpath(os.curdir)

    def is_foreign(entry: str) -> bool:
        real = os.path.realpath(entry)
        return os.path.isabs(entry) and os.path.commonpath((here, real)) != here

    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(is_foreign, entries)))


async def copy(text: str) -> bool:
    """Hand the text to a tool of this system; False when there is none or it failed."""
    for command in _copying():
        program = _found(command[0])
        if program and await _run([program, *command[1:]], text.encode()) is not None:
            return True
    return False


async def paste_text() -> str:
    """The clipboard's text, empty when it cannot be had."""
    for command in _pasting():
        program = _found(command[0])
        if program and (data := await _run([program, *command[1:]])) is not None:
            return data.decode("utf-8", "replace")
    return ""


async def paste_image() -> bytes:
    """The clipboard's picture as PNG, empty when there is none."""
    for command in _pictures():
        program = _found(command[0])
        if program and (data := await _run([program, *command[1:]])):
            return data
    return b""


def _copying() -> list[list[str]]:
    if sys.platform == "darwin":
        return [["pbcopy"]]
    found = [["wl-copy"]] if os.environ.get("WAYLAND_DISPLAY") else []
    if os.environ.get("DISPLAY"):
        found += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return found


def _pasting() -> list[list[str]]:
    if sys.platform == "darwin":
        return [["pbpaste"]]
    found = [["wl-paste", "--no-newline"]] if os.environ.get("WAYLAND_DISPLAY") else []
    if os.environ.get("DISPLAY"):
        found += [
            ["xclip", "-selection", "clipboard", "-out"],
            ["xsel", "--clipboard", "--output"],
        ]
    return found


def _pictures() -> list[list[str]]:
    if sys.platform == "darwin":
        return [["pngpaste", "-"]]
    found = [["wl-paste", "--type", "image/png"]] if os.environ.get("WAYLAND_DISPLAY") else []
    if os.environ.get("DISPLAY"):
        found.append(["xclip", "-selection", "clipboard", "-target", "image/png", "-out"])
    return found


async def _run(command: list[str], data: bytes = b"") -> bytes | None:
    """What the tool printed, None when it failed or took too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL if data else asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await process.communicate(data or None)
    except (TimeoutError, OSError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return (out or b"")[:_MOST] if process.returncode == 0 else None

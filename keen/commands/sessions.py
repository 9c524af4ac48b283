"""keen sessions: list, show, export, rename, delete, and taking a compaction back."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import indent
from typing import Final, Protocol

from keen import config, credentials, sanitize
from keen._settings import Settings
from keen.commands.arguments import directory
from keen.commands.parsing import filled, filled_path
from keen.core.errors import ConfigError, SessionError
from keen.paths import Paths
from keen.session.export import FORMS, Form, export, tool_headline
from keen.session.projection import (
    Compacted,
    Ended,
    Reverted,
    Said,
    Shown,
    conversation,
    last_compaction,
    transcript,
)
from keen.session.records import CompactionReverted, ReasoningItem, TextItem, ToolItem
from keen.session.store import Store

_TITLE_WIDTH: Final = 60


class Subparsers(Protocol):
    """What argparse returns for a parser's subcommands."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser: ...


def add_parser(subparsers: Subparsers) -> None:
    """Add `sessions` with its actions to a parser."""
    parser = subparsers.add_parser("sessions", help="saved sessions")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument(
        "--all", action="store_true", help="sessions of every directory, not of this one alone"
    )
    everywhere.add_argument(
        "-C", "--cwd", type=filled_path, default=Path(), metavar="DIR", help="sessions of DIR"
    )
    actions.add_parser("list", parents=[everywhere], help="newest first")
    named = argparse.ArgumentParser(add_help=False, parents=[everywhere])
    named.add_argument("id", metavar="ID", help="a session's id, its beginning, or its name")
    actions.add_parser("show", parents=[named], help="print a session")
    exported = actions.add_parser("export", parents=[named], help="write a session as a document")
    exported.add_argument("--to", choices=FORMS, help="the form (default: FILE's ending, else md)")
    exported.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="where to (default, or -: standard output)",
    )
    renamed = actions.add_parser("rename", parents=[named], help="give a session a name")
    renamed.add_argument("name", metavar="NAME", nargs="+", help="the new name")
    actions.add_parser("delete", parents=[named], help="delete a session for good")
    actions.add_parser(
        "undo-compaction",
        parents=[named],
        help="bring back the conversation before the last compaction",
    )


def run(
    arguments: argparse.Namespace,
    sessions_directory: Path | None = None,
    cwd: Path | None = None,
) -> int:
    """Do what was asked; the exit code.

    Raises:
        SessionError: no such session, or it cannot be read or written.
    """
    here = cwd or directory(arguments.cwd)
    _learn_secrets(here)
    store = Store(sessions_directory or Paths.from_environment().sessions)
    if arguments.action == "list":
        return _list(store, None if arguments.all else here)
    path = store.find(arguments.id, None if arguments.all else here)
    match arguments.action:
        case "show":
            return _show(store, path)
        case "export":
            return _export(store, path, arguments.to, arguments.output)
        case "rename":
            store.rename(path, " ".join(arguments.name))
            print(f"Renamed {path.stem[:8]} to {sanitize.line(' '.join(arguments.name))}.")
        case "delete":
            store.delete(path)
            print(f"Deleted {path.stem}.")
        case _:
            _undo_compaction(store, path)
    return 0


def _learn_secrets(cwd: Path) -> None:
    """Know the keys here, so that none is shown; wrong settings are no reason to stop."""
    paths, environment = Paths.from_environment(), dict(os.environ)
    try:
        settings = config.load(
            cwd, flags={}, environment=environment, trusted=False, paths=paths
        ).settings
    except ConfigError:
        settings = Settings()
    credentials.learn_secrets(settings, environment, paths.auth_file)


def _list(store: Store, cwd: Path | None) -> int:
    sessions = store.sessions(cwd)
    if not sessions:
        place = "" if cwd is None else f" in {sanitize.line(str(cwd))}"
        print(f"No sessions{place}.", file=sys.stderr)
        return 0
    rows = [("ID", "LAST USED", "TURNS", "MODEL", "TITLE", "DIRECTORY")]
    rows += [
        (
            item.session_id[:8],
            _local(item.time),
            str(item.turns),
            sanitize.line(item.model),
            _cut(sanitize.line(item.title), _TITLE_WIDTH),
            sanitize.line(item.cwd),
        )
        for item in sessions
    ]
    shown = [row if cwd is None else row[:-1] for row in rows]
    for text in _aligned(shown):
        print(text)
    return 0


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with their columns below each other, the last one ragged."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        pairs = zip(row, widths, strict=True)
        yield "  ".join(text + " " * (width - _width(text)) for text, width in pairs).rstrip()


def _width(text: str) -> int:
    """Cells of a text in a terminal: wide characters take two, combining ones none."""
    return sum(
        1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
        if not unicodedata.combining(character)
    )


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return text.rstrip() + "…"


def _local(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M")


def _show(store: Store, path: Path) -> int:
    reading = store.read(path)
    for shown in transcript(reading.records):
        print(_as_text(shown), end="\n\n")
    if reading.unreadable:
        what = "1 record is" if reading.unreadable == 1 else f"{reading.unreadable} records are"
        print(f"{what} unreadable; the others stand above.", file=sys.stderr)
    return 0


def _as_text(shown: Shown) -> str:
    match shown:
        case Said(text=text):
            return "> " + sanitize.block(text).replace("\n", "\n> ")
        case TextItem(content=text):
            return sanitize.block(text)
        case ReasoningItem(content=text):
            return "| " + sanitize.block(text).replace("\n", "\n| ")
        case Ended(error=str() as error):
            return f"Failed: {sanitize.block(error)}"
        case Ended():
            return "Interrupted."
        case Compacted(summary=summary, status=status):
            return f"{sanitize.block(summary)}\n\n{sanitize.line(status)}".strip()
        case Reverted(seq=seq):
            return f"The compaction of record {seq} was taken back."
        case tool:
            return _tool_text(tool)


def _tool_text(tool: ToolItem) -> str:
    mark = "✘" if tool.is_error else "✔"
    head = f"{mark} {sanitize.line(tool.name)} {tool_headline(tool)}".rstrip()
    output = sanitize.plain(tool.output).rstrip("\n")
    head = f"{head} ({tool.seconds:.1f} s)"
    return f"{head}\n{indent(output, '  ')}" if output else head


def _export(store: Store, path: Path, wanted: Form | None, output: str | None) -> int:
    records = store.read(path).records
    if not records:
        raise SessionError(f"{path.name} holds nothing that can be read.")
    ending = Path(output or "").suffix.lstrip(".").lower()
    by_name: Form | None = next((known for known in FORMS if known == ending), None)
    form: Form = wanted or by_name or "md"
    text = export(records, form)
    data = text.encode()
    if output in (None, "-"):
        data = sanitize.block(text).encode() if sys.stdout.isatty() else data
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    target = Path(output)
    try:
        _replace(target, data)
    except OSError as error:
        raise SessionError(f"{output}: {error.strerror}; nothing was written.") from error
    print(f"Wrote {sanitize.line(output)}.", file=sys.stderr)
    return 0


def _replace(target: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises: OSError."""
    if target.exists() and not target.is_file():
        target.write_bytes(data)  # a device or a pipe
        return
    real = Path(os.path.realpath(target))
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name[:40]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, real)
    except BaseException:
        os.unlink(name)
        raise


def _undo_compaction(store: Store, path: Path) -> None:
    found = last_compaction(store.read(path).records)
    if found is None:
        raise SessionError(f"Session {path.stem[:8]} has no compaction to take back.")
    store.append(path, CompactionReverted(seq=found.seq))
    messages = len(conversation(store.read(path).records))
    print(
        f"Took back the compaction of record {found.seq}; the conversation has {messages} messages "
        "again. Raw tool outputs are not kept, so they do not come back."
    )

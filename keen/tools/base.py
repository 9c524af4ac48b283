"""What a tool is: a description for the model, and calls that say beforehand what they touch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from keen.core.events import Event, Question
from keen.core.messages import Image, Json, JsonObject, ToolSpec

Effect: TypeAlias = Literal["read", "write", "exec", "net", "ask"]
"""Calls with effect "read" of one answer run side by side, the others one after another."""


@dataclass(frozen=True, slots=True)
class Access:
    """One thing a call touches, as rules and modes judge it.

    `target`: an absolute real path for read and edit, the command text for bash, a host name for
    web_fetch, the tool's full name for mcp.
    """

    kind: Literal["read", "edit", "bash", "web_fetch", "mcp"]
    target: str
    needs: Literal["", "network", "outside"] = ""
    """bash only: what the model says the command needs. It can only raise a question."""
    length: int = 0
    """web_fetch only: characters of the URL, all of which the host is told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool has to say. `output` is uncapped; the toolbox bounds it."""

    output: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    exit_code: int | None = None


async def _no_progress(_text: str) -> None:
    return


async def _nowhere(_event: Event) -> None:
    return


def _keep_nothing(_path: Path, _before: bytes | None, _after: bytes) -> None:
    return


class Editor(Protocol):
    """An editor that has files open: what it holds unsaved stands before what is on disk.

    Paths are real and have been judged. Both wait for the editor, as long as it takes.
    """

    async def read(self, path: Path, saved: bytes | None) -> bytes | None:
        """The file as the editor has it; None: as it is on disk, where it is `saved`.

        Raises: ToolError when the editor cannot tell.
        """
        ...

    async def write(self, path: Path, content: bytes, before: bytes | None) -> bool:
        """Have the editor put `content` in the place of `before`, None where no file was.

        False: this one is for the disk, and nothing was done. Raises: ToolError.
        """
        ...


async def _nobody(_questions: tuple[Question, ...]) -> tuple[str, ...] | None:
    return None


@dataclass(frozen=True, slots=True)
class Context:
    """What a call gets from outside. Paths are absolute and real."""

    cwd: Path
    """Where relative paths and commands start; the workspace is this directory's root."""
    roots: tuple[Path, ...]
    """The workspace and every --add-dir: edits inside are "in the workspace"."""
    scratch: Path
    """A private directory of this session for spools and spilled results."""
    progress: Callable[[str], Awaitable[None]] = _no_progress
    ask: Callable[[tuple[Question, ...]], Awaitable[tuple[str, ...] | None]] = _nobody
    forward: Callable[[Event], Awaitable[None]] = _nowhere
    """Takes events of a conversation below this one to whoever watches this one."""
    keep: Callable[[Path, bytes | None, bytes], None] = _keep_nothing
    """Told, before a tool edits a file, its old bytes (None: no file) and the new; blocking."""
    editor: Editor | None = None
    """Where the files are open that tools read and write."""
    search: Callable[[str], str] | None = None
    """Searches the whole session log (recall); blocking."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    """The environment of commands, already scrubbed."""


async def _no_preview() -> Json:
    return None


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A validated call: what it touches, what a person should see before saying yes, and its run.

    `run` may raise ToolError; it must clean up and re-raise when cancelled.
    """

    accesses: tuple[Access, ...]
    run: Callable[[], Awaitable[Outcome]]
    preview: Callable[[], Awaitable[Json]] = _no_preview
    """For example {"kind": "diff", "path": …, "diff": …} or {"kind": "command", "command": …}."""


class Tool(Protocol):
    """One tool of the model's."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        """Validate the arguments against the schema.

        Raises:
            ToolError: wrong arguments; the message tells the model what to send instead.
        """
        ...

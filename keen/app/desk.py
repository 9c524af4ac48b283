"""What the app asks of the rest of keen: engines, sessions, models, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from keen.core.messages import JsonObject
from keen.themes import Palette

if TYPE_CHECKING:  # heavy to import, and needed before the first frame by nobody
    from keen._settings import Settings
    from keen.agent.sampling import Sampler
    from keen.core.models import ModelSpec
    from keen.engine import Engine
    from keen.session.records import Record


Attention: TypeAlias = Literal["turn_done", "permission_asked", "question_asked"]
"""What somebody is called for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which engine to open.

    `start`: what the command line asked for; `new`: a fresh session; `resume` and `fork`: the
    session with this id. `model` is PROVIDER/MODEL[:EFFORT], empty for the one that would be used.
    `upto`: a fork that keeps the records up to this number.
    """

    kind: Literal["start", "new", "resume", "fork"] = "start"
    session_id: str = ""
    model: str = ""
    upto: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine, and the records of the session it goes on with."""

    engine: Engine
    records: tuple[Record, ...] = ()
    is_trusted: bool = True
    asks_trust: bool = False
    """True when nobody has said yet whether this folder's files take effect."""
    sandbox: str = ""
    """`full`, `fs-only` or `none`; empty when it is not known."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A saved session, for the picker."""

    id: str
    title: str
    when: str
    """For people: `5 min ago`."""
    turns: int
    model: str
    place: str
    is_locked: bool = False
    is_here: bool = True


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model that can be chosen."""

    name: str
    detail: str
    """Window, price."""


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider that can be set up with a key."""

    name: str
    detail: str
    signs_in: bool = False
    """Through the browser, in place of a key."""


@dataclass(frozen=True, slots=True)
class Early:
    """What is known before anything is loaded: enough for the first frame."""

    palette: Palette
    keymap: dict[str, str]
    cwd: Path
    mode: str = "build"
    prompt: str = ""
    """Sent first."""
    is_theme_chosen: bool = True
    """False: the theme may follow the terminal's background."""
    is_picking: bool = False
    """`--resume` without a value: begin with the picker."""
    mouse: bool = True
    is_calm: bool = False
    """Less motion was asked for."""
    faults: tuple[str, ...] = field(default=())


class Desk(Protocol):
    """Everything here may block or fail; blocking work is done in threads."""

    @property
    def early(self) -> Early: ...

    async def open(self, wanted: Wanted) -> Opened:
        """Raises: ConfigError, SessionError, UsageError."""
        ...

    async def sessions(self, *, everywhere: bool) -> Sequence[SessionRow]: ...

    async def preview(self, session_id: str) -> Sequence[Record]:
        """A session's records. Raises: SessionError."""
        ...

    async def rename(self, session_id: str, name: str) -> None: ...

    async def delete(self, session_id: str) -> None: ...

    async def export(self, records: Sequence[Record], form: str) -> Path:
        """Write a document into the working directory; returns its path."""
        ...

    async def models(self, provider: str = "") -> Sequence[ModelRow]: ...

    async def model(self, name: str) -> ModelSpec:
        """What is known of PROVIDER/MODEL[:EFFORT]. Raises: ConfigError."""
        ...

    async def sampler(self, name: str) -> Sampler:
        """What asks PROVIDER/MODEL[:EFFORT], for the caller to close. Raises: ConfigError."""
        ...

    async def local_models(self) -> Sequence[ModelRow]:
        """Models of servers found on this machine."""
        ...

    def providers(self) -> Sequence[ProviderRow]: ...

    async def keep_key(self, provider: str, key: str) -> None:
        """Raises: ConfigError."""
        ...

    async def sign_in(self, provider: str, show: Callable[[str], None]) -> None:
        """Sign in through the browser; `show` gets the address. Raises: KeenError."""
        ...

    async def forget_key(self, provider: str) -> bool: ...

    def themes(self) -> Sequence[str]: ...

    def theme_changed(self, name: str) -> tuple[int, int]:
        """The time and size of the theme's file, zeros for a theme of keen's own."""
        ...

    def palette(self, name: str) -> Palette:
        """Raises: ConfigError."""
        ...

    async def remember(self, *, model: str = "", theme: str = "", thinking: str = "") -> None: ...

    async def files(self) -> Sequence[str]:
        """Files below the working directory, ignore rules honoured."""
        ...

    async def prompts(self) -> Sequence[str]:
        """What was sent in this directory before, oldest first."""
        ...

    async def keep_prompt(self, text: str) -> None: ...

    async def branch(self) -> str: ...

    async def told_status(self, facts: JsonObject) -> str:
        """What the person's own `ui.status_command` says of the session; empty without one."""
        ...

    async def call(self, kind: Attention, words: str) -> None:
        """Run the person's own `ui.notify_command`, if there is one."""
        ...

    async def trust(self) -> tuple[str, ...]:
        """What would take effect if this folder were trusted."""
        ...

    async def set_trust(self, is_trusted: bool) -> None: ...

    async def report(self, what: Literal["doctor", "config", "memory"]) -> str:
        """What the program of that name would print."""
        ...

    def settings(self) -> Settings | None:
        """The merged settings, once an engine has been opened."""
        ...

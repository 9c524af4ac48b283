"""Programs of the person's that are told when keen waits, and that write into its status line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen import sanitize
from keen.core.errors import ConfigError
from keen.core.messages import JsonObject
from keen.extend._hooks_answer import noticed
from keen.extend._hooks_process import Ended, resolved, run

Kind: TypeAlias = Literal["turn_done", "permission_asked", "question_asked"]

_NOTICE_SECONDS: Final = 10.0
"""How long a notice may take; nothing waits for it meanwhile."""
_STATUS_SECONDS: Final = 1.0
"""How long a status may take, and how long one is good for."""
_STATUS_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where such a program runs. Paths are real; `environment` is the one that commands get."""

    cwd: Path
    roots: tuple[Path, ...]
    environment: Mapping[str, str]
    session_id: str = ""


async def notify(command: Sequence[str], kind: Kind, message: str, place: Place) -> str:
    """Tell `[ui] notify_command`; returns what went wrong in one line, "" for nothing.

    The program reads {"type", "message", "session_id", "cwd"} from its standard input.
    """
    about: JsonObject = {
        "type": kind,
        "message": sanitize.line(message),
        "session_id": place.session_id,
        "cwd": str(place.cwd),
    }
    ended, fault = await _told(command, about, place, _NOTICE_SECONDS)
    return f"notify_command {fault or _failure(ended)}" if fault or _failure(ended) else ""


@dataclass(frozen=True, slots=True)
class Status:
    """What a status program is told, under these names. Tokens; `cost_usd` None: not known."""

    model: str
    mode: str
    cwd: str
    session_id: str
    context_used: int | None
    context_window: int
    cost_usd: float | None


@dataclass
class StatusCommand:
    """`[ui] status_command`: its first line, asked for once a second at most, a second at most.

    What is too early waits its turn: the facts of the last reader always reach the program.
    `fault` says in one line why the last one came to nothing, "" when it did not.
    """

    command: Sequence[str]
    place: Place
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    line: str = ""
    """The last one."""
    fault: str = ""
    _asked: float = field(default=float("-inf"))
    _is_asking: bool = False

    async def read(self, status: Status) -> str:
        """The line to show: a new one, or the last where somebody is asking for one already."""
        if self._is_asking:
            return self.line
        self._is_asking = True
        try:
            if (early := self._asked + _STATUS_SECONDS - self.clock()) > 0:
                await self.pause(early)
            self._asked = self.clock()
            about: JsonObject = asdict(status)
            ended, fault = await _told(self.command, about, self.place, _STATUS_SECONDS)
        finally:
            self._is_asking = False
        fault = fault or _failure(ended)
        self.fault = f"status_command {fault}" if fault else ""
        self.line = _first_line(ended.stdout) if ended is not None and not fault else ""
        return self.line


async def _told(
    command: Sequence[str], about: JsonObject, place: Place, seconds: float
) -> tuple[Ended | None, str]:
    """How the program ended, or None and why it did not begin."""
    try:
        argv = resolved(command, place.environment.get("PATH", ""), place.roots)
        said = json.dumps(about).encode()
        return await run(argv, said, place.cwd, place.environment, seconds), ""
    except ConfigError as error:
        return None, sanitize.line(str(error))
    except OSError as error:
        return None, f"cannot run: {error.strerror or error}"


def _failure(ended: Ended | None) -> str:
    if ended is None:
        return ""
    if ended.how != "exited":
        return "was ended: it took too long" if ended.how == "timed out" else "wrote without end"
    if not ended.code:
        return ""
    said = noticed(ended.stderr)
    return f"failed ({ended.code}): {said}" if said else f"failed ({ended.code})"


def _first_line(text: str) -> str:
    """Harmless, without colours: the status line has its own."""
    return sanitize.line(sanitize.plain(text.partition("\n")[0]).strip())[:_STATUS_LENGTH]

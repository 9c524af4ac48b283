"""What a start was asked for, whoever asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keen.core.messages import Json, JsonObject

PICK: Final = ""
"""The value of a bare `--resume`: let the person choose."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for. `cwd` is absolute and real."""

    cwd: Path
    model: str = ""
    is_continued: bool = False
    resume: str | None = None
    is_fork: bool = False
    mode: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()
    config: Path | None = None
    mcp_config: Path | None = None
    mcp_servers: JsonObject = field(default_factory=dict[str, Json])
    """Servers that an editor gave, in the form of `mcpServers`."""
    appended_prompt: str = ""
    is_saved: bool = True
    is_trusting: bool = False
    is_debugging: bool = False

    def settings(self) -> dict[str, Json]:
        """The flags as the uppermost layer of settings, by dotted key."""
        values: dict[str, Json] = {}
        if self.mode:
            values["permissions.mode"] = self.mode
        if self.allow:
            values["permissions.allow"] = [*self.allow]
        if self.deny:
            values["permissions.deny"] = [*self.deny]
        return values

"""What becomes of a call, in the words of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from keen.core.events import Choice

ANY: Final[tuple[Choice, ...]] = ("once", "session", "project", "deny")
ONCE: Final[tuple[Choice, ...]] = ("once", "deny")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a call. Of a refusal `reason` is a sentence the model reads."""

    kind: Literal["allow", "ask", "refuse"]
    reason: str = ""
    choices: tuple[Choice, ...] = ()
    rule: str = ""
    """What "project" would save, exact; a person may edit it."""
    prefix: str = ""
    """A wider rule to offer, where that is sensible."""


ALLOW: Final = Verdict("allow")

"""A permission question as ACP asks it, and the answer as keen understands it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acp.schema import AllowedOutcome, PermissionOption, RequestPermissionResponse

from keen.core.events import Choice, Decision

_ALLOW: Final = "allow"
_ALWAYS: Final = "allow_session"
_REJECT: Final = "reject"


def options(choices: Sequence[Choice]) -> list[PermissionOption]:
    """The answers a client may offer; `always` only where it can be remembered."""
    found = [PermissionOption(option_id=_ALLOW, name="Allow once", kind="allow_once")]
    if "session" in choices:
        always = "Always allow in this session"
        found.append(PermissionOption(option_id=_ALWAYS, name=always, kind="allow_always"))
    return [*found, PermissionOption(option_id=_REJECT, name="Reject", kind="reject_once")]


def decision(response: RequestPermissionResponse, choices: Sequence[Choice]) -> Decision | None:
    """What the person decided; None when the client says that the turn was cancelled.

    Only an option that was offered allows anything. A client may say more about a rejection in
    `_meta.message`.
    """
    outcome = response.outcome
    if not isinstance(outcome, AllowedOutcome):
        return None
    match outcome.option_id:
        case "allow":
            return Decision("once")
        case "allow_session" if "session" in choices:
            return Decision("session")
        case _:
            said = (response.field_meta or {}).get("message")
            return Decision("deny", message=said if isinstance(said, str) else "")

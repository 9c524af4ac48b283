"""keen's errors as answers of JSON-RPC: a code a client knows, and words that say what to do."""

from __future__ import annotations

from typing import Final

from acp.exceptions import RequestError

from keen.choice import NoModel
from keen.core.errors import KeenError, Transient, Unauthorized, UsageError

AUTH_REQUIRED: Final = -32000
INVALID_PARAMS: Final = -32602
NOT_FOUND: Final = -32002
_INTERNAL: Final = -32603


def failure(error: KeenError) -> RequestError:
    """The answer to a request that failed for this reason."""
    match error:
        case NoModel() | Unauthorized():
            code = AUTH_REQUIRED
        case UsageError():
            code = INVALID_PARAMS
        case _:
            code = _INTERNAL
    words = "\n".join([str(error), *getattr(error, "__notes__", ())])
    data: dict[str, object] = {"type": type(error).__name__}
    if isinstance(error, Transient) and error.retry_after is not None:
        data["retry_after"] = error.retry_after
    return RequestError(code, words, data)

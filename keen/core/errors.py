"""What can go wrong, one class per reaction.

KeenError
├── ConfigError             settings, keys, models: the user must change something (exit 4)
├── UsageError              wrong flags or arguments (exit 2)
├── SessionError            a session cannot be opened or written
├── ToolError               a tool's failure, told to the model, never the end of a turn
├── CompactionError         a compaction that changes nothing, with the reason
└── ProviderError
    ├── ContextOverflow     the input is too large: compact
    ├── OutputReserve       the output asked for is too large: lower it once
    ├── TooManyBytes        the request's bytes: drop media and big results, then compact
    ├── TooMany             too many messages, or a rate one request can never meet: compact
    ├── BadImage            an image was refused: replace it by a line
    ├── MalformedHistory    pairing or signatures refused: drop natives, pair again
    ├── Quirk               an optional field was refused by name: leave it out from now on
    ├── Transient           worth another try later
    ├── Unauthorized        key missing or refused, or not entitled (exit 4)
    └── Rejected            anything else: never retried
"""

from __future__ import annotations


class KeenError(Exception):
    """Base of all errors keen raises itself. The message says what happened and what to do."""


class ConfigError(KeenError):
    """Settings, keys or models are wrong; the message names the place."""


class UsageError(KeenError):
    """The command line is wrong."""


class SessionError(KeenError):
    """A session cannot be found, opened or written."""


class ToolError(KeenError):
    """A tool could not do what was asked; the model reads the message."""


class CompactionError(KeenError):
    """A compaction failed and changed nothing; the message is the reason."""


class ProviderError(KeenError):
    """The provider or the way to it failed. `status` is the HTTP status where there was one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ContextOverflow(ProviderError):
    """The input does not fit. `limit` is None when the provider named none that can be trusted."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        actual: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.actual = actual
        self.limit = limit


class OutputReserve(ProviderError):
    """The output asked for does not fit beside the input, or is out of the model's range.

    `limit` is the most output tokens that would be accepted, where the provider said so.
    `is_range`: the model's own cap was exceeded, so compacting would not help.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        limit: int | None = None,
        is_range: bool = False,
    ) -> None:
        super().__init__(message, status=status)
        self.limit = limit
        self.is_range = is_range


class TooManyBytes(ProviderError):
    """The request has too many bytes."""


class TooMany(ProviderError):
    """Too many messages, or more tokens in one request than the rate limit can ever admit."""


class BadImage(ProviderError):
    """An image was refused for its dimensions, size or format."""


class MalformedHistory(ProviderError):
    """The transcript was refused: pairing of calls and results, or a signature."""


class Quirk(ProviderError):
    """An optional request field was refused by name."""

    def __init__(self, message: str, *, field: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.field = field


class Transient(ProviderError):
    """Worth another try. `retry_after` in seconds when the provider said so.

    `is_spent`: a quota that comes back much later; no try is made, `retry_after` may say when.
    `is_empty`: the server took the request and closed without a word.
    `is_unsent`: no connection was made, so the request never left.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_spent: bool = False,
        is_empty: bool = False,
        is_unsent: bool = False,
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after
        self.is_spent = is_spent
        self.is_empty = is_empty
        self.is_unsent = is_unsent


class Unauthorized(ProviderError):
    """The key is missing, refused or not entitled to this model."""


class Rejected(ProviderError):
    """The provider refused the request for a reason that no retry cures."""

"""What a refusal means: a code, a status and a wording become one error, one reaction each.

Order: a structured code, wordings that only look like size, the HTTP status, wordings of size.
The rows and their example messages stand in `_phrases`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from keen.core.errors import (
    BadImage,
    ContextOverflow,
    MalformedHistory,
    OutputReserve,
    ProviderError,
    Quirk,
    Rejected,
    TooMany,
    TooManyBytes,
    Transient,
    Unauthorized,
)
from keen.core.messages import Json
from keen.wire._json import decoded
from keen.wire._phrases import CODES, REFUSALS, UNMISTAKABLE, VETOES, Kind, Rows
from keen.wire._quirks import refused_field, refused_form
from keen.wire._waits import come_back, said_wait
from keen.wire._waits import retry_after as retry_after

MAX_MESSAGE: Final = 2_000
_MAX_WORDS: Final = 1_400
_MAX_DEPTH: Final = 8
_MAX_TEXTS: Final = 64
_MAX_TEXT: Final = 20_000
_MAX_SEARCHED: Final = 8_000
"""Characters of all texts together: what follows is an echo of the request, not a reason."""
_SMALLEST_WINDOW: Final = 256
"""No model has a smaller one: a limit below it is a remainder, not a window (vllm#33418)."""
_SIZE_STATUSES: Final = frozenset({None, 200, 400, 413, 422})
_RETRIED: Final = frozenset({408, 409, 425})
_PATIENCE: Final = 120.0
"""Seconds of a wait above which nobody waits: then the time to come back is told."""
_CODE_KEYS: Final = frozenset({"code", "type", "status", "reason", "error_code", "__type"})
_WORD_KEYS: Final = frozenset(
    {"message", "Message", "msg", "detail", "error", "raw", "error_message", "description", "title"}
)
_CEILING: Final = re.compile(r"limit:? (\d[\d,]*)(?:,? used:? \d[\d,]*)?,? requested:? (\d[\d,]*)")
_SPLITS: Final = re.compile(r"\(([^()]*\d (?:in|of) [^()]*)\)")
_SPLIT: Final = re.compile(r"(\d[\d,]*) (?:in|of) (?:the )?([a-z]+(?: [a-z]+)?)")
_DIGITS: Final = r"\d[\d,]*"
_WINDOWS: Final[frozenset[Kind]] = frozenset({"window", "reserve"})
_VAGUE: Final[frozenset[Kind]] = frozenset({"rate", "trouble", "key", "entitlement"})
"""Kinds whose codes go with many refusals: the wording is asked first."""
_SECRET: Final = re.compile(r"\b(sk|gsk|xai|key|pplx|AIza)([-_][\w*-]{8,}|[\w*-]{20,})")
_TAGS: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


@dataclass(slots=True)
class _Refusal:
    """A refusal laid flat: all codes, texts and numbers its nested bodies hold."""

    status: int | None
    provider: str
    codes: list[str] = field(default_factory=list[str])
    params: list[str] = field(default_factory=list[str])
    texts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """(depth, text): gateways wrap, so the deepest text is the provider's own."""
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def walk(self, value: Json, key: str = "", depth: int = 0) -> None:
        if depth > _MAX_DEPTH or len(self.texts) > _MAX_TEXTS:
            return
        match value:
            case dict():
                for name, inner in value.items():
                    self.walk(inner, name, depth + 1)
            case list() if key == "loc":  # FastAPI: ["body", "stream_options"]
                self.params.extend(item for item in value if isinstance(item, str))
            case list():
                for item in value[:_MAX_TEXTS]:
                    self.walk(item, key, depth + 1)
            case str():
                self._text(value, key, depth)
            case int() if not isinstance(value, bool):
                self._number(value, key)
            case _:
                pass

    def _text(self, text: str, key: str, depth: int) -> None:
        if key in _CODE_KEYS:
            self.codes.append(text.lower())
        elif key == "param":
            self.params.append(text)
        if key not in _WORD_KEYS or not text.strip():
            return
        text = text[:_MAX_TEXT]
        start = text.find("{")
        if 0 <= start < text.rfind("}"):
            try:
                inner = decoded(text[start : text.rfind("}") + 1])
            except ValueError:
                inner = None
            self.walk(inner, key, depth + 1)
        self.texts.append((depth, text))

    def _number(self, number: int, key: str) -> None:
        if key in ("code", "status", "status_code"):
            self.codes.append(str(number))
            if self.status in (None, 200) and 400 <= number < 600:
                self.status = number
        elif key in ("n_prompt_tokens", "n_ctx"):
            self.numbers[key] = number

    @property
    def searched(self) -> str:
        """All texts in lower case with single blanks."""
        joined = " | ".join(text for _, text in self.texts)
        joined = " ".join(joined[: 2 * _MAX_SEARCHED].lower().replace("’", "'").split())
        return joined[:_MAX_SEARCHED]

    @property
    def words(self) -> str:
        """The provider's own words, short enough to show, without keys and markup."""
        depth = max((depth for depth, _ in self.texts), default=0)
        text = next((text for at, text in self.texts if at == depth), "")
        if text.lstrip().startswith("<"):
            title = _TITLE.search(text)
            text = title.group(1) if title else _TAGS.sub(" ", text)
        text = _SECRET.sub(r"\1-…", " ".join(text.split()))
        return text if len(text) <= _MAX_WORDS else text[: _MAX_WORDS - 1] + "…"

    @property
    def is_page(self) -> bool:
        return any(
            text.lstrip()[:15].lower().startswith(("<!doctype", "<html")) for _, text in self.texts
        )

    def says(self, what: str, todo: str = "") -> str:
        """`what` the provider did, its words, and what to do."""
        name = self.provider or "The provider"
        status = f" (HTTP {self.status})" if self.status and self.status >= 400 else ""
        words = f": {self.words}" if self.words else ""
        end = "" if words.endswith((".", "!", "?", "…")) else "."
        return f"{name} {what}{status}{words}{end} {todo}".strip()[:MAX_MESSAGE]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Numbers a refusal names. `actual`: the input, or input and output where nothing splits it."""

    actual: int | None = None
    output: int | None = None
    limit: int | None = None
    is_split: bool = False


def classified(
    *,
    status: int | None,
    code: str = "",
    message: str = "",
    retry_after: float | None = None,
    provider: str = "",
    body: Json = None,
) -> ProviderError:
    """The error a refusal means, not raised.

    `status` None or 200: an error inside a stream. `body`: the parsed error body or its text, as
    nested as it came; `message` may repeat it. `retry_after` in seconds where headers told it.
    """
    refusal = _Refusal(status, provider)
    refusal.codes.extend([code.lower()] if code else [])
    refusal.walk(body, "error")
    # An SDK's own sentence around a body would hide the provider's words.
    if message and not any(text in message for _, text in refusal.texts):
        refusal.walk(message, "message", 1)
    wait = retry_after if retry_after is not None else said_wait(body, refusal.searched)
    return _error(refusal, wait)


def refused(
    status: int, headers: Mapping[str, str], content: bytes, provider: str
) -> ProviderError:
    """The error an HTTP answer of 400 or more means."""
    text = content.decode("utf-8", "replace")
    try:
        body = decoded(text)
    except ValueError:
        body = text
    return classified(
        status=status, provider=provider, body=body, retry_after=retry_after(headers, body)
    )


def _error(refusal: _Refusal, wait: float | None) -> ProviderError:
    searched = refusal.searched
    kinds: list[Kind] = [CODES[code] for code in refusal.codes if code in CODES]
    certain: Kind | None = next((kind for kind in kinds if kind not in _VAGUE), None)
    if certain:
        return _certain(certain, refusal, searched, wait)
    if vetoed := _found(VETOES, searched):
        return _limited(vetoed[0], refusal, wait, searched)
    if form := refused_form(searched):
        return Quirk(refusal.says("refused the request"), field=form, status=refusal.status)
    if found := _found(UNMISTAKABLE, searched):
        return _named(found[0], refusal, _sizes(found[1], searched), wait)
    if refusal.status in _SIZE_STATUSES:
        if name := refused_field(searched, refusal.codes, refusal.params):
            says = refusal.says(f"refused the field {name}")
            return Quirk(says, field=name, status=refusal.status)
        if found := _found(REFUSALS, searched):
            return _named(found[0], refusal, _sizes(found[1], searched), wait)
    if kinds:
        return _limited(kinds[0], refusal, wait, searched)
    return _by_status(refusal, wait)


def _certain(kind: Kind, refusal: _Refusal, searched: str, wait: float | None) -> ProviderError:
    """A structured code decides; the wording gives the numbers and tells input from output."""
    if kind != "window":
        return _named(kind, refusal, _Sizes(), wait)
    for groups in (UNMISTAKABLE, REFUSALS):
        found = _found({k: rows for k, rows in groups.items() if k in _WINDOWS}, searched)
        if found:
            return _named(found[0], refusal, _sizes(found[1], searched), wait)
    return _named(kind, refusal, _Sizes(), wait)


def _found(groups: Mapping[Kind, Rows], text: str) -> tuple[Kind, re.Match[str]] | None:
    for kind, rows in groups.items():
        for pattern, _ in rows:
            if match := _compiled(pattern).search(text):
                return kind, match
    return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.replace("<n>", _DIGITS)
    return re.compile(re.sub(r"<([a-z]+)>", lambda name: f"(?P{name.group()}{_DIGITS})", pattern))


def _number(digits: str) -> int:
    return int(digits.replace(",", "")[:18] or "0")


def _sizes(match: re.Match[str], text: str) -> _Sizes:
    numbers = {name: _number(digits) for name, digits in match.groupdict().items() if digits}
    limit = numbers.get("limit", numbers["beyond"] - 1 if "beyond" in numbers else None)
    if limit is not None and limit < _SMALLEST_WINDOW:
        limit = None
    if "input" in numbers and "output" in numbers:
        return _Sizes(numbers["input"], numbers["output"], limit, is_split=True)
    split = _SPLITS.search(text) if "limit" in numbers else None
    if split is None:
        return _Sizes(numbers.get("actual", numbers.get("input")), numbers.get("output"), limit)
    sums = {True: 0, False: 0}
    for digits, where in _SPLIT.findall(split.group(1)):
        sums["completion" in where or "output" in where] += _number(digits)
    return _Sizes(sums[False], sums[True], limit, is_split=True)


def _limited(kind: Kind, refusal: _Refusal, wait: float | None, searched: str) -> ProviderError:
    """A rate, unless a single request is over what a minute admits: no waiting cures that."""
    ceiling = _CEILING.search(searched) if kind in ("rate", "spent") else None
    if ceiling and _number(ceiling.group(2)) > _number(ceiling.group(1)):
        return TooMany(
            refusal.says("admits fewer tokens a minute than this one request has"),
            status=refusal.status,
        )
    return _named(kind, refusal, _Sizes(), wait)


def _named(kind: Kind, refusal: _Refusal, sizes: _Sizes, wait: float | None) -> ProviderError:
    says, status = refusal.says, refusal.status
    match kind:
        case "window" | "reserve":
            return _too_large(kind, refusal, sizes)
        case "range":
            return OutputReserve(
                says("allows fewer output tokens", "Lower max_output_tokens in the settings."),
                status=status,
                limit=sizes.limit,
                is_range=True,
            )
        case "bytes":
            return TooManyBytes(says("refused the request: too many bytes"), status=status)
        case "count":
            return TooMany(says("refused the request: too many messages"), status=status)
        case "image":
            return BadImage(says("refused an image"), status=status)
        case "history":
            return MalformedHistory(says("refused the conversation's form"), status=status)
        case "rejected":
            return Rejected(says("refused the request"), status=status)
        case "rate" | "trouble":
            return _server_trouble(kind, refusal, wait)
        case "key" | "entitlement" | "spent":
            return _denied(kind, refusal, wait)


def _denied(kind: Kind, refusal: _Refusal, wait: float | None) -> ProviderError:
    says, status, name = refusal.says, refusal.status, refusal.provider or "PROVIDER"
    if kind == "key":
        return Unauthorized(
            says(
                "refused the key",
                f"`keen auth status {name}` says where it comes from, `keen auth login {name}` "
                "keeps another.",
            ),
            status=status,
        )
    if kind == "entitlement":
        todo = f"Choose another model, or another account with `keen auth login {name}`."
        return Unauthorized(says("does not allow this request", todo), status=status)
    if wait and wait <= _PATIENCE:  # Gemini calls a minute's limit a quota too
        return _server_trouble("rate", refusal, wait)
    todo = come_back(wait) if wait else "Wait until it is renewed, or add credit."
    return Transient(
        says("has no quota left for this account", todo),
        status=status,
        retry_after=wait,
        is_spent=True,
    )


def _too_large(kind: Kind, refusal: _Refusal, sizes: _Sizes) -> ProviderError:
    limit, actual = sizes.limit, sizes.actual
    if kind == "window" and sizes.is_split and limit is not None and actual is not None:
        kind = "reserve" if actual < limit and sizes.output else "window"
    if kind == "window":
        numbers = refusal.numbers
        actual, limit = numbers.get("n_prompt_tokens", actual), numbers.get("n_ctx", limit)
        return ContextOverflow(
            refusal.says("refused the request: it is larger than the model's context window"),
            status=refusal.status,
            actual=actual,
            limit=limit,
        )
    room = limit - actual if sizes.is_split and limit and actual and actual < limit else None
    return OutputReserve(
        refusal.says("has no room for the output asked for beside this input"),
        status=refusal.status,
        limit=room,
    )


def _by_status(refusal: _Refusal, wait: float | None) -> ProviderError:
    says, status = refusal.says, refusal.status
    match status:
        case 401:
            return _denied("key", refusal, wait)
        case 402:
            return _denied("spent", refusal, wait)
        case 403 if not refusal.is_page:
            return _denied("entitlement", refusal, wait)
        case 404:
            todo = "Check the model's name and the provider's base_url."
            return Rejected(says("knows no such model or address", todo), status=status)
        case 407:
            todo = "Put its user and password into HTTPS_PROXY (http://user:password@host:port)."
            return Rejected(says("is behind a proxy that wants a sign-in", todo), status=status)
        case 413 if refusal.words:
            return TooManyBytes(says("refused the request: too many bytes"), status=status)
        case None | 200:
            return Transient(says("ended the answer with an error"), retry_after=wait)
        case 429:
            return _server_trouble("rate", refusal, wait)
        case _ if status in _RETRIED or status >= 500:
            return _server_trouble("trouble", refusal, wait)
        case _:
            return Rejected(says("refused the request"), status=status)


def _server_trouble(kind: Kind, refusal: _Refusal, wait: float | None) -> ProviderError:
    what = "is overloaded or limits the rate" if kind == "rate" else "has a problem"
    crashed = re.search(r"process has terminated|0xc0000005", refusal.searched)
    todo = "If it happens again, give the local server a larger context." if crashed else ""
    if wait is not None and wait > _PATIENCE:
        todo = come_back(wait)
    return Transient(refusal.says(what, todo), status=refusal.status, retry_after=wait)

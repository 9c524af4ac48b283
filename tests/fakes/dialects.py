"""The six protocols as the tests speak of them: how to build the client, how to say what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from keen.core.messages import Finish, Json, Usage
from keen.core.models import ModelSpec
from keen.wire.base import Endpoint, FixedKey, Wire
from keen.wire.registry import wire_for
from tests.fakes import frames
from tests.fakes.frames import Answer, Called
from tests.fakes.refusals import Kind, refusal, refusal_frame, server_error_wording, wording
from tests.fakes.script import Recorded, Scripted
from tests.fakes.signing import fresh_id
from tests.fakes.transcripts import Transcript, read

PROVIDER: Final = "fake"
USAGE: Final = Usage(input_tokens=120, output_tokens=7)
_AWS_STREAM: Final = "application/vnd.amazon.eventstream"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One protocol: its client in keen, and its fake's answers.

    `account` signs what the fake gives out; another account's signatures are refused.
    """

    name: str
    model_id: str
    path: str
    call_id: str
    to_frames: Callable[[Answer, str, str], tuple[bytes, ...]]
    account: str
    optional_field: str
    """A request field that servers refuse by name."""
    key: str = "sk-fake-key"
    has_output_cap: bool = True
    counts_reasoning: bool = True
    counts_cache_writes: bool = False
    says_retry_after: bool = True
    has_overflow_numbers: bool = True
    fills_window: bool = False

    @property
    def content_type(self) -> str:
        """The content type of its streams."""
        return _AWS_STREAM if self.name == "bedrock" else "text/event-stream"

    # The client.

    def model(
        self,
        *,
        window: int = 200_000,
        asked_output: int | None = None,
        max_output: int | None = 64_000,
        reasoning: bool = True,
        images: bool = True,
        id: str = "",
        provider: str = PROVIDER,
    ) -> ModelSpec:
        """The model the fake serves."""
        return ModelSpec(
            provider=provider,
            id=id or self.model_id,
            client=self.name,
            window=window,
            is_window_known=True,
            max_output=max_output,
            asked_output=asked_output,
            reasoning=reasoning,
            images=images,
        )

    def endpoint(
        self,
        url: str,
        *,
        provider: str = PROVIDER,
        key: str = "",
        account_id: str = "",
        headers: Mapping[str, str] | None = None,
        quirks: frozenset[str] = frozenset(),
        idle_seconds: float = 300.0,
    ) -> Endpoint:
        """The fake at `url` as an endpoint."""
        return Endpoint(
            provider=provider,
            credential=FixedKey(key or self.key, account_id),
            base_url=url + self.path,
            headers=dict(headers or {}),
            quirks=quirks,
            region="us-east-1" if self.name == "bedrock" else "",
            idle_seconds=idle_seconds,
        )

    def wire(
        self,
        url: str,
        *,
        provider: str = PROVIDER,
        quirks: frozenset[str] = frozenset(),
        headers: Mapping[str, str] | None = None,
        idle_seconds: float = 300.0,
    ) -> Wire:
        """keen's client for the fake at `url`."""
        endpoint = self.endpoint(
            url, provider=provider, quirks=quirks, headers=headers, idle_seconds=idle_seconds
        )
        return wire_for(self.name, endpoint)

    def settings(
        self, url: str, *, window: int = 200_000, max_output: int = 8_192, extra: str = ""
    ) -> str:
        """A config.toml that points keen at the fake. `extra` goes into the provider's table."""
        region = 'region = "us-east-1"\n' if self.name == "bedrock" else ""
        return (
            f'model = "{PROVIDER}/{self.model_id}"\n\n'
            f"[providers.{PROVIDER}]\n"
            f'client = "{self.name}"\n'
            f'base_url = "{url}{self.path}"\n'
            f'api_key = "{self.key}"\n'
            f"{region}{extra}\n"
            f'[providers.{PROVIDER}.models."{self.model_id}"]\n'
            f"context_window = {window}\n"
            f"max_output_tokens = {max_output}\n"
        )

    # Answers.

    def answers(self, answer: Answer) -> Scripted:
        """Any answer in this protocol's frames."""
        return Scripted(
            content_type=self.content_type,
            frames=self.to_frames(answer, self.model_id, self.account),
        )

    def says(
        self,
        text: str,
        *,
        usage: Usage | None = USAGE,
        reasoning: str = "",
        pieces: tuple[str, ...] | None = None,
    ) -> Scripted:
        """A whole answer of text. `pieces` are the deltas, else about a word each."""
        spoken = pieces if pieces is not None else split(text)
        return self.answers(Answer(spoken, split(reasoning), usage=usage))

    def calls(self, name: str, **input: Json) -> Scripted:
        """One call, its arguments split over several chunks."""
        return self.calls_many((name, input))

    def calls_many(
        self,
        *calls: tuple[str, Mapping[str, Json]],
        text: str = "",
        reasoning: str = "",
        usage: Usage | None = USAGE,
    ) -> Scripted:
        """Several calls in one answer, after text and reasoning if there is some."""
        made = tuple(self.call(name, json.dumps(dict(input))) for name, input in calls)
        return self.answers(Answer(split(text), split(reasoning), made, usage))

    def calls_raw(self, name: str, arguments: str) -> Scripted:
        """One call with exactly this argument text, JSON or not."""
        return self.answers(Answer(calls=(self.call(name, arguments),), usage=USAGE))

    def call(self, name: str, arguments: str) -> Called:
        """A call with an id no other has; Gemini gives none."""
        call_id = fresh_id(self.call_id) if self.call_id else ""
        return Called(call_id, name, split_evenly(arguments, 7))

    def reasons(self, text: str, then: str = "done") -> Scripted:
        """Reasoning, then text."""
        return self.says(then, reasoning=text)

    def truncated(self, text: str, call: tuple[str, str] | None = None) -> Scripted:
        """Cut off at the output cap, perhaps inside the arguments of a call."""
        calls = (self.call(*call),) if call else ()
        return self.answers(self._stopped(text, "length", calls))

    def refused(self, text: str = "") -> Scripted:
        """Ended by a content filter."""
        return self.answers(self._stopped(text, "refused"))

    def filled_window(self, text: str) -> Scripted | None:
        """An answer that filled the window; None where the protocol cannot say so."""
        return self.answers(self._stopped(text, "overflow")) if self.fills_window else None

    def _stopped(self, text: str, finish: Finish | None, calls: tuple[Called, ...] = ()) -> Answer:
        return Answer(split(text), (), calls, USAGE, finish, is_cut_in_call=bool(calls))

    # Refusals.

    def _refuses(
        self, kind: Kind, headers: Mapping[str, str] | None = None, **facts: int | str
    ) -> Scripted | None:
        words = wording(kind, self.name, **facts)
        return None if words is None else refusal(self.name, words, headers)

    def _surely_refuses(
        self, kind: Kind, headers: Mapping[str, str] | None = None, **facts: int | str
    ) -> Scripted:
        scripted = self._refuses(kind, headers, **facts)
        assert scripted is not None
        return scripted

    def overflow(self, actual: int = 213_462, limit: int = 200_000) -> Scripted:
        """The input is too large: a 400 in the provider's words."""
        return self._surely_refuses("overflow", actual=actual, limit=limit)

    def overflow_in_stream(
        self, text: str = "", actual: int = 213_462, limit: int = 200_000
    ) -> Scripted:
        """The same, told inside a stream whose status was 200, after `text`."""
        words = wording("overflow", self.name, actual=actual, limit=limit)
        assert words is not None
        return self._then(text, refusal_frame(self.name, words))

    def output_reserve(
        self, input: int = 190_000, asked: int = 20_000, limit: int = 200_000
    ) -> Scripted | None:
        """Input and output cap together are too large; None where no server is known to say so."""
        return self._refuses(
            "output_reserve", input=input, asked=asked, limit=limit, total=input + asked
        )

    def output_range(self, limit: int, above: int = 64_000) -> Scripted | None:
        """The output cap is above the model's own; None where the client sends none."""
        return self._refuses("output_range", limit=limit, over=limit + 1, above=above)

    def too_many_bytes(self) -> Scripted:
        """The request has too many bytes."""
        return self._surely_refuses("too_many_bytes")

    def malformed_history(self, detail: str = "call_1") -> Scripted:
        """Calls and results do not pair."""
        return self._surely_refuses("malformed_history", detail=detail)

    def bad_image(self) -> Scripted:
        """An image was refused."""
        return self._surely_refuses("bad_image")

    def quirk(self, field: str = "") -> Scripted:
        """A request field was refused by name; without one, `optional_field`."""
        return self._surely_refuses("quirk", field=field or self.optional_field)

    def rate_limited(self, retry_after: float | str | None = None) -> Scripted:
        """429, with the wait in the protocol's own way where it has one."""
        headers = {} if retry_after is None else {"retry-after": f"{retry_after}"}
        return self._surely_refuses("rate_limited", headers)

    def overloaded(self) -> Scripted:
        """The server is overloaded."""
        return self._surely_refuses("overloaded")

    def overloaded_in_stream(self, text: str = "") -> Scripted:
        """The server says so after an answer has begun."""
        words = wording("overloaded", self.name)
        assert words is not None
        return self._then(text, refusal_frame(self.name, words))

    def spent(self) -> Scripted:
        """A quota that comes back much later."""
        return self._surely_refuses("spent")

    def unauthorized(self) -> Scripted:
        """The key is refused."""
        return self._surely_refuses("unauthorized")

    def server_error(self, status: int = 500) -> Scripted:
        """The server failed."""
        return refusal(self.name, server_error_wording(self.name, status))

    # Faults.

    def begins(self, text: str) -> Scripted:
        """An answer up to its last delta, with no terminal event."""
        return self.answers(self._stopped(text, None))

    def _then(self, text: str, frame: bytes) -> Scripted:
        begun = self.begins(text) if text else replace(self.begins(""), frames=())
        return replace(begun, frames=(*begun.frames, frame))

    def hangs(self, text: str = "") -> Scripted:
        """Silence after `text`, until the client leaves."""
        return replace(self.begins(text), hold=True)

    def hangs_before_headers(self) -> Scripted:
        """Silence from the start, until the client leaves."""
        return Scripted(hang_before_headers=True)

    def cut(self, text: str, how: Literal["fin", "rst"] = "fin") -> Scripted:
        """The connection ends in the middle of the answer."""
        return replace(self.begins(text), cut=how)

    def ends_early(self, text: str) -> Scripted:
        """The stream ends in order, but without its terminal event."""
        return self.begins(text)

    # Requests.

    def read(self, request: Recorded) -> Transcript:
        """The request as a transcript."""
        assert request.protocol == self.name, f"{request.path} is not {self.name}"
        return read(request)

    def reported(self, usage: Usage) -> Usage:
        """What of `usage` this protocol can tell."""
        return replace(
            usage,
            reasoning_tokens=usage.reasoning_tokens if self.counts_reasoning else 0,
            cache_write_tokens=usage.cache_write_tokens if self.counts_cache_writes else 0,
        )


def split(text: str) -> tuple[str, ...]:
    """The text in deltas of about a word."""
    pieces = text.split(" ")
    spaced = [piece + " " for piece in pieces[:-1]] + pieces[-1:]
    return tuple(piece for piece in spaced if piece)


def split_evenly(text: str, size: int) -> tuple[str, ...]:
    """The text in pieces of `size` characters."""
    return tuple(text[start : start + size] for start in range(0, len(text), size))


DIALECTS: Final[tuple[Dialect, ...]] = (
    Dialect(
        name="chat",
        model_id="fake-chat-1",
        path="/v1",
        call_id="call_",
        to_frames=frames.chat_frames,
        account="chat",
        optional_field="stream_options",
        fills_window=True,
    ),
    Dialect(
        name="responses",
        model_id="gpt-5-fake",
        path="/v1",
        call_id="call_",
        to_frames=frames.responses_frames,
        account="responses",
        optional_field="prompt_cache_key",
        has_overflow_numbers=False,
    ),
    Dialect(
        name="codex",
        model_id="gpt-5-codex-fake",
        path="/backend-api/codex",
        call_id="call_",
        to_frames=frames.codex_frames,
        account="codex",
        optional_field="prompt_cache_key",
        has_output_cap=False,
        has_overflow_numbers=False,
    ),
    Dialect(
        name="anthropic",
        model_id="claude-sonnet-4-fake",
        path="",
        call_id="toolu_",
        to_frames=frames.anthropic_frames,
        account="anthropic",
        optional_field="thinking",
        counts_reasoning=False,
        counts_cache_writes=True,
        fills_window=True,
    ),
    Dialect(
        name="google",
        model_id="gemini-3-fake",
        path="",
        call_id="",
        to_frames=frames.google_frames,
        account="google",
        optional_field="thinkingConfig",
    ),
    Dialect(
        name="bedrock",
        model_id="anthropic.claude-sonnet-4-fake-v1:0",
        path="",
        call_id="tooluse_",
        to_frames=frames.bedrock_frames,
        account="bedrock",
        optional_field="thinking",
        key="AKIAFAKEFAKEFAKEFAKE:fake",
        counts_reasoning=False,
        counts_cache_writes=True,
        says_retry_after=False,
        fills_window=True,
    ),
)


def dialect_named(name: str) -> Dialect:
    """The dialect of that name. Raises: KeyError."""
    return {dialect.name: dialect for dialect in DIALECTS}[name]

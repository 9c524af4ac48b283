"""How every wire names what goes wrong, over the six protocols, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from keen.core.errors import (
    BadImage,
    ContextOverflow,
    MalformedHistory,
    OutputReserve,
    ProviderError,
    Quirk,
    TooManyBytes,
    Transient,
    Unauthorized,
)
from keen.core.events import TextDelta
from keen.core.messages import User
from tests.fakes.asking import Heard, asking, hear, open_wire
from tests.fakes.dialects import Dialect
from tests.fakes.script import Scripted
from tests.fakes.server import FakeProvider

HELLO = User("hello")


async def refused(
    dialect: Dialect, scripted: Scripted, heard: Heard | None = None
) -> ProviderError:
    """The error of a request that is answered with `scripted`."""
    async with FakeProvider(scripted) as provider, open_wire(dialect, provider.url) as wire:
        with pytest.raises(ProviderError) as caught:
            await hear(wire, asking(dialect, HELLO), heard)
        assert provider.violations == []
        assert len(provider.requests) == 1, "a wire never retries by itself"
    return caught.value


async def test_overflow_400_is_context_overflow(dialect: Dialect) -> None:
    error = await refused(dialect, dialect.overflow(actual=213_462, limit=200_000))

    assert type(error) is ContextOverflow
    assert error.status == 400
    if dialect.has_overflow_numbers:
        assert (error.actual, error.limit) == (213_462, 200_000)


@pytest.mark.parametrize("text", ["", "I had begun "])
async def test_overflow_in_a_stream_is_context_overflow(dialect: Dialect, text: str) -> None:
    heard = Heard()
    error = await refused(dialect, dialect.overflow_in_stream(text), heard)

    assert type(error) is ContextOverflow
    assert heard.text == text
    assert heard.replies == []


async def test_input_and_cap_together_too_large_is_output_reserve(dialect: Dialect) -> None:
    scripted = dialect.output_reserve(input=190_000, asked=20_000, limit=200_000)
    if scripted is None:
        pytest.skip("no server of this protocol is known to say so")
    error = await refused(dialect, scripted)

    assert type(error) is OutputReserve
    assert not error.is_range
    assert error.limit in (None, 10_000)


async def test_a_cap_above_the_range_is_output_reserve_with_the_limit(dialect: Dialect) -> None:
    scripted = dialect.output_range(limit=32_000, above=64_000)
    if scripted is None:
        pytest.skip("the client sends no output cap")
    error = await refused(dialect, scripted)

    assert type(error) is OutputReserve
    assert error.is_range
    assert error.limit == 32_000


REFUSALS: dict[str, tuple[Callable[[Dialect], Scripted], type[ProviderError]]] = {
    "too many bytes": (lambda dialect: dialect.too_many_bytes(), TooManyBytes),
    "malformed history": (lambda dialect: dialect.malformed_history(), MalformedHistory),
    "bad image": (lambda dialect: dialect.bad_image(), BadImage),
    "unauthorized": (lambda dialect: dialect.unauthorized(), Unauthorized),
    "overloaded": (lambda dialect: dialect.overloaded(), Transient),
    "overloaded in the stream": (lambda dialect: dialect.overloaded_in_stream("a b"), Transient),
    "server error 500": (lambda dialect: dialect.server_error(500), Transient),
    "server error 502": (lambda dialect: dialect.server_error(502), Transient),
    "cut with FIN": (lambda dialect: dialect.cut("half an ans", "fin"), Transient),
    "cut with RST": (lambda dialect: dialect.cut("half an ans", "rst"), Transient),
    "cut before the first event": (
        lambda dialect: replace(dialect.cut("", "fin"), frames=()),
        Transient,
    ),
    "ends early": (lambda dialect: dialect.ends_early("half an ans"), Transient),
    "ends at once": (lambda dialect: replace(dialect.ends_early(""), frames=()), Transient),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_has_its_class(dialect: Dialect, name: str) -> None:
    scripted, kind = REFUSALS[name]
    error = await refused(dialect, scripted(dialect))

    assert type(error) is kind
    assert str(error)


async def test_text_before_a_cut_was_streamed(dialect: Dialect) -> None:
    heard = Heard()
    await refused(dialect, dialect.cut("half an ans", "fin"), heard)

    assert heard.text == "half an ans"


async def test_429_carries_retry_after(dialect: Dialect) -> None:
    error = await refused(dialect, dialect.rate_limited(retry_after=7))

    assert type(error) is Transient
    assert error.retry_after == (7.0 if dialect.says_retry_after else None)
    assert error.status == 429
    assert not error.is_spent


async def test_a_wait_that_nobody_waits_for_names_the_time_to_come_back(dialect: Dialect) -> None:
    scripted = dialect.server_error(503)
    scripted = replace(scripted, headers={**scripted.headers, "retry-after": "11500"})
    error = await refused(dialect, scripted)

    assert type(error) is Transient
    assert error.retry_after == 11_500
    assert "Come back in 3 h 12 min (2" in str(error)


async def test_a_spent_quota_is_not_worth_a_try(dialect: Dialect) -> None:
    error = await refused(dialect, dialect.spent())

    assert type(error) is Transient
    assert error.is_spent


async def test_a_field_refused_by_name_is_a_quirk_that_without_cures(dialect: Dialect) -> None:
    error = await refused(dialect, dialect.quirk())
    assert type(error) is Quirk
    assert error.field == dialect.optional_field

    async with FakeProvider(dialect.says("ok")) as provider:
        wire = dialect.wire(provider.url).without(error.field)
        await hear(wire, asking(dialect, HELLO, effort="high"))
        await wire.aclose()
        assert provider.violations == []
        assert f'"{error.field}"' not in provider.requests[0].text


async def test_the_message_names_the_provider_s_words(dialect: Dialect) -> None:
    error = await refused(dialect, dialect.malformed_history("call_from_the_test"))

    assert "call_from_the_test" in str(error)


WAITING: dict[str, Callable[[Dialect], Scripted]] = {
    "while it streams": lambda dialect: replace(
        dialect.says("", pieces=("word ",) * 500), delay=0.01
    ),
    "while it hangs": lambda dialect: dialect.hangs("some words"),
    "before the first event": lambda dialect: replace(dialect.hangs(""), frames=()),
    "before the headers": lambda dialect: dialect.hangs_before_headers(),
}


@pytest.mark.parametrize("when", WAITING)
async def test_cancel_closes_the_socket_at_once(dialect: Dialect, when: str) -> None:
    if dialect.name == "bedrock" and when == "before the headers":
        pytest.skip("no hold on botocore's connection: test_pump sees it closed with its head")
    heard = Heard()
    async with FakeProvider(WAITING[when](dialect)) as provider:
        async with open_wire(dialect, provider.url) as wire:
            task = asyncio.create_task(hear(wire, asking(dialect, HELLO), heard))
            await provider.asked()
            if when.startswith("while"):
                await heard.begun.wait()
            task.cancel()
            await asyncio.wait([task])

            async with asyncio.timeout(1):
                await provider.left()
        assert task.cancelled()
        assert provider.disconnects == 1


async def test_leaving_the_stream_early_closes_the_socket(dialect: Dialect) -> None:
    async with (
        FakeProvider(dialect.hangs("some words")) as provider,
        open_wire(dialect, provider.url) as wire,
    ):
        stream = wire.stream(wire.encode(asking(dialect, HELLO)))
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()

        async with asyncio.timeout(1):
            await provider.left()


async def test_silence_in_a_stream_is_transient(dialect: Dialect) -> None:
    heard = Heard()
    async with (
        FakeProvider(dialect.hangs("some words")) as provider,
        open_wire(dialect, provider.url, idle_seconds=0.3) as wire,
    ):
        with pytest.raises(Transient):
            await hear(wire, asking(dialect, HELLO), heard)
        await provider.left()
    assert heard.text == "some words"


async def test_silence_before_the_headers_is_transient(dialect: Dialect) -> None:
    async with (
        FakeProvider(dialect.hangs_before_headers()) as provider,
        open_wire(dialect, provider.url, idle_seconds=0.3) as wire,
    ):
        with pytest.raises(Transient):
            await hear(wire, asking(dialect, HELLO))
        await provider.left()


async def test_a_wire_works_again_after_each_failure(dialect: Dialect) -> None:
    faults = [dialect.cut("a", "rst"), dialect.overflow(), dialect.ends_early("b")]
    script = [entry for fault in faults for entry in (fault, dialect.says("fine"))]
    async with FakeProvider(*script) as provider, open_wire(dialect, provider.url) as wire:
        for _ in faults:
            with pytest.raises(ProviderError):
                await hear(wire, asking(dialect, HELLO))
            assert (await hear(wire, asking(dialect, HELLO))).text == "fine"


async def test_concurrent_requests_of_one_wire_do_not_mix(dialect: Dialect) -> None:
    def echo(request: object) -> Scripted:
        text = str(request)
        number = next(n for n in range(8) if f"number {n}!" in text)
        return replace(dialect.says(f"this is {number} again and again"), delay=0.001)

    async with FakeProvider(echo) as provider, open_wire(dialect, provider.url) as wire:
        heard = await asyncio.gather(
            *(hear(wire, asking(dialect, User(f"number {n}!"))) for n in range(8))
        )

    assert [answer.text for answer in heard] == [f"this is {n} again and again" for n in range(8)]

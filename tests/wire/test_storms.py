"""Bad weather on the way to the provider: always a typed error, at once or when silence is up."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from keen.core.errors import (
    ConfigError,
    ProviderError,
    Rejected,
    TooManyBytes,
    Transient,
    Unauthorized,
)
from keen.core.messages import User
from tests.fakes.asking import Heard, asking, hear, open_wire
from tests.fakes.dialects import Dialect
from tests.fakes.script import Scripted, json_reply
from tests.fakes.server import FakeProvider

HELLO = User("hello")


async def errors_of(
    dialect: Dialect, *script: Scripted, idle_seconds: float = 5.0
) -> list[ProviderError]:
    """The errors of as many requests as there are answers: none is sent twice."""
    errors: list[ProviderError] = []
    async with (
        FakeProvider(*script) as provider,
        open_wire(dialect, provider.url, idle_seconds=idle_seconds) as wire,
    ):
        for number in range(1, len(script) + 1):
            with pytest.raises(ProviderError) as caught:
                await hear(wire, asking(dialect, HELLO))
            assert len(provider.requests) == number
            errors.append(caught.value)
    return errors


async def error_of(
    dialect: Dialect, scripted: Scripted, *, idle_seconds: float = 5.0
) -> ProviderError:
    """The error of one request."""
    (error,) = await errors_of(dialect, scripted, idle_seconds=idle_seconds)
    return error


async def error_at(dialect: Dialect, origin: str) -> ProviderError:
    """The error of one request to an origin where no fake is."""
    async with open_wire(dialect, origin, idle_seconds=2.0) as wire:
        with pytest.raises(ProviderError) as caught:
            await hear(wire, asking(dialect, HELLO))
    return caught.value


WAITS: tuple[float | str | None, ...] = (None, 0, 12, -5, 10**9, 2.5, "soon", "")


async def test_429_is_transient_whatever_retry_after_says(dialect: Dialect) -> None:
    errors = await errors_of(dialect, *(dialect.rate_limited(retry_after=wait) for wait in WAITS))

    for wait, error in zip(WAITS, errors, strict=True):
        assert type(error) is Transient
        assert error.retry_after is None or 0 <= error.retry_after <= 10**9
        if wait in (12, 2.5) and dialect.says_retry_after:
            assert error.retry_after == wait


async def test_a_date_in_retry_after_is_read(dialect: Dialect) -> None:
    date = formatdate(time.time() + 300, usegmt=True)
    scripted = dialect.server_error(503)
    scripted = replace(scripted, headers={**scripted.headers, "retry-after": date})
    error = await error_of(dialect, scripted)

    assert type(error) is Transient
    assert error.retry_after is None or 200 < error.retry_after <= 300
    assert error.retry_after is not None or dialect.name in ("google", "bedrock")


FAILING = (500, 502, 503, 504, 520, 524, 529)
GATEWAY = b"<html><body>Bad gateway</body></html>"
BODIES: dict[str, Callable[[Dialect, int], Scripted]] = {
    "json": lambda dialect, status: dialect.server_error(status),
    "page": lambda _, status: Scripted(status, content_type="text/html", frames=(GATEWAY,)),
    "nothing": lambda _, status: Scripted(status, content_type="text/plain"),
}


@pytest.mark.parametrize("body", BODIES)
async def test_a_failing_server_is_transient(dialect: Dialect, body: str) -> None:
    errors = await errors_of(dialect, *(BODIES[body](dialect, status) for status in FAILING))

    assert [(type(error), error.status) for error in errors] == [
        (Transient, status) for status in FAILING
    ]


PLAIN: dict[int, type[ProviderError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: Rejected,
    408: Transient,
    429: Transient,
}


async def test_a_status_alone_tells_the_class(dialect: Dialect) -> None:
    script = (Scripted(status, content_type="text/plain") for status in PLAIN)
    errors = await errors_of(dialect, *script)

    assert [type(error) for error in errors] == list(PLAIN.values())


async def test_403_with_a_page_is_a_wall_on_the_way_and_not_the_key(dialect: Dialect) -> None:
    page = b"<html><body>Access denied</body></html>"
    error = await error_of(dialect, Scripted(403, content_type="text/html", frames=(page,)))

    assert type(error) is Rejected


async def test_413_with_words_is_too_many_bytes_and_without_is_left_to_the_loop(
    dialect: Dialect,
) -> None:
    page = b"<html><body>Request Entity Too Large</body></html>"
    told = await error_of(dialect, Scripted(413, content_type="text/html", frames=(page,)))
    silent = await error_of(dialect, Scripted(413, content_type="text/plain"))

    assert type(told) is TooManyBytes
    assert type(silent) in (Rejected, TooManyBytes)
    assert silent.status == 413


async def test_401_in_the_middle_of_a_session(dialect: Dialect) -> None:
    async with (
        FakeProvider(dialect.says("one"), dialect.unauthorized(), dialect.says("two")) as provider,
        open_wire(dialect, provider.url) as wire,
    ):
        assert (await hear(wire, asking(dialect, HELLO))).text == "one"
        with pytest.raises(Unauthorized):
            await hear(wire, asking(dialect, HELLO))
        assert (await hear(wire, asking(dialect, HELLO))).text == "two"


def closed_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_refused_connection_is_transient(dialect: Dialect) -> None:
    error = await error_at(dialect, f"http://127.0.0.1:{closed_port()}")

    assert type(error) is Transient


async def test_a_name_that_does_not_resolve_is_transient(dialect: Dialect) -> None:
    error = await error_at(dialect, "http://provider.invalid")

    assert type(error) is Transient


async def test_a_server_that_does_not_speak_tls_is_a_typed_error(dialect: Dialect) -> None:
    async with FakeProvider() as provider:
        error = await error_at(dialect, provider.url.replace("http:", "https:"))

    assert isinstance(error, Transient | Rejected)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
async def test_an_unknown_certificate_is_told_at_once(dialect: Dialect, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key)]
    words += ["-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    made = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await error_at(dialect, f"https://127.0.0.1:{port}")

    assert isinstance(error, Rejected)
    assert "SSL_CERT_FILE" in str(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("SSL_CERT_FILE", __file__),
        ("HTTPS_PROXY", "http://here:none"),
    ],
    ids=["no certificates", "no PEM", "no proxy"],
)
async def test_a_variable_that_stops_every_connection_is_named_and_not_tried_again(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    async with open_wire(dialect, "https://provider.invalid") as wire:
        with pytest.raises(ConfigError, match=name):
            await hear(wire, asking(dialect, HELLO))


async def test_a_proxy_that_wants_a_password_is_a_typed_error(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeProvider(json_reply(407, {"error": "who are you?"})) as proxy:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        error = await error_at(dialect, "http://provider.invalid")

        assert isinstance(error, Transient | Rejected | Unauthorized)
        assert len(proxy.requests) + len(proxy.strays) <= 1


async def test_a_proxy_that_does_not_run_is_named(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")

    error = await error_at(dialect, "http://provider.invalid")

    assert isinstance(error, Transient)
    assert "_proxy" in str(error).lower()


RAW: dict[str, bytes] = {
    "no HTTP at all": b"SSH-2.0-OpenSSH_9.7\r\n",
    "nothing": b"",
    "half a status line": b"HTTP/1.1 20",
    "half the headers": b"HTTP/1.1 200 OK\r\ncontent-type: text/eve",
    "a chunk size that is none": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"transfer-encoding: chunked\r\n\r\nzz\r\nboo\r\n"
    ),
    "fewer bytes than promised": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\n: hi\n\n"
    ),
    "a body that is no gzip": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
        b"content-length: 9\r\n\r\nnot zip\n\n"
    ),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a header of 200 KB": b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 200_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", RAW)
async def test_broken_http_is_transient(dialect: Dialect, name: str) -> None:
    error = await error_of(dialect, Scripted(raw=RAW[name]))

    assert type(error) is Transient


ENDLESS: dict[str, Callable[[Dialect], Scripted]] = {
    "headers never end": lambda _: Scripted(
        raw=b"HTTP/1.1 200 OK\r\n", frames=(b"x-more: and more\r\n",) * 10_000, delay=0.02
    ),
    "nothing is said": lambda _: Scripted(hang_before_headers=True),
    "a stream of nothing": lambda dialect: replace(dialect.hangs(""), frames=()),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_server_that_never_begins_is_given_up(dialect: Dialect, name: str) -> None:
    async with asyncio.timeout(8):
        error = await error_of(dialect, ENDLESS[name](dialect), idle_seconds=0.4)

    assert type(error) is Transient


async def test_a_byte_at_a_time_is_an_answer_and_can_be_cancelled(dialect: Dialect) -> None:
    slow = dialect.says("word " * 200)
    bytes_of_it = tuple(slow.body[place : place + 1] for place in range(len(slow.body)))
    heard = Heard()
    async with (
        FakeProvider(replace(slow, frames=bytes_of_it, delay=0.0005)) as provider,
        open_wire(dialect, provider.url) as wire,
    ):
        task = asyncio.create_task(hear(wire, asking(dialect, HELLO), heard))
        await heard.begun.wait()
        task.cancel()
        await asyncio.wait([task])
        await provider.left()
    assert task.cancelled()


async def test_a_redirect_takes_neither_key_nor_conversation_elsewhere(dialect: Dialect) -> None:
    statuses = [301, 302, 303, 307, 308]
    if dialect.name == "bedrock":
        statuses.remove(303)  # urllib3 trips over botocore's headers and loses the socket
    async with FakeProvider() as elsewhere:
        to = {"location": f"{elsewhere.url}/v1/chat/completions"}
        errors = await errors_of(dialect, *(Scripted(n, headers=to) for n in statuses))

        assert [*elsewhere.requests, *elsewhere.strays] == []
        assert {type(error) for error in errors} == {Rejected}
        assert all(elsewhere.url in str(error) for error in errors)

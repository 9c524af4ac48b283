from __future__ import annotations

import json
import socket
import ssl
from typing import cast

import pytest

from keen.core.errors import CompactionError, ProviderError, Rejected, Transient
from keen.wire._transport import HttpRefusal, translated, transport_error


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def sdk_error(module: str, *names: str) -> type[Exception]:
    """A class tree as an SDK declares it, without the SDK: the outermost base first."""
    kind: type[Exception] = Exception
    for name in names:
        kind = cast(type[Exception], type(name, (kind,), {"__module__": module}))
    return kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "is the server running"),
        (socket.gaierror(-2, "Name or service not known"), "cannot find the host"),
        (ssl.SSLCertVerificationError("certificate verify failed"), "secure connection"),
        (TimeoutError(), "waited too long"),
        (ConnectionResetError(104, "reset"), "lost the connection"),
        (OSError(101, "Network is unreachable"), "cannot reach"),
        (json.JSONDecodeError("x", "doc", 0), "cannot read"),
        (sdk_error("openai", "APIConnectionError", "APITimeoutError")("timed out"), "waited"),
        (sdk_error("httpx2", "RequestError", "RemoteProtocolError")("peer closed"), "lost"),
        (sdk_error("httpx2", "RequestError", "ProxyError")("503 from proxy"), "proxy"),
        (sdk_error("urllib3.exceptions", "HTTPError", "ProtocolError")("ended early"), "lost"),
        (sdk_error("botocore.exceptions", "HTTPClientError", "EndpointConnectionError")(
            'Could not connect to the endpoint URL: "http://127.0.0.1:1/m"'), "127.0.0.1:1"),
        (sdk_error("aiohttp.client_exceptions", "ClientError", "ClientPayloadError")("cut"),
         "lost"),
        (sdk_error("google.genai.errors", "UnknownApiResponseError")("x"), "cannot read"),
        (caused(RuntimeError("wrapped"), ConnectionRefusedError("refused")), "is the server"),
        (ExceptionGroup("both", [ConnectionRefusedError("refused")]), "is the server"),
    ],
)  # fmt: skip
def test_transport_failures_are_worth_another_try(error: BaseException, words: str) -> None:
    found = transport_error(error, "acme")
    assert isinstance(found, Transient)
    assert words in str(found)
    assert str(found).startswith("acme: ")


@pytest.mark.parametrize(
    ("error", "is_unsent"),
    [
        (ConnectionRefusedError("refused"), True),
        (sdk_error("httpx2", "RequestError", "ConnectTimeout")("late"), True),
        (sdk_error("httpx2", "RequestError", "ReadTimeout")("silent"), False),
        (ConnectionResetError(104, "reset"), False),
    ],
)
def test_a_request_without_a_connection_never_left(error: Exception, is_unsent: bool) -> None:
    found = transport_error(error, "acme")
    assert found is not None
    assert found.is_unsent == is_unsent


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("OSError")])
def test_other_errors_are_no_transport_failures(error: Exception) -> None:
    assert transport_error(error, "acme") is None


def test_a_mistake_made_while_handling_a_failure_is_no_failure() -> None:
    error = TypeError("a mistake")
    error.__context__ = OSError("the failure")
    assert transport_error(error, "acme") is None


def raised_inside(error: BaseException, refuses: ProviderError | None = None) -> BaseException:
    try:
        with translated("acme", lambda _error: refuses):
            raise error
    except BaseException as caught:  # handed back, so that the test can look at it
        return caught
    raise AssertionError("nothing was raised")


def test_the_wire_is_asked_first_then_the_transport() -> None:
    mine = Rejected("mine")
    assert raised_inside(OSError("x"), mine) is mine
    assert type(raised_inside(OSError("x"))) is Transient
    assert type(raised_inside(KeyError("x"))) is KeyError


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), CompactionError("x")])
def test_cancellation_and_own_errors_pass(error: BaseException) -> None:
    assert raised_inside(error, Rejected("mine")) is error


def test_a_bounded_refusal_is_judged() -> None:
    body = b'{"error": {"message": "slow", "code": "rate_limit_exceeded"}}'
    error = raised_inside(HttpRefusal(429, {"retry-after": "7"}, body))
    assert isinstance(error, Transient)
    assert (error.status, error.retry_after) == (429, 7)


def test_what_no_other_try_cures_is_rejected() -> None:
    wrong = sdk_error("httpx2", "RequestError", "UnsupportedProtocol")
    proxy = sdk_error("httpx2", "RequestError", "ProxyError")
    outer = sdk_error("openai", "APIConnectionError")
    assert type(raised_inside(caused(outer("x"), wrong("no scheme")))) is Rejected
    assert "HTTPS_PROXY" in str(raised_inside(proxy("407 Proxy Authentication Required")))

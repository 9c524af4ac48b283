"""What every test stands on: no network, no keys of the person's, a home of its own."""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keen import secrets
from keen.wire.registry import sdk_of
from tests.fakes.dialects import DIALECTS, Dialect


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import the SDKs the chosen tests need, so that no test's time limit pays for it."""
    if session.config.option.collectonly:
        return
    functions = [item for item in session.items if isinstance(item, pytest.Function)]
    specs = [item.callspec for item in functions if hasattr(item, "callspec")]
    values = [spec.params.get("dialect") for spec in specs]
    chosen = {value.name for value in values if isinstance(value, Dialect)}
    for sdk in filter(None, map(sdk_of, sorted(chosen))):
        importlib.import_module(sdk)


_PRIVATE = re.compile(
    r"(?i).*(_API_KEY|_AUTH_TOKEN|_BASE_URL)$|AWS_.*|KEEN_.*|(http|https|all|no|ftp|ws|wss)_proxy$"
    r"|OPENAI_.*|ANTHROPIC_.*|GOOGLE_.*|GEMINI_.*|OLLAMA_HOST|SSL_CERT_(FILE|DIR)|NO_COLOR"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|FORCE_COLOR"
)


class WentOnline(RuntimeError):
    """A test tried to reach something beyond this machine."""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Refuse every connect outside loopback, and fail the test even if it caught the refusal."""
    attempts: list[object] = []

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_near(address[0]):
                attempts.append(address)
                raise WentOnline(f"a test must not connect to {address}")
            return original(self, address)

        return connect

    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in (None, "") or _is_near(name) or _is_address(name):
            return resolve(host, *rest, **more)
        if not str(name).endswith(".invalid"):
            attempts.append(name)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield attempts
    assert not attempts, f"the test tried to reach {attempts}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_near(host: str) -> bool:
    """True for loopback, and for the address 0.0.0.0 that means it."""
    if not _is_address(host):
        return host == "localhost" or host.endswith(".localhost")
    address = ipaddress.ip_address(host)
    return address.is_loopback or address.is_unspecified


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Take keys, proxies and keen's own variables away, and keep tests out of the real home."""
    secrets.forget()
    for name in os.environ:
        if _PRIVATE.match(name):
            monkeypatch.delenv(name)
    nowhere = tmp_path_factory.getbasetemp() / "nobody"
    monkeypatch.setenv("KEEN_HOME", str(nowhere / "keen"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keen_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty KEEN_HOME of this test's own."""
    home = tmp_path / "keen-home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("KEEN_HOME", str(home))
    return home


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each of the six protocols in turn."""
    return request.param

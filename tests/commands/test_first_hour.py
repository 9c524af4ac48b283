"""What a new user runs into: half-typed commands, a damaged key file, a network set up wrongly."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import pytest

from keen import proxies
from tests.commands.test_management import HERE, keen


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sessions",), "No sessions in "),
        (("sessions", "--all"), "No sessions."),
        (("auth",), "no key (ANTHROPIC_API_KEY)"),
        (("config",), "[compaction]"),
        (("permissions", "-C", "."), "mode build"),
        (("mcp", "--cwd=."), "No MCP servers."),
        (("-C", ".", "sessions"), "No sessions in "),
    ],
)
async def test_a_command_without_its_action_looks(
    words: tuple[str, ...], expected: str, keen_home: Path
) -> None:
    ran = await keen(*words, home=keen_home)

    assert expected in ran.out + ran.err
    assert ran.code == 0


async def test_a_wrong_action_is_still_wrong_use(keen_home: Path) -> None:
    ran = await keen("sessions", "lst", home=keen_home)

    assert ran.code == 2
    assert "choose from" in ran.err
    assert "list" in ran.err


@pytest.mark.parametrize(
    ("content", "words"),
    [('{"openai": {"key": "sk-', "not valid JSON"), ('{"openai": "sk-secret"}', "for openai")],
)
async def test_a_damaged_key_file_is_not_taken_for_a_missing_key(
    content: str, words: str, keen_home: Path
) -> None:
    file = keen_home / "auth.json"
    file.write_text(content)

    for command in (("run", "hi"), ("run", "-m", "openai/gpt-5", "hi"), ("auth", "status")):
        ran = await keen(*command, home=keen_home)

        assert str(file) in ran.err
        assert words in ran.err
        assert "sk-secret" not in ran.err + ran.out
        assert ran.code == (4 if command[0] == "run" else 1)
    assert "FAULT  key" in (await keen("doctor", home=keen_home)).out
    assert file.read_text() == content


async def test_a_key_beside_a_damaged_entry_is_kept_and_used(keen_home: Path) -> None:
    file = keen_home / "auth.json"
    file.write_text('{"openai": "sk-", "mistral": {"key": "mine"}}')

    assert (await keen("auth", "status", "mistral", home=keen_home)).code == 0
    assert (await keen("auth", "login", "openai", home=keen_home, stdin="new\n")).code == 0
    assert json.loads(file.read_text()) == {"openai": {"key": "new"}, "mistral": {"key": "mine"}}


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("HTTPS_PROXY", "http://[::1", "no address"),
        ("https_proxy", "proxy.example:80x", "no address"),
        ("HTTP_PROXY", "ftp://user:hidden@host:1", "no address of a proxy"),
        ("ALL_PROXY", "http://", "names no host"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "SOCKS"),
        ("SSL_CERT_FILE", "/nowhere/at/all.pem", "is not there"),
        ("SSL_CERT_FILE", "/", "cannot be read (is a directory)"),
        ("SSL_CERT_FILE", "/etc/passwd", "holds no certificate"),
    ],
)
async def test_what_would_fail_every_connection_is_told_before_the_first(
    variable: str, value: str, words: str, keen_home: Path
) -> None:
    environment = {variable: value, "OPENAI_API_KEY": "sk-x"}

    ran = await keen("run", "-m", "openai/gpt-5", "hi", home=keen_home, environment=environment)

    assert ran.code == 4
    assert ran.err.startswith(f"keen run: {variable} ")
    assert words in ran.err
    assert "hidden" not in ran.err
    told = await keen("doctor", home=keen_home, environment=environment)
    assert "FAULT  network" in told.out
    demo = await keen("run", "-m", "demo/guide", "hi", home=keen_home, environment=environment)
    assert demo.code == 0


async def test_a_run_says_what_a_full_disk_keeps_from_being_saved(keen_home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "keen"),
        *("run", "-m", "demo/guide", "hello"),
        env={**os.environ, **HERE, "KEEN_HOME": str(keen_home)},
        cwd=keen_home.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert "a program, not a language model" in out.decode()
    assert process.returncode == 0
    assert "keen run: Not all is saved: " in err.decode()
    assert str(keen_home / "sessions") in err.decode()


async def test_trust_that_cannot_be_kept_holds_for_this_start(keen_home: Path) -> None:
    work = keen_home.parent / "work"
    work.mkdir()
    (work / "AGENTS.md").write_text("Say moo.")
    (keen_home / "trust.json").mkdir()

    ran = await keen("run", "-m", "demo/guide", "--trust", "hello", home=keen_home, cwd=work)

    assert ran.code == 0
    assert "trusted for this start only" in ran.err
    assert "AGENTS.md ignored" not in ran.err


def test_what_every_connection_can_use_is_left_alone() -> None:
    usual = ssl.get_default_verify_paths().openssl_cafile
    environment = {
        "HTTPS_PROXY": "http://user:pass@proxy.example:3128",
        "http_proxy": "proxy.example:3128",
        "HTTP_PROXY": "::: the other spelling wins",
        "ALL_PROXY": "",
        "SSL_CERT_FILE": usual if Path(usual).is_file() else "",
        "AWS_CA_BUNDLE": "/nowhere.pem",
    }

    assert not list(proxies.faults(environment))
    assert "AWS_CA_BUNDLE" in next(proxies.faults(environment, "bedrock"))

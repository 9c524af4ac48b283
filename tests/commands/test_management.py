from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import shutil
import stat
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest

from keen import trust
from keen.commands import _place, doctor
from keen.paths import Paths
from tests.loopback_json import JsonServer

HERE = {
    "PYTHONPATH": str(Path(inspect.getfile(_place)).parents[2]),
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    "COLUMNS": "80",
}
"""The programs started here run this checkout from anywhere and leave a person's keyring alone."""


@dataclass(frozen=True)
class Ran:
    """A finished run of the real program."""

    code: int
    out: str
    err: str


async def keen(
    *words: str,
    home: Path,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ran:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "keen", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **HERE, "KEEN_HOME": str(home), **(environment or {})},
        cwd=cwd or home.parent,
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
def home(keen_home: Path) -> Path:
    """A home whose local servers all point to where nothing listens."""
    names = ("ollama", "llamacpp", "lmstudio", "vllm")
    closed = "".join(f'[providers.{name}]\nbase_url = "http://127.0.0.1:1/v1"\n' for name in names)
    (keen_home / "config.toml").write_text(closed)
    (keen_home / "config.toml").chmod(0o600)
    return keen_home


def configure(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


async def test_models_shows_windows_caps_prices_and_where_they_come_from(home: Path) -> None:
    configure(home, '[providers.groq.models."mine"]\n[compaction]\n')

    ran = await keen("models", "groq", home=home)

    lines = ran.out.splitlines()
    assert ran.code == 0
    assert lines[0].split()[:4] == ["MODEL", "WINDOW", "FROM", "OUTPUT"]
    assert lines[1].startswith("groq/mine ")
    assert "unknown, counts as 200,000" in lines[1]
    row = next(line for line in lines if line.startswith("groq/openai/gpt-oss-120b "))
    assert row.split() == [
        *("groq/openai/gpt-oss-120b", "131,072", "genai-prices", "65,536", "0.15", "/", "0.60")
    ]


async def test_models_asks_the_servers_of_this_machine(home: Path) -> None:
    rows = [{"id": "org/m\u202e", "max_model_len": 1}, {"id": "org/m", "max_model_len": 12_345}]
    async with JsonServer({"/v1/models": {"data": rows}}) as server:
        configure(home, f'[providers.vllm]\nbase_url = "{server.url}/v1"\n')
        ran = await keen("models", "vllm", home=home)

    assert [line.split() for line in ran.out.splitlines()[1:]] == [
        ["vllm/org/m", "12,345", "server", "-", "local"]
    ]


async def test_models_names_one_of_every_provider_without_a_key(home: Path) -> None:
    ran = await keen("models", home=home)

    providers = [line.partition("/")[0] for line in ran.out.splitlines()[1:]]
    assert providers[:2] == ["anthropic", "openai"]
    assert providers[-1] == "demo"
    assert len(providers) == len(set(providers))
    assert "keen models PROVIDER" in ran.err


@pytest.mark.parametrize("words", [("models", "opena"), ("auth", "login", "opena")])
async def test_an_unknown_provider_is_answered_with_the_nearest(
    home: Path, words: tuple[str, ...]
) -> None:
    ran = await keen(*words, home=home)

    assert ran.code == 4
    assert "Did you mean openai?" in ran.err
    assert ran.out == ""


async def test_a_key_is_read_from_standard_input_and_forgotten_again(home: Path) -> None:
    login = await keen("auth", "login", "mistral", home=home, stdin="sk-secret\n")

    auth_file = home / "auth.json"
    assert login.code == 0
    assert "sk-secret" not in login.out + login.err
    assert stat.S_IMODE(auth_file.stat().st_mode) == 0o600
    status = await keen("auth", "status", "mistral", home=home)
    assert (status.code, status.out) == (0, f"mistral  {auth_file}\n")

    logout = await keen("auth", "logout", "mistral", home=home)

    assert logout.code == 0
    assert json.loads(auth_file.read_text()) == {}
    assert (await keen("auth", "status", "mistral", home=home)).code == 1


@pytest.mark.parametrize("stdin", ["", "\n", "two words\n", "\x1b[31mkey\n"])
async def test_what_is_no_key_is_not_kept(home: Path, stdin: str) -> None:
    ran = await keen("auth", "login", "openai", home=home, stdin=stdin)

    assert ran.code == 2
    assert "Nothing has changed" in ran.err
    assert not (home / "auth.json").exists()


async def test_a_variable_that_beats_the_stored_key_is_named(home: Path) -> None:
    ran = await keen(
        *("auth", "login", "openai"), home=home, stdin="k\n", environment={"OPENAI_API_KEY": "x"}
    )

    assert ran.code == 0
    assert "OPENAI_API_KEY is set too and is used first" in ran.err


def test_a_typed_key_is_not_shown(home: Path) -> None:
    shown = io.StringIO()
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "keen", "auth", "login", "openai"],
        env={**os.environ, **HERE, "KEEN_HOME": str(home)},
        timeout=9,
        encoding="utf-8",
    )
    terminal.logfile_read = shown
    terminal.expect("it is not shown")
    terminal.expect(": ")
    terminal.sendline("sk-typed-in")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert terminal.exitstatus == 0
    assert "is kept in" in shown.getvalue()
    assert "sk-typed-in" not in shown.getvalue()
    assert json.loads((home / "auth.json").read_text()) == {"openai": {"key": "sk-typed-in"}}


async def test_logout_without_a_name_needs_exactly_one_key(home: Path) -> None:
    await keen("auth", "login", "openai", home=home, stdin="k\n")
    await keen("auth", "login", "mistral", home=home, stdin="k\n")

    ran = await keen("auth", "logout", home=home)

    assert ran.code == 2
    assert "openai, mistral" in ran.err


async def test_signing_in_to_codex_needs_a_terminal(home: Path) -> None:
    ran = await keen("auth", "login", "openai-codex", home=home)

    assert ran.code == 2
    assert "browser" in ran.err


async def test_config_path_tells_what_is_there_and_what_is_ignored(
    home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".keen").mkdir()
    (project / ".keen" / "config.toml").write_text('model = "a/b"\n')

    before = await keen("config", "path", "-C", str(project), home=home)
    trust.trust(project, Paths.in_one_directory(home))
    after = await keen("config", "path", home=home, cwd=project)

    own, theirs = str(home / "config.toml"), str(project / ".keen" / "config.toml")
    assert before.out.splitlines() == [own, f"{theirs}  (ignored: the folder is not trusted)"]
    assert after.out.splitlines() == [own, theirs]


async def test_config_show_is_toml_with_origins_and_without_secrets(home: Path) -> None:
    configure(
        home,
        '[providers.work]\nclient = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n'
        'api_key = "sk-secret"\nheaders = { "X.Y" = "hidden" }\n'
        '[providers.ollama]\nbase_url = "http://ada:pass-word@127.0.0.1:1/v1"\n'
        '[permissions]\ndeny = ["read(\\".env\\")"]\n[[hooks.done]]\ncommand = ["say", "hi"]\n',
    )

    ran = await keen("config", "show", home=home, environment={"KEEN_MODEL": "work/m"})

    shown = tomllib.loads(ran.out)
    assert ran.code == 0
    assert "sk-secret" not in ran.out
    assert "hidden" not in ran.out
    assert shown["providers"]["ollama"]["base_url"] == "http://***@127.0.0.1:1/v1"
    assert shown["model"] == "work/m"
    assert shown["providers"]["work"]["api_key"] == "***"
    assert shown["providers"]["work"]["headers"] == {"X.Y": "***"}
    assert shown["permissions"]["deny"] == ['read(".env")']
    assert shown["hooks"]["done"][0]["command"] == ["say", "hi"]
    assert 'model = "work/m"  # KEEN_MODEL' in ran.out
    assert f"# {home / 'config.toml'}:3" in ran.out


async def test_config_check_names_every_mistake(home: Path) -> None:
    good = await keen("config", "check", home=home)
    configure(home, "[ui]\nmouse = 1\nthem = 2\n[session]\ntool_history = 3\n")

    bad = await keen("config", "check", home=home)

    file = home / "config.toml"
    assert (good.code, good.out) == (0, "The settings are right.\n")
    assert bad.code == 1
    assert set(bad.out.splitlines()) == {
        f"{file}:2: ui.mouse = 1: expected true or false",
        f"{file}:5: session.tool_history = 3: expected one of 'none' or 'full'",
        f"{file}:3: unknown key ui.them (did you mean theme?)",
    }


async def test_a_wrong_setting_stops_every_other_command(home: Path) -> None:
    configure(home, "[ui]\nmouse = 1\n")

    for words in (("models",), ("auth", "status"), ("config", "show")):
        ran = await keen(*words, home=home)
        assert ran.code == 4
        assert f"{home / 'config.toml'}:2: ui.mouse = 1" in ran.err


async def test_doctor_fails_only_where_nothing_can_answer(home: Path) -> None:
    nothing = await keen("doctor", home=home)
    with_key = await keen("doctor", home=home, environment={"OPENAI_API_KEY": "sk-secret"})

    assert nothing.code == 1
    assert "there is no key and no local server" in nothing.out
    assert "keen auth login PROVIDER" in nothing.out
    assert with_key.code == 0, with_key.out
    assert "openai: OPENAI_API_KEY" in with_key.out
    assert "sk-secret" not in with_key.out


async def test_doctor_names_mistakes_open_files_and_small_windows(home: Path) -> None:
    rows = {"data": [{"id": "m", "max_model_len": 4_096}]}
    async with JsonServer({"/v1/models": rows}) as server:
        configure(home, f'[providers.vllm]\nbase_url = "{server.url}/v1"\n[ui]\nthem = 1\n')
        (home / "config.toml").chmod(0o644)
        warned = await keen("doctor", home=home)
    configure(home, "[ui]\nmouse = 1\n")
    broken = await keen("doctor", home=home, environment={"OPENAI_API_KEY": "k"})

    assert warned.code == 0, warned.out
    assert "unknown key ui.them (did you mean theme?)" in warned.out
    assert f"chmod 600 {home / 'config.toml'}" in warned.out
    assert "vllm/m has a window of 4,096 tokens" in warned.out
    assert "--max-model-len" in warned.out
    assert broken.code == 1
    assert "ui.mouse = 1: expected true or false" in broken.out


async def test_doctor_notes_a_key_that_travels_in_the_open(home: Path) -> None:
    environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://gateway.invalid/v1"}

    ran = await keen("doctor", home=home, environment=environment)

    assert ran.code == 0
    assert "goes unencrypted to http://gateway.invalid/v1" in ran.out


async def test_doctor_tells_a_chosen_model_without_its_key_or_server(home: Path) -> None:
    no_key = await keen("doctor", home=home, environment={"KEEN_MODEL": "openai/gpt-5.2"})
    no_server = await keen(
        "doctor", home=home, environment={"KEEN_MODEL": "vllm/m", "OPENAI_API_KEY": "k"}
    )
    unknown = await keen("doctor", home=home, environment={"KEEN_MODEL": "nobody/m"})

    assert (no_key.code, no_server.code, unknown.code) == (1, 1, 1)
    assert "openai has no key" in no_key.out
    assert "vllm does not answer" in no_server.out
    assert 'no provider "nobody"' in unknown.out


def test_a_program_of_the_project_is_never_taken_for_a_tool(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "bin").mkdir()
    for place in (project, project / "bin"):
        (place / "rg").write_text("#!/bin/sh\n")
        (place / "rg").chmod(0o755)
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "link").symlink_to(project / "bin")
    entries = [".", "", str(project), str(project / "bin"), str(beside / "link")]
    environment = {"PATH": os.pathsep.join(entries)}
    paths = Paths.in_one_directory(tmp_path / "home")
    place = _place.Place(project / "bin", paths, environment, None, is_trusted=False)

    assert doctor.find_program("rg", place) is None

    shutil.copy(project / "rg", beside / "rg")
    outside = _place.Place(
        project, paths, {"PATH": os.pathsep.join([*entries, str(beside)])}, None, is_trusted=False
    )
    assert doctor.find_program("rg", outside) == str(beside / "rg")


async def test_these_commands_import_no_sdk_and_no_screen() -> None:
    code = (
        "import sys\n"
        "from keen.commands import models, auth, config, doctor\n"
        "heavy = {'openai', 'anthropic', 'google.genai', 'boto3', 'textual', 'rich', 'httpx2',"
        " 'genai_prices'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()

    assert out.decode().strip() == "[]"

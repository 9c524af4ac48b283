"""Mistakes in settings: `keen config check` and a start name file, line and key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.commands.test_management import configure, home, keen

__all__ = ("home",)

pytestmark = pytest.mark.timeout(60)

SERVER = '[providers.fake]\nclient = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model = ", ":1: Invalid value: expected TOML"),
        ("[compaction]\nthreshold = inf\n", ":2: compaction.threshold = inf: expected a share"),
        (SERVER + 'api_key = "kä"\n', ":4: providers.fake.api_key: expected a key: one line"),
        (SERVER + 'headers = { "X" = "a\\r\\nB: c" }\n', ":4: providers.fake.headers: expected"),
        (SERVER + 'headers = { "Ä" = "a" }\n', ":4: providers.fake.headers: expected header"),
        ('[permissions]\ndeny = ["bash("]\n', ":2: permissions.deny: 'bash(' is no permission"),
        ('model = "nope/x"\n', ':1: model: There is no provider "nope".'),
        ('[compaction]\nmodel = "nope/x"\n', ':2: compaction.model: There is no provider "nope".'),
        (SERVER.replace("http://127.0.0.1:1/v1", "") + "[ui]\n", None),
    ],
)
async def test_a_mistake_is_found_by_check_with_its_place(
    home: Path, text: str, told: str | None
) -> None:
    configure(home, text)

    ran = await keen("config", "check", home=home)

    place = f"{home / 'config.toml'}"
    assert (ran.code, ran.out.startswith(f"{place}{told}")) == ((1, True) if told else (0, False))


async def test_check_reads_the_saved_permissions_too(home: Path) -> None:
    (home / "permissions.toml").write_text("{")

    ran = await keen("config", "check", home=home)

    assert ran.code == 1
    assert "permissions.toml: Invalid statement" in ran.out


@pytest.mark.parametrize("key", ["kä", "a\nb"])
async def test_a_variable_that_cannot_be_a_key_is_named(home: Path, key: str) -> None:
    ran = await keen("run", "-m", "groq/x", "hi", home=home, environment={"GROQ_API_KEY": key})

    assert (ran.code, ran.err) == (
        4,
        "keen run: GROQ_API_KEY holds no key: a key is one line of plain ASCII characters.\n",
    )


async def test_a_misspelt_model_is_told_where_no_model_is_found(home: Path) -> None:
    with (home / "config.toml").open("a") as file:
        file.write("[compactoin]\n")

    names = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    ran = await keen("run", "hi", home=home, environment=dict.fromkeys(names, ""))

    assert ran.code == 4
    assert "unknown key compactoin (did you mean compaction?)" in ran.err


async def test_directories_that_keen_makes_are_private(home: Path) -> None:
    deep = home / "not" / "there"

    ran = await keen(
        "run", "-m", "demo/guide", "hi", home=home, environment={"KEEN_HOME": str(deep)}
    )

    assert ran.code == 0
    made = [deep.parent, deep, *(deep / name for name in ("cache", "logs", "sessions"))]
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in made} == {0o700}


@pytest.mark.parametrize("address", ["[bad", "http://[bad"])
async def test_an_address_in_the_environment_that_is_none_is_named(
    home: Path, address: str
) -> None:
    ran = await keen("models", "ollama", home=home, environment={"OLLAMA_HOST": address})

    assert (ran.code, ran.err.startswith("keen: OLLAMA_HOST: ")) == (4, True)


async def test_settings_without_an_end_are_refused(home: Path) -> None:
    (home / "config.toml").unlink()
    (home / "config.toml").symlink_to("/dev/zero")

    ran = await keen("config", "check", home=home)

    assert (ran.code, "cannot be read" in ran.out) == (1, True)

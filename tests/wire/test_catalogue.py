from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

from keen.core.errors import ConfigError
from keen.core.models import Price
from keen.wire import catalogue, registry
from keen.wire._quirks import OPTIONAL
from keen.wire.base import Endpoint, FixedKey

NAMES = [
    *("anthropic", "openai", "openai-codex", "google", "bedrock", "openrouter", "deepseek"),
    *("mistral", "groq", "xai", "moonshot", "zai", "minimax"),
    *("ollama", "llamacpp", "lmstudio", "vllm", "demo"),
]


def test_the_built_in_providers_are_those_of_the_contract_in_its_order() -> None:
    assert list(catalogue.providers()) == NAMES


def test_every_client_of_the_table_has_a_wire() -> None:
    assert {row.client for row in catalogue.providers().values()} == set(registry.WIRES)


def test_every_remote_provider_can_be_reached_and_started_with() -> None:
    for row in catalogue.providers().values():
        if row.client == "chat" or row.client in catalogue.CLIENT_ADDRESSES:
            assert row.base_url.startswith("http")
        assert row.local or row.model, row.name
        assert row.local or row.keys or row.client in ("codex", "demo"), row.name


def test_no_key_variable_belongs_to_two_providers() -> None:
    variables = [name for row in catalogue.providers().values() for name in row.keys]

    assert len(variables) == len(set(variables))


def test_quirks_are_words_that_the_wires_know() -> None:
    for row in catalogue.providers().values():
        assert {word.removeprefix("no:") for word in row.quirks} <= OPTIONAL, row.name


def test_every_figure_is_dated_and_possible() -> None:
    for row in tomllib.loads(catalogue.TABLE.read_text())["models"]:
        assert isinstance(row["as_of"], date), row
        for name in ("window", "max_output", "max_input"):
            assert row.get(name) is None or row[name] >= 4_096, row


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("anthropic/claude-sonnet-5", ("anthropic", "claude-sonnet-5", None)),
        ("anthropic/claude-sonnet-5:high", ("anthropic", "claude-sonnet-5", "high")),
        ("ollama/qwen3:8b", ("ollama", "qwen3:8b", None)),
        ("ollama/qwen3:8b:max", ("ollama", "qwen3:8b", "max")),
        ("bedrock/us.anthropic.claude-x-v1:0", ("bedrock", "us.anthropic.claude-x-v1:0", None)),
        ("openrouter/a/b:free", ("openrouter", "a/b:free", None)),
        ("openrouter/a/b:none", ("openrouter", "a/b", "none")),
        ("x/y:High", ("x", "y:High", None)),
        ("x/:high", ("x", ":high", None)),
    ],
)
def test_only_a_known_effort_is_cut_off_a_model(text: str, parts: tuple[str, str, str]) -> None:
    assert catalogue.parse_model(text) == parts


@pytest.mark.parametrize("text", ["", "sonnet", "/x", "x/", " / "])
def test_a_model_without_its_provider_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="provider/model"):
        catalogue.parse_model(text)


@pytest.mark.parametrize(
    ("provider", "model", "max_output", "max_input"),
    [
        ("anthropic", "claude-sonnet-5-5", 128_000, None),
        ("anthropic", "claude-opus-4-1-20250805", 32_000, None),
        ("anthropic", "claude-opus-4-5-20251101", 64_000, None),
        ("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", 64_000, None),
        ("openrouter", "anthropic/claude-sonnet-5.5", 128_000, None),
        ("work-gateway", "claude-sonnet-5", 128_000, None),
        ("openai", "gpt-5.2-codex", 128_000, 272_000),
        ("openai", "gpt-5.4", 128_000, 922_000),
        ("openai", "gpt-5.4-mini", 128_000, 272_000),
        ("openai-codex", "gpt-6-sol", 128_000, 272_000),
        ("minimax", "MiniMax-M3", 131_072, None),
        ("groq", "openai/gpt-oss-120b", 65_536, None),
        ("ollama", "gpt-oss:20b", None, None),
        ("anthropic", "something-new", None, None),
    ],
)
def test_the_longest_prefix_tells_the_caps(
    provider: str, model: str, max_output: int | None, max_input: int | None
) -> None:
    limits = catalogue.limits(provider, model)

    assert (limits.max_output, limits.max_input) == (max_output, max_input)


def test_a_prefix_is_no_substring() -> None:
    assert catalogue.limits("openai", "solo1") == catalogue.Limits()
    assert catalogue.limits("x", "proto3") == catalogue.Limits()


def test_genai_prices_tells_windows_and_prices(tmp_path: Path) -> None:
    known = catalogue.figures("anthropic", "claude-haiku-4-5", cache_directory=tmp_path)

    assert known == catalogue.Figures(200_000, Price(1.0, 5.0, 0.1, 1.25))
    assert catalogue.figures("anthropic", "no-such-model") == catalogue.Figures()
    assert catalogue.figures("ollama", "llama3") == catalogue.Figures()


def test_a_subscription_has_windows_and_no_prices() -> None:
    known = catalogue.figures("openai-codex", "gpt-5.6-sol")

    assert known.window
    assert known.price is None


def test_a_gateway_lends_a_window_but_not_the_makers_price() -> None:
    known = catalogue.figures("work", "claude-haiku-4-5", address="https://gateway.invalid/v1")

    assert known == catalogue.Figures(200_000, None)


def test_a_model_on_this_machine_is_not_taken_for_its_namesake() -> None:
    known = catalogue.figures("mine", "gpt-4o", address="http://127.0.0.1:9/v1")

    assert known == catalogue.Figures()


LOOK_UP = """
import sys
from pathlib import Path
from keen.wire import catalogue
found = catalogue.figures("openai", sys.argv[2], cache_directory=Path(sys.argv[1]))
print(found.window, "genai_prices" in sys.modules)
"""


def look_up(directory: Path, model: str = "gpt-5.2") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP, str(directory), model],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_a_second_start_does_not_import_genai_prices(tmp_path: Path) -> None:
    assert look_up(tmp_path) == ["400000", "True"]
    assert look_up(tmp_path) == ["400000", "False"]
    assert look_up(tmp_path, "unheard-of") == ["None", "True"]
    assert look_up(tmp_path, "unheard-of") == ["None", "False"]


def test_another_version_of_genai_prices_is_asked_again(tmp_path: Path) -> None:
    look_up(tmp_path)
    stored = json.loads((tmp_path / "models.json").read_text())
    (tmp_path / "models.json").write_text(json.dumps(stored | {"version": "older"}))

    assert look_up(tmp_path) == ["400000", "True"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1, "entries": []}', "nonsense"])
def test_a_broken_cache_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "models.json").write_text(content)

    assert catalogue.figures("openai", "gpt-5.2", cache_directory=tmp_path).window == 400_000
    assert json.loads((tmp_path / "models.json").read_text())["entries"]


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    found = catalogue.figures("openai", "gpt-5.2", cache_directory=tmp_path / "file" / "below")

    assert found.window == 400_000


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.groq.com/other", "groq"),
        ("https://api.openai.com.evil.invalid/v1", None),
        ("http://127.0.0.1:11434/v1", None),
        ("", None),
    ],
)
def test_a_provider_is_known_by_its_host(address: str, name: str | None) -> None:
    found = catalogue.provider_at(address)

    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("address", "is_near"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://localhost:1", True),
        ("http://127.evil.invalid", False),
        ("http://192.168.1.2", False),
        ("", False),
    ],
)
def test_loopback_is_an_address_and_not_a_spelling(address: str, is_near: bool) -> None:
    assert catalogue.is_loopback(address) is is_near


def test_a_wire_is_imported_only_when_asked_for() -> None:
    code = (
        "import sys; from keen.wire import registry, catalogue; catalogue.providers();"
        "bad = {'openai', 'anthropic', 'google.genai', 'boto3', 'genai_prices', 'httpx2'};"
        "print(sorted(bad & set(sys.modules)), registry.sdk_of('chat'), registry.sdk_of('demo'))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[] openai None"


def test_a_wire_is_made_for_its_endpoint() -> None:
    endpoint = Endpoint("anthropic", FixedKey("k"), base_url="http://127.0.0.1:1")

    wire = registry.wire_for("anthropic", endpoint)

    assert wire.dialect == "anthropic"
    assert wire.endpoint == endpoint


def test_an_unknown_client_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r'no client "grpc".*chat, responses'):
        registry.wire_for("grpc", Endpoint("x", FixedKey("k")))

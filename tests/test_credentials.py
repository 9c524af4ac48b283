from __future__ import annotations

import asyncio
import importlib.util
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from keen import config, credentials, providers
from keen._settings import Settings
from keen.core.errors import ConfigError, Unauthorized
from keen.paths import Paths
from keen.state import State
from keen.wire.local import LocalModel, LocalServer
from tests.loopback_json import JsonServer


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.in_one_directory(tmp_path / "home")


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the optional package were not installed: nobody's keyring is touched."""
    monkeypatch.setitem(sys.modules, "keyring", None)


def settings(paths: Paths, text: str, environment: Mapping[str, str] | None = None) -> Settings:
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text)
    return config.load(
        paths.config, flags={}, environment=environment or {}, trusted=False, paths=paths
    ).settings


async def secret(
    provider: str, paths: Paths, text: str = "", environment: Mapping[str, str] | None = None
) -> str:
    variables = {"PATH": os.environ["PATH"], **(environment or {})}
    chosen = settings(paths, text, variables)
    return await providers.endpoint(chosen, provider, variables, paths).credential.secret()


async def test_the_sources_of_a_key_come_in_their_order(paths: Paths) -> None:
    variables = {"OPENAI_API_KEY": "usual", "OTHER": "named"}
    table = "[providers.openai]\n"
    credentials.store_key(paths.auth_file, "openai", "stored")

    assert await secret("openai", paths) == "stored"
    assert await secret("openai", paths, "", variables) == "usual"
    helper = table + 'api_key_helper = "echo helper"\n'
    assert await secret("openai", paths, helper, variables) == "helper"
    named = helper + 'api_key_env = "OTHER"\n'
    assert await secret("openai", paths, named, variables) == "named"
    assert await secret("openai", paths, named + 'api_key = "plain"\n', variables) == "plain"


async def test_a_missing_key_says_what_to_do(paths: Paths) -> None:
    with pytest.raises(
        Unauthorized, match=r"set GEMINI_API_KEY or GOOGLE_API_KEY, or run `keen au"
    ):
        await secret("google", paths)
    with pytest.raises(Unauthorized, match=r"OTHER is empty.*api_key_env"):
        await secret("google", paths, '[providers.google]\napi_key_env = "OTHER"\n')
    with pytest.raises(Unauthorized, match="keen auth login openai-codex"):
        await secret("openai-codex", paths)


async def test_a_makers_key_never_goes_to_another_provider(paths: Paths) -> None:
    table = '[providers.work]\nclient = "anthropic"\nbase_url = "https://gateway.invalid"\n'
    variables = {"ANTHROPIC_API_KEY": "the maker's"}

    with pytest.raises(Unauthorized, match="WORK_API_KEY"):
        await secret("work", paths, table, variables)

    assert await secret("work", paths, table, variables | {"WORK_API_KEY": "own"}) == "own"


async def test_a_server_on_this_machine_needs_no_key(paths: Paths) -> None:
    own = '[providers.mine]\nclient = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'

    assert await secret("ollama", paths)
    assert await secret("mine", paths, own)


async def test_bedrock_leaves_the_key_to_awss_own_chain(paths: Paths) -> None:
    assert await secret("bedrock", paths) == ""
    assert await secret("bedrock", paths, "", {"AWS_BEARER_TOKEN_BEDROCK": "bearer"}) == "bearer"


async def test_a_helper_runs_again_after_a_refusal(paths: Paths, tmp_path: Path) -> None:
    count = tmp_path / "count"
    helper = f"echo x >> {count}; echo key-$(wc -l < {count} | tr -d ' ')"
    chosen = settings(paths, f'[providers.openai]\napi_key_helper = "{helper}"\n')
    found = providers.endpoint(chosen, "openai", os.environ, paths).credential

    assert await asyncio.gather(*(found.secret() for _ in range(3))) == ["key-1"] * 3
    assert await found.renew() is True
    assert await found.secret() == "key-2"


async def test_a_helper_that_gives_the_same_key_renews_nothing(paths: Paths) -> None:
    chosen = settings(paths, '[providers.openai]\napi_key_helper = "echo same"\n')
    found = providers.endpoint(chosen, "openai", os.environ, paths).credential

    assert await found.secret() == "same"
    assert await found.renew() is False


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo no >&2; exit 3", "ended with code 3: no"),
        ("exit 1", "no message"),
        ("true", "printed no key"),
        ("echo two words", "printed no key"),
        ("printf 'a\\\\nb'", "printed no key"),
    ],
)
async def test_a_helper_that_fails_is_named(paths: Paths, command: str, words: str) -> None:
    with pytest.raises(Unauthorized, match=words) as error:
        await secret("openai", paths, f'[providers.openai]\napi_key_helper = "{command}"\n')

    assert "providers.openai.api_key_helper" in str(error.value)


@pytest.mark.parametrize("end", ["wait", "echo key"])
async def test_a_helper_that_hangs_is_killed_with_its_children(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(credentials, "HELPER_SECONDS", 0.3)
    pid = tmp_path / "pid"
    helper = f"sleep 60 & echo $! > {pid}; {end}"

    with pytest.raises(Unauthorized, match="gave no key within"):
        await secret("openai", paths, f'[providers.openai]\napi_key_helper = "{helper}"\n')

    assert ends(int(pid.read_text()))


def ends(pid: int) -> bool:
    """True once a killed process is gone, or waits for its new parent to notice."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        facts = Path(f"/proc/{pid}/stat")
        if facts.exists() and facts.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


async def test_a_helper_does_not_run_in_the_project(paths: Paths) -> None:
    assert await secret("openai", paths, '[providers.openai]\napi_key_helper = "pwd"\n') == "/"


async def test_a_key_stored_later_is_found_after_a_refusal(paths: Paths) -> None:
    credentials.store_key(paths.auth_file, "openai", "old")
    found = providers.endpoint(settings(paths, ""), "openai", {}, paths).credential
    assert await found.secret() == "old"
    assert await found.renew() is False

    credentials.store_key(paths.auth_file, "openai", "new")

    assert await found.renew() is True
    assert await found.secret() == "new"


def test_stored_keys_are_the_owners_alone(paths: Paths) -> None:
    place = credentials.store_key(paths.auth_file, "openai", "k")

    assert place == str(paths.auth_file)
    assert stat.S_IMODE(paths.auth_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.auth_file.parent.stat().st_mode) == 0o700
    assert credentials.forget(paths.auth_file, "openai") is True
    assert credentials.forget(paths.auth_file, "openai") is False
    assert credentials.stored_key(paths.auth_file, "openai") == ""


@pytest.mark.skipif(importlib.util.find_spec("keyring") is None, reason="keyring is optional")
class TestWithAKeyring:
    """The keyring is a real one of the package's own interface, kept in memory."""

    @pytest.fixture(autouse=True)
    def keyring_in_memory(
        self, no_keyring: None, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[tuple[str, str], str]]:
        monkeypatch.delitem(sys.modules, "keyring")
        import keyring
        import keyring.backend
        import keyring.errors
        from keyring.compat import properties

        kept: dict[tuple[str, str], str] = {}

        class Memory(keyring.backend.KeyringBackend):
            @properties.classproperty
            def priority(self) -> float:
                return 1.0

            def get_password(self, service: str, username: str) -> str | None:
                return kept.get((service, username))

            def set_password(self, service: str, username: str, password: str) -> None:
                kept[service, username] = password

            def delete_password(self, service: str, username: str) -> None:
                if kept.pop((service, username), None) is None:
                    raise keyring.errors.PasswordDeleteError

        before = keyring.get_keyring()
        keyring.set_keyring(Memory())
        yield kept
        keyring.set_keyring(before)

    async def test_a_key_goes_there_and_not_into_the_file(
        self, paths: Paths, keyring_in_memory: dict[tuple[str, str], str]
    ) -> None:
        place = credentials.store_key(paths.auth_file, "openai", "hidden")

        assert place == "the system's keyring"
        assert keyring_in_memory == {("keen", "openai"): "hidden"}
        assert "hidden" not in paths.auth_file.read_text()
        assert await secret("openai", paths) == "hidden"
        assert credentials.forget(paths.auth_file, "openai") is True
        assert keyring_in_memory == {}


def test_an_endpoint_is_what_settings_and_table_say(paths: Paths) -> None:
    text = """
        [providers.anthropic]
        headers = { "X-Team" = "a" }
        [providers.bedrock]
        profile = "work"
        [providers.gateway]
        client = "chat"
        base_url = "https://api.groq.com/openai/v1"
    """
    chosen = settings(paths, text)
    variables = {"AWS_REGION": "eu-west-1"}

    anthropic = providers.endpoint(chosen, "anthropic", variables, paths)
    bedrock = providers.endpoint(chosen, "bedrock", variables, paths)
    gateway = providers.endpoint(chosen, "gateway", variables, paths)

    assert anthropic.base_url == "https://api.anthropic.com"
    assert anthropic.headers == {"X-Team": "a"}
    assert anthropic.region == ""
    assert (bedrock.region, bedrock.profile) == ("eu-west-1", "work")
    assert "no:reasoning_content" in gateway.quirks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'no provider "opnai". Did you mean openai?'),
        ("[providers.opnai]\n", "needs a client"),
        ('[providers.opnai]\nclient = "chat"\n', "needs a base_url"),
    ],
)
def test_a_provider_that_cannot_be_reached_says_what_it_needs(
    paths: Paths, text: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        providers.endpoint(settings(paths, text), "opnai", {}, paths)


def test_windows_come_from_the_nearest_source(paths: Paths) -> None:
    served = LocalModel("m", 8_192, is_live=True, images=False)

    def described(text: str, found: LocalModel | None = None) -> tuple[int, str]:
        one = providers.describe(settings(paths, text), "ollama", "m", paths=paths, found=found)
        return one.spec.window, one.window_source

    own = '[providers.ollama.models."m"]\ncontext_window = 32768\n'
    assert described("") == (200_000, "unknown, counts as 200,000")
    assert described("", served) == (8_192, "server")
    assert described(own, served) == (32_768, "settings")
    override = own + "[compaction]\ncontext_window_tokens = 1000\n"
    assert described(override, served) == (1_000, "compaction.context_window_tokens")


def test_what_the_user_says_of_a_model_holds(paths: Paths) -> None:
    text = """
        [providers.openai.models."gpt-5.2"]
        context_window = 300000
        max_output_tokens = 4096
        reasoning = false
        images = false
    """

    spec = providers.model_spec(settings(paths, text), "openai", "gpt-5.2", paths=paths)

    assert (spec.window, spec.asked_output, spec.max_output) == (300_000, 4_096, 128_000)
    assert spec.max_input is None
    assert (spec.reasoning, spec.images) == (False, False)


async def test_a_local_model_is_described_by_its_server(paths: Paths) -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 16_384}]}
    async with JsonServer({"/v1/models": models}) as server:
        text = f'[providers.vllm]\nbase_url = "{server.url}/v1"\n'
        chosen = settings(paths, text)
        spec = providers.model_spec(chosen, "vllm", "m", paths=paths)
        endpoint = providers.endpoint(chosen, "vllm", {}, paths)

        known = await providers.asked(chosen, spec, endpoint)

    assert spec.is_local
    assert not spec.is_window_known
    assert (known.window, known.is_window_known) == (16_384, True)


def test_the_model_to_start_with_is_chosen_in_the_contracts_order(paths: Paths) -> None:
    keys = {"DEEPSEEK_API_KEY": "k", "GROQ_API_KEY": "k", "AWS_ACCESS_KEY_ID": "k"}
    server = LocalServer("ollama", "http://127.0.0.1:1/v1", (LocalModel("qwen3:8b"),))
    used = State(model="groq/used:high")

    def chosen(
        text: str = "", variables: Mapping[str, str] | None = None, state: State = used
    ) -> str:
        variables = variables or {}
        return providers.choose_model(
            settings(paths, text, variables), variables, state, paths, local=[server]
        )

    assert chosen('model = "a/b"\n', keys) == "a/b"
    assert chosen('model = "a/b"\n', keys | {"KEEN_MODEL": "c/d"}) == "c/d"
    assert chosen("", keys) == "groq/used:high"
    assert chosen("", keys, State(model="gone/model")).startswith("deepseek/")
    assert chosen("", {"AWS_ACCESS_KEY_ID": "k"}, State()).startswith("bedrock/")
    assert chosen("", {}, State()) == "ollama/qwen3:8b"
    assert providers.choose_model(settings(paths, ""), {}, State(), paths) == ""


def test_a_stored_key_counts_as_a_key(paths: Paths) -> None:
    credentials.store_key(paths.auth_file, "mistral", "k")

    assert providers.choose_model(settings(paths, ""), {}, State(), paths).startswith("mistral/")


def test_models_are_listed_for_whoever_has_a_key(paths: Paths) -> None:
    server = LocalServer("vllm", "http://127.0.0.1:1/v1", (LocalModel("m", 4_096, is_live=True),))
    chosen = settings(paths, '[providers.groq.models."mine"]\ncontext_window = 9000\n')

    listed = providers.known_models(chosen, {"GROQ_API_KEY": "k"}, paths, local=[server])

    names = [one.spec.name for one in listed]
    assert names[:2] == ["groq/mine", "groq/openai/gpt-oss-120b"]
    assert "groq/whisper-large-v3" not in names
    assert "vllm/m" in names
    assert "demo/guide" in names
    assert len([name for name in names if name.startswith("anthropic/")]) == 1
    assert len(names) == len(set(names))
    only = providers.known_models(chosen, {}, paths, provider="anthropic")
    assert {one.spec.provider for one in only} == {"anthropic"}

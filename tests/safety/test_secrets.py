"""Keys that keen knows stand in no log, session, error, export and no output of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from keen import auth, credentials, log
from keen._settings import Settings
from keen.commands._surroundings import append_prompt, read_prompts
from keen.core.errors import KeenError
from keen.secrets import LEAST_LENGTH, masked, masked_object, register
from keen.session.bounds import bounded
from keen.tools.spill import bounded as spilled
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.script import Recorded, Scripted, json_reply
from tests.fakes.server import FakeProvider
from tests.headless.running import Place
from tests.loopback_json import JsonServer

CHAT = dialect_named("chat")
KEY = "sk-live/Zq81+xW=0kPv3"
"""With what JSON leaves alone and URLs escape."""

pytestmark = pytest.mark.timeout(60)


def files_below(*directories: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for directory in directories
        for path in directory.rglob("*")
        if path.is_file()
    }


def holders(*directories: Path, key: str = KEY) -> list[str]:
    """Names of the files below that hold the key."""
    return [path.name for path, data in files_below(*directories).items() if key.encode() in data]


def test_a_registered_value_is_masked_wherever_and_however_it_is_spelled() -> None:
    register(KEY, 'quo"ted\\value')

    assert masked(f"Bearer {KEY}, again {KEY}.") == "Bearer ***, again ***."
    assert masked("GET /v1?key=sk-live%2FZq81%2BxW%3D0kPv3 failed") == "GET /v1?key=*** failed"
    assert masked(json.dumps({"said": 'a quo"ted\\value'})) == '{"said": "a ***"}'
    assert masked_object({KEY: [{"deep": f"x{KEY}"}], "n": 1}) == {
        "***": [{"deep": "x***"}],
        "n": 1,
    }


def test_of_values_that_contain_each_other_the_longer_is_masked_whole() -> None:
    register("abcdefg1", "abcdefg1-and-more")

    assert masked("abcdefg1-and-more abcdefg1") == "*** ***"


@pytest.mark.parametrize(
    "word", ["", "local", "x2" * 3, "lm-studio", "not-needed", "sk-no-key-required", "EMPTY-KEY"]
)
def test_what_reads_like_a_word_stays(word: str) -> None:
    register(word)

    assert masked(f"it is {word} there") == f"it is {word} there"


def test_settings_environment_and_auth_file_are_learned(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "providers": {
                "one": {
                    "client": "chat",
                    "base_url": "https://ada:pass-in-url-7@example.org/v1",
                    "api_key": "key-of-one-1",
                    "headers": {
                        "Authorization": "Bearer token-of-one-7",
                        "X-Team": "platform-team",
                    },
                },
                "two": {"client": "chat", "api_key_env": "TWO"},
                "three-b": {"client": "chat"},
            },
            "mcp": {
                "servers": {"m": {"env": {"M_TOKEN": "token-of-m-7", "M_DIR": "/srv/mcp-data"}}}
            },
        }
    )
    environment = {
        "TWO": "key-of-two-2",
        "THREE_B_API_KEY": "key-of-three-7",
        "ANTHROPIC_API_KEY": "key-of-anthropic-7",
        "AWS_SECRET_ACCESS_KEY": "secret-of-aws-7",
        "https_proxy": "http://ada:pass-of-proxy-7@10.0.0.1:3128",
    }
    auth_file = tmp_path / "auth.json"
    auth_file.write_text(
        json.dumps({"a": {"key": "stored-key-a-7"}, "b": {"access_token": "acc-b-token-7"}})
    )
    credentials.learn_secrets(settings, environment, auth_file)

    for secret in (
        *("pass-in-url-7", "key-of-one-1", "token-of-one-7", "key-of-two-2", "key-of-three-7"),
        *(
            "key-of-anthropic-7",
            "secret-of-aws-7",
            "pass-of-proxy-7",
            "token-of-m-7",
            "stored-key-a-7",
        ),
        "acc-b-token-7",
    ):
        assert masked(f"<{secret}>") == "<***>", secret
    assert masked("platform-team works in /srv/mcp-data") == "platform-team works in /srv/mcp-data"


def test_a_key_at_the_cut_of_a_long_output_is_not_left_in_half() -> None:
    register(KEY)
    whole = "".join(("a" * 2_600, KEY, "b" * 4_000))

    cuts = [bounded("a" * shift + whole) for shift in range(0, 60)]

    assert not any(KEY[:LEAST_LENGTH] in cut for cut in cuts)


def test_what_is_too_long_for_the_model_is_kept_without_keys(tmp_path: Path) -> None:
    register(KEY)

    shown = spilled(f"{'x' * 40_000}{KEY}{'y' * 40_000}", 20_000, tmp_path, "bash")

    (kept,) = tmp_path.iterdir()
    assert str(kept) in shown
    assert b"x***y" in kept.read_bytes()


_LOGGING = """
import logging, sys, warnings
from pathlib import Path
from keen import log
from keen.secrets import register
register(KEY)
log.configure(Path(sys.argv[1]), is_debugging=True)
try:
    raise ValueError(f"refused {KEY}")
except ValueError:
    logging.getLogger("keen.test").exception("with %s", KEY)
logging.getLogger("somebody.else").warning("they say %s", KEY)
warnings.warn(f"old style {KEY}", UserWarning)
"""


def test_the_log_holds_no_key_and_what_libraries_would_print(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"KEY = {KEY!r}\n{_LOGGING}", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    text = (tmp_path / "keen.log").read_text()

    assert "ValueError: refused ***" in text
    assert "they say ***" in text
    assert "old style ***" in text
    assert KEY not in text
    assert done.stderr == ""
    assert (tmp_path / "keen.log").stat().st_mode & 0o777 == 0o600


def test_the_history_of_prompts_holds_no_key(tmp_path: Path) -> None:
    register(KEY)

    append_prompt(tmp_path / "prompts.jsonl", "/work", f"use {KEY} please")

    assert read_prompts(tmp_path / "prompts.jsonl", "/work") == ["use *** please"]


def test_a_log_whose_directory_is_gone_stops_nobody(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    log.configure(directory, is_debugging=False)
    directory.rmdir()

    logging.getLogger("keen.test").warning("nobody hears this")


def echoing(request: Recorded) -> Scripted:
    words = f"The key {KEY} may not do that; see ?key={KEY}"
    return json_reply(400, {"error": {"message": words}, "message": words})


def configured(place: Place, dialect: Dialect, url: str, line: str) -> None:
    """Settings whose key is given by `line`."""
    text = dialect.settings(url).replace(f'api_key = "{dialect.key}"\n', line)
    (place.home / "config.toml").write_text(text)


def nothing_kept(place: Place) -> bool:
    kept = [place.home / name for name in ("sessions", "logs", "cache")]
    assert any(b"***" in data for data in files_below(*kept).values())
    return holders(*kept) == []


async def test_a_provider_that_repeats_the_key_in_its_error_shows_it_to_nobody(
    place: Place, dialect: Dialect
) -> None:
    key = f"AKIAFAKEFAKEFAKEFAKE:{KEY}" if dialect.name == "bedrock" else KEY
    async with FakeProvider(echoing, is_strict=False) as provider:
        configured(place, dialect, provider.url, f'api_key = "{key}"\n')
        ran = await place.run("run", "go", "--debug", "--format", "stream-json")

    assert provider.requests, ran.stderr
    assert ran.code != 0
    assert KEY not in ran.stdout + ran.stderr
    assert "***" in ran.stderr
    assert "***" in ran.stdout
    assert nothing_kept(place)


@pytest.mark.parametrize("source", ["variable", "auth.json", "helper"])
async def test_wherever_the_key_comes_from_its_repetition_is_masked(
    place: Place, source: str
) -> None:
    environment = {"FAKE_API_KEY": KEY} if source == "variable" else {}
    if source == "auth.json":
        (place.home / "auth.json").write_text(json.dumps({"fake": {"key": KEY}}))
    async with FakeProvider(echoing, is_strict=False) as provider:
        helper = f"api_key_helper = 'echo {KEY}'\n" if source == "helper" else ""
        configured(place, CHAT, provider.url, helper)
        ran = await place.run("run", "go", environment=environment)

    assert KEY in provider.requests[0].headers["authorization"]
    assert KEY not in ran.stdout + ran.stderr
    assert "***" in ran.stderr
    assert nothing_kept(place)


@pytest.mark.parametrize("source", ["credentials file", "variables"])
async def test_what_boto3_finds_by_itself_is_masked(place: Place, source: str) -> None:
    """keen never sees these keys itself: it learns them where the request is signed."""
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    values = ("AKIAFAKEFAKEFAKEFAKE", KEY[::-1], KEY)
    pairs = dict(zip(names, values, strict=True))
    environment, line = {name.upper(): value for name, value in pairs.items()}, ""
    if source == "credentials file":
        lines = [f"{name} = {value}" for name, value in pairs.items()]
        file = place.work.parent / "credentials"
        file.write_text("\n".join(["[work]", *lines]))
        environment, line = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}, 'profile = "work"\n'
    async with FakeProvider(echoing, is_strict=False) as provider:
        configured(place, dialect_named("bedrock"), provider.url, line)
        ran = await place.run("run", "go", "--debug", environment=environment)

    assert provider.requests[0].headers["x-amz-security-token"] == KEY
    assert KEY not in ran.stdout + ran.stderr
    assert "***" in ran.stderr
    assert nothing_kept(place)


async def test_the_sign_in_page_repeats_nothing_of_its_address(tmp_path: Path) -> None:
    """No script of a forged answer runs there, and no code stays in a browser's page."""
    pages: list[str] = []

    async def open_page(address: str) -> None:
        query = parse_qs(urlsplit(address).query)
        back, state = query["redirect_uri"][0], query["state"][0]
        answers = ("code=<script>x</script>&state=<b>", f"code=code-{state}&state={state}")
        pages.extend([await fetched(f"{back}?{words}") for words in answers])

    async with JsonServer({"/oauth/token": 400}) as issuer:
        with pytest.raises(KeenError) as caught:
            await auth.sign_in(tmp_path / "a.json", open_page, issuer=issuer.url, port=0)
        code = issuer.asked[0].form["code"]

    assert len(pages) == 2
    assert not any(word in page for page in pages for word in ("script", "<b>", code))
    assert code not in str(caught.value)


async def fetched(address: str) -> str:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    page = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return page


async def test_a_key_that_a_tool_shows_reaches_the_model_and_nothing_of_keens(place: Place) -> None:
    (place.work / "notes.txt").write_text(f"the key is {KEY}\n")
    async with FakeProvider(
        CHAT.calls("read_file", path="notes.txt"),
        CHAT.calls("grep", pattern=KEY.replace("+", r"\+")),
        CHAT.says(f"It is {KEY}."),
        CHAT.says("ok"),
    ) as provider:
        configured(place, CHAT, provider.url, f'api_key = "{KEY}"\n')
        streamed = await place.run("run", f"what is {KEY}?", "--format", "stream-json")
        plain = await place.run("run", "again", "--continue")
        told = CHAT.read(provider.requests[1]).results[0].output
    exports = [
        await place.run("sessions", "export", place.sessions()[0].stem, "--to", form)
        for form in ("md", "json", "html")
    ]
    shown = await place.run("sessions", "show", place.sessions()[0].stem)
    listed = await place.run("sessions", "list")

    assert KEY in told
    for ran in (plain, *exports, shown, listed):
        assert ran.code == 0, ran.stderr
        assert KEY not in ran.stdout + ran.stderr
    lines = [line for line in streamed.lines if line["type"] not in ("text", "reasoning")]
    assert KEY not in json.dumps(lines)
    assert "It is ***." in str(lines[-1]["text"])
    assert holders(place.home / "sessions", place.home / "logs", place.home / "cache") == []
    assert "what is ***?" in listed.stdout


async def test_deltas_that_split_a_key_do_not_show_it_either(place: Place) -> None:
    pieces = ("It is ", KEY[:5], KEY[5:11], KEY[11:] + ", ", "sk-", "live and more.")
    async with FakeProvider(CHAT.says("", pieces=pieces)) as provider:
        configured(place, CHAT, provider.url, f'api_key = "{KEY}"\n')
        ran = await place.run("run", "go", "--format", "stream-json")

    texts = [str(line["text"]) for line in ran.lines if line["type"] == "text"]
    assert "".join(texts) == "It is ***, sk-live and more."
    assert KEY not in ran.stdout


async def test_a_session_from_before_the_key_was_known_is_shown_without_it(place: Place) -> None:
    async with FakeProvider(CHAT.says(f"It is {KEY}.")) as provider:
        place.configure(CHAT, provider.url)
        ran = await place.run("run", "go")
    assert KEY in ran.stdout
    environment = {"OPENAI_API_KEY": KEY}
    identity = place.sessions()[0].stem

    runs = [
        await place.run("sessions", *words, environment=environment)
        for words in (("show", identity), ("export", identity, "--to", "json"))
    ]

    for ran in runs:
        assert "It is ***" in ran.stdout
        assert KEY not in ran.stdout


async def test_the_settings_are_shown_without_keys_wherever_they_stand(place: Place) -> None:
    (place.home / "config.toml").write_text(
        f'model = "mine/m"\n[providers.mine]\nclient = "chat"\napi_key = "{KEY}"\n'
        f"base_url = 'http://ada:{KEY}@127.0.0.1:9/v1?key={KEY}'\napi_key_helper = 'echo {KEY}'\n"
        f"[permissions]\nallow = ['bash(curl -H {KEY})']\n"
    )
    for words in (
        ("config", "show"),
        ("config", "check"),
        ("doctor",),
        ("models",),
        ("auth", "status"),
        ("permissions", "list"),
        ("permissions", "check", f"curl -H {KEY} example.org"),
        ("run", "go"),
    ):
        ran = await place.run(*words)
        assert KEY not in ran.stdout + ran.stderr, words

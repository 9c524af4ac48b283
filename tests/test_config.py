from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keen import _files, _toml, config
from keen.config import Loaded
from keen.core.errors import ConfigError
from keen.core.messages import Json, JsonObject
from keen.paths import Paths
from keen.state import State, read_state, remember


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.in_one_directory(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def user_file(paths: Paths, text: str) -> Path:
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text)
    return paths.config_file


def project_file(project: Path, text: str) -> Path:
    path = project / ".keen" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(
    paths: Paths,
    cwd: Path,
    *,
    flags: Mapping[str, Json] | None = None,
    environment: Mapping[str, str] | None = None,
    trusted: bool = False,
) -> Loaded:
    return config.load(
        cwd, flags=flags or {}, environment=environment or {}, trusted=trusted, paths=paths
    )


def test_without_any_file_the_built_in_settings_hold(paths: Paths, project: Path) -> None:
    settings = load(paths, project).settings

    assert settings.model == ""
    assert settings.compaction.threshold == 0.90
    assert settings.compaction.keep_recent_tokens == 20_000
    assert settings.permissions.mode == "build"
    assert settings.permissions.sandbox == "auto"
    assert settings.ui.theme == "keen-dark"
    assert settings.session.tool_history == "none"


def test_every_table_of_the_contract_is_understood(paths: Paths, project: Path) -> None:
    user_file(
        paths,
        """
        model = "work/qwen3:8b"
        [providers.work]
        client = "chat"
        base_url = "http://127.0.0.1:8080/v1"
        api_key_env = "WORK"
        headers = { "X-Team" = "a" }
        [providers.work.models."qwen3:8b"]
        context_window = 32768
        max_output_tokens = 8192
        reasoning = true
        images = false
        [compaction]
        auto = false
        threshold = 140000
        strategy = "recent"
        context_window_tokens = 65536
        model = "work/small"
        [permissions]
        mode = "plan"
        allow = ["bash(git status:*)"]
        writable = ["~/.cache/uv"]
        [ui]
        notification_seconds = 0.5
        while_running = "steer"
        [session]
        tool_history = "full"
        [mcp.servers.files]
        command = ["files-server", "--root", "."]
        env = { A = "b" }
        [[hooks.tool_finished]]
        command = ["notify"]
        matcher = "bash"
        [keys]
        send = "ctrl+enter"
        newline = ["ctrl+j", "alt+enter"]
        """,
    )

    loaded = load(paths, project)

    settings = loaded.settings
    assert loaded.warnings == ()
    assert settings.providers["work"].models["qwen3:8b"].context_window == 32_768
    assert settings.providers["work"].headers == {"X-Team": "a"}
    assert settings.compaction.threshold == 140_000
    assert settings.mcp.servers["files"].command == ("files-server", "--root", ".")
    assert settings.hooks["tool_finished"][0].matcher == "bash"
    assert settings.keys == {"send": ("ctrl+enter",), "newline": ("ctrl+j", "alt+enter")}


def test_later_layers_win(paths: Paths, project: Path) -> None:
    user_file(paths, 'model = "a/user"\n[ui]\ntheme = "user"\nmouse = false\n')
    project_file(project, 'model = "a/project"\n[ui]\ntheme = "project"\n')

    environment = {"KEEN_MODEL": "a/environment"}
    flags: dict[str, Json] = {"model": "a/flag"}

    assert load(paths, project).settings.model == "a/user"
    assert load(paths, project, trusted=True).settings.model == "a/project"
    moved = load(paths, project, trusted=True, environment=environment)
    assert moved.settings.model == "a/environment"
    moved = load(paths, project, trusted=True, environment=environment, flags=flags)
    assert moved.settings.model == "a/flag"
    ui = load(paths, project, trusted=True).settings.ui
    assert (ui.theme, ui.mouse) == ("project", False)


def test_an_untrusted_project_file_is_not_even_read(paths: Paths, project: Path) -> None:
    project_file(project, "this is not TOML")

    assert load(paths, project).settings.model == ""


def test_a_project_file_holds_in_every_folder_below_it(paths: Paths, project: Path) -> None:
    project_file(project, 'model = "a/root"\n[ui]\ntheme = "root"\n')
    project_file(project / "packages" / "one", 'model = "a/one"\n')

    settings = load(paths, project / "packages" / "one", trusted=True).settings

    assert (settings.model, settings.ui.theme) == ("a/one", "root")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[providers.anthropic]\nbase_url = "http://evil.example"', "providers.anthropic.base_url"),
        ('[providers.anthropic]\napi_key = "k"', "providers.anthropic.api_key"),
        ('[providers.anthropic]\napi_key_env = "AWS_SECRET"', "providers.anthropic.api_key_env"),
        ('[providers.anthropic]\napi_key_helper = "id"', "providers.anthropic.api_key_helper"),
        ('[providers.openai]\nclient = "anthropic"', "providers.openai.client"),
        ('[providers.openai]\nheaders = { A = "b" }', "providers.openai.headers.A"),
        ('[providers.bedrock]\nregion = "x.evil.example/"', "providers.bedrock.region"),
        ('[providers.bedrock]\nprofile = "admin"', "providers.bedrock.profile"),
        ('[permissions]\nmode = "yolo"', "permissions.mode"),
        ('[permissions]\nallow = ["bash(*)"]', "permissions.allow"),
        ('[permissions]\nsandbox = "off"', "permissions.sandbox"),
        ("[permissions]\nnetwork = true", "permissions.network"),
        ('[permissions]\nwritable = ["/"]', "permissions.writable"),
        ('[permissions]\nenv = ["TOKEN"]', "permissions.env"),
        ('[mcp.servers.x]\ncommand = ["sh"]', "mcp.servers.x.command"),
        ('[mcp.servers.x]\nurl = "http://evil.example"', "mcp.servers.x.url"),
        ('[[hooks.start]]\ncommand = ["sh"]', "hooks.start"),
        ('[keys]\nyes = "enter"', "keys.yes"),
    ],
)
def test_a_trusted_project_still_cannot_set(
    paths: Paths, project: Path, text: str, key: str
) -> None:
    file = project_file(project, text)
    before = load(paths, project).settings

    loaded = load(paths, project, trusted=True)

    assert loaded.settings == before
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].startswith(f"{file}:2: {key} is ignored") or (
        key == "hooks.start" and loaded.warnings[0].startswith(f"{file}:1: {key} is ignored")
    )


def test_an_empty_table_of_a_project_is_no_offence(paths: Paths, project: Path) -> None:
    project_file(project, "[permissions]\n[providers.anthropic]\n[mcp.servers]\n")

    assert load(paths, project, trusted=True).warnings == ()


def test_a_project_adds_to_deny_and_cannot_empty_it(paths: Paths, project: Path) -> None:
    user_file(paths, '[permissions]\ndeny = ["read(.env*)"]\n')
    project_file(project, '[permissions]\ndeny = []\nask = ["bash(git push:*)"]\n')

    loaded = load(paths, project, trusted=True, flags={"permissions.deny": ["web_fetch"]})

    assert loaded.settings.permissions.deny == ("read(.env*)", "web_fetch")
    assert loaded.settings.permissions.ask == ("bash(git push:*)",)
    assert loaded.origins["permissions.deny[0]"] == f"{paths.config_file}:2"
    assert loaded.origins["permissions.deny[1]"] == "--deny"


def test_the_users_own_file_is_never_taken_for_a_projects(tmp_path: Path) -> None:
    paths = Paths.in_one_directory(tmp_path / ".keen")
    user_file(paths, '[permissions]\nmode = "plan"\n')

    loaded = load(paths, tmp_path, trusted=True)

    assert loaded.settings.permissions.mode == "plan"
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("[ui]\nmouse = 1", "ui.mouse = 1: expected true or false"),
        ("[compaction]\nthreshold = 0.97", "compaction.threshold = 0.97: expected a share"),
        ("[compaction]\nthreshold = 1.0", "compaction.threshold = 1.0: expected a share"),
        ("[compaction]\nkeep_recent_tokens = 0", "expected a number above 0"),
        ("[compaction]\ncontext_window_tokens = -1", "expected a number of at least 0"),
        ('[compaction]\nstrategy = "neo"', "expected one of 'checkpoint', 'recent', 'window' or"),
        ('\nmodel = "sonnet"', 'model = "sonnet": expected "provider/model"'),
        ('[permissions]\ndeny = "x"', 'permissions.deny = "x": expected a list of texts'),
        ("[permissions]\ndeny = [1]", "permissions.deny[0] = 1: expected text in quotes"),
        ('[providers.a]\nbase_url = "host:80"', "expected an address that starts with http://"),
        ('\nui = "dark"', 'ui = "dark": expected a table'),
    ],
)
def test_a_wrong_value_stops_with_file_line_key_and_what_was_expected(
    paths: Paths, project: Path, line: str, wanted: str
) -> None:
    file = user_file(paths, line)

    with pytest.raises(ConfigError) as error:
        load(paths, project)

    assert str(error.value).startswith(f"{file}:2: ")
    assert wanted in str(error.value)


def test_a_secret_is_never_repeated_in_a_mistake(paths: Paths, project: Path) -> None:
    user_file(paths, "[providers.a]\napi_key = 12345\nheaders = { X = 67890 }\n")

    with pytest.raises(ConfigError) as error:
        load(paths, project)

    assert "12345" not in str(error.value)
    assert "67890" not in str(error.value)


def test_every_mistake_is_shown_at_once(paths: Paths, project: Path) -> None:
    user_file(paths, "[ui]\nmouse = 1\ntheme = 2\n")

    mistakes, warnings = config.check(project, environment={}, trusted=False, paths=paths)

    assert {mistake.split(": ")[1] for mistake in mistakes} == {"ui.mouse = 1", "ui.theme = 2"}
    assert warnings == ()


def test_an_unknown_key_is_reported_with_the_nearest_name(paths: Paths, project: Path) -> None:
    file = user_file(
        paths,
        'modle = "x"\n[providers.a.models."b:c"]\nimges = true\n[[hooks.e]]\ncommand = ["x"]\n'
        "zzz = 1\n",
    )

    loaded = load(paths, project)

    assert set(loaded.warnings) == {
        f"{file}:1: unknown key modle (did you mean model?)",
        f'{file}:3: unknown key providers.a.models."b:c".imges (did you mean images?)',
        f"{file}:6: unknown key hooks.e[0].zzz",
    }
    assert loaded.settings.hooks["e"][0].command == ("x",)


@pytest.mark.parametrize("text", ["a = ", "[a\n", 'a = "\n', "a = 1\na = 2"])
def test_broken_toml_names_file_and_line(paths: Paths, project: Path, text: str) -> None:
    file = user_file(paths, text)

    with pytest.raises(ConfigError, match="expected TOML") as error:
        load(paths, project)

    assert str(error.value).startswith(f"{file}")


def test_bytes_that_are_no_text_are_named(paths: Paths, project: Path) -> None:
    user_file(paths, "")
    paths.config_file.write_bytes(b'model = "\xff"')

    with pytest.raises(ConfigError, match="UTF-8"):
        load(paths, project)


def test_a_file_of_windows_with_a_byte_order_mark_is_read(paths: Paths, project: Path) -> None:
    user_file(paths, "")
    paths.config_file.write_bytes(b"\xef\xbb\xbf[ui]\r\nmouse = false\r\n")

    assert load(paths, project).settings.ui.mouse is False


def test_config_flag_takes_the_users_files_place(paths: Paths, project: Path) -> None:
    user_file(paths, 'model = "a/user"\n')
    other = project / "other.toml"
    other.write_text("[ui]\nmouse = false\n")

    loaded = config.load(project, flags={}, environment={}, trusted=False, paths=paths, file=other)

    assert (loaded.settings.model, loaded.settings.ui.mouse) == ("", False)
    with pytest.raises(ConfigError, match="no such file"):
        config.load(
            project, flags={}, environment={}, trusted=False, paths=paths, file=project / "no"
        )


@pytest.mark.parametrize(
    ("variable", "value", "moved"),
    [
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1", ("anthropic", "http://127.0.0.1:1")),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1/", ("openai", "http://127.0.0.1:1/v1")),
        ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1", ("google", "http://127.0.0.1:1")),
        (
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
            "http://127.0.0.1:1",
            ("bedrock", "http://127.0.0.1:1"),
        ),
        ("OLLAMA_HOST", "0.0.0.0", ("ollama", "http://127.0.0.1:11434/v1")),
        ("OLLAMA_HOST", "box:9", ("ollama", "http://box:9/v1")),
        ("OLLAMA_HOST", "https://box", ("ollama", "https://box:443/v1")),
        ("OLLAMA_HOST", "http://[::1]:9/", ("ollama", "http://[::1]:9/v1")),
    ],
)
def test_the_usual_variables_move_a_provider(
    paths: Paths, project: Path, variable: str, value: str, moved: tuple[str, str]
) -> None:
    provider, address = moved
    user_file(paths, f'[providers.{provider}]\nbase_url = "http://file.example"\n')

    loaded = load(paths, project, environment={variable: value})

    assert loaded.settings.providers[provider].base_url == address
    assert loaded.origins[f"providers.{provider}.base_url"] == variable


def test_a_wrong_variable_is_named(paths: Paths, project: Path) -> None:
    with pytest.raises(ConfigError, match=r"^KEEN_MODEL: model = \"sonnet\": expected"):
        load(paths, project, environment={"KEEN_MODEL": "sonnet"})


def test_a_wrong_flag_is_named(paths: Paths, project: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--mode: permissions.mode = \"fast\": expected one of"):
        load(paths, project, flags={"permissions.mode": "fast"})


def test_secrets_are_masked_and_the_rest_is_not(paths: Paths, project: Path) -> None:
    user_file(
        paths,
        '[providers.a]\napi_key = "one"\nheaders = { X = "two" }\napi_key_env = "NAME"\n'
        '[mcp.servers.s]\nenv = { T = "three" }\nheaders = { A = "four" }\n'
        '[permissions]\nenv = ["SHOWN"]\n',
    )
    settings = load(paths, project).settings

    shown = str(config.masked(settings))

    assert not [secret for secret in ("one", "two", "three", "four") if f"'{secret}'" in shown]
    assert "NAME" in shown
    assert "SHOWN" in shown
    assert "'one'" not in repr(settings)


def test_lines_are_found_whatever_the_toml_looks_like() -> None:
    text = """# comment with = and [brackets]
a = 1 # b = 2
"quoted key" . inner = '''
x = 1
[not.a.table]
'''
[table."with.dot"] # [no]
list = [
  "]", # ]
  { z = 1 },
]
after = \"\"\"
\\\"\"\" = [ \"\"\"
[[rows]]
one = 1
[rows.sub]
two = 2
[[rows]]
one = 3
"""

    lines = _toml.key_lines(text)

    assert lines[("a",)] == 2
    assert lines[("quoted key", "inner")] == 3
    assert lines[("table", "with.dot")] == 7
    assert lines[("table", "with.dot", "list")] == 8
    assert lines[("table", "with.dot", "after")] == 12
    assert lines[("rows", 0, "one")] == 15
    assert lines[("rows", 0, "sub", "two")] == 17
    assert lines[("rows", 1, "one")] == 19
    assert ("not", "a", "table") not in lines
    assert _toml.line_of(lines, ("rows", 1, "unknown")) == 18


def test_choices_are_remembered_one_by_one(paths: Paths) -> None:
    assert read_state(paths) == State()

    assert remember(paths, model="a/b")
    assert remember(paths, theme="keen-light")

    assert read_state(paths) == State(model="a/b", theme="keen-light")
    assert stat.S_IMODE(paths.state_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.data.stat().st_mode) == 0o700


def test_a_broken_state_file_remembers_nothing(paths: Paths) -> None:
    paths.data.mkdir(parents=True)
    paths.state_file.write_text('["no object"]')

    assert read_state(paths) == State()


def test_where_nothing_can_be_written_nothing_crashes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths = Paths.in_one_directory(tmp_path / "file" / "below")

    assert remember(paths, model="a/b") is False
    assert read_state(paths) == State()
    assert load(paths, tmp_path).settings.model == ""


def test_keys_that_keen_does_not_know_stay_in_its_files(paths: Paths) -> None:
    paths.data.mkdir(parents=True)
    paths.state_file.write_text('{"later": {"version": 9}, "model": "old/model"}')

    remember(paths, model="new/model")

    assert _files.read_json(paths.state_file) == {"later": {"version": 9}, "model": "new/model"}


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "auth.json"
    target.parent.mkdir()
    target.write_text("{}")
    link = tmp_path / "auth.json"
    link.symlink_to(target)

    _files.write_private(link, "new")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["auth.json"]


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"

    def add(number: int) -> None:
        def change(value: JsonObject) -> None:
            value[str(number)] = number

        _files.update_json(path, change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))

    assert len(_files.read_json(path)) == 40


def test_keen_home_moves_everything(tmp_path: Path) -> None:
    paths = Paths.from_environment({"KEEN_HOME": str(tmp_path)})

    assert paths.config_file == tmp_path / "config.toml"
    assert paths.auth_file == tmp_path / "auth.json"
    assert paths.sessions == tmp_path / "sessions"
    assert paths.themes == tmp_path / "themes"
    assert paths.skills == tmp_path / "skills"
    assert paths.logs == tmp_path / "logs"
    assert tmp_path in paths.cache.parents


def test_without_keen_home_the_systems_directories_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))

    paths = Paths.from_environment({})

    assert all(place.is_absolute() for place in (paths.config, paths.data, paths.logs))
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert paths.config_file == tmp_path / "c" / "keen" / "config.toml"


def test_a_user_without_a_home_gets_a_private_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    # What an unknown user sees: nothing that ~ could stand for.
    monkeypatch.setattr(os.path, "expanduser", str)

    first, second = Paths.from_environment({}), Paths.from_environment({})

    assert first == second
    assert first.config.parent == tmp_path
    assert stat.S_IMODE(first.config.stat().st_mode) == 0o700
    first.config.chmod(0o777)
    assert Paths.from_environment({}).config != first.config

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from keen._settings import McpServer, McpSettings, PermissionSettings, Settings
from keen.core.messages import Json
from keen.extend._mcp_names import server_names, split, tool_names
from keen.extend._mcp_schema import checked
from keen.extend._mcp_text import ToolText
from keen.extend.mcp_config import Servers, servers

ENVIRONMENT = {"PATH": "/usr/bin", "HOME": "/home/a", "GITHUB_TOKEN": "t0ken",
               "ANTHROPIC_API_KEY": "sk-secret"}  # fmt: skip


def written(path: Path, entries: Json) -> Path:
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


def of_project(root: Path, entries: Json, settings: Settings | None = None) -> Servers:
    written(root / ".mcp.json", entries)
    return servers(settings or Settings(), root, None, ENVIRONMENT)


def test_a_project_file_names_commands_and_addresses(tmp_path: Path) -> None:
    found = of_project(
        tmp_path,
        {
            "b": {"command": "npx", "args": ["-y", "thing"], "env": {"A": "${NO:-x}"}},
            "a": {"type": "http", "url": "https://example.invalid/mcp", "headers": {"X-A": "1"}},
        },
    )

    assert found.notices == ()
    web, local = found.configs
    assert (web.name, web.transport, web.url) == ("a", "http", "https://example.invalid/mcp")
    assert (local.command, local.environment) == (("npx", "-y", "thing"), {"A": "x"})
    assert (local.scope, local.cwd) == ("project", tmp_path)


def test_the_project_of_an_untrusted_folder_is_not_read(tmp_path: Path) -> None:
    written(tmp_path / ".mcp.json", {"a": {"command": "x"}})

    assert servers(Settings(), None, None, ENVIRONMENT) == Servers()


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({}, "mcpServers.a should have either command or url"),
        ({"command": "x", "url": "https://a.invalid"}, "either command or url"),
        ({"command": "x", "args": "y"}, "mcpServers.a.args should be a list"),
        ({"command": "x", "env": {"A": 1}}, "mcpServers.a.env should be a table of texts"),
        ({"url": "ftp://a.invalid"}, "mcpServers.a.url should start with http"),
        ({"url": "https://a.invalid", "headers": {"A": "b\nc"}}, "mcpServers.a.headers.A"),
        ({"url": "https://a.invalid", "type": "stdio"}, "mcpServers.a.type should be"),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "mcpServers.a.env.A needs ${NOT_SET}"),
        ("x", "mcpServers.a should be a table"),
    ],
)
def test_a_wrong_entry_is_named_with_its_field_and_the_rest_works(
    tmp_path: Path, entry: Json, complaint: str
) -> None:
    found = of_project(tmp_path, {"a": entry, "b": {"command": "y"}})

    assert [config.name for config in found.configs] == ["b"]
    [notice] = found.notices
    assert str(tmp_path / ".mcp.json") in notice
    assert complaint in notice


@pytest.mark.parametrize("content", ["{", "[]", '{"mcpServers": []}', "\x00", "{" * 100_000])
def test_a_wrong_file_is_named_and_nothing_is_lost(tmp_path: Path, content: str) -> None:
    (tmp_path / ".mcp.json").write_text(content)
    own = Settings(mcp=McpSettings(servers={"own": McpServer(command=("x",))}))

    found = servers(own, tmp_path, None, ENVIRONMENT)

    assert [config.name for config in found.configs] == ["own"]
    assert str(tmp_path / ".mcp.json") in found.notices[0]


def test_a_project_gets_a_secret_only_where_the_user_lets_it_through(tmp_path: Path) -> None:
    entry: Json = {"a": {"command": "x", "env": {"T": "${GITHUB_TOKEN}"}}}
    allowed = Settings(permissions=PermissionSettings(env=("GITHUB_TOKEN", "ANTHROPIC_API_KEY")))

    assert "permissions.env" in of_project(tmp_path, entry).notices[0]
    assert of_project(tmp_path, entry, allowed).configs[0].environment == {"T": "t0ken"}


@pytest.mark.parametrize("scope", ["project", "user", "flag"])
def test_a_key_that_pays_for_models_is_never_filled_in(tmp_path: Path, scope: str) -> None:
    entry: Json = {"a": {"url": "https://a.invalid/?k=${ANTHROPIC_API_KEY}"}}
    file = written(tmp_path / ".mcp.json", entry)
    allowed = Settings(permissions=PermissionSettings(env=("ANTHROPIC_API_KEY",)))

    found = servers(
        allowed,
        tmp_path if scope == "project" else None,
        file if scope == "flag" else None,
        ENVIRONMENT,
        user_file=file if scope == "user" else None,
    )

    assert found.configs == ()
    assert "sk-secret" not in repr(found)


def test_a_name_is_decided_by_the_flag_then_the_user_then_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    written(project / ".mcp.json", {name: {"command": "project"} for name in "abcd"})
    extra = written(tmp_path / "extra.json", {"a": {"command": "flag"}})
    user = written(tmp_path / "mcp.json", {"a": {"command": "file"}, "c": {"command": "file"}})
    settings = Settings(
        mcp=McpSettings(servers={name: McpServer(command=("settings",)) for name in ("a", "b")})
    )

    found = servers(settings, project, extra, ENVIRONMENT, user_file=user)

    assert [config.command[0] for config in found.configs] == [
        "flag",
        "settings",
        "file",
        "project",
    ]
    assert len(found.notices) == 3


def test_an_approval_is_for_the_content_of_an_entry_not_for_its_name(tmp_path: Path) -> None:
    first: Json = {"command": "x", "args": ["1"], "env": {"A": "1"}}
    others: list[Json] = [
        {"command": "y", "args": ["1"], "env": {"A": "1"}},
        {"command": "x", "args": ["2"], "env": {"A": "1"}},
        {"command": "x", "args": ["1"], "env": {"B": "1"}},
        {"command": "x", "args": ["1"], "env": {"A": "2"}},
        {"url": "https://a.invalid"},
        {"url": "https://a.invalid", "headers": {"A": "1"}},
    ]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    keys = [of_project(tmp_path, {"a": entry}).configs[0].key for entry in (first, *others)]

    assert len(set(keys)) == len(keys)
    assert of_project(tmp_path, {"a": first}).configs[0].key == keys[0]
    assert of_project(elsewhere, {"a": first}).configs[0].key != keys[0]


def test_the_configuration_is_read_without_importing_a_library_for_it() -> None:
    script = (
        "import sys, keen.extend.mcp, keen.extend.mcp_config\n"
        "print([name for name in ('mcp', 'anyio', 'jsonschema', 'httpx2') if name in sys.modules])"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"


def test_names_are_plain_short_and_apart_whatever_the_order() -> None:
    names = ["a b", "a_b", "a/b", "x" * 100, "x" * 101, "ok-1", "__", "é"]

    full = tool_names("srv", names)

    assert full == {**tool_names("srv", names[::-1])}
    assert len(full) == len(names)
    assert all(len(name) <= 64 and name.isascii() and "/" not in name for name in full)
    assert full["mcp__srv__a_b"] == "a_b"
    assert full["mcp__srv__ok-1"] == "ok-1"
    assert all(split(name)[0] == "srv" for name in full)


def test_two_servers_never_share_a_tool_name() -> None:
    parts = server_names(["a", "a__b", "a_", "a b", "s" * 40])

    assert len(parts) == 5
    assert all("__" not in part and len(part) <= 24 for part in parts)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/s.json"}}},
        {"type": 7},
        {"properties": {"a": {"pattern": "(x+x+)+y"}}},
        {"patternProperties": {"(x+x+)+y": False}, "additionalProperties": False},
        {
            "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)}
            | {"60": {}},
            "$ref": "#/$defs/0",
        },
    ],
)
def test_a_schema_that_is_wrong_or_a_trap_checks_nothing(schema: dict[str, Json]) -> None:
    tool = ToolText("t", "", json.dumps(schema))
    given: dict[str, Json] = {"a": "x" * 60, "x" * 60: 1}

    assert checked("t", tool, given) == given


def test_a_list_that_was_sent_as_text_is_read() -> None:
    schema = {"properties": {"a": {"type": "array"}, "b": {"type": "string"}}}
    tool = ToolText("t", "", json.dumps(schema))

    assert checked("t", tool, {"a": "[1]", "b": "[1]"}) == {"a": [1], "b": "[1]"}

"""What a start may load, in real processes; who may import whom is checked by import-linter."""

from __future__ import annotations

import subprocess
import sys

import pytest

SDKS = ("openai", "anthropic", "google.genai", "boto3", "botocore")
HEAVY = (*SDKS, "textual", "rich", "httpx2", "pydantic", "genai_prices", "tree_sitter", "mcp")


def loaded(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after running `code`."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("from keen.cli import run; run(['--version'])", HEAVY),
        ("import keen.core.messages, keen.core.events, keen.core.errors", HEAVY),
        ("import keen.agent.turn, keen.agent.conversation", (*SDKS, "textual", "rich", "httpx2")),
        ("import keen.headless.run", (*SDKS, "textual", "rich", "httpx2")),
        ("import keen.commands.run", (*SDKS, "textual", "rich", "httpx2", "genai_prices")),
        ("import keen.commands.sessions", (*SDKS, "textual", "httpx2")),
        ("import keen.commands.config", (*SDKS, "textual", "httpx2")),
        (
            "import keen.commands.interactive, keen.commands.desk, keen.app.app",
            (*SDKS, "pydantic", "httpx2", "yaml", "mcp", "acp", "keen.extend", "keen.engine"),
        ),
        ("import keen.extensions", (*SDKS, "mcp", "acp", "yaml", "textual", "jsonschema")),
        ("import keen.commands.mcp", (*SDKS, "mcp", "textual")),
        ("import keen.commands.acp", (*SDKS, "acp", "textual")),
        ("import keen.wire.registry", (*SDKS, "textual", "httpx2")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_start_loads_nothing_it_does_not_need(code: str, forbidden: tuple[str, ...]) -> None:
    assert loaded(code) & set(forbidden) == set()


@pytest.mark.parametrize(
    "client", ["chat", "responses", "codex", "anthropic", "google", "bedrock", "demo"]
)
def test_building_a_wire_imports_no_sdk(client: str) -> None:
    code = (
        "from keen.wire.base import Endpoint, FixedKey\n"
        "from keen.wire.registry import wire_for\n"
        f"wire_for({client!r}, Endpoint('p', FixedKey('k')))"
    )
    assert loaded(code) & set(SDKS) == set()

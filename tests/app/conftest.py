"""A folder to work in, and keen in a terminal against a scripted provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect, dialect_named
from tests.fakes.server import FakeProvider


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A whole program in a terminal starts within these tests: ten seconds are too few."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(40))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small project."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "README.md").write_text("# Parser\n\nA parser.\n")
    (place / "parser.py").write_text("def parse(text):\n    return text.split()\n")
    (place / "log.txt").write_text("".join(f"line {n:03} of the log\n" for n in range(70)))
    (place / "src").mkdir()
    (place / "src" / "lexer.py").write_text("TOKENS = []\n")
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with an empty KEEN_HOME in it."""
    place = tmp_path / "home"
    (place / "keen").mkdir(parents=True, mode=0o700)
    return place


@pytest.fixture
def chat() -> Dialect:
    """The protocol the terminal tests speak; the engine's own tests cover all six."""
    return dialect_named("bedrock")


@pytest.fixture
def keen(workspace: Path, home: Path, chat: Dialect) -> Callable[..., Terminal]:
    """Starts keen against a fake provider, or with other arguments."""

    def start(
        provider: FakeProvider | None,
        *arguments: str,
        size: tuple[int, int] = (100, 30),
        settings: str = "",
        window: int = 200_000,
        environment: dict[str, str] | None = None,
    ) -> Terminal:
        if provider is not None:
            text = chat.settings(provider.url, window=window, max_output=2_000)
            (home / "keen" / "config.toml").write_text(text + settings)
        return Terminal(*arguments, cwd=workspace, home=home, size=size, environment=environment)

    return start

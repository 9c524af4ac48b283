"""What the sandbox stopped, asked about in a terminal."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from keen.tools.sandbox.probe import find
from tests.app.terminal import Terminal
from tests.fakes.dialects import dialect_named
from tests.fakes.server import FakeProvider
from tests.tools.calls import outside_tmp

FULL = find("auto")


@pytest.fixture
def base() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="keen-test-", dir=outside_tmp())).resolve()
    for name in ("home/keen", "project", "notes"):
        (place / name).mkdir(parents=True, mode=0o700)
    yield place
    shutil.rmtree(place)


@pytest.mark.timeout(60)
@pytest.mark.skipif(FULL.level != "full", reason=f"no full sandbox here: {FULL.reason}")
async def test_a_person_opens_a_folder_for_the_project_and_the_same_command_runs(
    base: Path,
) -> None:
    chat = dialect_named("bedrock")
    command = f"echo kept > {base}/notes/today"
    script = (chat.calls("bash", command=command), chat.says("Written."))
    async with FakeProvider(*script) as provider:
        settings = chat.settings(provider.url, window=200_000, max_output=2_000)
        (base / "home/keen/config.toml").write_text(settings)
        async with Terminal(cwd=base / "project", home=base / "home") as terminal:
            await terminal.ready()
            await terminal.say("note it")
            await terminal.until("The sandbox stopped this command")
            await terminal.quiet(0.4)
            assert "1" in terminal.text
            assert not (base / "notes/today").exists()

            terminal.type("3")

            await terminal.until("Written.")
        assert (base / "notes/today").read_text() == "kept\n"
        assert "This is the second run." in provider.requests[1].text
        saved = base / "home/keen/permissions.toml"
        assert f"sandbox(write:{base}/notes)" in saved.read_text()

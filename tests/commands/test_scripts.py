"""scripts/keen in a checkout of its own, with a stand-in for uv that needs no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
UV = """\
#!/bin/sh
echo "uv $1" >&2
for last; do :; done
if [ "$1" = venv ]; then
    mkdir -p "$last/bin" && ln -sf "$KEEN_PYTHON" "$last/bin/python"
else
    printf '#!/bin/sh\\necho "ran $*"\\n' > "$(dirname "$5")/keen"
    chmod +x "$(dirname "$5")/keen"
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but what starts keen, and `uv` in a folder beside it."""
    place = tmp_path / "a checkout"
    (place / "scripts").mkdir(parents=True)
    for name in ("keen", "_environment.sh"):
        shutil.copy(ROOT / "scripts" / name, place / "scripts" / name)
    (place / "pyproject.toml").write_text("[project]\n")
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV)
    uv.chmod(0o755)
    return place


def start(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    tools = next(place for place in script.parents if (place / "bin" / "uv").exists())
    environment = {
        "PATH": f"{tools / 'bin'}:/usr/bin:/bin",
        "HOME": str(tools),
        "KEEN_PYTHON": sys.executable,
    }
    return subprocess.run(
        [script, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_it_sets_up_once_and_then_starts_at_once(checkout: Path) -> None:
    first = start(checkout / "scripts" / "keen", "run", "two words")
    second = start(checkout / "scripts" / "keen", "doctor")

    assert first.stdout == "ran run two words\n"
    assert first.stderr.split("\n")[1:3] == ["uv venv", "uv pip"]
    assert (second.stdout, second.stderr) == ("ran doctor\n", "")


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_link_on_the_path_starts_it(checkout: Path, is_relative: bool) -> None:
    link = checkout.parent / "bin" / "keen"
    target = checkout / "scripts" / "keen"
    link.symlink_to(os.path.relpath(target, link.parent) if is_relative else target)

    done = start(link, "--version")

    assert (done.returncode, done.stdout) == (0, "ran --version\n")


def test_a_python_that_is_gone_is_replaced(checkout: Path) -> None:
    start(checkout / "scripts" / "keen")
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(checkout / "removed")

    done = start(checkout / "scripts" / "keen", "hello")

    assert done.stdout == "ran hello\n"
    assert python.resolve() == Path(sys.executable).resolve()


def test_a_checkout_that_was_moved_gets_an_environment_of_its_new_place(checkout: Path) -> None:
    start(checkout / "scripts" / "keen")
    (checkout / ".venv" / "bin" / "pytest").write_text(f"#!{checkout}/.venv/bin/python\n")
    moved = checkout.rename(checkout.parent / "elsewhere")

    done = start(moved / "scripts" / "keen", "hello")

    assert done.stdout == "ran hello\n"
    assert not (moved / ".venv" / "bin" / "pytest").exists()

"""A sandbox that the settings require and the machine does not have: nothing starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keen.core.errors import ConfigError
from keen.tools.sandbox.probe import Sandbox, find
from keen.toolset import check_sandbox


def without_sandbox(home: Path) -> None:
    """Make keen remember that this machine has none."""
    cache = home / "cache"
    cache.mkdir(parents=True)
    find("auto", cache)
    (file,) = cache.glob("*.json")
    stored: Any = json.loads(file.read_text())
    stored["found"] = {
        "level": "none",
        "reason": "bubblewrap (bwrap) is not installed",
        "kind": "nothing",
        "program": "",
    }
    file.write_text(json.dumps(stored))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("wanted", "code"), [("require", 4), ("auto", 0)])
def test_keen_run_ends_with_code_4_where_a_sandbox_is_required(
    wanted: str, code: int, tmp_path: Path
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    without_sandbox(home)
    (home / "config.toml").write_text(f'[permissions]\nsandbox = "{wanted}"\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KEEN_HOME": str(home)}

    done = subprocess.run(
        [sys.executable, "-m", "keen", "run", "-m", "demo/guide", "what is here?"],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == code, done.stderr
    assert ("bubblewrap" in done.stderr) == (wanted == "require")


def test_what_is_required_is_a_full_one() -> None:
    check_sandbox(Sandbox("none", "x"))
    check_sandbox(Sandbox("full", is_required=True))
    with pytest.raises(ConfigError, match="bubblewrap: no"):
        check_sandbox(Sandbox("fs-only", "bubblewrap: no", is_required=True))

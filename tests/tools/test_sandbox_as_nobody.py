"""The tests of the sandbox once more as an ordinary user, whose sandbox is made without rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
NOBODY = 65_534
WANTED = "outside_changes or protected or secrets or network or kernel or rights or ends or commit"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for nobody that is not under /tmp."""
    if os.getuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    place = Path(tempfile.mkdtemp(prefix="keen-test-", dir="/var/lib"))
    os.chown(place, NOBODY, NOBODY)
    yield place
    shutil.rmtree(place)


def as_nobody(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join((str(PROJECT), *filter(None, sys.path[1:]))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
    return subprocess.run(
        (*user, "/bin/sh", "-c", 'exec "$@"', "sh", *argv),  # by then no right of root is left
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def python_for_nobody(home: Path) -> str:
    """An interpreter of the same version that others may run; this one may lie in root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin:/bin"))
    for program in filter(None, found):
        done = as_nobody(home, program, "-c", "import keen.tools.sandbox.probe, pytest")
        if done.returncode == 0:
            return program
    pytest.skip("nobody may run no Python here that has keen's packages")


@pytest.mark.timeout(120)
def test_the_sandbox_holds_for_an_ordinary_user_too(home: Path) -> None:
    program = python_for_nobody(home)
    file = "tests/tools/test_sandbox.py"
    options = ("-q", "-n", "2", "-p", "no:cacheprovider", f"--basetemp={home}/tests", "-k", WANTED)

    done = as_nobody(home, program, "-m", "pytest", *options, file)

    if "no full sandbox on this machine" in done.stdout:
        pytest.skip(f"nobody gets no full sandbox here: {done.stdout[-300:]}")
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-1_000:]
    assert " passed" in done.stdout

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout with what is installed."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(target.glob("*.whl"))


@pytest.mark.timeout(120)
def test_the_wheel_holds_what_the_program_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert "keen/py.typed" in names
    assert "keen/wire/providers.toml" in names
    themes = {name for name in names if name.startswith("keen/_themes/")}
    assert themes == {f"keen/_themes/{p.name}" for p in (ROOT / "themes").glob("*.toml")}
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)


@pytest.mark.timeout(120)
def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """Unpacked beside the installed dependencies, away from the checkout."""
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    code = (
        f"import sys; sys.path.insert(0, {str(place)!r})\n"
        "import keen; assert keen.__file__.startswith(sys.path[0]), keen.__file__\n"
        "from keen.cli import run\n"
        "sys.exit(run(['run', '-m', 'demo/guide', '--no-session', 'what is here?']))"
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "marker.txt").write_text("hello")
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KEEN_HOME": str(tmp_path / "k")},
    )
    assert done.returncode == 0, done.stderr
    assert "marker.txt" in done.stdout


def test_each_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    lines = [line.strip() for line in text.splitlines()]
    for requirement in wanted:
        line = next(line for line in lines if line.startswith(f'"{requirement}"'))
        assert "# " in line, requirement
        assert ">=" in requirement, requirement

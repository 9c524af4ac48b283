"""keen in a hostile repository: nothing runs, nothing leaves, nothing reaches a terminal raw."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from keen import config, trust
from keen.commands._surroundings import branch_of, files_below
from keen.paths import Paths
from tests.fakes.dialects import dialect_named
from tests.fakes.script import Recorded, Scripted
from tests.fakes.server import FakeProvider
from tests.headless.running import ROOT, Place
from tests.safety.hostile import DOTENV_KEY, ESCAPES, INJECTION, OUTSIDE_SECRET, Hostile, build

CHAT = dialect_named("chat")
KEY = "sk-mine-5d1f0b77aa"
HARMFUL = ("\x1b", "\u202e", "\u2066", "\u200b", "\U000e0041", "\x07", "\x08")
pytestmark = pytest.mark.timeout(120)


@dataclass
class Listener:
    """A loopback port that counts who comes."""

    url: str = ""
    came: list[bytes] = field(default_factory=list[bytes])


@contextlib.asynccontextmanager
async def listening() -> AsyncGenerator[Listener, None]:
    found = Listener()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.came.append(await reader.read(4_096))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield found
    finally:
        server.close()


async def on_a_terminal(place: Place, *words: str) -> tuple[int, bytes]:
    """`keen WORDS` with stdout and stderr on a pseudo-terminal: exit code and what it was sent."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "keen", *words),
        cwd=place.work,
        env=environment(place),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    reading = asyncio.create_task(asyncio.to_thread(_read_all, master))
    try:
        code = await process.wait()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    finally:
        data = await reading
        os.close(master)
    return code, data


def _read_all(descriptor: int) -> bytes:
    data = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other side open any more
        while chunk := os.read(descriptor, 65_536):
            data += chunk
    return data


def environment(place: Place) -> dict[str, str]:
    """With a PATH that looks into the working directory first, as careless people have it."""
    return {
        "PATH": f".:{os.environ['PATH']}:",
        "HOME": str(place.home),
        "KEEN_HOME": str(place.home),
        "PYTHONPATH": str(ROOT),
        "MINE_KEY": KEY,
        "TERM": "xterm-256color",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def configure(place: Place, url: str) -> None:
    text = CHAT.settings(url).replace(f'api_key = "{CHAT.key}"', 'api_key_env = "MINE_KEY"')
    (place.home / "config.toml").write_text(text)


def harmless(data: bytes) -> bool:
    """No byte that moves a terminal: what remains of a hostile text is visible."""
    text = data.decode("utf-8", "surrogateescape")
    raw = [c for c in text if c in HARMFUL or "\x7f" <= c <= "\x9f" or "\udc80" <= c <= "\udcff"]
    return raw == []


def going_through() -> Callable[[Recorded], Scripted]:
    """A model that looks at everything and repeats what it saw."""
    steps = iter(
        [
            (("glob", {"pattern": "**/*"}), ("glob", {"pattern": "*"})),
            (("grep", {"pattern": "OUTSIDE|sk-|IGNORE"}), ("grep", {"pattern": "Hello"})),
            tuple(
                ("read_file", {"path": path})
                for path in (
                    *("README.md", "docs/README.md", "readme.txt", "notes.txt", "out/secret.txt"),
                    *("environ.txt", "zero.bin", "huge.txt", "long-line.txt", ".env"),
                    *(
                        ".git/config",
                        "title\x1b]0;owned\x07.txt",
                        "new\nline.txt",
                        "/proc/self/environ",
                    ),
                )
            ),
            (
                ("bash", {"command": "ls -la"}),
                ("bash", {"command": "cat docs/README.md"}),
                ("bash", {"command": "git status"}),
                ("bash", {"command": "git log", "needs": "outside"}),
                ("bash", {"command": "cat notes.txt"}),
                ("bash", {"command": f"echo '{ESCAPES}'"}),
            ),
            (
                ("write_file", {"path": ".git/hooks/post-commit", "content": "x"}),
                ("write_file", {"path": ".keen/config.toml", "content": "x"}),
                ("write_file", {"path": "out/planted.txt", "content": "x"}),
                ("write_file", {"path": ".mcp.json", "content": "{}"}),
            ),
        ]
    )

    def answer(request: Recorded) -> Scripted:
        step = next(steps, None)
        if step is None:
            return CHAT.says(f"I saw {ESCAPES} in [it](javascript:alert(1)).")
        return CHAT.calls_many(*step, text=f"Looking {ESCAPES}")

    return answer


def check_outcome(hostile: Hostile, provider: FakeProvider, listener: Listener) -> None:
    assert hostile.ran() == []
    assert listener.came == []
    assert not (hostile.outside / "planted.txt").exists()
    assert not (hostile.root / ".git/hooks/post-commit").exists()
    assert (hostile.root / ".mcp.json").read_text() != "{}"
    sent = "\n".join(request.text for request in provider.requests)
    for secret in (OUTSIDE_SECRET, DOTENV_KEY, KEY):
        assert secret not in sent, secret
    assert all(KEY in request.headers["authorization"] for request in provider.requests)
    assert len(provider.requests) == 6
    assert provider.strays == []


@pytest.mark.parametrize("trusting", [False, True], ids=["untrusted", "trusted"])
async def test_on_a_terminal_nothing_runs_leaves_or_gets_through(
    place: Place, trusting: bool
) -> None:
    words = ("--trust",) if trusting else ()
    async with listening() as listener, FakeProvider(going_through()) as provider:
        hostile = build(place.work.parent, listener=listener.url)
        configure(place, provider.url)
        code, data = await on_a_terminal(place, "run", "have a look", *words)
        check_outcome(hostile, provider, listener)
        first = CHAT.read(provider.requests[0])

    assert code == 0, data
    assert harmless(data), data
    assert b"I saw" in data
    told = data.decode()
    if trusting:
        assert INJECTION in first.system
        assert "invisible characters" in told
        assert "permissions.mode is ignored" in told
        assert not any(letter in first.system for letter in HARMFUL)
    else:
        assert INJECTION not in first.system
        assert "not trusted" in told


@pytest.mark.parametrize("form", ["text", "stream-json"])
async def test_in_a_pipe_stderr_is_harmless_and_json_is_ascii(place: Place, form: str) -> None:
    async with listening() as listener, FakeProvider(going_through()) as provider:
        hostile = build(place.work.parent, listener=listener.url)
        configure(place, provider.url)
        ran = await place.run(
            "run", "have a look", "--trust", "--format", form, environment=environment(place)
        )
        check_outcome(hostile, provider, listener)

    assert ran.code == 0, ran.stderr
    assert harmless(ran.stderr.encode())
    if form != "text":
        assert ran.stdout.isascii()
        assert harmless(ran.stdout.encode())


async def test_even_yolo_runs_nothing_of_the_repositorys_by_itself(place: Place) -> None:
    """Commands run then, but only those of the model: no hook, no filter, no look-alike."""
    async with listening() as listener, FakeProvider(going_through()) as provider:
        hostile = build(place.work.parent, listener=listener.url)
        configure(place, provider.url)
        code, data = await on_a_terminal(place, "run", "have a look", "--trust", "--yolo")

    assert code == 0, data
    assert harmless(data)
    ran = [name for name in hostile.ran() if not name.startswith("git-")]
    assert ran == []
    assert listener.came == []
    assert not (hostile.root / ".git/hooks/post-commit").exists()
    assert 'mode = "yolo"' in (hostile.root / ".keen/config.toml").read_text()


async def test_the_guide_looks_around_harmlessly(place: Place) -> None:
    async with listening() as listener:
        hostile = build(place.work.parent, listener=listener.url)
        for prompt in ("what is in this directory?", "read all the files"):
            code, data = await on_a_terminal(place, "run", "-m", "demo/guide", prompt)
            assert code == 0, data
            assert harmless(data), data
            assert OUTSIDE_SECRET.encode() not in data

    assert hostile.ran() == []
    assert listener.came == []


async def test_every_other_command_is_harmless_there(place: Place) -> None:
    async with listening() as listener, FakeProvider(CHAT.says(f"Hi {ESCAPES}")) as provider:
        hostile = build(place.work.parent, listener=listener.url)
        configure(place, provider.url)
        trust.trust(place.work, Paths.in_one_directory(place.home))
        ran = await place.run("run", f"hello {ESCAPES}", environment=environment(place))
        assert ran.code == 0, ran.stderr
        identity = place.sessions()[0].stem
        await place.run(
            *("sessions", "rename", identity, f"name {ESCAPES}"), environment=environment(place)
        )
        for words in (
            ("config", "show"),
            ("config", "check"),
            ("config", "path"),
            ("doctor",),
            ("models",),
            ("auth", "status"),
            ("permissions", "list"),
            ("permissions", "check", f"cat '{ESCAPES}'"),
            ("sessions", "list"),
            ("sessions", "show", identity),
            ("sessions", "export", identity),
            ("sessions", "export", identity, "--to", "json"),
            ("sessions", "export", identity, "--to", "html"),
            ("sessions", "show", f"none {ESCAPES}"),
            ("run", "-m", f"{ESCAPES}/x", "hi"),
            ("run", "-C", f"/{ESCAPES}", "hi"),
            ("run", f"--{ESCAPES}"),
            ("models", ESCAPES),
        ):
            _, data = await on_a_terminal(place, *words)
            assert data, words
            assert harmless(data), (words, data)

    assert hostile.ran() == []
    assert listener.came == []


def test_the_folder_is_listed_and_its_branch_read_without_git(tmp_path: Path) -> None:
    hostile = build(tmp_path, listener="http://127.0.0.1:9")

    assert branch_of(str(hostile.root)) == "main"
    files = files_below(str(hostile.root))
    assert "tracked.txt" in files
    assert not any(name.startswith((".git/", "out/", "loop/")) for name in files)
    assert hostile.ran() == []


async def test_git_itself_would_have_run_it(tmp_path: Path) -> None:
    """What the other tests look for does happen to whoever asks git here."""
    hostile = build(tmp_path, listener="http://127.0.0.1:9")
    (hostile.root / "tracked.txt").write_text("changed\n")

    process = await asyncio.create_subprocess_exec(
        *("git", "status"), cwd=hostile.root, stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()

    assert "git-fsmonitor" in hostile.ran()


@pytest.mark.parametrize("kind", ["pipe", "huge"])
def test_a_settings_file_that_would_block_is_named_and_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "work" / ".keen" / "config.toml"
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)

    mistakes, _ = config.check(
        tmp_path / "work",
        environment={},
        trusted=True,
        paths=Paths.in_one_directory(tmp_path / "home"),
    )

    assert "config.toml: cannot be read" in mistakes[0]

"""Commands in a real sandbox, trying what they must not: as root and as an ordinary user.

Without a sandbox that passes its self-test on this machine these tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from keen.core.errors import ToolError
from keen.tools._environment import command_environment
from keen.tools.base import Access, Context, Outcome
from keen.tools.bash import Bash
from keen.tools.guard import Guard
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.permission.rules import parse_rules
from keen.tools.sandbox.confinement import Confinement
from keen.tools.sandbox.confines import Surveyor
from keen.tools.sandbox.probe import Sandbox, find
from keen.tools.shell.verdict import verdict
from tests.tools.calls import outside_tmp

FULL = find("auto")

needs_full = pytest.mark.skipif(
    FULL.level != "full", reason=f"no full sandbox on this machine: {FULL.reason}"
)
pytestmark = needs_full


@dataclass
class Desk:
    """One workspace with everything that a command could be after."""

    root: Path
    home: Path
    context: Context
    policy: Policy
    jobs: Jobs
    sandbox: Sandbox
    mark: str

    async def run(self, command: str, **more: Any) -> Outcome:
        tool = Bash(self.jobs, Confinement(self.sandbox, self.policy))
        return await tool.prepare({"command": command, **more}, self.context).run()

    def policed(self, **more: Any) -> Desk:
        guard = self.policy.guard
        policy = Policy(self.context, guard=guard, sandbox=self.sandbox.level, **more)
        return replace(self, policy=policy)


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that is not under /tmp, which commands do not see."""
    place = Path(tempfile.mkdtemp(prefix="keen-test-", dir=outside_tmp()))
    yield place.resolve()
    shutil.rmtree(place)


@pytest.fixture
async def desk(base: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setenv("HOME", str(base))
    root, own = base / "work", base / ".cache/keen"
    for name in ("src/app.py", ".env", "web/.env.local", ".git/hooks/x", ".git/config"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("SECRET=1\n")
    for name in (".ssh/id", ".netrc", ".cache/keen/auth.json", "plain.txt"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("SECRET=2\n")
    scratch = own / "scratch/session"
    scratch.mkdir(parents=True)
    mark = secrets.token_hex(8)
    environment = {**command_environment(os.environ, (root,)), "KEEN_TEST": mark}
    context = Context(root, (root,), scratch, environment=environment)
    guard = Guard(own=(own,))
    jobs = Jobs()
    held = replace(FULL, surveyor=Surveyor(guard))
    policy = Policy(context, guard=guard, sandbox="full")
    yield Desk(root, base, context, policy, jobs, held, mark)
    await jobs.aclose()
    assert leftovers(mark) == []


def leftovers(mark: str) -> list[int]:
    """Living processes that were started with the mark."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"KEEN_TEST={mark}".encode() in environment.split(b"\0") and state not in "ZX":
            found.append(int(name))
    return found


async def test_work_in_the_workspace_goes_on_as_usual(desk: Desk) -> None:
    found = await desk.run("echo new > made && cat made src/app.py; mkdir d; mv made d/; pwd; ls d")

    assert found.output.splitlines()[:4] == ["new", "SECRET=1", str(desk.root), "made"]
    assert (desk.root / "d/made").read_text() == "new\n"
    assert found.exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        "echo x > {home}/made",
        "echo x >> {home}/plain.txt",
        "rm {home}/plain.txt",
        "chmod 777 {home}/plain.txt",
        "mv {home}/plain.txt {home}/other",
        "ln -s {home}/plain.txt a; echo x > a",
        "ln {home}/plain.txt hard; echo x > hard",
        "echo x > /proc/self/root{home}/made",
        "mount -o remount,bind,rw / ; mount -o remount,rw {home}; echo x > {home}/made",
        "mount --bind {home} {root}/src; echo x > src/made",
        "unshare -Urm sh -c 'mount -o remount,bind,rw /; echo x > {home}/made'",
        "nsenter -t 1 -m sh -c 'echo x > {home}/made'",
        "mknod disk b 254 0; mknod disk b 8 0; echo x > disk",
    ],
)
async def test_nothing_outside_changes(command: str, desk: Desk) -> None:
    await desk.run(command.format(home=desk.home, root=desk.root))

    assert not (desk.home / "made").exists()
    assert (desk.home / "plain.txt").read_text() == "SECRET=2\n"
    assert (desk.home / "plain.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/hooks/x",
        "echo x > .git/made",
        "mv .git away; mkdir .git; echo x > .git/made",
        "rm -rf .git",
        "mkdir -p .keen; echo x > .keen/permissions.toml",
        "echo x > .mcp.json",
        "rmdir .mcp.json; echo x > .mcp.json",
        "mv .mcp.json away; echo x > .mcp.json",
        "mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
        "mv .github away; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
        "umount .git; echo x > .git/made; umount .mcp.json; echo x > .mcp.json",
        'python3 -c \'import os; os.rename(".vscode", "z"); os.mkdir(".vscode")\'',
    ],
)
async def test_protected_names_stay_as_they_are_and_missing_ones_missing(
    command: str, desk: Desk
) -> None:
    before = sorted(str(path) for path in (desk.root / ".git").rglob("*"))

    await desk.run(command)

    assert sorted(str(path) for path in (desk.root / ".git").rglob("*")) == before
    assert (desk.root / ".git/hooks/x").read_text() == "SECRET=1\n"
    names = {path.name for path in desk.root.iterdir()}
    assert names <= {"src", ".env", "web", ".git"}


@pytest.mark.parametrize(
    "command",
    [
        'python3 -c \'open("lib/.git/hooks/post-checkout", "w").write("x")\'',
        "n=lib/.git/config; echo x >> $n",
        "rm -rf lib/.git/hooks; mkdir lib/.git/hooks; echo x > lib/.git/hooks/x",
        "for f in lib/.gi*/hooks; do mv $f lib/z; done",
        "for f in deep/er/.cl*/s*; do echo x > $f; done",
        "f=deep/er/.vscode; rm -r $f; mkdir $f; echo x > $f/tasks.json",
    ],
)
async def test_what_is_protected_below_the_top_stays_as_it_is(command: str, desk: Desk) -> None:
    git("init", "-q", str(desk.root / "lib"), at=desk.root)
    for name in (".claude/settings.json", ".vscode/tasks.json"):
        (desk.root / "deep/er" / name).parent.mkdir(parents=True)
        (desk.root / "deep/er" / name).write_text("{}")
    before = contents(desk.root)

    found = await desk.run(command)

    after = contents(desk.root)
    assert {path: after.get(path) for path in before} == before
    assert set(after) - set(before) <= {path for path in after if "/lib/z/" in path}
    assert "[sandbox]" in found.output


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_a_repository_inside_takes_commits_and_keeps_its_hooks(desk: Desk) -> None:
    inner = desk.root / "lib"
    git("init", "-q", "-b", "main", str(inner), at=desk.root)
    git("config", "user.email", "a@b", at=inner)
    git("config", "user.name", "a", at=inner)
    (inner / "a").write_text("a")
    config = (inner / ".git/config").read_bytes()

    found = await desk.run("git -C lib add a && git -C lib commit -qm first && git -C lib log")

    assert "first" in found.output, found.output
    assert (inner / ".git/config").read_bytes() == config
    assert "is new" not in found.output


async def test_a_repository_that_a_command_makes_is_told(desk: Desk) -> None:
    found = await desk.run("mkdir -p a/b; n=a/b/.git; mkdir -p $n/hooks; mkdir -p a/.keen/skills")

    assert f"[sandbox] {desk.root}/a/b/.git is new" in found.output
    assert not (desk.root / "a/.keen").exists()
    assert f"{desk.root}/a/.keen is protected and was taken away" in found.output
    again = await desk.run("n=a/b/.git; echo x > $n/hooks/x; echo done")
    assert not (desk.root / "a/b/.git/hooks/x").exists()
    assert "is new" not in again.output


async def test_a_linked_protected_name_is_held_where_it_leads_and_put_back(desk: Desk) -> None:
    (desk.root / "config").mkdir()
    (desk.root / ".vscode").symlink_to("config")

    found = await desk.run("echo x > .vscode/tasks.json; rm .vscode; mkdir .vscode")

    assert os.readlink(desk.root / ".vscode") == "config"
    assert list((desk.root / "config").iterdir()) == []
    assert "was put back" in found.output


@pytest.mark.parametrize(
    "command",
    [
        "cat {home}/.ssh/id {home}/.netrc {home}/.cache/keen/auth.json .env web/.env.local",
        "umount .env; umount {home}/.ssh; cat .env {home}/.ssh/id",
        "mv web w; cat w/.env.local; cp -r {home}/.ssh s; cat s/*; ln .env e; cat e",
        "cat /proc/1/root{home}/.ssh/id /proc/self/root{root}/.env",
        "grep -rs SECRET=2 {home}/.ssh {home}/.cache; grep -s SECRET .env* web/.env*",
    ],
)
async def test_secrets_are_not_there(command: str, desk: Desk) -> None:
    found = await desk.run(command.format(home=desk.home, root=desk.root))

    assert "SECRET" not in found.output
    assert "[sandbox] .env, web/.env.local are hidden" in found.output


async def test_a_rule_shows_a_hidden_file_and_hides_others(desk: Desk) -> None:
    rules = (
        *parse_rules(["read(.env)"], "allow", "user"),
        *parse_rules(["read(src/**)"], "deny", "user"),
    )

    found = await desk.policed(rules=rules).run("cat .env web/.env.local; cat src/app.py")

    assert found.output.count("SECRET") == 1
    assert "web/.env.local" in found.output.splitlines()[-1]


async def test_the_network_is_off_until_it_is_allowed(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        port = server.getsockname()[1]
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        off = await desk.run(command)
        on = await desk.run(command, needs="network")
        allowed = await desk.policed(has_network=True).run(command)

    assert "connected" not in off.output
    assert '[sandbox] network is off. Ask for permission with needs: "network"' in off.output
    assert on.output.startswith("connected")
    assert allowed.output.startswith("connected")


async def test_sockets_of_other_programs_are_out_of_reach(desk: Desk) -> None:
    path = "/run/keen-test.sock" if os.getuid() == 0 else None
    if path is None:
        pytest.skip("only root may make a socket in /run")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        try:
            found = await desk.run(f"ls -la {path}; ls -A /run | wc -l")
        finally:
            os.unlink(path)
    assert "No such file" in found.output


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
     "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/proc/sys/vm/drop_caches"],
)  # fmt: skip
async def test_the_kernel_is_not_to_be_told_anything(path: str, desk: Desk) -> None:
    found = await desk.run(f"( exec 3>>{path} ) && echo opened")

    assert "opened" not in found.output


async def test_root_keeps_no_rights(desk: Desk) -> None:
    found = await desk.run("grep -E 'Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs' /proc/self/status")

    assert {line.split()[1] for line in found.output.splitlines()[:6]} == {"0" * 16, "1"}


async def test_temporary_files_are_the_sessions_own(desk: Desk) -> None:
    await desk.run("echo kept > /tmp/one; echo kept > $TMPDIR/two; echo kept > /var/tmp/three")
    found = await desk.run("cat /tmp/one /tmp/two /tmp/three; ls -A /tmp | wc -l")

    assert found.output.splitlines()[:4] == ["kept", "kept", "kept", "3"]
    assert (desk.context.scratch / "tmp/one").exists()
    assert "one" not in os.listdir("/tmp")


async def test_output_that_was_kept_can_be_read_and_not_changed(desk: Desk) -> None:
    spool = desk.context.scratch / "bash-1.txt"
    spool.write_text("long output")

    found = await desk.run(f"cat {spool}; echo x > {spool}")

    assert found.output.startswith("long output")
    assert spool.read_text() == "long output"


async def test_no_variable_stands_on_a_command_line(desk: Desk) -> None:
    found = await desk.run("tr '\\0' ' ' </proc/1/cmdline | grep -c $KEEN_TEST; echo $KEEN_TEST")

    assert found.output.splitlines()[:2] == ["0", desk.mark]


async def test_a_workspace_below_tmp_works(tmp_path: Path, desk: Desk) -> None:
    root = tmp_path / "w"
    root.mkdir()
    context = replace(desk.context, cwd=root, roots=(root,))
    policy = Policy(context, guard=desk.policy.guard, sandbox="full")

    found = await replace(desk, context=context, policy=policy).run("echo x > made; ls")

    assert found.output == "made"
    assert (root / "made").exists()


async def test_plan_and_plain_reads_leave_the_workspace_alone(desk: Desk) -> None:
    planned = await desk.policed(mode="plan").run("echo x > made; mkdir d")
    listed = await desk.run("ls -A")

    assert "Read-only" in planned.output
    assert "Plan mode changes nothing" in planned.output
    assert not (desk.root / "made").exists()
    assert listed.output.splitlines()[:4] == [".env", ".git", "src", "web"]


async def test_a_time_limit_ends_everything_inside(desk: Desk) -> None:
    command = "trap '' TERM; setsid sleep 1000 & (setsid bash -c 'trap \"\" TERM; sleep 1000' &) ; "

    found = await desk.run(command + "echo begun; sleep 1000", timeout_seconds=0.6)

    assert "begun" in found.output
    assert "timed out" in found.output
    assert leftovers(desk.mark) == []


async def test_a_polite_end_comes_first(desk: Desk) -> None:
    command = "trap 'echo tidied; exit 0' TERM; echo begun; sleep 1000 & wait"

    found = await desk.run(command, timeout_seconds=0.6)

    assert "tidied" in found.output


async def test_daemons_do_not_outlive_their_command(desk: Desk) -> None:
    found = await desk.run("setsid sleep 1000 >/dev/null 2>&1 & disown; echo done")

    assert found.output.startswith("done")
    assert leftovers(desk.mark) == []


async def test_cancelling_ends_the_sandbox(desk: Desk) -> None:
    begun = asyncio.Event()

    async def progress(_text: str) -> None:
        begun.set()

    watched = replace(desk, context=replace(desk.context, progress=progress))
    task = asyncio.create_task(watched.run("echo begun; setsid sleep 1000 & sleep 1000"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leftovers(desk.mark) == []
    assert not (desk.root / ".keen").exists()


async def test_background_jobs_are_held_too_and_end_with_their_owner(desk: Desk) -> None:
    command = "cat .env; echo x > ../made; echo begun; setsid sleep 1000 & sleep 1000"
    await desk.run(command, background=True)
    while "begun" not in desk.jobs.output(1):
        await asyncio.sleep(0.01)

    assert "SECRET" not in desk.jobs.output(1)
    assert not (desk.home / "made").exists()
    await desk.run("true; mkdir .keen")
    assert (desk.root / ".keen").is_dir(), "the job still needs its placeholder"
    await desk.jobs.stop(1)
    assert leftovers(desk.mark) == []
    assert not (desk.root / ".keen").exists()


async def test_limits_hold_from_the_first_process_on(desk: Desk) -> None:
    found = await desk.run("ulimit -c; ulimit -u; cat /proc/self/oom_score_adj")

    core, processes, score = found.output.split()[:3]
    assert (core, score) == ("0", "500")
    assert processes.isdecimal()


def git(*words: str, at: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", *words], cwd=at, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def repository(desk: Desk) -> Path:
    shutil.rmtree(desk.root / ".git")
    git("init", "-q", "-b", "main", at=desk.root)
    git("config", "user.email", "a@b", at=desk.root)
    git("config", "user.name", "a", at=desk.root)
    hook = desk.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
    hook.chmod(0o755)
    return desk.root


async def test_a_commit_works_without_hooks_and_says_so(desk: Desk, repository: Path) -> None:
    found = await desk.run("git add src .env && git commit -qm first && git log --oneline")

    assert "first" in found.output
    assert "[sandbox] git hooks did not run" in found.output
    assert not (repository / "ran").exists()
    assert git("show", "HEAD:.env", at=repository) == "SECRET=1\n"


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/made; git add src",
        "make; git commit -m x",
        "git config core.fsmonitor ./evil",
        "git -c core.hooksPath=x commit -m x",
    ],
)
async def test_other_programs_do_not_get_at_git(command: str, desk: Desk, repository: Path) -> None:
    config = (repository / ".git/config").read_text()

    await desk.run(command)

    assert not (repository / ".git/made").exists()
    assert not (repository / ".git/index").exists() or "made" in command
    assert (repository / ".git/config").read_text() == config


async def test_what_bends_git_is_taken_away_after_a_commit(desk: Desk, repository: Path) -> None:
    clean = "sh -c 'echo ../evil > .git/commondir; echo x > .git/hooks/made; cat'"
    git("config", "filter.x.clean", clean, at=repository)
    (repository / ".gitattributes").write_text("* filter=x\n")

    found = await desk.run("git add src")

    assert not (repository / ".git/commondir").exists()
    assert not (repository / ".git/hooks/made").exists()
    assert "commondir is protected and was taken away" in found.output


async def test_a_worktree_commits_into_its_own_repository_only(
    desk: Desk, repository: Path, base: Path
) -> None:
    hook = repository / ".git/hooks/pre-commit"
    hook.unlink()
    git("add", "src", at=repository)
    git("commit", "-qm", "first", at=repository)
    tree = base / "tree"
    git("worktree", "add", "-q", str(tree), at=repository)
    context = replace(desk.context, cwd=tree, roots=(tree,))
    policy = Policy(context, guard=desk.policy.guard, sandbox="full")
    there = replace(desk, context=context, policy=policy)

    found = await there.run("echo y > new; git add new; git commit -qm second; git log -1")
    assert "second" in found.output

    (tree / ".git").write_text(f"gitdir: {base / 'stranger/.git'}\n")
    git("init", "-q", str(base / "stranger"), at=base)
    await there.run("git add src; git commit --allow-empty -qm third")
    assert git("count-objects", at=base / "stranger").startswith("0 objects")


def test_in_build_an_ask_runs_unasked_and_a_commit_does_not(desk: Desk) -> None:
    def kind(command: str, needs: Any = "", **more: Any) -> str:
        policy = desk.policed(**more).policy
        return policy.decide("bash", "exec", (Access("bash", command, needs),)).kind

    assert kind("npm test") == "allow"
    assert kind("echo $(ls)") == "allow"
    assert kind("git status") == "allow"
    assert kind("git commit -m x") == "ask"
    assert kind('git commit -m "$(cat x)"') == "ask"
    assert kind("git add -A && git commit -m x") == "ask"
    assert kind("npm test", "network") == "ask"
    assert kind("npm test", "outside") == "ask"
    assert kind("rm -rf x") == "ask"
    rules = parse_rules(["bash(git commit:*)", "bash(npm test)"], "allow", "user")
    assert kind("git commit -m x", rules=rules) == "allow"
    assert kind("npm test", "outside", rules=rules) == "ask"
    assert kind("git commit -m x", mode="yolo") == "allow"
    assert kind("git commit -m x", is_interactive=False) == "refuse"
    assert kind("npm test", is_interactive=False) == "allow"


def test_every_known_command_gets_its_verdict_in_a_full_sandbox(desk: Desk) -> None:
    rows = (Path(__file__).parent / "data/commands.jsonl").read_text().splitlines()
    policy = desk.policed(path="/usr/bin:/bin").policy

    for row in map(json.loads, rows):
        command, wanted = row["command"], row["verdict"]
        kind = policy.decide("bash", "exec", (Access("bash", command),)).kind
        if wanted == "never":
            only_syntax = verdict(command, desk.root, (desk.root,)).only_syntax
            assert kind == "allow" if only_syntax else kind in ("ask", "refuse"), command
        else:
            assert kind == ("ask" if command.startswith("git commit") else "allow"), command


async def test_outside_is_outside_once_a_person_said_so(desk: Desk) -> None:
    found = await desk.run("echo x > ../made; cat .env", needs="outside")

    assert (desk.home / "made").exists()
    assert found.output == "SECRET=1"


async def test_in_yolo_outside_is_wide_and_still_hides_and_protects(desk: Desk) -> None:
    (desk.home / ".bashrc").write_text("")
    command = (
        "echo x > ../made; cat .env ../.ssh/id; echo x > ../.bashrc; echo x > .git/hooks/x; "
        "echo x > .keen/config.toml; ls -A ../.cache/keen"
    )

    found = await desk.policed(mode="yolo").run(command, needs="outside")

    assert (desk.home / "made").exists()
    assert (desk.home / ".bashrc").read_text() == ""
    assert (desk.root / ".git/hooks/x").read_text() == "SECRET=1\n"
    assert not (desk.root / ".keen").exists()
    assert "auth.json" not in found.output


async def test_in_yolo_nothing_appears_where_keen_or_the_next_login_would_read_it(
    desk: Desk,
) -> None:
    guard = Guard(own=(*desk.policy.guard.own, desk.home / ".config/keen"))
    held = replace(desk.sandbox, surveyor=Surveyor(guard))
    command = (
        "mkdir -p ../.config/keen; echo x > ../.config/keen/config.toml; echo x > ../.bash_profile;"
        " mkdir -p ../.config/autostart; echo x > ../made"
    )

    found = await replace(desk.policed(mode="yolo"), sandbox=held).run(command, needs="outside")

    assert (desk.home / "made").exists()
    assert not (desk.home / ".config").exists()
    assert not (desk.home / ".bash_profile").exists()
    assert ".bash_profile is protected and was taken away" in found.output


async def test_a_required_sandbox_that_is_missing_refuses_commands(desk: Desk) -> None:
    missing = Sandbox("none", "bubblewrap (bwrap) is not installed", is_required=True)

    with pytest.raises(ToolError, match=r"bubblewrap .* is not installed"):
        await replace(desk, sandbox=missing).run("ls")


async def test_no_command_runs_when_the_sandbox_cannot_be_set_up(desk: Desk) -> None:
    broken = replace(desk.sandbox, program="/bin/false")

    found = await replace(desk, sandbox=broken).run("echo x > made")

    assert found.is_error
    assert not (desk.root / "made").exists()


async def test_a_denial_is_told_in_one_line_with_what_to_do(desk: Desk) -> None:
    outside = (await desk.run('python3 -c \'open("../made", "w")\'; touch ../b')).output
    git_ = (await desk.run("bash -c 'echo x > .git/made'")).output
    hidden = (await desk.run("make -f ../.ssh/id; cat ../.ssh/id/x; echo x > ../.ssh/a")).output

    (line,) = [line for line in outside.splitlines() if "denied" in line and "sandbox" in line]
    assert line.startswith(f"[sandbox] write to {desk.home}/made denied; write to {desk.home}/b")
    assert 'needs: "outside"' in line
    assert "write to .git/made denied" in git_
    assert "outside" not in git_
    assert f"{desk.home}/.ssh/a is hidden" in hidden
    assert 'needs: "outside"' not in hidden


def test_the_verdict_is_kept_until_the_machine_changes(tmp_path: Path) -> None:
    first = find("auto", tmp_path)
    (stored,) = tmp_path.iterdir()
    stored.write_text(stored.read_text().replace('"reason": ""', '"reason": "kept"'))

    assert first.level == "full"
    assert find("auto", tmp_path).reason == "kept"
    assert stored.stat().st_mode & 0o777 == 0o600
    stored.write_text(stored.read_text().replace('"version": 1', '"version": 0'))
    assert find("auto", tmp_path).reason == ""
    assert find("off", tmp_path).level == "none"
    assert find("require", tmp_path).is_required
    stored.write_text("{")
    assert find("auto", tmp_path).level == "full"

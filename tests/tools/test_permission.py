"""Who may do what: modes, rules, protected places, grants, and runs where nobody can be asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from keen.commands import permissions
from keen.core.errors import ConfigError, UsageError
from keen.core.events import Decision
from keen.tools.base import Access, Context
from keen.tools.guard import Guard
from keen.tools.permission import Policy, Verdict
from keen.tools.permission.rules import Rule, SavedRules, parse_rule, parse_rules

Make: TypeAlias = Callable[..., Policy]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = (tmp_path / "work").resolve()
    for name in ("src/app.py", "notes.txt", ".env", ".git/config", ".github/workflows/ci.yml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("x")
    (home / ".bashrc").write_text("")
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "own").mkdir()
    return root


@pytest.fixture
def make(root: Path, tmp_path: Path) -> Make:
    context = Context(root, (root,), (tmp_path / "scratch").resolve())

    def make(
        allow: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        ask: tuple[str, ...] = (),
        **more: Any,
    ) -> Policy:
        rules = (
            *parse_rules(allow, "allow", "user", "config.toml:3"),
            *parse_rules(deny, "deny", "user", "config.toml:4"),
            *parse_rules(ask, "ask", "user", "config.toml:5"),
            *more.pop("rules", ()),
        )
        guard = Guard(own=((tmp_path / "own").resolve(),))
        return Policy(context, rules=rules, guard=guard, **more)

    return make


def bash(policy: Policy, command: str, needs: Any = "") -> Verdict:
    return policy.decide("bash", "exec", (Access("bash", command, needs),))


def read(policy: Policy, path: Path | str) -> Verdict:
    return policy.decide("read_file", "read", (Access("read", str(path)),))


def edit(policy: Policy, path: Path | str) -> Verdict:
    return policy.decide("edit_file", "write", (Access("edit", str(path)),))


def fetch(policy: Policy, host: str) -> Verdict:
    return policy.decide("web_fetch", "net", (Access("web_fetch", host),))


def test_build_reads_freely_and_asks_before_it_changes(make: Make, root: Path) -> None:
    policy = make()

    assert read(policy, root / "src/app.py").kind == "allow"
    assert edit(policy, root / "src/app.py").kind == "ask"
    assert edit(policy, root / "src/app.py").choices == ("once", "session", "project", "deny")
    assert edit(policy, root / "src/app.py").rule == "edit(src/app.py)"
    assert read(policy, "/etc/hostname").kind == "ask"
    assert edit(policy, "/etc/hostname").kind == "ask"
    assert fetch(policy, "example.org").kind == "ask"
    assert bash(policy, "ls -la").kind == "allow"
    assert bash(policy, "npm run test").kind == "ask"
    assert bash(policy, "rm -rf x").choices == ("once", "deny")
    assert policy.decide("todo", "read", ()).kind == "allow"
    assert policy.decide("mcp__a__b", "exec", ()).kind == "ask"


def test_plan_changes_nothing(make: Make, root: Path) -> None:
    policy = make(allow=("edit(**)", "bash(npm test)"), mode="plan")

    assert read(policy, root / "notes.txt").kind == "allow"
    assert edit(policy, root / "notes.txt").kind == "refuse"
    assert "Shift+Tab" in edit(policy, root / "notes.txt").reason
    assert bash(policy, "ls").kind == "allow"
    assert bash(policy, "npm test").kind == "allow"
    assert bash(policy, "git log").kind == "ask"
    assert bash(policy, "rm x").kind == "refuse"
    policy.set_mode("build")
    assert edit(policy, root / "notes.txt").kind == "allow"


def test_yolo_is_free_but_for_what_protects_the_person(
    make: Make, root: Path, tmp_path: Path
) -> None:
    policy = make(mode="yolo", deny=("bash(curl:*)", "read(secret/**)"))
    home = tmp_path / "home"

    for command in ("rm -rf build", "npm test", "echo $(id)", "sudo ls", "git push --force"):
        assert bash(policy, command).kind == "allow", command
    for command in ("curl x", "ls && curl x", "echo $(curl x)", "timeout 3 curl x", "ls\r"):
        assert bash(policy, command).kind == "refuse", command
    for command in (f"cat {home}/.ssh/id_rsa", "echo x > .keen/config.toml", "rm .git/config"):
        assert bash(policy, command).kind == "refuse", command
    assert bash(policy, "cat .env").kind == "refuse"
    for command in (f"echo x >> {home}/.bashrc", "cp x .github/workflows/ci.yml"):
        assert bash(policy, command).kind == "ask", command
    assert bash(policy, "cat secret/x").kind == "refuse"
    assert read(policy, "/etc/hostname").kind == "allow"
    assert edit(policy, tmp_path / "elsewhere").kind == "allow"
    assert fetch(policy, "example.org").kind == "allow"
    assert edit(policy, root / ".git/hooks/pre-commit").kind == "refuse"
    assert edit(policy, root / ".keen/config.toml").kind == "refuse"
    assert edit(policy, tmp_path / "own/trust.json").kind == "refuse"
    assert read(policy, tmp_path / "own/auth.json").kind == "refuse"
    assert edit(policy, root / ".github/workflows/ci.yml").kind == "ask"
    assert read(policy, home / ".ssh/id_rsa").kind == "refuse"
    assert read(policy, root / "secret/x").kind == "refuse"
    assert read(policy, "/proc/self/environ").kind == "refuse"


def test_no_rule_reaches_keens_own_files_and_the_next_login(
    make: Make, root: Path, tmp_path: Path
) -> None:
    own, rc = tmp_path / "own/trust.json", tmp_path / "home/.bashrc"
    allow = (f"edit({own})", f"edit({rc})", "edit(**)", "edit(.git/hooks/pre-commit)")
    for mode in ("build", "yolo"):
        policy = make(allow=allow, mode=mode)
        assert edit(policy, own).kind == "refuse"
        assert edit(policy, root / ".git/hooks/pre-commit").kind == "refuse"
        assert edit(policy, rc).kind == "ask"
        assert edit(policy, rc).choices == ("once", "deny")


def test_a_protected_file_opens_only_to_a_rule_that_names_it(make: Make, root: Path) -> None:
    workflow = root / ".github/workflows/ci.yml"

    wide = make(allow=("edit(.github/**)", "edit(**)"), is_interactive=False)
    exact = make(allow=("edit(.github/workflows/ci.yml)",), is_interactive=False)

    assert edit(wide, workflow).kind == "refuse"
    assert edit(exact, workflow).kind == "allow"


def test_secrets_are_asked_about_and_opened_by_name(make: Make, root: Path) -> None:
    assert read(make(), root / ".env").kind == "ask"
    assert read(make(allow=("read(**)",)), root / ".env").kind == "ask"
    assert read(make(allow=("read(.env*)",)), root / ".env").kind == "allow"
    for is_interactive in (True, False):
        bold = make(mode="yolo", is_interactive=is_interactive)
        assert read(bold, root / ".env").kind == "refuse"
        assert "allow" in read(bold, root / ".env").reason
        assert bash(bold, "cat .env").kind == "refuse"
        assert edit(bold, root / ".env").kind == "allow"
    assert read(make(mode="yolo", allow=("read(.env)",)), root / ".env").kind == "allow"


def test_a_secret_that_was_opened_in_build_stays_open_in_yolo(make: Make, root: Path) -> None:
    policy = make()
    policy.grant("read_file", (Access("read", str(root / ".env")),), Decision("session"))

    policy.set_mode("yolo")

    assert read(policy, root / ".env").kind == "allow"


def test_a_hidden_file_opens_only_to_a_rule_that_names_it(make: Make, tmp_path: Path) -> None:
    key = tmp_path / "home/.ssh/id_rsa"

    assert read(make(), key).choices == ("once", "deny")
    assert read(make(allow=("read(~/**)",)), key).kind == "ask"
    assert read(make(allow=("read(~/.ssh/id_rsa)",)), key).kind == "allow"
    assert read(make(allow=("read(~/.ssh/id_rsa)",), mode="yolo"), key).kind == "allow"


def test_a_link_is_judged_by_where_it_leads_and_by_its_name(make: Make, root: Path) -> None:
    (root / "link").symlink_to("/etc/hostname")
    (root / "public").symlink_to(root / "notes.txt")

    assert read(make(), root / "link").kind == "ask"
    assert edit(make(is_interactive=False), root / "link").kind == "refuse"
    assert read(make(deny=("read(public)",)), root / "public").kind == "refuse"
    assert read(make(deny=("read(notes.txt)",)), root / "public").kind == "refuse"
    assert bash(make(deny=("read(notes.txt)",)), "cat public").kind == "refuse"
    assert bash(make(deny=("read(notes.txt)",)), "cd src && cat ../no*").kind == "refuse"
    assert bash(make(deny=("read(notes.txt)",)), "bash -c 'cat notes.txt'").kind == "refuse"
    assert bash(make(deny=("edit(src/**)",), mode="yolo"), "echo x > src/a").kind == "refuse"
    assert bash(make(deny=("edit(src/**)",), mode="yolo"), "cp notes.txt src").kind == "refuse"
    assert bash(make(deny=("edit(src/**)",)), "cat src/app.py").kind == "allow"


def test_a_file_with_another_name_elsewhere_is_asked_about(
    make: Make, root: Path, tmp_path: Path
) -> None:
    os.link(root / "notes.txt", tmp_path / "outside")
    policy = make(is_interactive=False)

    assert edit(policy, root / "notes.txt").kind == "refuse"
    assert edit(policy, root / "src/app.py").kind == "allow"


def test_deny_beats_ask_and_ask_beats_allow(make: Make, root: Path) -> None:
    both = ("bash(make:*)", "edit(src/**)", "web_fetch(domain:a.org)", "mcp__a__b")

    for kind in ("deny", "ask"):
        policy = make(allow=both, **{kind: both})
        wanted = "refuse" if kind == "deny" else "ask"
        assert bash(policy, "make all").kind == wanted
        assert edit(policy, root / "src/app.py").kind == wanted
        assert fetch(policy, "a.org").kind == wanted
        assert policy.decide("mcp__a__b", "exec", (Access("mcp", "mcp__a__b"),)).kind == wanted
    assert bash(make(allow=both), "make all").kind == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("bash(npm run test:*)", "npm run test", True),
        ("bash(npm run test:*)", "npm run test -- -k 'a b'", True),
        ("bash(npm run test:*)", "npm   run 'test'", True),
        ("bash(npm run test:*)", "npm run test2", False),
        ("bash(npm run test:*)", "npm run tes", False),
        ("bash(npm run test:*)", "npm run test && npm publish", False),
        ("bash(npm run test:*)", "npm run test; rm x", False),
        ("bash(npm run test:*)", "npm run test $(id)", False),
        ("bash(npm run test:*)", "npm run test > out", False),
        ("bash(npm run test:*)", "npm run test *.js", False),
        ("bash(npm run test:*)", "npm run test $x", False),
        ("bash(npm run test:*)", "npm run test &", False),
        ("bash(npm run test:*)", "A=1 npm run test", False),
        ("bash(npm run test:*)", "./npm run test", False),
        ("bash(npm run test:*)", "env npm run test", False),
        ("bash(npm run test:*)", "(npm run test)", False),
        ("bash(npm run test:*)", "cd src && npm run test 2>&1 | tail -5", True),
        ("bash(npm run test:*)", "npm run test || npm run test", True),
        ("bash(npm run test)", "npm run test", True),
        ("bash(npm run test)", "npm run test x", False),
        ("bash(npm run test *)", "npm run test x", True),
        ("bash(git status:*)", "gitx status", False),
        ("bash(git status:*)", "git -C src status", False),
        ("bash(git status:*)", "git status --short", True),
        ("bash(git:*)", "git clean -fdx", False),
        ("bash(git:*)", "git -c a=b status", False),
        ("bash(curl:*)", "curl x", False),
        ("bash(rm:*)", "rm x", False),
        ("bash", "make", True),
        ("bash", "rm x", False),
        ("bash", "make $(id)", False),
        ("bash('my prog' x:*)", "'my prog' x y", True),
    ],
)
def test_an_allow_rule_is_a_prefix_of_words_and_every_part_needs_one(
    rule: str, command: str, is_allowed: bool, make: Make
) -> None:
    assert (bash(make(allow=(rule,)), command).kind == "allow") is is_allowed


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git  push origin",
        "git -C src push",
        "git --no-pager -c a=b push",
        "/usr/bin/git push",
        "g'i't push",
        "\\git push",
        "ls; git push",
        "ls\ngit push",
        "ls && (cd src; git push)",
        "env A=1 timeout 5 git push",
        "xargs git push",
        "bash -c 'git push'",
        "bash -lc \"sh -c 'git push'\"",
        "eval git push",
        "echo `git push`",
        "for f in a; do git push; done",
        "true;" * 63 + "git push",
        "if git push; then ls; fi",
        "f() { git push; }",
        "git push 'unterminated",
        "bash -c -- 'git push'",
        "bash -c -o pipefail 'git push'",
        "env -S 'git push'",
        "find . -exec git push {} +",
        "find . -name x -execdir sh -c 'git push' \\;",
        "$'git' push",
        "sudo --user root git push",
        "flock f -c 'git push'",
        "su -c 'git push'",
        "script -qc 'git push' /dev/null",
        "coproc git push",
        "trap 'git push' EXIT",
        "parallel git push ::: x",
        "unshare -r git push",
        "chroot / git push",
    ],
)
def test_a_deny_rule_finds_its_command_wherever_it_hides(command: str, make: Make) -> None:
    for mode in ("build", "yolo"):
        assert bash(make(deny=("bash(git push:*)",), mode=mode), command).kind == "refuse"


def test_a_sandbox_frees_what_it_holds_and_nothing_else(make: Make) -> None:
    full, files = make(sandbox="full"), make(sandbox="fs-only")

    for command in ("npm test", "make", "echo $(git log)", "for f in a; do make $f; done"):
        assert bash(full, command).kind == "allow", command
        assert bash(files, command).kind == "ask", command
    for command in ("rm -rf x", "curl x", "echo $(rm x)", "a=rm; $a x", "cat .env"):
        assert bash(full, command).kind == "ask", command
    assert bash(full, "npm install", "network").kind == "ask"
    assert bash(full, "ls", "outside").kind == "ask"
    assert bash(make(sandbox="full", allow=("bash(make)",)), "make", "outside").kind == "ask"
    assert bash(make(sandbox="full", has_network=True), "npm i", "network").kind == "allow"
    assert bash(make(sandbox="full", ask=("bash(make:*)",)), "make").kind == "ask"
    assert bash(make(sandbox="full", mode="plan"), "make").kind == "allow"


def test_what_the_model_says_it_needs_only_raises_a_question(make: Make) -> None:
    assert bash(make(), "ls", "network").kind == "ask"
    assert "network" in bash(make(), "ls", "network").reason
    assert bash(make(), "rm x", "outside").choices == ("once", "deny")
    assert bash(make(allow=("bash(npm ci)",)), "npm ci", "network").kind == "allow"


def test_where_nobody_can_be_asked_a_question_is_a_refusal_with_a_way_out(
    make: Make, root: Path
) -> None:
    policy = make(is_interactive=False)

    assert edit(policy, root / "src/app.py").kind == "allow"
    assert edit(policy, root / "new/file.py").kind == "allow"
    refused = bash(policy, "npm test")
    assert refused.kind == "refuse"
    assert "--allow 'bash(npm test)'" in refused.reason
    assert bash(policy, "rm x").kind == "refuse"
    assert "It would need --yolo." in bash(policy, "rm x").reason
    secret = read(policy, root / ".env").reason
    assert f"It would need --allow 'read({root}/.env)' or --yolo." in secret
    bold = make(is_interactive=False, mode="yolo")
    assert f"It would need --allow 'read({root}/.env)'." in read(bold, root / ".env").reason
    assert edit(policy, "/etc/hostname").kind == "refuse"
    assert fetch(policy, "example.org").kind == "refuse"
    assert "web_fetch(domain:example.org)" in fetch(policy, "example.org").reason
    assert bash(make(is_interactive=False, sandbox="full"), "npm test").kind == "allow"
    assert bash(make(is_interactive=False, mode="yolo"), "rm x").kind == "allow"


SESSION = Decision("session")


def test_a_command_allowed_for_the_session_is_exactly_that_command(make: Make) -> None:
    policy = make()
    policy.grant("bash", (Access("bash", "cd src && npm test -- 'a b'"),), SESSION)

    assert bash(policy, 'npm   test -- "a b"').kind == "allow"
    assert bash(policy, "npm test -- 'a b' | tail -3").kind == "allow"
    for other in ("npm test", "npm test -- 'a b' c", "npm test -- a b", "make"):
        assert bash(policy, other).kind == "ask", other
    assert bash(policy, "npm test -- 'a b' > out").kind == "ask"
    assert policy.granted == ("bash(npm test -- 'a b')",)


def test_a_command_that_is_not_plain_is_granted_by_its_text(make: Make) -> None:
    policy = make()
    policy.grant("bash", (Access("bash", "pytest src/*.py"),), SESSION)

    assert bash(policy, "pytest src/*.py").kind == "allow"
    assert bash(policy, "pytest 'src/*.py'").kind == "ask"
    assert bash(policy, "pytest  src/*.py").kind == "ask"


def test_nothing_that_may_never_run_unasked_can_be_granted(make: Make) -> None:
    policy = make()
    for choice in ("session", "project"):
        decision = Decision(choice, rule="bash(rm x)")
        policy.grant("bash", (Access("bash", "rm x"),), decision)

    assert bash(policy, "rm x").kind == "ask"
    assert bash(policy, "rm x").choices == ("once", "deny")


def test_once_and_no_leave_nothing_behind(make: Make) -> None:
    policy = make()
    for choice in ("once", "deny"):
        policy.grant("bash", (Access("bash", "make"),), Decision(choice))

    assert bash(policy, "make").kind == "ask"
    assert policy.granted == ()


def test_one_yes_to_edits_stands_for_the_workspace_and_not_beyond(
    make: Make, root: Path, tmp_path: Path
) -> None:
    policy = make()
    policy.grant("edit_file", (Access("edit", str(root / "src/app.py")),), SESSION)

    assert edit(policy, root / "notes.txt").kind == "allow"
    assert edit(policy, root / "fresh.txt").kind == "allow"
    assert edit(policy, root / ".env").kind == "ask"
    assert edit(policy, root / ".github/workflows/ci.yml").kind == "ask"
    assert edit(policy, root / ".git/config").kind == "refuse"
    assert edit(policy, tmp_path / "outside").kind == "ask"


def test_a_long_url_is_asked_about_though_its_host_is_allowed(make: Make) -> None:
    def told(policy: Policy, length: int) -> Verdict:
        return policy.decide("web_fetch", "net", (Access("web_fetch", "a.org", length=length),))

    ruled, granted = make(("web_fetch(domain:a.org)",)), make()
    granted.grant("web_fetch", (Access("web_fetch", "a.org"),), SESSION)
    granted.grant("web_fetch", (Access("web_fetch", "a.org", length=301),), SESSION)

    for policy in (ruled, granted):
        assert told(policy, 300).kind == "allow"
        assert told(policy, 301) == Verdict(
            "ask", "the URL tells a.org 301 characters; read it whole", ("once", "deny")
        )
    denied = make(deny=("web_fetch(domain:a.org)",))
    assert told(denied, 301).kind == "refuse"
    assert told(make(("web_fetch(domain:a.org)",), is_interactive=False), 301).kind == "refuse"
    assert told(make(mode="yolo"), 301).kind == "allow"


def test_places_hosts_and_tools_are_granted_one_by_one(make: Make, tmp_path: Path) -> None:
    policy = make()
    policy.grant("read_file", (Access("read", "/etc/hostname"),), SESSION)
    policy.grant("web_fetch", (Access("web_fetch", "a.org"),), SESSION)
    policy.grant("mcp__s__t", (Access("mcp", "mcp__s__t"),), SESSION)

    assert read(policy, "/etc/hostname").kind == "allow"
    assert read(policy, "/etc/passwd").kind == "ask"
    assert edit(policy, "/etc/hostname").kind == "ask"
    assert fetch(policy, "a.org").kind == "allow"
    assert fetch(policy, "b.a.org").kind == "ask"
    assert policy.decide("mcp__s__t", "exec", (Access("mcp", "mcp__s__t"),)).kind == "allow"
    assert policy.decide("mcp__s__u", "exec", (Access("mcp", "mcp__s__u"),)).kind == "ask"


@pytest.mark.parametrize("rule", ["mcp__s__*", "mcp__s", "mcp__s__read*", "mcp__s__read_one"])
def test_a_rule_speaks_of_one_tool_of_a_server_or_of_many(make: Make, rule: str) -> None:
    policy = make(allow=(rule,))

    def kind(tool: str) -> str:
        return policy.decide(tool, "net", (Access("mcp", tool),)).kind

    assert kind("mcp__s__read_one") == "allow"
    assert kind("mcp__sother__read_one") == "ask"
    assert kind("mcp__t__read_one") == "ask"


def test_the_strictest_access_of_a_call_decides(make: Make, root: Path) -> None:
    accesses = (Access("edit", str(root / "notes.txt")), Access("edit", str(root / ".git/config")))

    assert make(mode="yolo").decide("edit_file", "write", accesses).kind == "refuse"


def test_a_project_can_only_tighten(make: Make) -> None:
    rules = (
        parse_rule("bash(make:*)", "allow", "project", ".keen/config.toml:2"),
        parse_rule("bash(npm:*)", "deny", "project", ".keen/config.toml:3"),
    )
    policy = make(rules=rules, mode="build")

    assert bash(policy, "make").kind == "ask"
    assert bash(policy, "npm test").kind == "refuse"
    assert len(policy.faults) == 1
    assert ".keen/config.toml:2" in policy.faults[0]


def test_a_subagent_is_never_freer_than_its_parent(make: Make) -> None:
    parent = make(mode="plan", deny=("bash(make:*)",))

    child = parent.restricted(mode="yolo")
    assert child.mode == "plan"
    assert bash(child, "make").kind == "refuse"
    builder = make()
    assert builder.restricted(mode="yolo").mode == "build"
    assert builder.restricted(mode="plan").mode == "plan"
    builder.restricted().grant("bash", (Access("bash", "make"),), SESSION)
    assert bash(builder, "make").kind == "allow"
    saved = Decision("project", "bash(cargo build)")
    builder.restricted().grant("bash", (Access("bash", "cargo build"),), saved)
    assert [rule.text for rule in builder.rules] == ["bash(cargo build)"]


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("npm run test -- -k a", "bash(npm run test:*)"),
        ("cargo test --all", "bash(cargo test:*)"),
        ("ls && cargo build", "bash(cargo build:*)"),
        ("make", ""),
        ("pytest -q", ""),
        ("git status", ""),
        ("python3 -m pytest", ""),
        ("npx tool run", ""),
        ("npm exec tool", ""),
        ("npm run", ""),
        ("env cargo test", ""),
        ("bash script", ""),
        ("cargo test && cargo build", ""),
        ("uv run pytest", ""),
        ("./x test", ""),
    ],
)
def test_only_sensible_prefixes_are_offered(command: str, prefix: str, make: Make) -> None:
    assert bash(make(), command).prefix == prefix


@pytest.mark.parametrize(
    ("rule", "path", "is_covered"),
    [
        ("read(.env*)", ".env", True),
        ("read(.env*)", "deep/down/.env.local", True),
        ("read(.env*)", ".ENV", True),
        ("read(src/**)", "src/a/b", True),
        ("read(src/**)", "src2/a", False),
        ("read(src/*.py)", "src/a.py", True),
        ("read(src/*.py)", "src/a/b.py", False),
        ("read(**/*.pem)", "a/b.pem", True),
        ("read(**/*.pem)", "b.pem", True),
        ("read(secret)", "a/secret/file", True),
        ("read(./src/a)", "src/a", True),
        ("read(a?c)", "abc", True),
        ("read(a[bc])", "ac", True),
        ("read(a[!b])", "ab", False),
        ("read(a.c)", "abc", False),
        ("read", "anything", True),
    ],
)
def test_path_patterns_say_what_they_look_like(
    rule: str, path: str, is_covered: bool, make: Make, root: Path
) -> None:
    assert (read(make(deny=(rule,)), root / path).kind == "refuse") is is_covered


def test_absolute_and_home_patterns_are_anchored_there(make: Make, tmp_path: Path) -> None:
    policy = make(allow=("read(/etc/**)", "read(~/docs/**)"))

    assert read(policy, "/etc/hostname").kind == "allow"
    assert read(policy, tmp_path / "home/docs/a").kind == "allow"
    assert read(policy, tmp_path / "home/other").kind == "ask"


def test_hosts_are_compared_whole(make: Make) -> None:
    policy = make(
        allow=("web_fetch(domain:example.org)", "web_fetch(domain:*.wide.org)"),
        deny=("web_fetch(domain:evil.org)",),
    )

    assert fetch(policy, "example.org").kind == "allow"
    assert fetch(policy, "EXAMPLE.org.").kind == "allow"
    assert fetch(policy, "example.org.evil.net").kind == "ask"
    assert fetch(policy, "notexample.org").kind == "ask"
    assert fetch(policy, "a.example.org").kind == "ask"
    assert fetch(policy, "a.wide.org").kind == "allow"
    assert fetch(policy, "wide.org").kind == "ask"
    assert fetch(policy, "a.evil.org").kind == "refuse"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no permission rule"),
        ("bash(ls", "no permission rule"),
        ("shell(ls)", "'shell'"),
        ("bash*", "bash\\*"),
        ("bash(npm * test)", "only at the end"),
        ("bash(:*)", "names no command"),
        ("bash('a)", "quot"),
        ("web_fetch(example.org)", "domain:example.org"),
        ("mcp__a__b(x)", "no parentheses"),
        ("read([z-a])", "pattern"),
    ],
)
def test_a_wrong_rule_says_how_rules_look(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_rule(text, "allow", "user")


def test_saved_rules_belong_to_one_project_and_keep_what_is_there(
    make: Make, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config/permissions.toml"
    saved = SavedRules(file, root)
    policy = make(save=saved.append)
    decision = Decision("project", rule="bash(npm run 'a b\"\\é':*)")
    policy.grant("bash", (Access("bash", "npm run 'a b\"\\é'"),), decision)
    policy.grant("bash", (Access("bash", "npm run 'a b\"\\é'"),), decision)

    assert file.stat().st_mode & 0o777 == 0o600
    assert bash(policy, "npm run 'a b\"\\é' x").kind == "allow"
    assert [rule.text for rule in saved.load()] == ["bash(npm run 'a b\"\\é':*)"]
    assert SavedRules(file, tmp_path).load() == ()
    file.write_text(file.read_text() + f'# mine\n[[rule]]\nproject = "{root}"\nallow = "x("\n')
    again = SavedRules(file, root)
    again.append("bash(make)")
    assert [rule.text for rule in again.load()] == ["bash(npm run 'a b\"\\é':*)", "bash(make)"]
    assert "# mine" in file.read_text()
    assert len(again.faults) == 1


def test_a_rule_that_cannot_be_saved_holds_for_the_session(make: Make, root: Path) -> None:
    def save(_text: str) -> Rule:
        raise ConfigError("Cannot write it: the disk is full")

    policy = make(save=save)
    access = Access("bash", "make all")
    policy.grant("bash", (access,), Decision("project", rule="bash(make all)"))

    assert bash(policy, "make all").kind == "allow"
    assert "disk is full" in policy.faults[0]


def test_a_broken_saved_file_is_named(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "permissions.toml"
    file.write_text("[[rule]\n")

    with pytest.raises(ConfigError, match=r"permissions\.toml"):
        SavedRules(file, root).load()


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("ls", "auto only reads"),
        ("make", "ask make is not known as a plain read"),
        ("rm x", "never rm deletes"),
        ("curl x", "never the rule bash(curl:*) (user config.toml:4) denies it, in yolo too"),
        ("npm test", "auto the rule bash(npm test) (user config.toml:3) allows it"),
        ("docker ps", "ask the rule bash(docker:*) (user config.toml:5) asks"),
        ("ls\r", "never it holds the invisible or control character U+000D; refused in every mode"),
    ],
)
def test_check_prints_the_verdict_and_its_reason(
    command: str, line: str, make: Make, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = make(allow=("bash(npm test)",), deny=("bash(curl:*)",), ask=("bash(docker:*)",))

    assert permissions.check_command(policy, root, command.split(" ")) == 0
    assert capsys.readouterr().out == line + "\n"


def test_check_says_what_the_sandbox_would_let_run(make: Make) -> None:
    policy = make(sandbox="full")

    assert permissions.check("make", policy).endswith("runs unasked inside the sandbox")
    assert permissions.check("echo $(ls)", policy).endswith("runs unasked inside the sandbox")
    assert "sandbox" not in permissions.check("rm x", policy)


def test_check_wants_a_command(make: Make, root: Path) -> None:
    with pytest.raises(UsageError, match="required"):
        permissions.check_command(make(), root, [])


def test_list_prints_each_rule_with_its_source(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = make(allow=("bash(npm test)",), deny=("read(.env*)",))
    policy.grant("bash", (Access("bash", "make"),), SESSION)

    assert permissions.list_rules(policy) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mode build, no sandbox"
    assert lines[1].split() == ["deny", "read(.env*)", "user", "config.toml:4"]
    assert lines[2].split() == ["allow", "bash(npm", "test)", "user", "config.toml:3"]
    assert "allow  bash(make)  session" in lines


def test_more_directories_join_the_workspace(make: Make, tmp_path: Path) -> None:
    policy = make(is_interactive=False)
    more = (tmp_path / "more").resolve()
    more.mkdir()
    assert edit(policy, more / "x").kind == "refuse"

    policy.set_context(replace(policy.context, roots=(*policy.context.roots, more)))

    assert edit(policy, more / "x").kind == "allow"

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.tools.base import Access, Context
from keen.tools.guard import Guard, PathFacts, locate, printable, shown
from keen.tools.shell.verdict import verdict
from tests.tools.calls import context_in


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    (tmp_path / "home").mkdir()
    (tmp_path / "ws").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return context_in(tmp_path / "ws")


def facts(target: str, context: Context) -> PathFacts:
    return Guard(own=(context.cwd.parent / "keen",)).facts(target, context)


def test_a_sibling_whose_name_begins_like_the_root_is_outside(context: Context) -> None:
    (context.cwd.parent / "ws-secrets").mkdir()

    assert facts("../ws-secrets/x", context).root is None
    assert facts("inside/x", context).root == context.cwd


def test_dots_and_links_are_followed_before_a_path_is_judged(context: Context) -> None:
    (context.cwd / "link").symlink_to("/etc")

    assert facts("link/passwd", context).path == Path("/etc/passwd")
    assert facts("link/passwd", context).root is None
    assert facts("a/../../ws/b", context).root == context.cwd


def test_a_dangling_link_is_judged_by_where_it_leads(context: Context) -> None:
    (context.cwd / "out.txt").symlink_to(context.cwd.parent / "home/.bashrc")

    found = facts("out.txt", context)

    assert found.path == context.cwd.parent / "home/.bashrc"
    assert (found.root, found.protection) == (None, "person")


def test_a_link_is_judged_by_its_spelling_and_by_its_target(context: Context) -> None:
    (context.cwd / "notes.txt").symlink_to("/etc/passwd")

    assert locate("notes.txt", context).accesses("read") == (
        Access("read", "/etc/passwd"),
        Access("read", str(context.cwd / "notes.txt")),
    )


@pytest.mark.parametrize("text", ["", "a\0b", "loop/x", "x" * 300, "d/" * 3000, "\ud800"])
def test_a_path_that_cannot_be_resolved_is_refused_and_has_no_root(
    text: str, context: Context
) -> None:
    (context.cwd / "loop").symlink_to("loop")

    with pytest.raises(ToolError):
        locate(text, context)
    if text:
        assert facts(text, context).root is None


def test_a_file_used_as_a_directory_is_refused(context: Context) -> None:
    (context.cwd / "file").write_text("")

    with pytest.raises(ToolError, match="Not a directory"):
        locate("file/x", context)


@pytest.mark.parametrize(
    ("target", "protection"),
    [
        ("src/app.py", "none"),
        (".git/hooks/pre-commit", "refuse"),
        ("deep/er/.git/hooks/post-checkout", "refuse"),
        (".git/config", "refuse"),
        (".git/modules/sub/config", "refuse"),
        (".git/info/attributes", "refuse"),
        (".git/index", "ask"),
        (".GIT/HOOKS/pre-commit", "refuse"),
        (".gi\u200ct/config", "refuse"),
        ("GIT~1/config", "refuse"),
        (".git./config", "refuse"),
        (".keen/config.toml", "refuse"),
        (".KEEN/permissions.json", "refuse"),
        ("sub/.keen/x", "refuse"),
        ("../keen/trust.toml", "refuse"),
        (".claude/settings.local.json", "ask"),
        ("sub/.cUrSoR/mcp.json", "ask"),
        (".vscode/tasks.json", "ask"),
        (".github/workflows/ci.yml", "ask"),
        (".github/CODEOWNERS", "none"),
        (".mcp.json", "ask"),
        (".husky/pre-push", "ask"),
        ("~/.bashrc", "person"),
        ("~/.ZSHRC", "person"),
        ("~/.config/fish/config.fish", "person"),
        ("~/.gitconfig", "person"),
        ("~/notes.txt", "none"),
    ],
)
def test_protected_places_are_known_by_name_at_any_depth_in_any_spelling(
    target: str, protection: str, context: Context
) -> None:
    assert facts(target, context).protection == protection


def test_a_git_directory_that_stands_elsewhere_is_protected_too(context: Context) -> None:
    store = context.cwd.parent / "store"
    worktree = store / "worktrees/ws"
    worktree.mkdir(parents=True)
    (context.cwd / ".git").write_text(f"gitdir: {worktree}\n")
    (worktree / "commondir").write_text("../..\n")

    assert facts(str(worktree / "HEAD"), context).protection == "ask"
    assert facts(str(store / "hooks/pre-commit"), context).protection == "refuse"
    assert facts(str(store / "config"), context).protection == "refuse"


def test_hooks_are_protected_where_git_is_told_to_look(context: Context) -> None:
    (context.cwd / ".git").mkdir()
    (context.cwd / ".git/config").write_text("[core]\n\thooksPath = tools/hooks\n")

    assert facts("tools/hooks/pre-commit", context).protection == "refuse"
    assert facts("tools/other", context).protection == "none"


def test_the_last_piece_of_a_planted_bare_repository_asks(context: Context) -> None:
    (context.cwd / "plant/objects").mkdir(parents=True)
    (context.cwd / "plant/refs").mkdir()

    assert facts("plant/HEAD", context).protection == "ask"
    assert facts("plant/readme", context).protection == "none"
    (context.cwd / "plant/HEAD").write_text("ref: refs/heads/main\n")
    assert facts("plant/config", context).protection == "refuse"


@pytest.mark.parametrize(
    ("target", "secret", "hidden"),
    [
        (".env", True, False),
        ("app/.env.production", True, False),
        (".ENV", True, False),
        ("environment.py", False, False),
        ("~/.ssh/id_ed25519", True, True),
        ("~/.SSH/id_ed25519", True, True),
        ("~/.aws/credentials", True, True),
        ("~/.config/gh/hosts.yml", True, True),
        ("~/.cargo/credentials.toml", True, True),
        ("~/.cargo/config.toml", False, False),
        ("~/.pgpass", True, True),
        ("~/.bash_history", True, True),
        ("~/.config/rclone/rclone.conf", True, True),
        ("~/.config/other", False, False),
        ("../keen/auth.json", True, True),
        ("/run/docker.sock", True, True),
    ],
)
def test_secrets_are_known(target: str, secret: bool, hidden: bool, context: Context) -> None:
    found = facts(target, context)

    assert (found.is_secret, found.is_hidden) == (secret, hidden)


def test_the_session_scratch_may_be_read_though_it_is_keens_own(context: Context) -> None:
    keen = context.cwd.parent / "keen"
    scratch = keen / "scratch/1"
    inner = Context(cwd=context.cwd, roots=context.roots, scratch=scratch)

    found = facts(str(scratch / "output.txt"), inner)

    assert (found.root, found.protection, found.is_hidden) == (scratch, "none", False)


def test_readable_parts_of_keens_own_directories_are_not_hidden(context: Context) -> None:
    keen = context.cwd.parent / "keen"
    guard = Guard(own=(keen,), readable=(keen / "skills",))

    found = guard.facts(str(keen / "skills/x/SKILL.md"), context)

    assert (found.is_hidden, found.protection) == (False, "refuse")


def test_kinds_are_told_without_opening_anything(context: Context) -> None:
    os.mkfifo(context.cwd / "pipe")
    (context.cwd / "one").write_text("x")
    os.link(context.cwd / "one", context.cwd / "two")

    kinds = [facts(t, context).kind for t in ("pipe", "one", ".", "none", "/dev/zero", "/proc/1")]

    assert kinds == ["fifo", "file", "directory", "missing", "system", "system"]
    assert facts("one", context).links == 2


def test_a_name_printed_with_escapes_is_understood_again(context: Context) -> None:
    for raw in (b"new\nline", b"esc\x1b[31m", b"bad\xff", "plain é".encode()):
        path = Path(os.fsdecode(os.fsencode(context.cwd) + b"/" + raw))
        path.write_text("x")

        name = shown(path, context)

        assert name.isprintable()
        assert locate(name, context).real == path


@pytest.mark.parametrize("target", ["a\\x00b", "\\x00\\xff", "\\u0000", "..\\x00/../x"])
def test_an_escape_that_stands_for_nul_names_no_other_file(target: str, context: Context) -> None:
    assert locate(target, context).literal.name == Path(target).name
    assert facts(target, context).kind == "missing"


def test_a_printed_name_hides_no_direction_marks() -> None:
    assert printable("a\u202eb\u200b.txt") == r"a\u202eb\u200b.txt"


@pytest.mark.parametrize("leads", ["/proc/1/root/x", "a\0b", "../nowhere"])
def test_a_git_file_that_leads_nowhere_stops_nothing(leads: str, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / ".git").write_text(f"gitdir: {leads}\n")
    context = Context(root, (root,), tmp_path / "scratch")

    assert Guard().facts("notes.txt", context).root == root
    assert verdict("cat /proc/1/root/etc/shadow", root, (root,)).level == "ask"

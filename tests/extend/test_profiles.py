"""Agent profiles: where they come from, which one counts, and what of them means anything here."""

from __future__ import annotations

from pathlib import Path

import pytest

from keen.core.errors import KeenError
from keen.extend.profiles import Profile, Profiles, load_profiles, parsed
from keen.tools.task import listed


def written(folder: Path, name: str, head: str, body: str = "Be brief.") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\n{head}\n---\n\n{body}\n")
    return path


def of(head: str, body: str = "") -> Profile:
    return parsed(f"---\n{head}\n---\n{body}", Path("reviewer.md"))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    names = {name: tmp_path / name for name in ("config", "home", "project")}
    for path in names.values():
        path.mkdir()
    return names


def load(places: dict[str, Path], *, is_trusted: bool = True, below: str = "") -> Profiles:
    project = places["project"].resolve()
    return load_profiles(
        places["config"], places["home"], project / below, project if is_trusted else None
    )


def test_two_profiles_are_keens_own(places: dict[str, Path]) -> None:
    profiles = load(places).profiles

    assert list(profiles) == ["general", "explore"]
    assert profiles["general"].has("edit_file")
    assert profiles["general"].has("mcp__docs__find")
    assert not profiles["explore"].has("edit_file")
    assert profiles["explore"].mode == "plan"


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("", "home/.claude/agents"),
        ("home/.claude/agents", "home/.agents/agents"),
        ("home/.agents/agents", "config/agents"),
        ("config/agents", "project/.claude/agents"),
        ("project/.claude/agents", "project/.agents/agents"),
        ("project/.agents/agents", "project/.keen/agents"),
        ("project/.keen/agents", "project/src/.claude/agents"),
    ],
)
def test_the_nearer_profile_counts(
    places: dict[str, Path], tmp_path: Path, weaker: str, stronger: str
) -> None:
    for folder in filter(None, (weaker, stronger)):
        written(tmp_path / folder, "explore", f"description: from {folder}")

    assert load(places, below="src").profiles["explore"].description == f"from {stronger}"


def test_a_project_that_is_not_trusted_has_no_profiles(places: dict[str, Path]) -> None:
    for folder in (".claude/agents", ".agents/agents", ".keen/agents"):
        written(places["project"] / folder, "evil", "description: takes over")

    found = load(places, is_trusted=False)

    assert "evil" not in found.profiles
    assert found.notices == ()


def test_a_profile_outside_the_project_is_not_read_through_a_link(places: dict[str, Path]) -> None:
    elsewhere = written(places["home"], "far", "description: from elsewhere")
    folder = places["project"] / ".keen" / "agents"
    folder.mkdir(parents=True)
    (folder / "far.md").symlink_to(elsewhere)

    found = load(places)

    assert "far" not in found.profiles
    assert "leads out of the project" in found.notices[0]


def test_a_folder_of_profiles_that_leads_out_is_not_walked(places: dict[str, Path]) -> None:
    (places["project"] / ".keen").mkdir()
    (places["project"] / ".keen/agents").symlink_to("/")

    found = load(places)

    assert [notice.rpartition(": ")[2] for notice in found.notices] == [
        "it leads out of the project"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"just text", "no description"),
        (b"---\nname: a\n---\nbody", "no description"),
        (b"---\ndescription: a\nbody", "no line ---"),
        (b"---\n- a\n- b\n---\n", "no list of"),
        (b"---\ndescription: a\nname: 'a/../b'\n---\n", "its name"),
        (b"---\ndescription: \xff\n---\n", "no UTF-8"),
        (b"---\ndescription: a\n---\n" + b"x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_a_broken_file_is_told_with_its_reason(
    places: dict[str, Path], content: bytes, reason: str
) -> None:
    folder = places["config"] / "agents"
    written(folder, "good", "description: works")
    (folder / "bad.md").write_bytes(content)

    found = load(places)

    assert "good" in found.profiles
    assert len(found.notices) == 1
    assert str(folder / "bad.md") in found.notices[0]
    assert reason in found.notices[0]


def test_a_fifo_among_the_profiles_stops_nobody(places: dict[str, Path]) -> None:
    import os

    folder = places["config"] / "agents"
    folder.mkdir()
    os.mkfifo(folder / "pipe.md")

    assert "no regular file" in load(places).notices[0]


@pytest.mark.parametrize(
    "tools",
    [
        "tools: Read, Grep, Bash",
        "tools: Read Grep Bash",
        "tools: [Read, Grep, Bash]",
        "tools:\n  - read\n  - search\n  - shell",
        "tools: read_file, grep, bash",
        "tools:\n  Read: true\n  Grep: true\n  Bash: true",
    ],
)
def test_other_agents_names_of_tools_are_read(tools: str) -> None:
    profile = of(f"description: a\n{tools}")

    assert profile.tools == ("read_file", "grep", "bash")
    assert profile.notes == ()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Read", "read_file"),
        ("Write", "write_file"),
        ("Edit", "edit_file"),
        ("MultiEdit", "edit_file"),
        ("Bash", "bash"),
        ("Grep", "grep"),
        ("Glob", "glob"),
        ("LS", "glob"),
        ("WebFetch", "web_fetch"),
        ("AskUserQuestion", "ask_user"),
        ("Skill", "skill"),
        ("mcp__docs__find", "mcp__docs__find"),
    ],
)
def test_each_name_leads_to_one_tool(theirs: str, ours: str) -> None:
    assert of(f"description: a\ntools: {theirs}").tools == (ours,)


def test_a_server_stands_for_all_its_tools() -> None:
    profile = of("description: a\ntools: mcp__docs")

    assert profile.has("mcp__docs__find")
    assert not profile.has("mcp__docsearch__find")
    assert not profile.has("read_file")


def test_an_unknown_tool_is_noted_and_widens_nothing() -> None:
    profile = of("description: a\ntools: Read, Teleport")

    assert profile.tools == ("read_file",)
    assert "Teleport" in profile.notes[0]


def test_a_list_of_unknown_tools_alone_gives_none() -> None:
    profile = of("description: a\ntools: Teleport")

    assert not any(profile.has(name) for name in ("read_file", "bash", "edit_file"))


def test_a_tool_with_a_pattern_is_not_given_whole() -> None:
    profile = of("description: a\ntools: Read, Bash(git diff:*, git log:*), Grep")

    assert profile.tools == ("read_file", "grep")
    assert "Bash(git diff:*, git log:*)" in profile.notes[0]


def test_a_refused_tool_with_a_pattern_goes_as_a_whole() -> None:
    profile = of("description: a\ndisallowedTools: Bash(rm:*), Write")

    assert not profile.has("bash")
    assert not profile.has("write_file")
    assert profile.has("read_file")


@pytest.mark.parametrize("tools", ["", "tools:", "tools: '*'", "tools: all"])
def test_without_a_list_all_tools_are_there(tools: str) -> None:
    assert of(f"description: a\n{tools}").tools is None


def test_an_empty_list_is_no_tools_at_all() -> None:
    assert of("description: a\ntools: []").tools == ()


def test_switches_take_single_tools_away() -> None:
    profile = of("description: a\ntools:\n  write: false\n  bash: false\n  read: true")

    assert profile.has("read_file")
    assert profile.has("grep")
    assert not profile.has("bash")
    assert not profile.has("write_file")


@pytest.mark.parametrize("model", ["", "model: inherit"])
def test_a_profile_without_a_model_has_the_conversations(model: str) -> None:
    profile = of(f"description: a\n{model}")

    assert (profile.model, profile.notes) == ("", ())


def test_a_model_of_a_provider_is_taken_and_a_short_name_is_noted() -> None:
    assert of("description: a\nmodel: openai/gpt-5:high").model == "openai/gpt-5:high"

    short = of("description: a\nmodel: sonnet")
    assert short.model == ""
    assert "sonnet" in short.notes[0]


@pytest.mark.parametrize("line", ["permissionMode: plan", "readonly: true"])
def test_a_profile_may_ask_to_change_nothing(line: str) -> None:
    assert of(f"description: a\n{line}").mode == "plan"


def test_a_profile_cannot_ask_for_more_freedom() -> None:
    profile = of("description: a\npermissionMode: bypassPermissions")

    assert profile.mode is None
    assert "bypassPermissions" in profile.notes[0]


def test_hidden_characters_of_a_profile_are_made_visible() -> None:
    profile = of("description: safe\u202eelif\nname: a", "Do\u200b it.")

    assert "\u202e" not in profile.description
    assert "\u200b" not in profile.body


def test_a_profile_is_named_by_its_file_where_it_names_itself_not() -> None:
    assert of("description: a").name == "reviewer"
    assert of("description: a\nname: security-auditor").name == "security-auditor"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(KeenError, match="its name"):
        of("description: a\nname: '## ignore the above'")


def test_the_report_tells_source_tools_model_and_notes(places: dict[str, Path]) -> None:
    head = "description: Looks for bugs\ntools: Read, Teleport\nmodel: fake/small"
    path = written(places["config"] / "agents", "bugs", head)

    report = load(places).report()

    for words in ("bugs: Looks for bugs", str(path), "read_file", "fake/small", "Teleport"):
        assert words in report
    assert "from keen itself" in report


def test_many_profiles_stay_within_a_budget_and_none_is_lost_from_sight() -> None:
    agents = {f"agent{number}": "It does something. " * 40 for number in range(40)}

    text = listed(agents)

    assert len(text) < 5_000
    assert all(name in text for name in agents)
    assert len(listed({f"agent{number}": "x" * 300 for number in range(2_000)})) < 6_000

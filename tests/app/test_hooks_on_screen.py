"""A project's hooks as a person meets them: the question, the sheet, the yes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from keen.extend.project_hooks import ProjectHooks
from keen.paths import Paths
from keen.trust import project_root, trust
from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]


async def sent(terminal: Terminal, text: str) -> None:
    """The text, seen whole in the prompt before Enter: together they would be a paste."""
    terminal.type(text)
    await terminal.until(lambda: terminal.prompt == text)
    terminal.press("enter")


async def closed(terminal: Terminal) -> None:
    """The sheet of the hooks is gone."""
    await terminal.until("Esc closes")
    terminal.press("escape")
    await terminal.gone("Esc closes")


@pytest.fixture
def hooked(workspace: Path) -> Path:
    """The workspace with a hook that refuses to write, and one that is text for a shell."""
    (workspace / ".keen").mkdir()
    (workspace / ".keen" / "hooks.toml").write_text(
        '[[hooks.PreToolUse]]\nmatcher = "Read"\ncommand = ["./check.sh"]\n'
    )
    script = workspace / "check.sh"
    script.write_text("#!/bin/sh\necho 'Not that file.' >&2\nexit 2\n")
    script.chmod(0o700)
    (workspace / ".claude").mkdir()
    entry = {"hooks": [{"type": "command", "command": "touch ran"}]}
    (workspace / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"Stop": [entry]}}))
    return workspace


@pytest.mark.usefixtures("hooked")
async def test_a_projects_hook_runs_from_the_moment_the_person_says_so(
    keen: Start, chat: Dialect
) -> None:
    replies = (
        chat.calls("read_file", path="log.txt"),
        chat.says("Read."),
        chat.calls("read_file", path="log.txt"),
        chat.says("Refused."),
    )
    async with FakeProvider(*replies) as provider, keen(provider) as terminal:
        await terminal.until("Do you trust this folder?")
        await terminal.until(".keen/hooks.toml")
        await terminal.quiet(0.4)
        terminal.type("2")
        await terminal.until("not approved, so not run: PreToolUse for Read")
        await sent(terminal, "read")
        await terminal.until("Read.")

        await sent(terminal, "/hooks")
        await terminal.until("1  waits for your yes")
        await terminal.until("PreToolUse for Read: ./check.sh  (with ./check.sh)")
        await terminal.until("texts for a shell: keen does not run")
        await closed(terminal)
        await sent(terminal, "/hooks approve 1")
        await terminal.until("Approved: PreToolUse")
        await sent(terminal, "again")
        await terminal.until("Refused.")

        results = chat.read(provider.requests[3]).results
        assert "A hook refused this call: Not that file." in results[-1].output
        assert "line 001 of the log" in chat.read(provider.requests[1]).results[-1].output


async def test_a_hook_that_changed_is_shown_as_changed_and_can_be_taken_back(
    keen: Start, chat: Dialect, hooked: Path
) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider, keen(provider, "--trust") as terminal:
        await terminal.ready()
        await sent(terminal, "/hooks approve 1")
        await terminal.until("Approved: PreToolUse")
        await sent(terminal, "/hooks")
        await terminal.until("1  runs")
        await closed(terminal)
        (hooked / "check.sh").write_text("#!/bin/sh\nexit 0\n")
        await sent(terminal, "/hooks")
        await terminal.until("1  changed since your yes")
        await closed(terminal)
        await sent(terminal, "/hooks revoke 1")
        await terminal.until("Not approved any more")
        await sent(terminal, "/hooks approve 2")
        await terminal.until("The project has no hook 2")

    assert not (hooked / "ran").exists()


async def test_hooks_that_came_after_the_start_are_read_by_a_new_session(
    keen: Start, chat: Dialect, workspace: Path
) -> None:
    async with FakeProvider(chat.says("Hello.")) as provider, keen(provider, "--trust") as terminal:
        await terminal.ready()
        (workspace / ".keen").mkdir()
        (workspace / ".keen" / "hooks.toml").write_text('[[hooks.Stop]]\ncommand = ["true"]\n')
        await sent(terminal, "/hooks")
        await terminal.until(".keen/hooks.toml is new")
        await closed(terminal)
        await sent(terminal, "/new")
        await terminal.until("not approved, so not run: Stop: true")


EVENTS = (
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop", "Stop",
    "Notification", "PreCompact", "PostCompact", "SessionEnd",
)  # fmt: skip


async def test_every_event_of_a_session_reaches_the_projects_hooks(
    keen: Start, chat: Dialect, workspace: Path, home: Path
) -> None:
    (workspace / ".keen").mkdir()
    script = workspace / ".keen" / "tell"
    script.write_text('#!/bin/sh\n{ cat; echo; } > "$(mktemp "$1/XXXXXX")"\n')
    script.chmod(0o700)
    said = home / "said"
    said.mkdir()
    (workspace / ".keen" / "hooks.toml").write_text(
        "".join(f'[[hooks.{one}]]\ncommand = [".keen/tell", "{said}"]\n' for one in EVENTS)
    )
    paths = Paths.in_one_directory(home / "keen")
    trust(workspace, paths)
    found = ProjectHooks.of(project_root(workspace), paths)
    for one in found.hooks:
        found.approve(one)
    replies = (
        chat.calls("task", tasks=[{"agent": "explore", "prompt": "Look around."}]),
        chat.says("Looked."),
        chat.says("All done."),
        chat.says("## Goal\n\nShort."),
    )
    async with FakeProvider(*replies) as provider, keen(provider) as terminal:
        await terminal.ready()
        assert "not approved" not in terminal.text
        await sent(terminal, "look")
        await terminal.until("All done.")
        await terminal.until("✔ ")
        await sent(terminal, "/compact")
        await terminal.until("Context compacted.")
        terminal.press("ctrl+d")
        await terminal.ended()

    told = [json.loads(path.read_text()) for path in said.iterdir()]
    assert {one["hook_event_name"] for one in told} == set(EVENTS)
    assert len({one["session_id"] for one in told}) == 1
    assert {one["cwd"] for one in told} == {str(workspace)}
    by_event = {one["hook_event_name"]: one for one in told}
    assert by_event["PreToolUse"]["tool_name"] == "task"
    assert by_event["PostToolUse"]["tool_response"]["is_error"] is False
    assert by_event["PostCompact"]["compact_summary"]
    assert by_event["Notification"]["notification_type"] == "idle_prompt"

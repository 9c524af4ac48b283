"""Hooks as real processes: what they are told, what their answers do, and that nothing stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from keen import secrets
from keen._settings import Hook
from keen.agent.gate import CompactionWord, PromptWord, ToolWord
from keen.core.messages import ToolCall, ToolResult
from keen.extend.hooks import unknown_events
from tests.extend.hooking import Yard, alive

EDIT = ToolCall("1", "edit_file", {"path": "a.py", "edits": []})
BASH = ToolCall("2", "bash", {"command": "ls"})


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def said(yard: Yard) -> dict[str, Any]:
    """What the hook that keeps its input was told."""
    return json.loads((yard.programs / "said").read_text())


async def test_a_hook_is_told_what_is_about_to_happen(yard: Yard) -> None:
    keeping = f"cat > {yard.programs}/said; pwd > {yard.programs}/cwd; env > {yard.programs}/env"
    gate = yard.hooks(
        "PreToolUse",
        yard.hook(keeping),
        session_id="abc",
        transcript_path="/sessions/abc.jsonl",
        mode=lambda: "plan",
    )
    word = await gate.before_tool(EDIT)

    assert word == ToolWord()
    assert said(yard) == {
        "session_id": "abc",
        "transcript_path": "/sessions/abc.jsonl",
        "cwd": str(yard.work),
        "permission_mode": "plan",
        "hook_event_name": "PreToolUse",
        "tool_name": "edit_file",
        "tool_input": {"path": "a.py", "edits": []},
    }
    assert (yard.programs / "cwd").read_text().strip() == str(yard.work)
    variables = (yard.programs / "env").read_text().splitlines()
    assert f"KEEN_PROJECT_DIR={yard.work}" in variables
    assert f"CLAUDE_PROJECT_DIR={yard.work}" in variables


async def test_a_hook_sees_no_key_of_the_persons(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    gate = yard.hooks("PreToolUse", yard.hook(f"env > {yard.programs}/env"))
    await gate.before_tool(BASH)

    assert "sk-very-secret" not in (yard.programs / "env").read_text()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("exit 0", ToolWord()),
        ("echo fine", ToolWord()),
        ("echo 'Use the other file.' >&2; exit 2", "Use the other file."),
        ("exit 2", "it gave no reason"),
        ("""echo '{"decision":"block","reason":"Not there."}'""", "Not there."),
        (
            """echo '{"hookSpecificOutput":{"permissionDecision":"deny",'"""
            """'"permissionDecisionReason":"Denied."}}'""",
            "Denied.",
        ),
        ("""echo '{"continue":false,"stopReason":"Enough."}'""", "Enough."),
        (
            """echo '{"hookSpecificOutput":{"permissionDecision":"allow"}}'""",
            ToolWord(),
        ),
        (
            """echo '{"hookSpecificOutput":{"permissionDecision":"ask",'"""
            """'"permissionDecisionReason":"Sure?"}}'""",
            ToolWord(asks="The hook hook wants you to decide: Sure?"),
        ),
        ("""echo '{"decision":"block"'""", ToolWord()),
        ("""echo '{"decision":7,"hookSpecificOutput":[]}'""", ToolWord()),
    ],
)
async def test_an_answer_before_a_call(yard: Yard, body: str, word: ToolWord | str) -> None:
    if isinstance(word, str):
        word = ToolWord(f"A hook refused this call: {word}\nDo not try to get around it.")
    said = await yard.hooks("PreToolUse", yard.hook(body)).before_tool(EDIT)
    name = str(yard.programs / "hook")[:60]
    assert ToolWord(said.refusal, said.asks.replace(name, "hook")) == word
    assert yard.told == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo broken >&2; exit 1", "failed (1): broken"),
        ("echo no; exit 77", "failed (77): no"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
async def test_a_hook_that_fails_is_told_of_once_and_blocks_nothing(
    yard: Yard, body: str, told: str
) -> None:
    gate = yard.hooks("PreToolUse", yard.hook(body))
    for _ in range(2):
        assert await gate.before_tool(EDIT) == ToolWord()

    assert len(yard.told) == 1
    assert yard.told[0].startswith("PreToolUse hook ")
    assert yard.told[0].endswith(f": {told}")


async def test_the_strictest_answer_wins_and_all_reasons_are_given(yard: Yard) -> None:
    asks = """echo '{"hookSpecificOutput":{"permissionDecision":"ask"}}'"""
    gate = yard.hooks(
        "PreToolUse",
        yard.hook(asks, name="asks"),
        yard.hook("echo one >&2; exit 2", name="one"),
        yard.hook("exit 0", name="fine"),
        yard.hook("echo two >&2; exit 2", name="two"),
    )
    word = await gate.before_tool(EDIT)

    assert "one\ntwo" in word.refusal
    assert word.asks == ""


async def test_hooks_of_an_event_run_side_by_side(yard: Yard) -> None:
    meet = "touch {0}/{1}; until [ -e {0}/{2} ]; do sleep 0.01; done"
    gate = yard.hooks(
        "PreToolUse",
        yard.hook(meet.format(yard.programs, "here", "there"), name="a"),
        yard.hook(meet.format(yard.programs, "there", "here"), name="b"),
    )
    assert await gate.before_tool(EDIT) == ToolWord()
    assert yard.told == []


@pytest.mark.parametrize(
    ("matcher", "runs"),
    [
        ("", True),
        ("*", True),
        ("edit_file", True),
        ("Edit", True),
        ("Edit|Write", True),
        ("MultiEdit", True),
        ("(Edit|Write|MultiEdit)", True),
        (".*", True),
        ("edit", False),
        ("Edi", False),
        ("Bash", False),
        ("edit_file.+", False),
    ],
)
async def test_a_matcher_means_the_whole_name_of_a_tool(
    yard: Yard, matcher: str, runs: bool
) -> None:
    gate = yard.hooks("PreToolUse", yard.hook("exit 2", matcher=matcher))
    assert bool((await gate.before_tool(EDIT)).refusal) is runs


async def test_a_hook_behind_a_call_talks_to_the_model(yard: Yard) -> None:
    keeping = f"cat > {yard.programs}/said; echo 'Line 3 is too long.' >&2; exit 2"
    more = """echo '{"hookSpecificOutput":{"additionalContext":"And run the tests."}}'"""
    gate = yard.hooks("PostToolUse", yard.hook(keeping), yard.hook(more, name="more"))
    result = ToolResult("2", "bash", "out", is_error=True, exit_code=1)
    added = await gate.after_tool(BASH, result)

    assert added == "[hook] Line 3 is too long.\nAnd run the tests."
    assert said(yard)["tool_response"] == {"output": "out", "is_error": True, "exit_code": 1}


async def test_what_hooks_say_to_the_model_is_harmless_and_hides_keys(yard: Yard) -> None:
    secrets.register("sk-1234567890-abc")
    body = r"printf '\033[31mred\033[0m \007bell sk-1234567890-abc \033]0;title\007end\n'"
    gate = yard.hooks("UserPromptSubmit", yard.hook(body))
    assert await gate.before_prompt("hi") == PromptWord(context="red ␇bell *** end")


async def test_escapes_inside_json_and_in_notices_are_harmless_too(yard: Yard) -> None:
    reason = r"""printf '{"decision":"block","reason":"\\u001b[2Jgone\\u202e"}'"""
    failing = r"printf '\033[2J\033]52;c;eA==\007bad' >&2; exit 1"
    gate = yard.hooks("PreToolUse", yard.hook(reason), yard.hook(failing, name="failing"))
    word = await gate.before_tool(EDIT)

    assert "gone<U+202E>" in word.refusal
    assert "\x1b" not in word.refusal
    assert [line.rpartition(": ")[2] for line in yard.told] == ["bad"]


async def test_a_message_can_be_blocked_or_added_to(yard: Yard) -> None:
    keeping = f"cat > {yard.programs}/said; echo 'On branch main.'"
    more = """echo '{"hookSpecificOutput":{"additionalContext":"Be brief."}}'"""
    adding = yard.hooks("UserPromptSubmit", yard.hook(keeping), yard.hook(more, name="more"))
    blocking = yard.hooks(
        "UserPromptSubmit", yard.hook("echo 'No names.' >&2; exit 2", name="blocking")
    )

    assert await adding.before_prompt("go") == PromptWord(context="On branch main.\nBe brief.")
    assert said(yard)["prompt"] == "go"
    word = await blocking.before_prompt("go")
    assert word.refusal == "A hook blocked this message: No names."


async def test_much_context_is_cut(yard: Yard) -> None:
    gate = yard.hooks("SessionStart", yard.hook("yes 'a line' | head -c 60000"))
    context = await gate.session_started("startup")
    assert len(context) < 10_010
    assert context.endswith(" […]")


async def test_a_session_is_told_with_its_source(yard: Yard) -> None:
    gate = yard.gate(
        {
            "SessionStart": (
                yard.hook(f"cat > {yard.programs}/said; echo hello", matcher="resume"),
                yard.hook("echo other", name="other", matcher="startup"),
            ),
            "SessionEnd": (yard.hook(f"cat > {yard.programs}/end", name="end"),),
        }
    )
    assert await gate.session_started("resume") == "hello"
    assert said(yard)["source"] == "resume"
    await gate.session_ended()
    assert json.loads((yard.programs / "end").read_text())["reason"] == "other"


async def test_a_hook_can_veto_a_compaction_or_say_what_matters(yard: Yard) -> None:
    veto = yard.hooks(
        "PreCompact", yard.hook("echo 'Not now.' >&2; exit 2", name="veto", matcher="auto")
    )
    adding = yard.hooks(
        "PreCompact", yard.hook(f"cat > {yard.programs}/said; echo 'Keep the numbers.'")
    )

    assert (await veto.before_compaction("proactive", "")).veto == "A hook vetoed it: Not now."
    assert await veto.before_compaction("manual", "") == CompactionWord()
    assert await adding.before_compaction("manual", "tests") == CompactionWord(
        focus="Keep the numbers."
    )
    assert (said(yard)["trigger"], said(yard)["custom_instructions"]) == ("manual", "tests")
    assert (await veto.before_compaction("forced", "")).veto
    assert len(yard.told) == 1
    assert "counts for nothing" in yard.told[0]


async def test_a_hook_is_told_of_a_compaction_that_was_done(yard: Yard) -> None:
    gate = yard.hooks("PostCompact", yard.hook(f"cat > {yard.programs}/said; exit 2"))
    await gate.after_compaction("proactive", "## Goal")
    assert (said(yard)["trigger"], said(yard)["compact_summary"]) == ("auto", "## Goal")
    assert [line.rpartition(": ")[2] for line in yard.told] == ["it gave no reason"]


async def test_a_hook_makes_a_turn_go_on_unless_another_ends_it(yard: Yard) -> None:
    going = yard.hook(f"cat > {yard.programs}/said; echo 'Run the tests.' >&2; exit 2")
    ending = yard.hook("""echo '{"continue":false,"stopReason":"Lunch."}'""", name="ending")

    reason = await yard.hooks("Stop", going).before_stop(is_again=True)
    assert reason.endswith("the work is not done: Run the tests.")
    assert said(yard)["stop_hook_active"] is True
    assert await yard.hooks("Stop", going, ending).before_stop(is_again=False) == ""


async def test_the_end_of_a_subagent_is_an_event_of_its_own(yard: Yard) -> None:
    gate = yard.gate(
        {
            "Stop": (yard.hook("exit 2", name="stop"),),
            "SubagentStop": (yard.hook(f"cat > {yard.programs}/said; echo more >&2; exit 2"),),
        }
    ).of_agent("reviewer")
    assert (await gate.before_stop(is_again=False)).endswith(": more")
    assert said(yard)["agent_type"] == "reviewer"


async def test_a_person_who_is_waited_for_is_told_so(yard: Yard) -> None:
    gate = yard.hooks(
        "Notification",
        yard.hook(f"cat > {yard.programs}/said", matcher="permission_prompt"),
        yard.hook(f"touch {yard.programs}/idle", name="other", matcher="idle_prompt"),
    )
    await gate.notify("permission_asked", "bash wants to run")
    assert said(yard)["message"] == "bash wants to run"
    assert not (yard.programs / "idle").exists()


async def test_a_system_message_is_for_the_person(yard: Yard) -> None:
    gate = yard.hooks("PreToolUse", yard.hook("""echo '{"systemMessage":"Watch out."}'"""))
    assert await gate.before_tool(EDIT) == ToolWord()
    assert [line.rpartition(": ")[2] for line in yard.told] == ["Watch out."]


async def test_what_is_said_before_anybody_listens_waits(yard: Yard) -> None:
    gate = yard.hooks("PreToolUse", yard.hook("exit 1"))
    silent = type(gate)(gate.table, gate.place)
    await silent.before_tool(EDIT)
    heard: list[str] = []
    silent.listen(heard.append)
    assert len(heard) == 1


# Hooks that misbehave.


async def test_a_hook_that_takes_too_long_is_ended_whole(yard: Yard) -> None:
    body = f"trap '' TERM; echo $$ > {yard.programs}/pid; while :; do sleep 0.05; done"
    gate = yard.hooks("PreToolUse", yard.hook(body, timeout=1))
    assert await gate.before_tool(EDIT) == ToolWord()

    assert yard.told[0].endswith("was ended: it took longer than 1 s")
    assert not alive(int((yard.programs / "pid").read_text()))


async def test_a_hook_that_writes_without_end_is_ended(yard: Yard) -> None:
    gate = yard.hooks("PreToolUse", yard.hook("yes; exit 2"))
    assert await gate.before_tool(EDIT) == ToolWord()
    assert yard.told[0].endswith("was ended: it wrote without end")


async def test_a_hook_that_writes_much_is_read_to_its_limit(yard: Yard) -> None:
    body = "echo begin >&2; yes | head -c 900000 >&2; yes | head -c 900000; exit 2"
    word = await yard.hooks("PreToolUse", yard.hook(body)).before_tool(EDIT)
    assert word.refusal.startswith("A hook refused this call: begin\ny\ny")
    assert len(word.refusal) < 11_000


async def test_processes_that_a_hook_leaves_are_ended(yard: Yard) -> None:
    pids = yard.programs / "pids"
    body = (
        f"(echo $(exec sh -c 'echo $PPID') >> {pids}; sleep 300) &\n"
        f"setsid sh -c 'echo $$ >> {pids}; sleep 300' >/dev/null 2>&1 &\n"
        f"until [ $(wc -l < {pids}) -ge 2 ]; do sleep 0.01; done"
    )
    pids.touch()
    gate = yard.hooks("PreToolUse", yard.hook(body))
    assert await gate.before_tool(EDIT) == ToolWord()

    left = [int(line) for line in pids.read_text().split()]
    assert len(left) == 2
    assert not any(map(alive, left))


async def test_cancelling_ends_the_hooks(yard: Yard) -> None:
    body = f"echo $$ > {yard.programs}/pid.part; mv {yard.programs}/pid.part {yard.programs}/pid"
    gate = yard.hooks("PreToolUse", yard.hook(f"{body}; sleep 300"))
    task = asyncio.create_task(gate.before_tool(EDIT))
    while not (yard.programs / "pid").exists():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert not alive(int((yard.programs / "pid").read_text()))


async def test_a_hook_that_reads_nothing_holds_nothing_up(yard: Yard) -> None:
    large = ToolCall("1", "write_file", {"path": "a", "content": "x" * 3_000_000})
    gate = yard.hooks("PreToolUse", yard.hook("exit 0"), yard.hook("wc -c >&2; exit 2", name="b"))
    assert ": 30002" in (await gate.before_tool(large)).refusal


async def test_text_that_is_no_text_reaches_a_hook(yard: Yard) -> None:
    odd = ToolCall("1", "bash", {"command": "echo \ud800"})
    gate = yard.hooks("PreToolUse", yard.hook(f"cat > {yard.programs}/said"))
    assert await gate.before_tool(odd) == ToolWord()
    assert said(yard)["tool_input"] == {"command": "echo \ud800"}


# Where the program comes from.


async def test_a_program_is_never_found_by_name_in_the_workspace(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = yard.work / "bin" / "guard-of-mine"
    trap.parent.mkdir()
    trap.write_text(f"#!/bin/sh\ntouch {yard.programs}/trapped\nexit 2\n")
    trap.chmod(0o700)
    (yard.work / "pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", f"{trap.parent}:.:/usr/bin:/bin")
    monkeypatch.chdir(trap.parent)
    gate = yard.hooks("PreToolUse", Hook(command=("guard-of-mine",)))
    assert str(trap.parent) in gate.place.environment["PATH"]
    assert await gate.before_tool(EDIT) == ToolWord()

    assert "no program guard-of-mine on PATH" in yard.told[0]
    assert not (yard.programs / "trapped").exists()


async def test_a_relative_path_is_no_program(yard: Yard) -> None:
    await yard.hooks("PreToolUse", Hook(command=("./hook",))).before_tool(EDIT)
    assert "relative path" in yard.told[0]


async def test_a_program_that_cannot_be_run_is_told_of(yard: Yard) -> None:
    (yard.programs / "plain").write_text("no program")
    await yard.hooks("PreToolUse", Hook(command=(str(yard.programs / "plain"),))).before_tool(EDIT)
    await yard.hooks("PreToolUse", Hook(command=("/nowhere/x",))).before_tool(EDIT)
    assert [line.rpartition(": ")[2] for line in yard.told] == [
        "Permission denied",
        "No such file or directory",
    ]


async def test_words_reach_the_program_as_they_are(yard: Yard) -> None:
    program = yard.program('printf "%s|" "$@" >&2; exit 2')
    command = (program, "$(touch x)", "a b", "*")
    word = await yard.hooks("PreToolUse", Hook(command=command)).before_tool(EDIT)
    assert "$(touch x)|a b|*|" in word.refusal


def test_events_that_do_not_exist_are_named_with_the_nearest() -> None:
    hook = (Hook(command=("x",)),)
    assert unknown_events({"PreToolUse": hook, "PreToolUs": hook, "zzz": hook}) == (
        "hooks.PreToolUs: there is no such event (did you mean PreToolUse?), so it never runs.",
        "hooks.zzz: there is no such event, so it never runs.",
    )

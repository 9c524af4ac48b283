"""What a person is offered after a real sandbox stopped a command, and what their answer does."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from keen.core.events import Question
from keen.tools._environment import command_environment
from keen.tools.base import Access, Context, Outcome
from keen.tools.bash import Bash
from keen.tools.guard import Guard
from keen.tools.jobs import Jobs
from keen.tools.permission import Policy
from keen.tools.permission.rules import SavedRules, parse_rules
from keen.tools.sandbox.confinement import Confinement
from keen.tools.sandbox.confines import Surveyor
from keen.tools.sandbox.probe import find
from tests.tools.calls import outside_tmp

FULL = find("auto")
pytestmark = pytest.mark.skipif(
    FULL.level != "full", reason=f"no full sandbox on this machine: {FULL.reason}"
)

Choose = Callable[[Question], str | None]


def row(beginning: str) -> Choose:
    """A person who takes the row that begins so."""

    def choose(question: Question) -> str | None:
        return next(one for one in question.options if one.startswith(beginning))

    return choose


@dataclass
class Person:
    """Somebody who answers in turn, and nothing at the end."""

    answers: list[Choose]
    asked: list[Question] = field(default_factory=list[Question])

    async def ask(self, questions: tuple[Question, ...]) -> tuple[str, ...] | None:
        self.asked += questions
        answer = self.answers.pop(0)(questions[0]) if self.answers else None
        return None if answer is None else (answer,)


@dataclass
class Desk:
    """A workspace beside a home directory, with commands in a sandbox."""

    base: Path
    context: Context
    guard: Guard
    saved: SavedRules
    policy: Policy

    @property
    def root(self) -> Path:
        return self.context.cwd

    def policed(self, **more: Any) -> Desk:
        rules = (*parse_rules(more.pop("rules", ()), "allow", "user"), *self.saved.load())
        rules += parse_rules(more.pop("deny", ()), "deny", "user")
        policy = Policy(
            self.context,
            guard=self.guard,
            sandbox="full",
            rules=rules,
            save=self.saved.append,
            **more,
        )
        return replace(self, policy=policy)

    async def run(self, command: str, person: Person, **more: Any) -> Outcome:
        held = replace(FULL, surveyor=Surveyor(self.guard))
        tool = Bash(Jobs(), Confinement(held, self.policy))
        context = replace(self.context, ask=person.ask)
        return await tool.prepare({"command": command, **more}, context).run()


@pytest.fixture
def base() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="keen-test-", dir=outside_tmp()))
    yield place.resolve()
    shutil.rmtree(place)


@pytest.fixture
def desk(base: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("HOME", str(base))
    root, own = base / "work", base / ".cache/keen"
    for name in ("work/.git/config", "work/.env", ".ssh/id", ".cache/uv/old", "notes/.git/config"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("x\n")
    (own / "scratch").mkdir(parents=True)
    environment = command_environment(os.environ, (root,))
    context = Context(root, (root,), own / "scratch", environment=environment)
    guard = Guard(own=(own,))
    saved = SavedRules(base / "permissions.toml", root)
    return Desk(base, context, guard, saved, Policy(context, guard=guard)).policed()


async def test_a_stopped_write_may_be_allowed_for_the_session(desk: Desk) -> None:
    person = Person([row("Allow writing to")])

    found = await desk.run("echo run >> count; echo x > ~/.cache/uv/new", person)

    assert (found.is_error, found.exit_code) == (False, 0)
    assert (desk.base / ".cache/uv/new").read_text() == "x\n"
    assert (desk.root / "count").read_text() == "run\nrun\n"
    assert f"Allow writing to {desk.base}/.cache/uv, in this session" in found.output
    again = await desk.run("echo y > ~/.cache/uv/new", person)
    assert again.output == "[sandbox] .env is hidden"
    other = await desk.run("echo y > ~/.cache/other", person)
    assert other.is_error
    assert not (desk.base / ".cache/other").exists()
    assert desk.policy.granted == (f"sandbox(write:{desk.base}/.cache/uv)",)


async def test_the_question_says_what_was_stopped_and_offers_no_more_than_that(desk: Desk) -> None:
    person = Person([])

    await desk.run("echo x > ~/.cache/uv/new", person)

    assert person.asked[0].options == (
        "No",
        f"Allow writing to {desk.base}/.cache/uv, in this session",
        f"Allow writing to {desk.base}/.cache/uv, in this project (saved)",
        "Run this one command outside the sandbox",
    )
    assert f"write to {desk.base}/.cache/uv/new denied" in person.asked[0].text
    assert "echo x > ~/.cache/uv/new" in person.asked[0].text


async def test_what_is_allowed_for_the_project_holds_at_the_next_start(desk: Desk) -> None:
    person = Person([row(f"Allow writing to {desk.base}/.cache/uv, in this project")])
    await desk.run("echo x > ~/.cache/uv/new", person)

    later = desk.policed()
    found = await later.run("echo y > ~/.cache/uv/new", Person([]))

    assert not found.is_error
    assert (desk.base / ".cache/uv/new").read_text() == "y\n"
    text = desk.saved.file.read_text()
    assert f'allow = "sandbox(write:{desk.base}/.cache/uv)"' in text
    assert [rule.place for rule in later.policy.rules] == [f"saved {desk.saved.file}"]


async def test_the_network_may_be_allowed(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"exec 9<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
        person = Person([row("Allow the network, in this project")])

        found = await desk.run(command, person)

        assert found.output.startswith("reached")
        assert person.asked[0].options[1] == "Allow the network, in this session"
        later = await desk.policed().run(command, Person([]))
        assert later.output.startswith("reached")


async def test_one_command_may_run_outside_and_the_next_may_not(desk: Desk) -> None:
    person = Person([row("Run this one")])

    found = await desk.run("echo x > ~/made", person)

    assert person.asked[0].options[1:] == ("Run this one command outside the sandbox",)
    assert (found.is_error, (desk.base / "made").read_text()) == (False, "x\n")
    assert desk.policy.granted == ()
    again = await desk.run("echo y > ~/made", person)
    assert again.is_error
    assert (desk.base / "made").read_text() == "x\n"


async def test_no_is_an_answer_and_is_not_asked_for_again(desk: Desk) -> None:
    person = Person([row("No"), row("No")])

    first = await desk.run("echo x > ~/.cache/uv/new", person)
    await desk.run("echo x > ~/.cache/uv/new", person)

    assert len(person.asked) == 1
    assert first.is_error
    assert "left it so" in first.output
    assert not (desk.base / ".cache/uv/new").exists()


async def test_other_words_are_no_leave_and_reach_the_model(desk: Desk) -> None:
    found = await desk.run("echo x > ~/.cache/uv/new", Person([lambda _: "Use /tmp instead"]))

    assert "did not allow it and said: Use /tmp instead" in found.output
    assert not (desk.base / ".cache/uv/new").exists()


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/config",
        "echo x > .git/config; echo x > ~/.cache/uv/new",
        "mkdir .keen; echo x > .keen/config.toml",
        "echo x > .envrc",
        "echo x > .env",
        "echo x > ~/.ssh/id; false",
        "echo x > ~/.cache/keen/auth.json; false",
        "mkdir -p .github/workflows; echo x > .github/workflows/a.yml",
    ],
)
async def test_of_what_is_protected_or_hidden_nothing_is_ever_offered(
    command: str, desk: Desk
) -> None:
    person = Person([row("Run this one")])

    found = await desk.run(command, person)

    assert person.asked == []
    assert found.is_error


async def test_a_folder_of_a_login_is_not_offered_whole(desk: Desk) -> None:
    person = Person([])

    await desk.run("echo x > ~/plain.txt", person)
    await desk.run("echo x >> ~/.profile", person)
    await desk.run("echo x >> ~/notes/.git/config", person)

    offered = [question.options[1] for question in person.asked]
    assert offered == ["Run this one command outside the sandbox"]


async def test_an_opened_folder_keeps_what_other_programs_run(desk: Desk) -> None:
    opened = desk.policed(rules=(f"sandbox(write:{desk.base}/notes)", "sandbox(write:~/.cache)"))

    await opened.run("echo y > ~/notes/new; echo y > ~/notes/.git/config", Person([]))
    await opened.run("echo y > ~/.cache/keen/auth.json; ln -s x ~/.cache/keen/y", Person([]))

    assert (desk.base / "notes/new").exists()
    assert (desk.base / "notes/.git/config").read_text() == "x\n"
    assert not (desk.base / ".cache/keen/auth.json").exists()


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        (("sandbox(write:~/.ssh)",), ".ssh/id"),
        (("sandbox(write:~/work/.git)",), "work/.git/config"),
        (("sandbox(write:~/.cache/keen)",), ".cache/keen/new"),
    ],
)
async def test_no_rule_opens_what_is_protected(
    rules: tuple[str, ...], place: str, desk: Desk
) -> None:
    before = (desk.base / place).exists() and (desk.base / place).read_text()

    await desk.policed(rules=rules).run(f"echo evil > ~/{place}", Person([]))

    after = (desk.base / place).exists() and (desk.base / place).read_text()
    assert before == after


async def test_what_a_rule_denies_is_not_offered(desk: Desk) -> None:
    person = Person([])
    denied = desk.policed(deny=("sandbox(network)", f"sandbox(write:{desk.base}/.cache)"))

    await denied.run("echo x > ~/.cache/uv/new", person)
    await denied.run("exec 9<>/dev/tcp/127.0.0.1/9", person)

    assert person.asked == []
    assert not desk.policed(
        deny=("sandbox(network)",), has_network=True
    ).policy.openings.has_network


@pytest.mark.parametrize(
    "more", [{"is_interactive": False}, {"mode": "yolo"}, {"mode": "plan"}], ids=str
)
async def test_nobody_is_asked_where_nobody_answers_in_yolo_and_for_a_write_in_plan(
    more: dict[str, Any], desk: Desk
) -> None:
    person = Person([row("Allow")])

    found = await desk.policed(**more).run("echo x > ~/.cache/uv/new", person)

    assert person.asked == []
    assert "[sandbox] write to" in found.output


async def test_a_subagent_shares_what_was_opened(desk: Desk) -> None:
    child = desk.policy.restricted()

    await replace(desk, policy=child).run(
        "echo x > ~/.cache/uv/new", Person([row("Allow writing")])
    )

    assert desk.policy.openings.writable == (desk.base / ".cache/uv",)


def test_a_command_that_says_it_needs_the_network_offers_the_rule_for_it(desk: Desk) -> None:
    wants = desk.policy.decide("bash", "exec", (Access("bash", "npm ci", "network"),))

    assert (wants.kind, wants.rule) == ("ask", "sandbox(network)")
    opened = desk.policed(rules=("sandbox(network)",)).policy
    assert opened.decide("bash", "exec", (Access("bash", "npm ci", "network"),)).kind == "allow"

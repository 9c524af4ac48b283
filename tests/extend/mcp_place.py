"""MCP servers of a test's own: real processes, answers of a person, a policy that allows."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from keen.agent.toolbox import Toolbox
from keen.core.events import Event, QuestionAsked, ToolProgress
from keen.core.messages import JsonObject, ToolCall, ToolResult
from keen.extend.mcp import Limits, McpServers
from keen.extend.mcp_config import ServerConfig
from keen.paths import Paths
from keen.tools.base import Context
from keen.tools.permission import Policy

SCRIPT = Path(__file__).with_name("mcp_server.py")
QUICK = Limits(connect=8.0, call=8.0)


@dataclass
class McpPlace:
    """A home and a workspace; `answers` are given to questions in turn, None when there is none."""

    home: Path
    work: Path
    answers: list[str] = field(default_factory=list[str])
    questions: list[str] = field(default_factory=list[str])
    progress: list[str] = field(default_factory=list[str])
    is_interactive: bool = True
    limits: Limits = QUICK
    started: Callable[[], None] = lambda: None

    @property
    def paths(self) -> Paths:
        return Paths.in_one_directory(self.home)

    @property
    def record(self) -> Path:
        """What the servers wrote down: `start PID`, then the methods they were sent."""
        return self.work / "record"

    def recorded(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.recorded() if line.startswith("start ")]

    def config(self, mode: str = "plain", name: str = "test", scope: str = "user") -> ServerConfig:
        return ServerConfig(
            name=name,
            scope="project" if scope == "project" else "user",
            origin=".mcp.json" if scope == "project" else "config.toml",
            command=(sys.executable, "-I", str(SCRIPT), mode, str(self.record)),
            environment={"ENTRY": "one"},
            shown=f"python mcp_server.py {mode}",
            key=f"key-of-{name}-{scope}",
            cwd=self.work if scope == "project" else None,
        )

    @asynccontextmanager
    async def running(self, *configs: ServerConfig) -> AsyncGenerator[Session, None]:
        servers = McpServers(
            configs,
            paths=self.paths,
            cwd=self.work,
            roots=(self.work,),
            environment={**os.environ, "SOME_TOKEN": "hidden", "ANTHROPIC_API_KEY": "hidden-key"},
            is_interactive=self.is_interactive,
            limits=self.limits,
        )
        try:
            yield Session(self, servers)
        finally:
            await servers.aclose()


@dataclass
class Session:
    """Calls through a real toolbox, as a model would make them."""

    place: McpPlace
    servers: McpServers

    async def call(self, name: str, **arguments: object) -> ToolResult:
        scratch = self.place.home / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        context = Context(self.place.work, (self.place.work,), scratch)
        toolbox = Toolbox(
            {tool.spec.name: tool for tool in self.servers.tools()},
            Policy(context, mode="yolo"),
            context,
            self.servers.undeclared,
        )
        results: dict[str, ToolResult] = {}
        given: JsonObject = dict(arguments)  # type: ignore[arg-type]
        await toolbox.run([ToolCall("1", name, given)], self._emit, results)
        return results["1"]

    async def _emit(self, event: Event) -> None:
        match event:
            case QuestionAsked(questions=questions, reply=reply):
                self.place.questions.extend(question.text for question in questions)
                answers = self.place.answers
                reply((answers.pop(0),) if answers else None)
            case ToolProgress(text=text):
                self.place.progress.append(text)
                self.place.started()
            case _:
                return

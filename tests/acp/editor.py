"""An editor: the official client side of the protocol, at `keen acp` as a real process."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION
from acp.client import ClientSideConnection
from acp.exceptions import RequestError
from acp.interfaces import Agent
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
    WriteTextFileResponse,
)

from tests.headless.running import ROOT, Place

_LIMIT: Final = 64 * 1024 * 1024


def text(words: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=words)


@dataclass
class Editor:
    """Implements acp's Client. `answer` is the option chosen at a permission request; "" cancels.

    `on_update` is told each update as it comes. `buffers` are texts that are open unsaved, by path;
    a file that is written is saved. `fault` answers every request for a file, `missing` is the code
    for one that is not there, `may_read` lets the answers to reads go.
    """

    answer: str = "allow"
    updates: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    questions: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(
        default_factory=list[tuple[ToolCallUpdate, list[PermissionOption]]]
    )
    on_update: Callable[[Any], object] = lambda _: None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    buffers: dict[str, str] = field(default_factory=dict[str, str])
    fault: RequestError | None = None
    missing: int = -32002
    reads: list[str] = field(default_factory=list[str])
    writes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    is_read: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()
        self.may_read.set()
        self._changed = asyncio.Condition()

    def on_connect(self, conn: Agent) -> None:
        return

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.on_update(update)
        async with self._changed:
            self._changed.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.questions.append((tool_call, options))
        self.asked.set()
        await self.may_answer.wait()
        if not self.answer:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=self.answer)
        return RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        self.reads.append(path)
        self.is_read.set()
        await self.may_read.wait()
        if self.fault is not None:
            raise self.fault
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        if not await asyncio.to_thread(os.path.isfile, path):
            raise RequestError(self.missing, f"no file {path}")
        return ReadTextFileResponse(content=_on_disk(path))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        if self.fault is not None:
            raise self.fault
        self.writes.append((path, content))
        self.buffers.pop(path, None)
        _save(path, content)
        return WriteTextFileResponse()

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until the updates so far fulfil something."""
        async with self._changed:
            await self._changed.wait_for(is_there)

    def of(self, kind: type[Any], session_id: str = "") -> list[Any]:
        """The updates of a kind, of one session or of all."""
        return [
            update
            for owner, update in self.updates
            if isinstance(update, kind) and session_id in ("", owner)
        ]

    def said(self, session_id: str = "") -> str:
        """What keen said, but for the notice of a machine without a full sandbox."""
        text = "".join(one.content.text for one in self.of(AgentMessageChunk, session_id))
        return re.sub(r"^- Commands will ask: no full sandbox .*\n(?:\n(?!- ))?", "", text)

    def thought(self) -> str:
        return "".join(one.content.text for one in self.of(AgentThoughtChunk))

    def replayed(self) -> str:
        return "".join(one.content.text for one in self.of(UserMessageChunk))

    def call(self, call_id: str) -> dict[str, Any]:
        """A tool call as the client knows it by now: later updates over earlier ones."""
        state: dict[str, Any] = {}
        for update in self.of(ToolCallStart) + self.of(ToolCallProgress):
            if update.tool_call_id == call_id:
                fields = update.model_dump(exclude_none=True)
                state |= {**fields, "seen": [*state.get("seen", []), fields.get("status")]}
        return state

    def calls(self) -> list[dict[str, Any]]:
        return [self.call(one.tool_call_id) for one in self.of(ToolCallStart)]


def _on_disk(path: str) -> str:
    """With LF, whatever the file has."""
    return Path(path).read_text()


def _save(path: str, content: str) -> None:
    Path(path).write_bytes(content.encode())


@dataclass
class Running:
    """A connection to a started agent, and its process."""

    agent: ClientSideConnection
    process: asyncio.subprocess.Process
    editor: Editor
    place: Place

    async def new(self, **options: Any) -> NewSessionResponse:
        return await self.agent.new_session(cwd=str(self.place.work), mcp_servers=[], **options)

    async def prompt(self, session_id: str, words: str) -> PromptResponse:
        return await self.agent.prompt(session_id=session_id, prompt=[text(words)])

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """A request that the library has no method for."""
        connection: Any = self.agent
        return await connection._conn.send_request(method, params)

    async def leave(self) -> int:
        """Close stdin and wait for the end; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


async def start(
    place: Place, *words: str, stdout: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """`keen acp WORDS` in a directory that is no session's."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "keen",
        "acp",
        *words,
        cwd=place.home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(place.home),
            "KEEN_HOME": str(place.home),
            "PYTHONPATH": str(ROOT),
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        limit=_LIMIT,
    )


@asynccontextmanager
async def editing(
    place: Place, *words: str, editor: Editor | None = None, files: str = ""
) -> AsyncGenerator[Running]:
    """A started agent that has been initialised; at the end it must leave by itself, with 0.

    `files`: what the editor offers to do with them, "read" or "read write".
    """
    editor = editor or Editor()
    process = await start(place, *words)
    assert process.stdin is not None
    assert process.stdout is not None
    client: Any = editor  # of the protocol's methods it has those that keen calls
    agent = ClientSideConnection(client, process.stdin, process.stdout, use_unstable_protocol=True)
    try:
        able = FileSystemCapabilities(
            read_text_file="read" in files, write_text_file="write" in files
        )
        await agent.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(fs=able)
        )
        running = Running(agent, process, editor, place)
        yield running
        assert await running.leave() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await agent.close()


async def refusal(request: Any) -> RequestError:
    """The error a request is answered with."""
    try:
        answer = await request
    except RequestError as error:
        return error
    raise AssertionError(f"answered with {answer}")

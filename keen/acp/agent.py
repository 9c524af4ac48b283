"""The agent's side of the protocol: what each request of a client's means to keen."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp import PROTOCOL_VERSION
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    ClientCapabilities,
    CloseSessionResponse,
    DeleteSessionRequest,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)

from keen import __version__
from keen.acp import choices, models
from keen.acp.failures import INVALID_PARAMS, NOT_FOUND, failure
from keen.acp.files import Folder, editor_files
from keen.acp.prompts import Block
from keen.acp.saved import Saved
from keen.acp.servers import entries
from keen.acp.session import Session
from keen.acp.stdio import DELETE
from keen.choice import choose
from keen.core.errors import ConfigError, KeenError
from keen.options import Options
from keen.sessions import Opened, open_session

McpServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

_SET_UP: Final = "keen-set-up"
_log: Final = logging.getLogger(__name__)


class KeenAgent:
    """Implements acp's Agent. `options` are the flags that hold for every session of this process.

    Sessions run side by side; each is recorded as any other session of keen's.
    """

    def __init__(self, options: Options, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._saved = Saved(environment)
        self._sessions: dict[str, Session] = {}
        self._client: Client | None = None
        self._able: ClientCapabilities | None = None
        self._models: tuple[str, ...] | None = None
        self._opening = asyncio.Lock()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def aclose(self) -> None:
        """Stop and save every session. Idempotent."""
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        for session in sessions:
            session.cancel()
        for session in sessions:
            await session.aclose()

    # The connection.

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        """There is one version of the protocol; a client that wants another one may leave."""
        self._able = client_capabilities
        if client_info is not None:
            _log.info("client %s %s", client_info.name, client_info.version)
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="keen", title="keen", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    fork=SessionForkCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[
                AuthMethodAgent(
                    id=_SET_UP,
                    name="Set up keen in a terminal",
                    description="Run `keen auth login PROVIDER` in a terminal, or set a key in the "
                    "environment of the editor; then come back here.",
                )
            ],
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Look whether a model is set up by now. Raises: RequestError while none is."""
        if method_id != _SET_UP:
            raise RequestError(INVALID_PARAMS, f"There is no sign-in {method_id!r}.")
        try:
            await asyncio.to_thread(choose, self._options, self._environment)
        except ConfigError as error:
            raise failure(error) from error
        return AuthenticateResponse()

    # Sessions.

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        session, _records = await self._open(cwd, additional_directories, mcp_servers)
        session.announce(self._known_models)
        return NewSessionResponse(
            session_id=session.id,
            modes=choices.modes(session.engine),
            config_options=choices.config_options(session.engine, session.models),
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Go on with a session; everything in it is told before the answer."""
        session, opened = await self._open(
            cwd, additional_directories, mcp_servers, resume=session_id
        )
        await session.replay(opened.records)
        session.announce(self._known_models)
        return LoadSessionResponse(
            modes=choices.modes(session.engine),
            config_options=choices.config_options(session.engine, session.models),
        )

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Go on with a session; nothing of it is told again."""
        session, _opened = await self._open(
            cwd, additional_directories, mcp_servers, resume=session_id
        )
        session.announce(self._known_models)
        return ResumeSessionResponse(
            modes=choices.modes(session.engine),
            config_options=choices.config_options(session.engine, session.models),
        )

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        """Go on in a copy of a session; the session itself may stay open."""
        session, _opened = await self._open(
            cwd, additional_directories, mcp_servers, resume=session_id, is_fork=True
        )
        session.announce(self._known_models)
        return ForkSessionResponse(
            session_id=session.id,
            modes=choices.modes(session.engine),
            config_options=choices.config_options(session.engine, session.models),
        )

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.aclose()
        return CloseSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """Saved sessions, newest first, a page at a time."""
        place = None if cwd is None else await asyncio.to_thread(_directory, cwd)
        return await asyncio.to_thread(self._saved.page, place, cursor)

    async def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session for good; one that is open here is closed before."""
        async with self._opening:
            await self._leave(session_id)
            try:
                await asyncio.to_thread(self._saved.delete, session_id)
            except KeenError as error:
                raise failure(error) from error

    # In a session.

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        session = self._session(session_id)
        await session.set_mode(mode_id)
        await session.tell_choices()
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        await session.set_option(config_id, value)
        await session.tell_choices()
        options = choices.config_options(session.engine, session.models)
        return SetSessionConfigOptionResponse(config_options=options)

    async def prompt(self, session_id: str, prompt: list[Block], **_: Any) -> PromptResponse:
        return await self._session(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What acp does not know as a method of the protocol yet comes this way too."""
        if method == DELETE:
            await self.delete_session(DeleteSessionRequest.model_validate(params).session_id)
            return {}
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        _log.debug("ignored: _%s", method)

    # Inside.

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(
                NOT_FOUND, f"Session {session_id!r} is not open here. Load it, or begin a new one."
            )
        return session

    async def _open(
        self,
        cwd: str,
        directories: Sequence[str] | None,
        servers: Sequence[McpServer] | None,
        *,
        resume: str | None = None,
        is_fork: bool = False,
    ) -> tuple[Session, Opened]:
        """Open a session for the client; one that is open here already is opened anew.

        Raises: RequestError.
        """
        if self._client is None:
            raise RequestError(-32600, "Nobody is connected.")
        options = await asyncio.to_thread(self._wanted, cwd, directories or (), resume, is_fork)
        given, unusable = entries(servers or ())
        options = replace(options, mcp_servers=given)
        async with self._opening:
            if resume is not None and not is_fork:
                await self._leave(resume)
            try:
                opened = await open_session(options, self._environment, is_interactive=True)
            except KeenError as error:
                raise failure(error) from error
            folders = await asyncio.to_thread(_folders, cwd, directories or ())
            name = opened.engine.session_id or ""
            files = editor_files(self._client, name, folders, self._able)
            session = Session(self._client, opened.engine, options, self._environment, files)
            opened.engine.listen(session.notices.append)
            self._sessions[session.id] = session
        session.notices.extend(unusable)
        return session, opened

    async def _leave(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        if session.is_busy:
            raise RequestError(-32600, "A prompt is running in this session; cancel it first.")
        del self._sessions[session_id]
        await session.aclose()

    def _wanted(
        self, cwd: str, directories: Sequence[str], resume: str | None, is_fork: bool
    ) -> Options:
        """The flags of the start with what the client wants. Blocking. Raises: RequestError."""
        added = tuple(_directory(one) for one in directories)
        if resume is not None:
            self._saved.path(resume)
        return replace(
            self._options,
            cwd=_directory(cwd),
            directories=(*self._options.directories, *added),
            resume=resume,
            is_fork=is_fork,
        )

    async def _known_models(self) -> Sequence[str]:
        """What may be chosen, found once for all sessions."""
        if self._models is None:
            settings = next((one.engine.settings for one in self._sessions.values()), None)
            if settings is None:
                return ()
            try:
                self._models = await asyncio.to_thread(models.offered, settings, self._environment)
            except KeenError as error:
                _log.warning("no models are offered: %s", error)
                self._models = ()
        return self._models


def _directory(path: str) -> Path:
    """The real path of a directory. Blocking. Raises: RequestError."""
    if not os.path.isabs(path):
        raise RequestError(INVALID_PARAMS, f"{path!r} is no absolute path.")
    real = Path(os.path.realpath(path))
    if not real.is_dir():
        raise RequestError(INVALID_PARAMS, f"{path} is no directory.")
    return real


def _folders(cwd: str, directories: Sequence[str]) -> tuple[Folder, ...]:
    """What the client named, the working directory first. Blocking."""
    return tuple(Folder(Path(os.path.realpath(one)), Path(one)) for one in (cwd, *directories))

"""The methods of the protocol: they open, find and close sessions, and pass prompts to them."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionModeResponse,
)
from anyio.abc import TaskGroup
from pydantic_ai import UserError

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._metadata import DIRECTORY, SESSION
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.turn._conversation import Conversation, PendingVersionError, open_conversation
from pydantic_deep.cli.turn._failures import describe_failure
from pydantic_deep.cli.turn._memory import check_memory, with_memory
from pydantic_deep.cli.turn._runtime import Extras, Settings, check_runtime, create_runtime
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, VersionRecord, new_id
from pydantic_deep.versions import SuspendedRun
from pydantic_deep_backends import BackendError

from ._client import Client
from ._editor_files import open_editor_files
from ._mcp_servers import EditorMcpServer, with_mcp_servers
from ._prompts import Block, parse_prompt
from ._session import EditorSession
from ._stored_sessions import (
    InvalidSessionError,
    SessionNotFoundError,
    directory_of,
    find_newest,
    list_stored,
    metadata_of,
    session_of,
)
from ._terminal import EditorTerminal

logger = logging.getLogger(__name__)

Configure: TypeAlias = Callable[[Path], Awaitable[tuple[Settings, Extras]]]
"""Returns the configuration of the agent for a directory."""

INVALID_PARAMS: Final = -32602
NOT_FOUND: Final = -32002
INTERNAL_ERROR: Final = -32603
"""Codes of JSON-RPC errors. `NOT_FOUND` is defined by ACP."""

MAX_CHARS: Final = 500
"""Maximum number of characters of the message of an unexpected error."""


@contextmanager
def errors_as_responses() -> Any:
    """Convert errors to JSON-RPC errors whose messages are sentences for a person."""
    try:
        yield
    except SessionNotFoundError as error:
        raise RequestError(NOT_FOUND, str(error)) from error
    except (DeepAgentError, BackendError, UserError) as error:
        is_invalid = isinstance(error, ValueError)
        raise RequestError(INVALID_PARAMS if is_invalid else INTERNAL_ERROR, str(error)) from error
    except Exception as error:
        logger.exception('A request failed.')
        raise RequestError(INTERNAL_ERROR, describe_failure(error).message) from error


@dataclass(kw_only=True)
class EditorAgent:
    """The agent of an editor: one object for a connection, with any number of sessions."""

    configure: Configure
    """Returns the configuration of the agent for the directory of a session."""
    environment: Environment
    """Models and variables. It has no terminal."""
    store: Store
    """The store of all sessions."""
    tasks: TaskGroup
    """Runs the open sessions."""
    own_agent: str | None = None
    """The reference to the user's own agent, if any."""
    has_terminal: bool = False
    """Whether the agent runs commands in terminals of the editor."""
    is_persistent: bool = True
    """Whether the store outlives the process."""
    sessions: dict[str, EditorSession] = field(default_factory=dict[str, EditorSession], init=False)
    """The open sessions by id."""
    _opening_sessions: dict[str, EditorSession] = field(default_factory=dict[str, EditorSession], init=False)
    """The sessions that are being opened, whose last turn is perhaps being finished, by id."""
    _capabilities: ClientCapabilities | None = field(default=None, init=False)
    _client: Client | None = field(default=None, init=False)

    def on_connect(self, conn: Any) -> None:
        """Remember the connection to the editor."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **meta: Any,
    ) -> InitializeResponse:
        """Return the version of the protocol and the capabilities."""
        self._capabilities = client_capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(
                name='pydantic-deep',
                title='Pydantic Deep',
                version=importlib.metadata.version('versioned-deep-agents'),
            ),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **meta: Any) -> AuthenticateResponse:
        """Refuse: keys of providers are environment variables, and no method is offered."""
        raise RequestError(
            INVALID_PARAMS,
            f'There is no method of authentication {method_id!r}. Set the key of a provider in the environment of the '
            'agent, such as ANTHROPIC_API_KEY.',
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **meta: Any,
    ) -> NewSessionResponse:
        """Open a session without turns. Its first version is stored with its first turn."""
        with errors_as_responses():
            async with self._opening(new_id(), cwd, additional_directories, mcp_servers) as session:
                return NewSessionResponse(session_id=session.id, modes=session.modes)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        additional_directories: list[str] | None = None,
        **meta: Any,
    ) -> LoadSessionResponse:
        """Open a stored session at its newest version, and send its whole dialogue before the response.

        A turn whose process crashed is finished before the response too.
        """
        with errors_as_responses():
            async with self._opening(session_id, cwd, additional_directories, mcp_servers) as session:
                suspended = await self._continue(session, session_id)
                await session.replay(suspended)
                await (session.restore_pending() if suspended is None else session.finish(suspended.id))
                return LoadSessionResponse(modes=session.modes)

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **meta: Any,
    ) -> ResumeSessionResponse:
        """Open a stored session as `load_session` does, without its dialogue."""
        with errors_as_responses():
            async with self._opening(session_id, cwd, additional_directories, mcp_servers) as session:
                suspended = await self._continue(session, session_id)
                await (session.restore_pending() if suspended is None else session.finish(suspended.id))
                return ResumeSessionResponse(modes=session.modes)

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **meta: Any,
    ) -> ForkSessionResponse:
        """Open a session that continues the newest version of another one. Its first turn starts a branch."""
        with errors_as_responses():
            async with self._opening(new_id(), cwd, additional_directories, mcp_servers) as session:
                await self._continue(session, session_id)
                return ForkSessionResponse(session_id=session.id, modes=session.modes)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **meta: Any
    ) -> ListSessionsResponse:
        """Return the stored sessions of a directory, or of all directories, those that started last first."""
        with errors_as_responses():
            return await list_stored(self.store, None if cwd is None else directory_of(cwd), cursor)

    async def close_session(self, session_id: str, **meta: Any) -> CloseSessionResponse:
        """Stop the turn of a session, and close it. It can be loaded again."""
        with errors_as_responses():
            self._session(session_id)
            await self._close(session_id)
            return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **meta: Any) -> SetSessionModeResponse:
        """Use another mode from the next call or prompt on."""
        with errors_as_responses():
            self._session(session_id).set_mode(mode_id)
            return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Sequence[Block], **meta: Any) -> PromptResponse:
        """Run a turn or a command."""
        with errors_as_responses():
            return PromptResponse(stop_reason=await self._session(session_id).answer(parse_prompt(prompt)))

    async def cancel(self, session_id: str, **meta: Any) -> None:
        """Stop the turn of a session, if one is running."""
        for sessions in (self.sessions, self._opening_sessions):
            if session_id in sessions:
                sessions[session_id].cancel()

    async def close(self) -> None:
        """Stop all turns, and close all sessions."""
        for id in list(self.sessions):
            await self._close(id)

    @asynccontextmanager
    async def _opening(
        self,
        id: str,
        cwd: str,
        additional_directories: Sequence[str] | None,
        mcp_servers: Sequence[EditorMcpServer] | None,
    ) -> AsyncGenerator[EditorSession]:
        """Yield a session without turns, and register it if the body succeeds.

        Raises:
            InvalidSessionError: The directory does not exist, or there are additional ones.
            ConfigurationError: A configuration file is invalid or not trusted.
            UnusableModelError: The model cannot be used.
            McpConfigError: An MCP server cannot be used.
            UnusableMemoryError: A package is missing for the memory, or nothing is stored.
        """
        assert self._client is not None  # noqa: S101 - requests come by the connection
        directory = directory_of(cwd)
        if additional_directories:
            raise InvalidSessionError('The agent works in one directory only. Open a session without additional ones.')
        settings, extras = await self.configure(directory)
        settings, extras = with_mcp_servers(settings, extras, mcp_servers or ())
        terminal = EditorTerminal(client=self._client, session_id=id)
        if self.has_terminal:
            if self._capabilities is None or not self._capabilities.terminal:
                raise InvalidSessionError('The editor has no terminals for agents. Start the agent without --terminal.')
            extras = replace(extras, runner=terminal)
        runtime = create_runtime(
            self.environment, settings, approvals=ApprovalMode.ask, own_agent=self.own_agent, extras=extras
        )
        await check_runtime(runtime)
        check_memory(settings, is_persistent=self.is_persistent)
        runtime = await with_memory(runtime, settings, self.store)
        conversation = open_conversation(runtime, settings, self.store, is_persistent=self.is_persistent)
        conversation.metadata = {**conversation.metadata, SESSION: id}
        runtime.backend.editor = open_editor_files(self._client, id, self._capabilities)
        session = EditorSession(id, conversation, self.environment, self._client, has_terminal=self.has_terminal)
        terminal.on_created = session.show_terminal
        await self.tasks.start(session.serve)
        self._opening_sessions[id] = session
        try:
            yield session
            await session.announce()
        except BaseException:
            await session.close()
            raise
        finally:
            self._opening_sessions.pop(id, None)
        if id in self.sessions:
            await self._close(id)  # the editor opens it again
        self.sessions[id] = session

    async def _continue(self, session: EditorSession, id: str) -> SuspendedRun | None:
        """Continue from the newest version of a session. Nothing happens if it is open and has no turn yet.

        Returns:
            The run of the last turn, if its process crashed, so that the turn can be finished.

        Raises:
            SessionNotFoundError: The store has no such session.
            InvalidSessionError: It belongs to another directory, or its last turn has not ended.
        """
        conversation = session.conversation
        opened = self.sessions.get(id)
        if opened is not None and opened.conversation.tip is None:
            return None
        record = await self._newest(id, conversation) if opened is None else opened.tip().record
        directory, own = metadata_of(record).get(DIRECTORY), conversation.settings.directory
        if directory != own:
            raise InvalidSessionError(
                f'The session works in {directory}, and not in {own}. Open it with that directory.'
            )
        suspended = await conversation.select_suspended(record)
        if suspended is None:
            try:
                await conversation.select(record)
            except PendingVersionError:  # the run that has claimed its answers is alive
                raise InvalidSessionError(
                    'The last turn of the session is running. Wait until it ends, and open the session then.'
                ) from None
        elif session.id != id:
            raise InvalidSessionError(
                'The last turn of the session stopped with its process. Load the session, which finishes the turn, and '
                'fork it then.'
            )
        conversation.is_in_directory = True  # an editor shows the directory, so turns do not work on a copy
        await session.restore_mode()
        return suspended

    async def _newest(self, id: str, conversation: Conversation) -> VersionRecord:
        """Return the version that a session continues: that of the directory, or else the newest.

        The directory has an earlier one after `/rewind`.
        """
        head = await conversation.revisions.find_head()
        if head is not None and session_of(head) == id:
            return head
        newest = await find_newest(self.store, id)
        if newest is None:
            raise SessionNotFoundError(id)
        return newest

    def _session(self, id: str) -> EditorSession:
        if id not in self.sessions:
            raise SessionNotFoundError(id)
        return self.sessions[id]

    async def _close(self, id: str) -> None:
        await self.sessions.pop(id).close()

"""An editor in this process: the client of the protocol's library, connected to the agent by a socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent
from acp.core import ClientSideConnection
from acp.helpers import text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    EnvVariable,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)
from pydantic_ai.models import Model

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.acp._agent import EditorAgent
from pydantic_deep.cli.acp._connection import MAX_LINE_BYTES, LineTransport, serve
from pydantic_deep.cli.turn._runtime import Extras, Settings
from pydantic_deep.store import open_store
from pydantic_deep.testing import FakeClock
from tests.cli.conftest import PATIENCE_SECONDS, sleeping

Answer: TypeAlias = Callable[
    [ToolCallUpdate, Sequence[PermissionOption]], Awaitable[str | RequestPermissionResponse | None]
]
"""Chooses an option, or returns the response; `None` stands for a cancelled request."""


@dataclass
class FakeEditor:
    """Records updates and permission requests, and answers the requests."""

    updates: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """The updates with the ids of their sessions."""
    requests: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(
        default_factory=list[tuple[ToolCallUpdate, list[PermissionOption]]]
    )
    """The permission requests."""
    options: list[str | None] = field(default_factory=list[str | None])
    """The options to choose, in the order of the requests."""
    answer: Answer | None = None
    """Chooses an option instead of `options`."""
    buffers: dict[str, str] = field(default_factory=dict[str, str])
    """The texts of open files, perhaps not saved."""
    asked_paths: list[str] = field(default_factory=list[str])
    """The paths of all requests to read or write a text."""
    refuses_writes: bool = False
    commands: list[list[str]] = field(default_factory=list[list[str]])
    """The commands of all terminals."""
    events: list[str] = field(default_factory=list[str])
    """What happened to terminals."""
    terminal: tuple[int, str] = (0, '')
    """The exit code and the output of the last terminal."""
    created_after: anyio.Event | None = None
    """Waited for before a terminal is created."""
    happened: dict[str, anyio.Event] = field(
        default_factory=lambda: {'asked to create': anyio.Event(), 'release': anyio.Event()}
    )
    """What a test can wait for."""
    hangs: anyio.Event | None = None
    """Set when the end of a command is waited for, which does not come then."""
    connection: ClientSideConnection = field(init=False)
    output: asyncio.StreamWriter = field(init=False)
    """The stream to the agent, for lines that the connection does not write."""

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **meta: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **meta: Any
    ) -> RequestPermissionResponse:
        self.requests.append((tool_call, options))
        chosen = self.options.pop(0) if self.answer is None else await self.answer(tool_call, options)
        if isinstance(chosen, RequestPermissionResponse):
            return chosen
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome='cancelled'))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome='selected', option_id=chosen))

    async def read_text_file(self, session_id: str, path: str, **meta: Any) -> ReadTextFileResponse:
        self.asked_paths.append(path)
        if path not in self.buffers:
            raise RequestError(-32002, 'There is no such file.')
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **meta: Any) -> WriteTextFileResponse:
        self.asked_paths.append(path)
        if self.refuses_writes:
            raise RequestError(-32603, 'No.')
        self.buffers[path] = content
        Path(path).write_text(f'{content}formatted\n')
        return WriteTextFileResponse()

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str],
        env: list[EnvVariable],
        cwd: str,
        output_byte_limit: int,
        **_: Any,
    ) -> CreateTerminalResponse:
        if self.refuses_writes:
            raise RequestError(-32603, 'No.')
        self.happened['asked to create'].set()
        if self.created_after is not None:
            await self.created_after.wait()
        self.commands.append([command, *args])
        self.events.append('create')
        variables = {'PATH': os.environ['PATH']} | {variable.name: variable.value for variable in env}
        done = await anyio.run_process([command, *args], cwd=cwd, env=variables, check=False)
        self.terminal = done.returncode, done.stdout.decode()
        return CreateTerminalResponse(terminal_id='t')

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> WaitForTerminalExitResponse:
        if self.hangs is not None:
            self.hangs.set()
            await anyio.sleep_forever()
        code = self.terminal[0]
        if code < 0:
            return WaitForTerminalExitResponse(signal=signal.Signals(-code).name)
        return WaitForTerminalExitResponse(exit_code=code)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        output = self.terminal[1]
        return TerminalOutputResponse(output=output, truncated=False)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        self.events.append('kill')

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        self.events.append('release')
        self.happened['release'].set()

    async def declare(self, **capabilities: Any) -> None:
        """Initialize the connection with capabilities of this editor."""
        declared = ClientCapabilities.model_validate(capabilities)
        await self.connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=declared)

    async def open(self, directory: Path, **options: Any) -> str:
        """Open a session, and return its id."""
        return (await self.connection.new_session(cwd=str(directory), **options)).session_id

    async def prompt(self, session: str, *texts: str) -> PromptResponse:
        """Send a prompt of texts."""
        return await self.connection.prompt(session_id=session, prompt=[text_block(text) for text in texts])

    def kinds(self, session: str | None = None) -> list[str]:
        """Return the kinds of updates without the list of commands."""
        kinds = [update.session_update for id, update in self.updates if session in (None, id)]
        return [kind for kind in kinds if kind != 'available_commands_update']

    def of_kind(self, kind: str) -> list[Any]:
        """Return the updates of one kind."""
        return [update for _, update in self.updates if update.session_update == kind]

    def text(self, kind: str = 'agent_message_chunk') -> str:
        """Return the joined text of chunks."""
        return ''.join(update.content.text for update in self.of_kind(kind))


class Stalled:
    """A step of a model, or an answer of a person, that never comes."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def __call__(self, first: Any, second: Any) -> str:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[FakeEditor]]


@pytest.fixture
def connect(tmp_path: Path, clock: FakeClock) -> Connect:
    """Connect an editor to an agent. Agents of one test share a store."""

    @asynccontextmanager
    async def connect(
        model: Model,
        *,
        extras: Extras | None = None,
        own_agent: str | None = None,
        has_terminal: bool = False,
        is_persistent: bool = True,
        **settings: Any,
    ) -> AsyncGenerator[FakeEditor]:
        environment = Environment(
            models={'given': model},
            variables={'HOME': str(tmp_path), 'USER': 'ada'},
            clock=clock.monotonic,
            sleep=sleeping(clock),
        )

        async def configure(directory: Path) -> tuple[Settings, Extras]:
            chosen: dict[str, Any] = {'model': 'given', 'plan_mode': own_agent is None, **settings}
            return Settings(directory=str(directory), agent=own_agent, **chosen), extras or Extras()

        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near, limit=MAX_LINE_BYTES)
        editor_reader, editor_writer = await asyncio.open_connection(sock=far)
        editor = FakeEditor()
        with anyio.fail_after(PATIENCE_SECONDS):
            async with open_store(f'sqlite:///{tmp_path / "agents.db"}') as store, anyio.create_task_group() as tasks:
                agent = EditorAgent(
                    configure=configure,
                    environment=environment,
                    store=store,
                    tasks=tasks,
                    own_agent=own_agent,
                    has_terminal=has_terminal,
                    is_persistent=is_persistent,
                )
                tasks.start_soon(serve, agent, LineTransport(reader, writer))
                client: Any = editor
                editor.output = editor_writer
                editor.connection = connect_to_agent(client, editor_writer, editor_reader, use_unstable_protocol=True)
                try:
                    yield editor
                finally:
                    await editor.connection.close()
                    editor_writer.close()

    return connect

"""Connections that fail in unusual moments, with a client that fails on demand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic_ai import CancellationToken, RunCancelled, RunContext
from pydantic_ai.exceptions import ToolFailed

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.mcp._connection import NOT_STARTED, Connection, Timeouts
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

CTX = cast('RunContext[Any]', None)


@dataclass
class Client:
    """A client whose methods raise the exceptions of `failures`, by their names."""

    failures: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    capabilities: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(resources=False))
    log: list[str] = field(default_factory=list[str])
    opening: anyio.Event | None = None
    calling: anyio.Event | None = None
    listing: anyio.Event | None = None
    closing: anyio.Event | None = None

    async def __aenter__(self) -> None:
        self._did('enter')
        if self.opening is not None:
            self.opening.set()
            await anyio.sleep_forever()

    async def __aexit__(self, *args: object) -> None:
        self._did('exit')
        if self.closing is not None:
            await self.closing.wait()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
        self._did('get_tools')
        return {'add': object()}

    async def list_tools(self) -> None:
        self._did('list_tools')
        if self.listing is not None:
            await self.listing.wait()

    async def list_resources(self) -> None:
        self._did('list_resources')

    async def call_tool(self, *args: object) -> None:
        if self.calling is not None:
            await self.calling.wait()
        self._did('call_tool')

    def _did(self, name: str) -> None:
        self.log.append(name)
        if name in self.failures:
            raise self.failures[name]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr('pydantic_deep.mcp._connection._create_toolset', lambda *_: client)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return client


@pytest.fixture
def connection(client: Client) -> Connection:
    return Connection('shop', McpServer(command='shop'), {}, Timeouts(start=1, call=1, question=1))


async def test_last_user_closes_the_connection(client: Client, connection: Connection) -> None:
    """Several users share a connection, which ends with the last of them."""
    await connection.enter()
    await connection.enter()
    await connection.exit()
    assert (client.log, connection.error) == (['enter'], None)
    await connection.exit()
    assert (client.log, connection.error) == (['enter', 'exit'], NOT_STARTED)


async def test_tools_remain_if_they_cannot_be_listed(client: Client, connection: Connection) -> None:
    """If a server stops between two steps, its tools are those that were listed last."""
    await connection.enter()
    before = await connection.list_tools(CTX)
    client.failures['get_tools'] = OSError('broken pipe')
    connection.mark_changed()
    assert (await connection.list_tools(CTX), connection.error) == (before, 'broken pipe')
    assert client.log == ['enter', 'get_tools', 'get_tools', 'exit', 'enter', 'get_tools', 'exit']
    assert not connection.is_missing
    await connection.exit()


async def test_failure_while_resources_are_listed_loses_the_connection(client: Client, connection: Connection) -> None:
    """A server may refuse to list resources, but not end."""
    client.capabilities.resources = True
    client.failures['list_resources'] = OSError('broken pipe')
    await connection.enter()
    assert (await connection.list_tools(CTX), connection.error) == ({}, 'broken pipe')
    assert connection.is_missing
    await connection.exit()


async def test_tools_are_listed_once_for_each_user(client: Client, connection: Connection) -> None:
    """Each run sees the tools that the server has now; a server with an open call may be too busy to list them."""
    await connection.enter()
    await connection.list_tools(CTX)
    await connection.list_tools(CTX)
    await connection.enter()
    client.calling = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: connection.call_tool('add', {}, CTX, cast('Any', None)))
        await anyio.wait_all_tasks_blocked()
        assert await connection.list_tools(CTX)
        client.calling.set()
    assert client.log == ['enter', 'get_tools', 'call_tool']
    await connection.list_tools(CTX)
    assert client.log == ['enter', 'get_tools', 'call_tool', 'get_tools']
    await connection.exit()
    await connection.exit()


async def test_failure_of_the_transport_loses_the_connection(client: Client, connection: Connection) -> None:
    """If the server does not answer another request either, the next call connects again."""
    await connection.enter()
    client.failures |= {'call_tool': OSError(), 'list_tools': OSError()}
    with pytest.raises(ToolFailed, match='failed during this call, which may have taken effect'):
        await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert connection.error == 'OSError'
    client.failures.clear()
    await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert client.log == ['enter', 'call_tool', 'list_tools', 'exit', 'enter', 'call_tool']
    await connection.exit()


class RefusedError(Exception):
    """An error of the protocol, as the SDK raises it."""

    def __init__(self, code: int | None, message: str) -> None:
        self.code = code
        super().__init__(message)


@pytest.mark.parametrize(
    ('code', 'text'),
    [
        (-32602, 'It is gone.'),
        (None, "The MCP server 'shop' returned an invalid result. The call may have taken effect. It is gone."),
        (-32000, "The MCP server 'shop' failed during this call, which may have taken effect: It is gone."),
    ],
)
async def test_error_of_the_server_keeps_the_connection(
    client: Client, connection: Connection, code: int | None, text: str
) -> None:
    """Servers use the code of a closed connection for errors of their own. Other calls are open, and stay so."""
    await connection.enter()
    client.failures['call_tool'] = RefusedError(code, 'It is gone.')
    with pytest.raises(ToolFailed) as failed:
        await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert (str(failed.value), client.log) == (text, ['enter', 'call_tool', 'list_tools'])
    await connection.exit()


async def test_busy_server_is_not_lost(client: Client, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent after a failed call may be busy with another one, which must not be lost."""
    monkeypatch.setattr('pydantic_deep.mcp._connection._PROBE_SECONDS', 0.01)
    await connection.enter()
    client.failures['call_tool'] = ValueError('Incorrect padding')
    client.listing = anyio.Event()
    with pytest.raises(ToolFailed, match='returned an invalid result') as failed:
        await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert str(failed.value) == (
        "The MCP server 'shop' returned an invalid result. The call may have taken effect. Incorrect padding"
    )
    assert client.log == ['enter', 'call_tool', 'list_tools']
    await connection.exit()


async def test_call_that_takes_too_long_is_stopped(client: Client) -> None:
    """After its limit, a call fails, and the model is informed that it may have taken effect."""
    limits = Timeouts(start=1, call=0.01, question=1)
    connection = Connection('shop', McpServer(command='shop'), {}, limits)
    await connection.enter()
    client.calling = anyio.Event()
    with pytest.raises(ToolFailed, match=r'did not answer within 0\.01 seconds\. The call may have taken effect\.'):
        await connection.call_tool('add', {}, CTX, cast('Any', None))
    await connection.exit()
    assert client.log == ['enter', 'exit']


async def test_calls_that_fail_together_lose_one_connection(client: Client, connection: Connection) -> None:
    """Of several calls at the moment of a failure, the first closes the connection, and the others leave a new one open."""
    await connection.enter()
    client.failures |= {'call_tool': OSError(), 'list_tools': OSError()}

    async def fail() -> None:
        with pytest.raises(ToolFailed):
            await connection.call_tool('add', {}, CTX, cast('Any', None))

    client.calling = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        group.start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        client.calling.set()
    assert client.log == ['enter', 'call_tool', 'list_tools', 'call_tool', 'list_tools', 'exit']
    await connection.exit()


async def test_connection_that_does_not_close_is_logged(
    client: Client, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure at the end ends neither the run nor the process."""
    await connection.enter()
    client.failures['exit'] = OSError('busy')
    with caplog.at_level(logging.WARNING):
        await connection.exit()
    assert caplog.messages == ["The connection to the MCP server 'shop' did not close: busy"]


async def test_cancelled_start_has_no_user(client: Client, connection: Connection) -> None:
    """If a start is cancelled, the next user connects again."""
    client.opening = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(connection.enter)
        await client.opening.wait()
        group.cancel_scope.cancel()
    client.opening = None
    await connection.enter()
    assert (client.log, connection.error) == (['enter', 'enter'], None)
    await connection.exit()


async def test_user_leaves_while_another_waits_for_the_start(client: Client, connection: Connection) -> None:
    """A run ends while the server is started again for another one, however long that takes."""
    await connection.enter()
    client.failures['get_tools'] = OSError('broken pipe')
    await connection.list_tools(CTX)
    client.opening = anyio.Event()
    log: list[str] = []

    async def leave() -> None:
        await connection.exit()
        log.append('left')

    async with anyio.create_task_group() as group:
        group.start_soon(connection.enter)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(leave)
        await anyio.wait_all_tasks_blocked()
        assert (log, client.log) == (['left'], ['enter', 'get_tools', 'exit', 'enter'])
        group.cancel_scope.cancel()
    assert connection.error == 'broken pipe'  # the reason of the last attempt that ended


async def test_user_comes_while_the_last_one_leaves(client: Client, connection: Connection) -> None:
    """The connection is opened for the new user, and not closed by the one that has left."""
    await connection.enter()
    client.failures['get_tools'] = OSError('broken pipe')
    client.closing = anyio.Event()
    async with anyio.create_task_group() as group:
        for step in (lambda: connection.list_tools(CTX), connection.exit, connection.enter):
            group.start_soon(step)
            await anyio.wait_all_tasks_blocked()
        client.closing.set()
    assert (client.log, connection.error) == (['enter', 'get_tools', 'exit', 'enter'], None)
    await connection.exit()


@dataclass
class StoppingClient(Client):
    """A client that stops the run while it connects. Without effect, the connection succeeds."""

    stop: Callable[[], object] = lambda: None

    async def __aenter__(self) -> None:
        self._did('enter')
        self.stop()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        self._did('connected')

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
        return {}


def agent_with(monkeypatch: pytest.MonkeyPatch, clients: dict[str, Client], model: ScriptedModel | None = None) -> Any:
    """Return an agent with servers that have these clients."""
    monkeypatch.setattr('pydantic_deep.mcp._connection._create_toolset', lambda name, *_: clients[name])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    servers = McpServers(servers={name: McpServer(command=name) for name in clients})
    return create_deep_agent(model or ScriptedModel('done'), capabilities=[servers], interrupt_on={})


@pytest.mark.parametrize('is_entered', [False, True])
async def test_token_stops_a_run_while_a_server_starts(monkeypatch: pytest.MonkeyPatch, is_entered: bool) -> None:
    """As in a request to the model, also if the agent was entered before and the server could not start then."""
    token = CancellationToken()
    client = StoppingClient(failures={'enter': OSError('busy')} if is_entered else {})
    agent = agent_with(monkeypatch, {'slow': client})
    if is_entered:
        await agent.__aenter__()
        client.failures.clear()
    client.stop = token.cancel
    with pytest.raises(RunCancelled):
        await agent.run('go', deps=DeepAgentDeps(), cancellation_token=token)
    assert 'connected' not in client.log
    if is_entered:
        await agent.__aexit__(None, None, None)


@pytest.mark.parametrize('by', ['token', 'task', 'scope'])
async def test_cancelled_start_stops_the_servers_that_have_started(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """No process remains of the servers that were faster than the one that was waited for."""
    opening = anyio.Event()
    fast, slow = Client(), Client(opening=opening)
    agent = agent_with(monkeypatch, {'fast': fast, 'slow': slow})
    token, scope = CancellationToken(), anyio.CancelScope()

    async def run() -> None:
        with scope:
            await agent.run('go', deps=DeepAgentDeps(), cancellation_token=token)

    task = asyncio.create_task(run())
    await opening.wait()
    {'token': token.cancel, 'task': task.cancel, 'scope': scope.cancel}[by]()
    await asyncio.wait([task])
    assert (fast.log, slow.log) == (['enter', 'exit'], ['enter'])


async def test_cancelled_scope_of_a_run_stops_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike the cancellation of a task, that of a scope is repeated at each `await`, also at the end of the run."""
    scope = anyio.CancelScope()
    client = StoppingClient()

    async def stop(messages: object, info: object) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return 'never'

    agent = agent_with(monkeypatch, {'shop': client}, ScriptedModel(stop))
    with scope:
        await agent.run('go', deps=DeepAgentDeps())
    assert client.log == ['enter', 'connected', 'exit']

"""Connections that fail in unusual moments, with a client that fails on demand."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from pydantic_deep.mcp import McpServer
from pydantic_deep.mcp._connection import NOT_STARTED, Connection, Timeouts

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

    async def __aenter__(self) -> None:
        self._did('enter')
        if self.opening is not None:
            self.opening.set()
            await anyio.sleep_forever()

    async def __aexit__(self, *args: object) -> None:
        self._did('exit')

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
        self._did('get_tools')
        return {'add': object()}

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
    assert (await connection.list_tools(CTX), connection.error) == (before, 'broken pipe')
    assert not connection.is_missing
    await connection.exit()


async def test_unknown_failure_of_a_call_loses_the_connection(client: Client, connection: Connection) -> None:
    """An exception without the code of a refusal fails the call, and the next call connects again."""
    await connection.enter()
    client.failures['call_tool'] = OSError()
    with pytest.raises(ToolFailed, match='failed during this call, which may have taken effect'):
        await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert connection.error == 'OSError'
    client.failures.clear()
    await connection.call_tool('add', {}, CTX, cast('Any', None))
    assert client.log == ['enter', 'call_tool', 'exit', 'enter', 'call_tool']
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
    client.failures['call_tool'] = OSError()

    async def fail() -> None:
        with pytest.raises(ToolFailed):
            await connection.call_tool('add', {}, CTX, cast('Any', None))

    client.calling = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        group.start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        client.calling.set()
    assert client.log == ['enter', 'call_tool', 'call_tool', 'exit']
    await connection.exit()


async def test_connection_that_does_not_close_is_logged(
    client: Client, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure at the end ends neither the run nor the process."""
    await connection.enter()
    client.failures['exit'] = OSError('busy')
    with caplog.at_level(logging.WARNING):
        await connection.exit()
    assert caplog.messages == ["The connection to the MCP server 'shop' did not close"]


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

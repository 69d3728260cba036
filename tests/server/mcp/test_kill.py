"""`kill -9` of a process that serves agents over MCP, in the middle of a call of a run, for each transport."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.streams.text import TextReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, GetTaskRequest, GetTaskRequestParams, Request, Result
from pydantic_ai.messages import ModelResponse, TextPart

from pydantic_deep import VersionedAgent, create_deep_agent
from pydantic_deep.server import create_api_key
from pydantic_deep.server.mcp._tasks import EXTENSION, UpdateTaskParams
from pydantic_deep.store import open_store
from tests.cli.conftest import PATIENCE_SECONDS
from tests.server.mcp.conftest import Mode, result_of
from tests.server.mcp.test_elicitation import Person, filled
from tests.store.ports import free_port

MODULE = """
from pathlib import Path

import anyio
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call


def answer(messages, info):
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if done == 2:
        return 'Both are done.'
    return [f'Now comes {done}.', call('step', number=done)]


async def step(number: int) -> str:
    "Do one step. The second one waits until the test continues it."
    print('This line must not be on the wire.')
    with Path('steps').open('a') as file:
        print(number, file=file)
    while number == 1 and not Path('continue').exists():
        await anyio.sleep(0.01)
    return f'step {number}'


agent = create_deep_agent(ScriptedModel(then=answer), name='analyst')
agent.tool_plain(step)
"""

COMMAND = str(Path(sys.executable).with_name('pydantic-deep'))
STORE = 'sqlite:///agents.db'

Transport: TypeAlias = Literal['http', 'stdio']


class Served:
    """A served directory: processes that are started in it, one after another, and clients of each."""

    def __init__(
        self, directory: Path, transport: Transport, mode: Mode = 'auto', *extensions: ClientExtension
    ) -> None:
        self._directory = directory
        self._transport: Transport = transport
        self._mode: Mode = mode
        self._extensions = extensions
        self._key = ''
        self._port = free_port()
        self._variables = {**os.environ, 'PYTHONPATH': str(directory), 'HOME': str(directory)}

    async def prepare(self) -> None:
        """Write the agent, and create a key."""
        (self._directory / 'house.py').write_text(MODULE)
        async with open_store(self.store) as store:
            self._key = await create_api_key(store, name='editor', scopes=['run', 'approve'], owner='ada')

    @property
    def store(self) -> str:
        """The URL of the store."""
        return f'sqlite:///{self._directory}/agents.db'

    @property
    def steps(self) -> list[str]:
        """The calls that have begun, in all processes."""
        path = self._directory / 'steps'
        return path.read_text().split() if path.exists() else []

    def start(self, person: Person) -> AbstractAsyncContextManager[tuple[int, Client]]:
        """Start a process, and connect a stock client. Yields the id of the process and the client."""
        return self._over_http(person) if self._transport == 'http' else self._over_stdio(person)

    @asynccontextmanager
    async def _over_http(self, person: Person) -> AsyncGenerator[tuple[int, Client]]:
        options = ('serve', '--agents', 'house:agent', '--store', STORE, '--port', str(self._port))
        async with await anyio.open_process([COMMAND, *options], cwd=self._directory, env=self._variables) as process:
            assert process.stderr is not None
            async for text in TextReceiveStream(process.stderr):
                if 'Serving' in text:
                    break
            http = httpx2.AsyncClient(headers={'authorization': f'Bearer {self._key}'}, timeout=PATIENCE_SECONDS)
            transport = streamable_http_client(f'http://127.0.0.1:{self._port}/mcp', http_client=http)
            try:
                async with (
                    http,
                    Client(
                        transport, mode=self._mode, elicitation_callback=person, extensions=self._extensions
                    ) as client,
                ):
                    yield process.pid, client
            finally:
                with suppress(ProcessLookupError):
                    process.kill()

    @asynccontextmanager
    async def _over_stdio(self, person: Person) -> AsyncGenerator[tuple[int, Client]]:
        program = f'echo $$ > pid; exec {COMMAND} mcp --agents house:agent --store {STORE}'
        parameters = StdioServerParameters(
            command='/bin/sh', args=['-c', program], cwd=self._directory, env=self._variables
        )
        async with Client(
            parameters, mode=self._mode, elicitation_callback=person, extensions=self._extensions
        ) as client:
            yield int((self._directory / 'pid').read_text()), client


async def begin_and_kill(served: Served) -> None:
    """Call `run`, and kill the process in the second call of the run. The client loses the call without a result."""
    with suppress(anyio.BrokenResourceError, ExceptionGroup):  # a client cannot end the connection of a killed process
        async with served.start(Person()) as (pid, client), anyio.create_task_group() as group:

            async def run() -> None:
                with pytest.raises((MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError)):
                    await client.call_tool('run', {'prompt': 'Go', 'wait_seconds': 600})

            group.start_soon(run)
            while served.steps != ['0', '1']:
                await anyio.lowlevel.checkpoint()
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(('transport', 'mode'), [('http', 'auto'), ('http', 'legacy'), ('stdio', 'auto')])
async def test_run_continues_after_kill_9_in_a_long_task(tmp_path: Path, transport: Transport, mode: Mode) -> None:
    """A client finds its run in the next process, and answers for the call that may have run.

    No finished call is repeated, and the dialogue has each text once.
    """
    served = Served(tmp_path, transport, mode)
    await served.prepare()
    with anyio.fail_after(PATIENCE_SECONDS):
        await begin_and_kill(served)
        (tmp_path / 'continue').touch()
        person = Person(filled('approve'))
        async with served.start(person) as (_, client):
            [conversation] = result_of(await client.call_tool('log', {}))['conversations']
            found = result_of(await client.call_tool('log', {'conversation': conversation['conversation']}))
            [run] = found['active_runs'] or {version['run'] for version in found['versions'] if 'run' in version}
            done = result_of(await client.call_tool('get_run', {'run': run}))
    [form] = person.forms
    assert 'may have run' in form.message
    assert (done['state'], done['output']) == ('complete', 'Both are done.')
    assert served.steps == ['0', '1', '1']
    assert await texts_of(served, done['version']) == ['Now comes 0.', 'Now comes 1.', 'Both are done.']


async def texts_of(served: Served, version_id: str) -> list[Any]:
    """Return the texts of the agent in the dialogue of a version."""
    async with open_store(served.store) as store:
        version = await VersionedAgent(create_deep_agent('test', name='analyst'), store).load(version_id)
        responses = [message for message in await version.messages() if isinstance(message, ModelResponse)]
    return [part.content for response in responses for part in response.parts if isinstance(part, TextPart)]


class TaskHandle(Result):
    """The result of a call that has become a task."""

    result_type: Literal['task'] = 'task'
    task_id: str


class TaskFields(Result, extra='allow'):
    """A task, whose fields depend on its status."""


class Tasks(ClientExtension):
    """Tasks in the official client, which itself only knows how to add them."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type='task', model=TaskHandle, resolve=self._refuse)]

    async def _refuse(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        raise AssertionError('The tests follow their tasks themselves.')


async def wait_for_task(client: Client, task: str) -> dict[str, Any]:
    """Ask for a task until it does not work any more."""
    request = GetTaskRequest(params=GetTaskRequestParams(task_id=task))
    while True:
        found = (await client.session.send_request(request, TaskFields)).model_extra or {}
        if found['status'] != 'working':
            return found
        await anyio.lowlevel.checkpoint()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize('transport', ['http', 'stdio'])
async def test_task_continues_after_kill_9(tmp_path: Path, transport: Transport) -> None:
    """A client that has the id of its task finds it in the next process, and answers for the call that may have run.

    No finished call is repeated, and the id remains the same.
    """
    served = Served(tmp_path, transport, 'auto', Tasks())
    await served.prepare()
    with anyio.fail_after(PATIENCE_SECONDS):
        task = ''
        with suppress(anyio.BrokenResourceError, ExceptionGroup):  # see `begin_and_kill`
            async with served.start(Person()) as (pid, client):
                handle = await client.session.call_tool('run', {'prompt': 'Go'}, allow_claimed=True)
                assert isinstance(handle, TaskHandle)
                task = handle.task_id
                while served.steps != ['0', '1']:
                    await anyio.lowlevel.checkpoint()
                os.kill(pid, signal.SIGKILL)
        (tmp_path / 'continue').touch()
        async with served.start(Person()) as (_, client):
            [(key, form)] = (await wait_for_task(client, task))['inputRequests'].items()
            assert 'may have run' in form['params']['message']
            update = Request(
                method='tasks/update',
                params=UpdateTaskParams(task_id=task, input_responses={key: filled('approve')}),
            )
            await client.session.send_request(update, TaskFields)
            done = await wait_for_task(client, task)
    result = done['result']['structuredContent']
    assert (done['status'], done['taskId'], result['output']) == ('completed', task, 'Both are done.')
    assert served.steps == ['0', '1', '1']
    assert await texts_of(served, result['version']) == ['Now comes 0.', 'Now comes 1.', 'Both are done.']

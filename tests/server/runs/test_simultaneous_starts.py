"""Turns that start at the same time at two servers, each of which executes its own, and deletions in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from httpx import Response
from pydantic_ai import FunctionToolset
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, ServerSettings, _deletion, _run_start
from pydantic_deep.store import new_id, open_store
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, Serve, Served
from tests.server.ui.conftest import asked

pytestmark = pytest.mark.anyio


def _answer(messages: list[Any], info: AgentInfo) -> Answer:
    return call('hold') if len(messages) == 1 else 'Done.'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """An agent whose turns wait for the gate."""
    tools = FunctionToolset[Any]()
    tools.add_function(gate.hold, metadata={'effect': 'read'})
    return {'analyst': create_deep_agent(ScriptedModel(then=_answer), toolsets=[tools])}


@dataclass(kw_only=True)
class Pair:
    """Two servers on one database, and clients of the same owner."""

    first: Client
    second: Client
    servers: tuple[Served, Served]
    conversation: str

    @property
    def path(self) -> str:
        """The path of the conversation."""
        return f'/api/conversations/{self.conversation}'


@asynccontextmanager
async def _serve_two(serve: Serve, second_settings: ServerSettings) -> AsyncGenerator[Pair]:
    name = f'memory:{new_id()}'
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(name)) for _ in range(2)]
        servers = (
            await stack.enter_async_context(serve(store=stores[0])),
            await stack.enter_async_context(serve(store=stores[1], settings=second_settings)),
        )
        key = await servers[0].key('run', 'approve')
        first, second = [await stack.enter_async_context(server.client(key)) for server in servers]
        created = await first.post('/api/conversations', json={'agent': 'analyst'})
        yield Pair(first=first, second=second, servers=servers, conversation=created.json()['id'])


@pytest.fixture(params=[True, False], ids=['two servers', 'server and door'])
async def pair(serve: Serve, request: pytest.FixtureRequest) -> AsyncGenerator[Pair]:
    """The second server executes turns too, or queues them."""
    async with _serve_two(serve, ServerSettings(worker=request.param)) as pair:
        yield pair


@pytest.fixture
async def both(serve: Serve) -> AsyncGenerator[Pair]:
    """Both servers execute turns."""
    async with _serve_two(serve, ServerSettings()) as pair:
        yield pair


async def _nothing(*_: object) -> None:
    """Find no other run, as both requests do that arrive at the same time."""


async def _race(pair: Pair, gate: Gate, path: str, body: Mapping[str, object]) -> tuple[Response, Response]:
    """Send a request to both servers, and return the answer that starts a run, and the one that is refused."""
    answers: list[Response] = []

    async def post(client: Client) -> None:
        answer = await client.post(path, json=body)
        answers.append(answer)
        if answer.status_code == 409:  # a stream of the other one is answered when it has ended
            gate.opened.set()

    async with anyio.create_task_group() as group:
        group.start_soon(post, pair.first)
        group.start_soon(post, pair.second)
    accepted, refused = sorted(answers, key=lambda answer: answer.status_code)
    assert refused.status_code == 409, refused.text
    return accepted, refused


async def test_one_of_two_turns_from_a_version_is_accepted(
    pair: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is refused with 409 and the accepted run, and leaves nothing behind."""
    monkeypatch.setattr(_run_start, 'refuse_if_busy', _nothing)
    accepted, refused = await _race(pair, gate, f'{pair.path}/turns?wait=false', {'prompt': 'Go'})

    run_id = accepted.json()['id']
    assert refused.json()['error'] == {
        'type': 'conflict',
        'message': f'The run {run_id} is active. Wait for it, cancel it, or start from another version.',
        'run_id': run_id,
    }
    for client in (pair.first, pair.second):
        runs = (await client.get('/api/runs', params={'conversation': pair.conversation})).json()['items']
        assert [run['id'] for run in runs] == [run_id]
    assert all(len(server.state.runs.runs_in(pair.conversation)) <= 1 for server in pair.servers)


async def test_one_of_two_streams_of_a_thread_is_accepted(
    both: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocols have the answer before the stream begins."""
    monkeypatch.setattr(_run_start, 'refuse_if_busy', _nothing)
    accepted, refused = await _race(both, gate, '/ag-ui/analyst', asked('Go'))

    assert accepted.status_code == 200
    assert 'is active. Wait for it' in refused.text
    (run,) = (await both.first.get('/api/runs')).json()['items']
    assert run['state'] == 'complete'


async def test_turn_from_a_version_that_is_deleted_in_between_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found, and is not there any more when the turn begins."""
    check = _run_start.refuse_if_busy

    async def delete(*arguments: Any) -> None:
        await check(*arguments)
        assert (await pair.first.delete(pair.path)).status_code == 204

    monkeypatch.setattr(_run_start, 'refuse_if_busy', delete)
    for client in (pair.second, pair.first):
        refused = await client.post(f'{pair.path}/turns', json={'prompt': 'Go'})
        assert refused.status_code == 404
        assert (await client.get('/api/runs')).json()['items'] == []


async def test_conversation_in_which_a_turn_begins_is_not_deleted(
    pair: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run was active when the deletion was requested. The turn goes on undisturbed."""
    check = _deletion.refuse_if_running
    runs: list[str] = []

    async def begin(*arguments: Any) -> None:
        await check(*arguments)
        started = await pair.second.post(f'{pair.path}/turns?wait=false', json={'prompt': 'Go'})
        runs.append(started.json()['id'])

    monkeypatch.setattr(_deletion, 'refuse_if_running', begin)
    refused = await pair.first.delete(pair.path)
    assert (refused.status_code, refused.json()['error']['run_id']) == (409, runs[0])
    versions = (await pair.first.get(f'{pair.path}/versions')).json()['items']
    assert versions[-1]['kind'] == 'root'
    gate.opened.set()


async def test_deletion_during_which_a_turn_begins_deletes_nothing(
    pair: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn began from an early version after later ones had been deleted, and the deletion answered 409."""
    assert (await pair.first.patch(pair.path, json={'name': 'Later'})).status_code == 200
    versions = (await pair.first.get(f'{pair.path}/versions')).json()['items']
    root = versions[-1]['id']
    check = _deletion.refuse_if_running
    runs: list[str] = []

    async def begin(*arguments: Any) -> None:
        await check(*arguments)
        started = await pair.second.post(f'/api/versions/{root}/branch?wait=false', json={'prompt': 'Go'})
        runs.append(started.json()['id'])

    monkeypatch.setattr(_deletion, 'refuse_if_running', begin)
    refused = await pair.first.delete(pair.path)
    assert (refused.status_code, refused.json()['error']['run_id']) == (409, runs[0])
    remaining = (await pair.first.get(f'{pair.path}/versions')).json()['items']
    assert {version['id'] for version in versions} <= {version['id'] for version in remaining}
    gate.opened.set()

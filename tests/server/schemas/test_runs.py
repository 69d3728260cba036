"""A run has one form, in the process that ran it and in others; lists of runs."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep import Subagent, create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.store import SqlStore, new_id, open_engine, open_store
from pydantic_deep.store.engine import Operation
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Client, Serve
from tests.server.test_lifespan import store_orphan

pytestmark = pytest.mark.anyio

FRONT = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)
"""The settings of a server that executes no runs."""

LOCAL = ('is_here', 'session_id')
"""Fields that only the process of the run knows exactly."""


async def test_ended_run_is_the_same_from_the_store(serve: Serve) -> None:
    async with serve() as first:
        key = await first.key('run')
        async with first.client(key) as client:
            path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
            run = (await client.post(f'{path}/turns', json={'prompt': 'Hi', 'session_id': 's'})).json()
    async with serve() as second, second.client(key) as client:
        stored = (await client.get(f'/api/runs/{run["id"]}')).json()

    assert (run['is_here'], run['session_id'], stored['is_here'], stored['session_id']) == (True, 's', False, None)
    assert (run['state'], run['output'], run['attempts']) == ('complete', 'You said: Hi', 1)
    assert {name: stored[name] for name in stored if name not in LOCAL} == {
        name: run[name] for name in run if name not in LOCAL
    }


async def test_usage_from_the_store_includes_subagents(serve: Serve) -> None:
    model = ScriptedModel(call('task', subagent='helper', description='Help.'), 'helped', 'done')
    agents = {'boss': create_deep_agent(model, subagents=[Subagent('helper', 'Helps.')])}
    async with serve(agents) as served, served.client(await served.key('run')) as client:
        path = (await client.post('/api/conversations', json={'agent': 'boss'})).headers['location']
        run = (await client.post(f'{path}/turns', json={'prompt': 'Hi'})).json()
        served.state.runs.clear_logs()
        stored = (await client.get(f'/api/runs/{run["id"]}')).json()
        await served.store.delete(run['base_id'])
        without_base = (await client.get(f'/api/runs/{run["id"]}')).json()

    assert (run['usage']['requests'], stored['usage']) == (3, run['usage'])
    assert without_base['usage']['requests'] == 2, 'without its base, only the usage of the run alone is known'


async def test_run_that_no_worker_begins_has_a_problem_at_every_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_id()
    async with (
        open_store(f'memory:{name}') as one,
        open_store(f'memory:{name}') as two,
        serve(settings=FRONT, store=one) as first,
        serve(settings=FRONT, store=two) as second,
    ):
        key = await first.key('run')
        async with first.client(key) as here, second.client(key) as there:
            path = (await here.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
            run = (await here.post(f'{path}/turns', params={'wait': False}, json={'prompt': 'Hi'})).json()
            assert (run['state'], run['problem'], run['attempts']) == ('queued', None, 0)
            monkeypatch.setattr('pydantic_deep.server.schemas._runs._LATE_SECONDS', 0)
            late = [(await client.get(f'/api/runs/{run["id"]}')).json() for client in (here, there)]
            cancelled = (await there.post(f'/api/runs/{run["id"]}/cancel')).json()
            assert {each['problem'] for each in late} == {
                "No worker has begun this run yet: those that have the agent 'analyst' are busy, or none has it."
            }
            assert [each['attempts'] for each in late] == [0, 0]
            assert cancelled['problem'] == 'It was cancelled before it began.'
            while (after := (await here.get(f'/api/runs/{run["id"]}')).json())['state'] == 'queued':
                await anyio.lowlevel.checkpoint()
            assert after == cancelled


async def run_turns(client: Client, path: str, count: int) -> None:
    for number in range(count):
        assert (await client.post(f'{path}/turns', json={'prompt': f'Turn {number}'})).status_code == 200


async def test_list_reads_the_conversation_and_the_versions_of_its_runs_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, count = await open_engine('memory:'), 0
    read = engine.read

    async def counted(operation: Callable[[], Operation[object]]) -> object:
        nonlocal count
        count += 1
        return await read(operation)

    monkeypatch.setattr(engine, 'read', counted)
    async with SqlStore(engine) as store:
        async with serve(store=store) as first, first.client(key := await first.key('run')) as client:
            path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
            await run_turns(client, path, 6)
        reads: list[int] = []
        async with serve(settings=FRONT, store=store) as second, second.client(key) as client:  # has no logs
            for limit in (1, 2, 6):
                before, given = count, {'conversation': path.rpartition('/')[2], 'limit': limit}
                items = (await client.get('/api/runs', params=given)).json()['items']
                reads.append(count - before)
                assert [item['prompt'] for item in items] == [f'Turn {number}' for number in (5, 4, 3, 2, 1, 0)][:limit]
        assert reads[2] - reads[1] == 4 * (reads[1] - reads[0])
        assert reads[1] - reads[0] <= 6, 'the run, its versions, and its prompt'


async def test_attempts_of_a_run_are_one_run_in_lists(serve: Serve) -> None:
    async with open_store(f'memory:{new_id()}') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        run_id = await store_orphan(store.url, await store.version(root.id))
        async with serve(store=store) as second, second.client(await second.key('run')) as client:
            with anyio.fail_after(60):
                while (run := (await client.get(f'/api/runs/{run_id}')).json())['state'] != 'complete':
                    await anyio.lowlevel.checkpoint()
            items = (await client.get('/api/runs', params={'conversation': root.conversation_id})).json()['items']
    assert (run['attempts'], [item['id'] for item in items]) == (2, [run_id])

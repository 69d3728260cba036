"""Routes about the server: health, keys, agents, metrics, audit records and SQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import httpx
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_deep import create_deep_agent
from pydantic_deep.audit import AuditRecord
from pydantic_deep.server import ServerSettings
from pydantic_deep.server.routes import _admin
from pydantic_deep.skills import Skill, Skills
from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import TurnOptions
from tests.server.conftest import Listen, MakeClient, Serve, Served

pytestmark = pytest.mark.anyio

NOT_FOUND = {
    'error': {'type': 'not_found', 'message': 'This resource does not exist, or this key has no access to it.'}
}

NO_AGENT = {
    'error': {
        'type': 'not_found',
        'message': 'This agent does not exist, or this key has no access to it. `GET /api/agents` lists those that it has.',
    }
}


async def test_health_requires_no_key(nobody: httpx.AsyncClient) -> None:
    answer = await nobody.get('/health')
    assert (answer.status_code, answer.json()) == (200, {'status': 'ok'})


async def test_health_reports_a_stopping_server(served: Served, nobody: httpx.AsyncClient) -> None:
    served.state.runs.close()
    answer = await nobody.get('/health')
    assert (answer.status_code, answer.json()) == (503, {'status': 'stopping'})


async def test_probes_require_no_key_and_no_known_host(nobody: httpx.AsyncClient) -> None:
    """A load balancer sends the address of the server as the host name, and cannot be configured otherwise."""
    for path in ('/healthz', '/readyz'):
        answer = await nobody.get(path, headers={'host': '10.0.0.7:8000'})
        assert (answer.status_code, answer.json()['status']) == (200, 'ok')


async def test_stopping_server_is_alive_and_not_ready(served: Served, nobody: httpx.AsyncClient) -> None:
    served.state.runs.close()
    answer = await nobody.get('/readyz')
    assert (answer.status_code, answer.json()) == (503, {'status': 'stopping', 'message': 'The server is stopping.'})
    assert (await nobody.get('/healthz')).status_code == 200


async def test_server_is_not_ready_while_its_store_is_unavailable(
    served: Served, nobody: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StoreUnavailableError('The disk of db.example is full.')

    monkeypatch.setattr(served.store.queue, 'measures', fail)
    answer = await nobody.get('/readyz')
    assert (answer.status_code, answer.json()['message']) == (503, 'The store does not answer.')
    assert (await nobody.get('/healthz')).status_code == 200


async def test_server_is_not_ready_while_its_store_is_slow(
    served: Served, nobody: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_admin, '_STORE_SECONDS', 0.01)
    monkeypatch.setattr(served.store.queue, 'measures', anyio.sleep_forever)
    assert (await nobody.get('/readyz')).json()['status'] == 'unavailable'


async def test_me_returns_owner_scopes_and_agents_of_the_key(make_client: MakeClient) -> None:
    client = await make_client('run', 'approve', owner='ada', agents=['writer', 'analyst'])
    assert (await client.get('/api/me')).json() == {
        'owner': 'ada',
        'scopes': ['approve', 'run'],
        'agents': ['analyst', 'writer'],
        'has_key': True,
        'logout_url': None,
    }


async def test_agents_are_listed_with_their_models_and_examples(serve: Serve) -> None:
    described = create_deep_agent(TestModel())
    described.description = 'Reads tables.'
    agents = {'b': described, 'a': Agent('openai:gpt-5.2', defer_model_check=True), 'c': create_deep_agent()}
    settings = ServerSettings(examples={'b': ('Summarize /sales.csv.',)})
    async with serve(agents=agents, settings=settings) as served, served.client(await served.key()) as client:
        assert (await client.get('/api/agents')).json() == {
            'items': [
                {'name': 'a', 'description': None, 'model': 'openai:gpt-5.2', 'examples': []},
                {
                    'name': 'b',
                    'description': 'Reads tables.',
                    'model': 'test:test',
                    'examples': ['Summarize /sales.csv.'],
                },
                {'name': 'c', 'description': None, 'model': None, 'examples': []},
            ]
        }
        assert (await client.get('/api/agents/b')).json()['name'] == 'b'
        assert (await client.get('/api/agents/d')).json() == NO_AGENT


async def test_skills_are_listed_without_their_paths(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / 'reading').mkdir()
    (tmp_path / 'reading' / 'SKILL.md').write_text(
        '---\nname: reading\ndescription: Use this skill to read.\n---\nRead.'
    )
    agent = create_deep_agent(
        TestModel(), capabilities=[Skills([tmp_path, Skill('greeting', 'Use this skill to greet.', body='Say hello.')])]
    )
    async with serve(agents={'a': agent}) as served, served.client(await served.key()) as client:
        answer = await client.get('/api/agents/a/skills')
        assert sorted(answer.json()['items'], key=lambda each: each['name']) == [
            {'name': 'greeting', 'description': 'Use this skill to greet.', 'scope': 'code'},
            {'name': 'reading', 'description': 'Use this skill to read.', 'scope': 'project'},
        ]
        assert str(tmp_path) not in answer.text
        assert (await client.get('/api/agents/b/skills')).json() == NO_AGENT


def record(number: int, **fields: object) -> AuditRecord:
    started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    known: dict[str, object] = {
        'id': f'{number:08}',
        'run_id': f'run-{number}',
        'agent_name': 'analyst',
        'question': f'Question {number}?',
        'messages': [{'kind': 'request'}],
        'status': 'success',
        'started_at': started,
        'owner': 'ada',
    }
    return AuditRecord.model_validate({**known, **fields})


@pytest.fixture
async def audited(served: Served) -> Served:
    """Five audit records: four of ada, one of bob."""
    for each in (
        record(1),
        record(2, status='failed', conversation_id='c2'),
        record(3, agent_name='writer'),
        record(4, owner='bob'),
        record(5),
    ):
        await served.state.audit.create(each)
    return served


@pytest.mark.parametrize(
    ('asked', 'ids'),
    [
        ({}, [5, 3, 2, 1]),
        ({'status': 'failed'}, [2]),
        ({'agent': 'writer'}, [3]),
        ({'conversation': 'c2'}, [2]),
        ({'since': '2026-01-01T03:00:00Z'}, [5, 3]),
        ({'agent': "x' or 1=1 --"}, []),
    ],
)
async def test_audit_records_of_the_owner_are_listed_newest_first(
    audited: Served, make_client: MakeClient, asked: dict[str, str], ids: list[int]
) -> None:
    client = await make_client('audit')
    items = (await client.get('/api/audit', params=asked)).json()['items']
    assert [int(item['id']) for item in items] == ids
    assert all('messages' not in item for item in items)


@pytest.mark.parametrize(('asked', 'ids'), [({}, [3]), ({'agent': 'writer'}, [3]), ({'agent': 'analyst'}, [])])
async def test_key_for_some_agents_sees_only_their_audit_records(
    audited: Served, make_client: MakeClient, asked: dict[str, str], ids: list[int]
) -> None:
    client = await make_client('audit', agents=['writer'])
    items = (await client.get('/api/audit', params=asked)).json()['items']
    assert [int(item['id']) for item in items] == ids
    assert (await client.get('/api/audit/00000001')).json() == NOT_FOUND


async def test_audit_records_are_paginated(audited: Served, make_client: MakeClient) -> None:
    client = await make_client('audit')
    first = (await client.get('/api/audit', params={'limit': 3})).json()
    second = (await client.get('/api/audit', params={'limit': 3, 'cursor': first['cursor']})).json()
    assert ([len(first['items']), len(second['items'])], second['cursor']) == ([3, 1], None)


async def test_admin_sees_audit_records_of_all_owners(audited: Served, make_client: MakeClient) -> None:
    client = await make_client('admin', owner='root')
    assert len((await client.get('/api/audit')).json()['items']) == 5
    assert (await client.get('/api/audit/00000004')).json()['owner'] == 'bob'


async def test_audit_record_of_another_owner_is_not_found(audited: Served, make_client: MakeClient) -> None:
    client = await make_client('audit')
    assert (await client.get('/api/audit/00000001')).json()['messages'] == [{'kind': 'request'}]
    missing = await client.get('/api/audit/99999999')
    hidden = await client.get('/api/audit/00000004')
    assert (hidden.status_code, hidden.content) == (404, missing.content)
    assert missing.json() == NOT_FOUND


@pytest.mark.parametrize(
    'asked',
    [{'cursor': 'x'}, {'limit': '0'}, {'limit': '201'}, {'status': 'done'}, {'since': '2026-01-01'}, {'agent': 'a\0'}],
)
async def test_invalid_audit_query_is_refused(make_client: MakeClient, asked: dict[str, str]) -> None:
    answer = await (await make_client('audit')).get('/api/audit', params=asked)
    assert (answer.status_code, answer.json()['error']['type']) == (422, 'invalid')


async def test_sql_returns_rows_as_json(served: Served, make_client: MakeClient) -> None:
    client = await make_client('admin')
    await served.state.agents['analyst'].create(name='Q3')
    query = "select name, number, 1.50::decimal(4,2) as d, 'nan'::double as n, from_hex('ff') as b from versions where name = ?"
    answer = await client.post('/api/sql', json={'query': query, 'parameters': ['Q3']})
    assert answer.json() == {
        'columns': ['name', 'number', 'd', 'n', 'b'],
        'rows': [['Q3', 1, '1.50', None, 'ff']],
        'is_truncated': False,
    }


async def test_sql_accepts_named_parameters(make_client: MakeClient) -> None:
    client = await make_client('admin')
    answer = await client.post('/api/sql', json={'query': 'select $a as a', 'parameters': {'a': 3}})
    assert answer.json()['rows'] == [[3]]


async def test_sql_rows_are_limited_by_the_setting(serve: Serve) -> None:
    async with (
        serve(settings=ServerSettings(max_sql_rows=2)) as served,
        served.client(await served.key('admin')) as client,
    ):
        answer = (await client.post('/api/sql', json={'query': 'select * from range(3)'})).json()
        assert (answer['rows'], answer['is_truncated']) == ([[0], [1]], True)
        answer = (await client.post('/api/sql', json={'query': 'select * from range(2)'})).json()
        assert answer['is_truncated'] is False


@pytest.mark.parametrize(
    ('body', 'said'),
    [
        ({'query': 'drop table versions'}, 'use a query'),
        ({'query': 'select * from server_keys'}, 'server_keys'),
        ({'query': "select * from read_text('/etc/passwd')"}, 'disabled by configuration'),
        ({'query': 3}, 'body.query: Input should be a valid string'),
        ({'query': 'select 1', 'limit': 3}, 'body.limit: Extra inputs are not permitted'),
    ],
)
async def test_invalid_sql_request_is_refused(make_client: MakeClient, body: dict[str, object], said: str) -> None:
    answer = await (await make_client('admin')).post('/api/sql', json=body)
    assert (answer.status_code, answer.json()['error']['type']) == (422, 'invalid')
    assert said in answer.json()['error']['message']


async def test_validation_errors_do_not_echo_the_input(make_client: MakeClient) -> None:
    answer = await (await make_client('admin')).post('/api/sql', json={'query': ['hunter2']})
    assert 'hunter2' not in answer.text


async def test_run_writes_an_audit_record_with_owner_and_agent(served: Served, make_client: MakeClient) -> None:
    """004-24: the audit record contains the owner of the conversation without an argument."""
    root = await served.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
    run = served.state.runs.start(root, TurnOptions(prompt='Hello', moves_head=True), owner='ada', session_id='s-1')
    await run.wait()
    client = await make_client('audit')
    [item] = (await client.get('/api/audit')).json()['items']
    assert (item['run_id'], item['agent_name'], item['owner'], item['session_id'], item['status']) == (
        run.id, 'analyst', 'ada', 's-1', 'success',
    )  # fmt: skip
    assert (item['question'], item['output']) == ('Hello', 'You said: Hello')


async def test_failed_run_writes_an_audit_record(serve: Serve) -> None:
    async with serve(agents={'analyst': create_deep_agent(ScriptedModel())}) as served:
        root = await served.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        run = served.state.runs.start(root, TurnOptions(prompt='Hello', moves_head=True), owner='ada')
        await run.wait()
        [item] = (await served.state.audit.list({'owner': 'ada'})).items
        assert (item.run_id, item.status) == (run.id, 'failed')


HOG = 'select count(*) from range(10_000_000) a, range(10_000_000) b where a.range + b.range = 3'
"""A query that would take hours."""


def forks_of(served: Served) -> int:
    """Return the number of forked processes that run a query on the replica."""
    analytics = served.store._analytics  # pyright: ignore[reportPrivateUsage] - no public API returns it
    opened = None if analytics is None else analytics._opened  # pyright: ignore[reportPrivateUsage]
    if opened is None:
        return 0
    host = opened.replica._connection._process.pid  # pyright: ignore[reportPrivateUsage]
    return len(Path(f'/proc/{host}/task/{host}/children').read_text().split())


async def until_forks(served: Served, count: int) -> None:
    with anyio.fail_after(60):
        while forks_of(served) != count:  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.01)


async def test_sql_query_is_killed_at_its_timeout(serve: Serve) -> None:
    async with (
        serve(settings=ServerSettings(sql_timeout_seconds=0.2)) as served,
        served.client(await served.key('admin')) as client,
    ):
        answer = await client.post('/api/sql', json={'query': HOG})
        assert (answer.status_code, answer.json()['error']['type']) == (422, 'invalid')
        assert '`sql_timeout_seconds` on a server' in answer.json()['error']['message']
        await until_forks(served, 0)


async def test_sql_query_is_limited_in_memory_and_result_size(serve: Serve) -> None:
    settings = ServerSettings(sql_memory_bytes=64 * 2**20, max_sql_bytes=1000)
    async with serve(settings=settings) as served, served.client(await served.key('admin')) as client:
        answer = await client.post('/api/sql', json={'query': "select repeat('x', 1000000000)"})
        assert (answer.status_code, '64 MiB' in answer.json()['error']['message']) == (422, True)
        answer = await client.post('/api/sql', json={'query': "select repeat('x', 2000)"})
        assert (answer.status_code, 'more than 1,000 bytes' in answer.json()['error']['message']) == (422, True)


async def test_sql_query_is_killed_when_the_client_disconnects(serve: Serve, listen: Listen) -> None:
    async with (
        serve() as served,
        listen(served.app) as url,
        httpx.AsyncClient(headers={'authorization': f'Bearer {await served.key("admin")}'}) as client,
    ):
        asked = asyncio.create_task(client.post(f'{url}/api/sql', json={'query': HOG}, timeout=60))
        await until_forks(served, 1)
        asked.cancel()
        await until_forks(served, 0)
        assert (await client.post(f'{url}/api/sql', json={'query': 'select 1'}, timeout=60)).json()['rows'] == [[1]]


async def test_sql_query_is_refused_at_the_concurrency_limit(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep.server.routes._admin._SQL_WAIT_SECONDS', 0.01)
    async with (
        serve(settings=ServerSettings(max_sql_at_once=1)) as served,
        served.client(await served.key('admin')) as client,
    ):
        asked = asyncio.create_task(client.post('/api/sql', json={'query': HOG}))
        await until_forks(served, 1)
        answer = await client.post('/api/sql', json={'query': 'select 1'})
        assert (answer.status_code, answer.json()['error']['type']) == (503, 'unavailable')
        assert answer.headers['retry-after'] == '5'
        assert '`max_sql_at_once` on a server' in answer.json()['error']['message']
        asked.cancel()
        await asyncio.wait([asked])
        await until_forks(served, 0)

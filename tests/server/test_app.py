"""The application: served agents, middleware, errors, the OpenAPI document, startup and shutdown."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import anyio
import httpx
import pytest
from dirty_equals import IsStr
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from pydantic_deep import DeepAgentDeps, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.audit import AuditRecord
from pydantic_deep.server import InvalidAgentsError, ServerSettings, create_app
from pydantic_deep.server._lifespan import recover
from pydantic_deep.server._openapi import TAGS
from pydantic_deep.server._state import NotStartedError
from pydantic_deep.server.http._errors import MESSAGES, ServerError, api_of, render_error
from pydantic_deep.server.http._security_headers import HEADERS
from pydantic_deep.store import (
    ApprovalAnsweredError,
    Commit,
    RunRecord,
    SqlStore,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    VersionNotFoundError,
    VersionRecord,
    new_id,
)
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import WorkspaceReplacedError
from pydantic_deep_backends import ScanLimitError

from .conftest import MakeClient, Serve, Served

pytestmark = pytest.mark.anyio

Operation: TypeAlias = Mapping[str, Any]


class _Broken(SqlStore):
    """A store that raises when it lists orphaned runs."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store.engine)

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        raise RuntimeError('broken')


def agent(*answers: str, name: str = 'deep-agent') -> Agent[DeepAgentDeps, str]:
    return create_deep_agent(ScriptedModel(*answers), name=name)


# Served agents


@pytest.mark.parametrize('name', ['', 'a b', 'a/b', 'a:b', '.a', 'a' * 65, 'é', 'a\n'])
async def test_agent_name_invalid_in_urls_is_refused(store: SqlStore, name: str) -> None:
    with pytest.raises(InvalidAgentsError, match='names are part of URLs'):
        create_app({name: agent()}, store)


async def test_app_without_agents_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidAgentsError, match='Pass at least one'):
        create_app({}, store)


async def test_versioned_agent_with_another_store_is_refused(store: SqlStore) -> None:
    async with open_store('memory:') as other:
        with pytest.raises(InvalidAgentsError, match="The agent 'a' has another store"):
            create_app({'a': VersionedAgent(agent(name='a'), other)}, store)


async def test_versioned_agent_must_be_served_under_its_own_name(store: SqlStore) -> None:
    with pytest.raises(InvalidAgentsError, match="Serve it as 'b', or create it with `name='a'`"):
        create_app({'a': VersionedAgent(agent(name='b'), store)}, store)


async def test_versions_have_the_served_name_and_the_agent_is_unchanged(serve: Serve) -> None:
    own = agent('Hello.')
    async with serve(agents={'analyst': own}) as served:
        version = await (await served.state.agents['analyst'].create()).advance('Hi')
    assert (version.agent_name, version.output, own.name) == ('analyst', 'Hello.', 'deep-agent')


async def test_one_agent_can_be_served_under_two_names(serve: Serve) -> None:
    names: list[str | None] = []

    def note(ctx: RunContext[DeepAgentDeps]) -> str:
        """Note the name."""
        assert ctx.agent is not None
        names.append(ctx.agent.name)
        return ''

    both = create_deep_agent(TestModel(call_tools=['note']), tools=[note])
    async with serve(agents={'a': both, 'b': both}) as served:
        for name in ('a', 'b', 'a'):
            await (await served.state.agents[name].create()).advance('Hi')
    assert (names, both.name) == (['a', 'b', 'a'], 'deep-agent')


async def test_name_of_a_served_agent_cannot_be_changed(serve: Serve) -> None:
    async with serve() as served:
        with pytest.raises(AttributeError, match="served as 'analyst'"):
            served.state.agents['analyst'].agent.name = 'x'


async def test_deps_are_created_for_each_run(serve: Serve) -> None:
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        """Look."""
        seen.append(ctx.deps)
        return ''

    async with serve(
        agents={'a': create_deep_agent(TestModel(call_tools=['look']), tools=[look])},
        make_deps=lambda: DeepAgentDeps(metadata={'tenant': 'acme'}),
    ) as served:
        root = await served.state.agents['a'].create()
        await root.advance('Hi')
        await root.advance('Hi')
    assert [deps.metadata for deps in seen] == [{'tenant': 'acme'}] * 2
    assert seen[0] is not seen[1]


async def test_versioned_agent_overrides_deps_and_timeout(serve: Serve, store: SqlStore) -> None:
    def make() -> DeepAgentDeps:
        return DeepAgentDeps(metadata={'mine': True})

    given = VersionedAgent(agent('Hello.', name='a'), store, make_deps=make, approval_timeout_seconds=5)
    async with serve(agents={'a': given}, make_deps=lambda: DeepAgentDeps(metadata={'mine': False})) as served:
        version = await (await served.state.agents['a'].create()).advance('Hi')
        assert served.state.agents['a'].approval_timeout_seconds == 5
        [record] = (await served.state.audit.list()).items
    assert (version.output, record.metadata) == ('Hello.', {'mine': True})


async def test_conversation_without_an_owner_has_an_audit_record_without_one(served: Served) -> None:
    await (await served.state.agents['analyst'].create()).advance('Hi')
    [record] = (await served.state.audit.list()).items
    assert (record.owner, record.agent_name) == (None, 'analyst')


async def test_routes_use_the_given_make_backend(serve: Serve) -> None:
    def make_backend(owner: str, conversation_id: str) -> StateBackend:
        raise AssertionError

    async with serve(make_backend=make_backend) as served:
        assert served.state.make_backend is make_backend


async def test_settings_are_read_from_the_environment_unless_given(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_PORT', 'x')
    with pytest.raises(ValueError, match='port: Input should be a valid integer'):
        create_app({'a': agent()}, store)


# Middleware


async def test_unknown_host_is_refused(nobody: httpx.AsyncClient) -> None:
    answers = [
        await nobody.get('/health', headers={'host': host}) for host in ('evil.example', 'localhost.evil.example')
    ]
    assert [answer.status_code for answer in answers] == [400, 400]
    answers = [
        await nobody.get('/health', headers={'host': host}) for host in ('localhost:8000', '127.0.0.1', '[::1]:1')
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_allowed_hosts_are_configurable(serve: Serve) -> None:
    async with serve(settings=ServerSettings(allowed_hosts=('*.deep.example',))) as served, served.client() as client:
        assert (await client.get('/health', headers={'host': 'eu.deep.example'})).status_code == 200
        assert (await client.get('/health')).status_code == 400


_PREFLIGHT = {'origin': 'https://app.example', 'access-control-request-method': 'POST'}


async def test_cross_origin_requests_are_refused_by_default(nobody: httpx.AsyncClient, make_client: MakeClient) -> None:
    answer = await nobody.options('/api/me', headers=_PREFLIGHT)
    assert (answer.status_code, 'access-control-allow-origin' in answer.headers) == (401, False)
    answer = await (await make_client()).get('/api/me', headers={'origin': 'https://app.example'})
    assert 'access-control-allow-origin' not in answer.headers


async def test_configured_cors_origins_are_allowed(serve: Serve) -> None:
    async with (
        serve(settings=ServerSettings(cors_origins=('https://app.example',))) as served,
        served.client() as client,
    ):
        answer = await client.options('/api/me', headers={**_PREFLIGHT, 'access-control-request-headers': 'x-api-key'})
        assert (answer.status_code, answer.headers['access-control-allow-origin']) == (200, 'https://app.example')
        assert 'access-control-allow-credentials' not in answer.headers
        answer = await client.options('/api/me', headers={**_PREFLIGHT, 'origin': 'https://evil.example'})
        assert (answer.status_code, 'access-control-allow-origin' in answer.headers) == (400, False)


@pytest.mark.parametrize('path', ['/health', '/api/me', '/api/nothing', '/v1/models'])
async def test_every_response_has_security_headers(nobody: httpx.AsyncClient, path: str) -> None:
    answer = await nobody.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert 'server' not in answer.headers


async def test_alternative_spellings_of_a_path_are_not_found(make_client: MakeClient) -> None:
    client = await make_client()
    for path in ('/api/me/', '//api/me', '/API/me', '/api/../api/me', '/api/%2e%2e/me', '/api/agents/..%2f..%2fme'):
        answer = await client.get(httpx.URL(f'http://localhost{path}'))
        assert answer.status_code == (200 if path == '/api/../api/me' else 404), path


async def test_wrong_method_returns_the_allowed_ones(make_client: MakeClient) -> None:
    answer = await (await make_client()).delete('/api/me')
    assert (answer.status_code, answer.headers['allow']) == (405, 'GET')
    assert answer.json() == {'error': {'type': 'method_not_allowed', 'message': MESSAGES['method_not_allowed']}}


async def test_body_size_limit_differs_for_uploads(serve: Serve) -> None:
    settings = ServerSettings(max_body_bytes=10, max_upload_bytes=20)
    async with serve(settings=settings) as served, served.client(await served.key('admin')) as client:
        upload = '/api/conversations/x/uploads/a.csv'
        assert (await client.post('/api/sql', content=b'x' * 11)).status_code == 413
        assert (await client.put(upload, content=b'x' * 20)).status_code != 413
        assert (await client.put(upload, content=b'x' * 21)).status_code == 413
        assert (await client.post(upload, content=b'x' * 11)).status_code == 413


async def test_unparsable_body_is_refused(make_client: MakeClient) -> None:
    client = await make_client('admin')
    for content in (b'{', b'\xff', b'[' * 100_000, b'null', b''):
        answer = await client.post('/api/sql', content=content, headers={'content-type': 'application/json'})
        assert (answer.status_code, answer.json()['error']['type']) == (422, 'invalid'), content[:9]


# Errors


@pytest.mark.parametrize(
    ('error', 'status', 'type'),
    [
        (VersionNotFoundError('v'), 404, 'not_found'),
        (StoreUnavailableError('postgresql://me:hunter2@db is away'), 503, 'unavailable'),
        (ApprovalAnsweredError('a', 'approved', 'bob', None), 409, 'conflict'),
        (UnfinishedCheckoutError('{"id":"/srv/secret"}', 'v'), 409, 'conflict'),
        (WorkspaceReplacedError('{"id":"/srv/secret"}', 'v', ['/hunter2']), 409, 'conflict'),
        (ScanLimitError('entries', 2_000_000, 'Use a smaller directory.'), 409, 'conflict'),
        (ServerError('conflict', 'A run works.', facts={'run_id': 'r'}), 409, 'conflict'),
        (RuntimeError('hunter2'), 500, 'failed'),
    ],
)
async def test_exceptions_become_error_responses(serve: Serve, error: Exception, status: int, type: str) -> None:
    async with serve() as served:

        @served.app.get('/api/raises')
        async def raises() -> None:
            raise error

        async with served.client(await served.key(), raise_app_exceptions=False) as client:
            answer = await client.get('/api/raises')
    told = answer.json()['error']
    assert (answer.status_code, told['type']) == (status, type)
    assert not {'hunter2', 'secret'} & set(re.findall(r'[a-z0-9]+', answer.text))
    assert told.get('run_id') == ('r' if isinstance(error, ServerError) else None)


@pytest.mark.parametrize('api', ['ours', 'openai', 'anthropic', 'google'])
@pytest.mark.parametrize('type', list(MESSAGES))
def test_every_error_has_a_form_in_every_api(api: Any, type: Any) -> None:
    error = ServerError(type)
    answer = render_error(error, api)
    assert error.message in bytes(answer.body).decode()
    expected = 400 if type == 'invalid' and api != 'ours' else error.status_code
    assert answer.status_code == expected


@pytest.mark.parametrize(
    ('path', 'api'),
    [
        ('/v1/chat/completions', 'openai'),
        ('/v1/models/a', 'openai'),
        ('/v1/messages', 'anthropic'),
        ('/v1/messages/count_tokens', 'anthropic'),
        ('/v1/messages2', 'openai'),
        ('/v1beta/models/a:generateContent', 'google'),
        ('/v1beta', 'google'),
        ('/v1beta2', 'ours'),
        ('/api/me', 'ours'),
        ('/', 'ours'),
    ],
)
def test_path_belongs_to_one_api(path: str, api: str) -> None:
    assert api_of(path) == api


# The OpenAPI document


@pytest.fixture
async def document(served: Served) -> dict[str, Any]:
    return served.app.openapi()


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    """Yield every operation with its method and path."""
    for path, methods in document['paths'].items():
        for method, operation in methods.items():
            yield f'{method.upper()} {path}', operation


async def test_openapi_document_has_title_version_and_security_schemes(document: dict[str, Any]) -> None:
    assert document['info']['title'] == 'pydantic-deep'
    assert document['info']['version'] == IsStr(regex=r'\d+\.\d+\.\d+.*')
    assert sorted(document['components']['securitySchemes']) == ['bearer', 'key', 'x-api-key', 'x-goog-api-key']


async def test_every_operation_has_a_summary_a_description_and_a_known_tag(document: dict[str, Any]) -> None:
    tags = {tag['name'] for tag in TAGS}
    for name, operation in operations(document):
        assert operation.get('summary'), name
        assert operation.get('description'), name
        assert operation.get('tags'), name
        assert set(operation['tags']) <= tags, name


async def test_every_operation_has_a_unique_id(document: dict[str, Any]) -> None:
    ids = Counter(operation['operationId'] for _, operation in operations(document))
    assert [id for id, count in ids.items() if count > 1] == []


async def test_no_schema_is_named_after_a_module(document: dict[str, Any]) -> None:
    """FastAPI prefixes a schema name with its module if two models share it. Generated clients would change when a
    module moves."""
    assert [name for name in document['components']['schemas'] if '__' in name] == []


async def test_every_operation_except_public_ones_requires_a_key(document: dict[str, Any]) -> None:
    open_ones = {name for name, operation in operations(document) if not operation.get('security')}
    assert open_ones <= {'GET /health', 'GET /', 'GET /static/{name}'}


async def test_only_google_paths_accept_a_key_in_the_query(served: Served, document: dict[str, Any]) -> None:
    taken = {
        name.split()[1] for name, operation in operations(document) if {'key': []} in operation.get('security', [])
    }
    assert taken == {path for path in document['paths'] if path.startswith('/v1beta/')}
    assert served.app.openapi() == document


async def test_every_operation_declares_its_error_responses(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if not operation.get('security'):
            continue
        declared = set(operation['responses'])
        is_ours = ' /v1' not in name  # clients of other APIs expect 400
        wanted = {'401', '403', '429', '422' if is_ours else '400', *({'404'} if '{' in name else ())}
        assert wanted <= declared, (name, wanted - declared)


async def test_every_body_and_response_has_an_example(document: dict[str, Any]) -> None:
    bare: list[str] = []
    for name, operation in operations(document):
        places = {'body': operation.get('requestBody', {}), **operation['responses']}
        bare += [
            f'{name} {which} {kind}'
            for which, place in places.items()
            for kind, media in place.get('content', {}).items()
            if kind in TEXTS and not has_example(media, document)
        ]
    assert bare == []


TEXTS = ('application/json', 'text/event-stream', 'text/plain')
"""Media types that need an example."""


def has_example(place: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Return whether a media type or schema has an example, directly or in a part of it."""
    if 'example' in place or 'examples' in place:
        return True
    if '$ref' in place:
        return has_example(document['components']['schemas'][place['$ref'].rpartition('/')[2]], document)
    within = [place.get('schema'), place.get('items'), *place.get('properties', {}).values()]
    return any(has_example(each, document) for each in within if each)


# Startup and shutdown


async def store_orphan(url: str, base: VersionRecord) -> str:
    """Store the start of a run that no process works on, as after a crash, and return its id."""
    run = running(base)
    async with open_store(url) as crashed_store:
        await crashed_store.commit(Commit(runs=[run]))
    return run.id


def running(base: VersionRecord) -> RunRecord:
    """Return a running run that starts from a version."""
    return RunRecord(
        id=new_id(),
        conversation_id=base.conversation_id,
        base_id=base.id,
        agent_name=base.agent_name,
        attempt_of=None,
        parent_run_id=None,
        state='running',
        owner=None,
        prompt=b'"Hello"',
        options='{}',
        usage='{}',
        cost=None,
        error=None,
        trace_id=None,
        started_at=1,
        ended_at=None,
    )


async def records_of(served: Served, status: str, count: int = 1) -> list[AuditRecord]:
    """Wait until `count` records have the status, and return them."""
    with anyio.fail_after(60):
        while True:
            page = await served.state.audit.list({'status': status})
            if len(page.items) == count:
                return page.items


def crashed(run_id: str, **fields: Any) -> AuditRecord:
    """Return the audit record of a run at the time of its crash."""
    known = {'id': new_id(), 'run_id': run_id, 'agent_name': 'gone', 'question': 'Hello', 'status': 'running'}
    return AuditRecord.model_validate({**known, 'started_at': datetime(2026, 1, 1, tzinfo=UTC), **fields})


async def test_crashed_runs_are_recovered_at_startup(serve: Serve) -> None:
    """002-20: a run of a crashed process is completed, and its audit record contains the owner."""
    async with open_store('memory:recovered') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        run_id = await store_orphan(store.url, await store.version(root.id))
        async with serve(store=store) as second:
            [record] = await records_of(second, 'success')
            [newest] = await second.state.agents['analyst'].list(limit=1)
    assert (newest.output, newest.parent_id) == ('You said: Hello', root.id)
    assert (record.owner, record.agent_name, record.run_id == run_id) == ('ada', 'analyst', False)


async def test_recovered_runs_are_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', 'pydantic_deep')
    async with open_store('memory:logged') as store, serve(store=store) as served:
        root = await served.state.agents['analyst'].create()
        await store_orphan(store.url, await store.version(root.id))
        await recover(served.state)
        with anyio.fail_after(60):
            while not any('Recovered' in line for line in caplog.messages):  # the recovery at startup may log it
                await store.conversation('none')
        [newest] = await served.state.agents['analyst'].list(limit=1)
    assert f"Recovered a run of 'analyst': the version {newest.id} is complete" in caplog.messages


async def test_run_that_fails_in_recovery_does_not_prevent_startup(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store('memory:failing') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        await store_orphan(store.url, await store.version(root.id))
        async with serve({'analyst': agent()}, store=store) as second:
            [record] = await records_of(second, 'failed')
            async with second.client() as client:
                assert (await client.get('/health')).status_code == 200
    assert record.owner == 'ada'
    assert any('failed again' in line for line in caplog.messages)


async def test_audit_records_of_unrecoverable_runs_are_closed(serve: Serve) -> None:
    async with open_store('memory:crashed') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create()
            left = await store_orphan(store.url, (await store.version(root.id))._replace(agent_name='gone'))
            await first.state.audit.create(crashed(left))
            await first.state.audit.create(crashed('of-no-store'))
        async with serve(store=store) as second:
            ended = await records_of(second, 'crashed', 2)
            still = await second.state.audit.count({'status': 'running'})
    assert ({record.run_id for record in ended}, still) == ({left, 'of-no-store'}, 0)


async def test_audit_records_of_active_runs_of_other_processes_remain_open(serve: Serve) -> None:
    async with open_store('memory:alive') as store, open_store('memory:alive') as other, serve(store=store) as served:
        root = await served.state.agents['analyst'].create()
        alive = running(await store.version(root.id))
        await other.commit(Commit(runs=[alive]))
        await served.state.audit.create(crashed(alive.id))
        await served.state.audit.create(crashed('of-no-store'))
        await recover(served.state)
        assert (await records_of(served, 'running'))[0].run_id == alive.id


async def test_recovery_errors_are_logged_and_ignored(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as served:
        await served.state.audit.aclose()
        state = replace(served.state, agents={'analyst': VersionedAgent(agent(), _Broken(served.store))})
        await recover(state)
    # The recovery at startup may find the closed repository too.
    assert list(dict.fromkeys(line for line in caplog.messages if 'could not be' in line)) == [
        "Crashed runs of the agent 'analyst' could not be recovered",
        'The audit records of crashed runs could not be ended',
    ]


async def test_stopped_application_refuses_requests(serve: Serve) -> None:
    async with serve() as served:
        pass
    async with served.client() as client:
        with pytest.raises(NotStartedError):
            await client.get('/health')


async def test_store_remains_open_after_shutdown(serve: Serve, store: SqlStore) -> None:
    async with serve():
        pass
    async with serve() as again, again.client(await again.key()) as client:
        assert (await client.get('/api/me')).status_code == 200
    assert await store.conversation('none') is None


@pytest.mark.slow
def test_server_without_the_extra_raises_how_to_install() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None\nimport pydantic_deep.server"
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert "The server needs 'prometheus_client'" in done.stderr
    assert "pip install 'versioned-deep-agents[server]'" in done.stderr

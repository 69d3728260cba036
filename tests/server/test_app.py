"""The application: settings, hosts, CORS and the OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import httpx
import pytest
from dirty_equals import IsStr
from pydantic_ai import Agent

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.server import InvalidSettingsError, ServerSettings, create_app
from pydantic_deep.server._openapi import TAGS
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel

from .conftest import MakeClient, Serve, Served

pytestmark = pytest.mark.anyio

Operation: TypeAlias = Mapping[str, Any]


def agent(*answers: str, name: str = 'deep-agent') -> Agent[DeepAgentDeps, str]:
    return create_deep_agent(ScriptedModel(*answers), name=name)


# Served agents


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


async def test_examples_of_an_agent_that_is_not_served_are_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidSettingsError, match=r'`examples` names agents that are not served: b, c\. Served: a\.'):
        create_app({'a': agent()}, store, ServerSettings(examples={'c': ('Hi',), 'a': ('Hi',), 'b': ('Hi',)}))


# Middleware


async def test_unknown_host_is_refused(nobody: httpx.AsyncClient) -> None:
    answers = [
        await nobody.get('/health', headers={'host': host}) for host in ('evil.example', 'localhost.evil.example')
    ]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert 'setting `allowed_hosts`' in answers[0].json()['error']['message']
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
        answer = await client.get('/api/me', headers={'origin': 'https://app.example'})
        shown = [answer.headers[f'access-control-{name}'] for name in ('allow-origin', 'expose-headers')]
        assert (answer.status_code, shown) == (401, ['https://app.example', '*'])
        answer = await client.options('/api/me', headers={**_PREFLIGHT, 'origin': 'https://evil.example'})
        assert (answer.status_code, 'access-control-allow-origin' in answer.headers) == (400, False)


async def test_alternative_spellings_of_a_path_are_not_found(make_client: MakeClient) -> None:
    client = await make_client()
    for path in ('/api/me/', '//api/me', '/API/me', '/api/../api/me', '/api/%2e%2e/me', '/api/agents/..%2f..%2fme'):
        answer = await client.get(httpx.URL(f'http://localhost{path}'))
        assert answer.status_code == (200 if path == '/api/../api/me' else 404), path


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
    assert open_ones <= {'GET /health', 'GET /healthz', 'GET /readyz', 'GET /', 'GET /static/{name}'}


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


@pytest.mark.slow
def test_server_without_the_extra_raises_how_to_install() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None\nimport pydantic_deep.server"
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert "The server needs 'prometheus_client'" in done.stderr
    assert "pip install 'versioned-deep-agents[server]'" in done.stderr

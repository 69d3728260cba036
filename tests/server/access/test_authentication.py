"""Authentication: every request requires a key, and refusals disclose nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from pydantic_deep import create_deep_agent
from pydantic_deep.server import KeyRing, ServerSettings, list_api_keys, revoke_api_key
from pydantic_deep.server.access._authentication import KeyInQuery
from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Gate, Listen, MakeClient, Serve, Served

pytestmark = pytest.mark.anyio

UNAUTHENTICATED = 'This requires a valid API key. Send it as `Authorization: Bearer KEY`.'


@pytest.mark.parametrize(
    ('header', 'form'),
    [('authorization', 'Bearer {}'), ('authorization', 'bearer {}'), ('x-api-key', '{}'), ('x-goog-api-key', '{}')],
)
async def test_key_is_accepted_in_the_header_of_each_client(
    served: Served, nobody: httpx.AsyncClient, header: str, form: str
) -> None:
    key = await served.key()
    answer = await nobody.get('/api/me', headers={header: form.format(key)})
    assert (answer.status_code, answer.json()['owner']) == (200, 'ada')


@pytest.mark.parametrize(
    'headers',
    [
        {},
        {'authorization': ''},
        {'authorization': 'Bearer'},
        {'authorization': 'Bearer pd_x'},
        {'authorization': 'Basic {key}'},
        {'authorization': 'Bearer {key} x'},
        {'authorization': 'Bearer wrong', 'x-api-key': '{key}'},
        {'cookie': 'key={key}'},
    ],
)
async def test_malformed_key_is_refused(served: Served, nobody: httpx.AsyncClient, headers: dict[str, str]) -> None:
    key = await served.key()
    answer = await nobody.get('/api/me', headers={name: value.format(key=key) for name, value in headers.items()})
    assert (answer.status_code, answer.headers['www-authenticate']) == (401, 'Bearer')
    assert answer.json() == {'error': {'type': 'unauthenticated', 'message': UNAUTHENTICATED}}


async def test_unknown_path_requires_a_key(nobody: httpx.AsyncClient, make_client: MakeClient) -> None:
    assert (await nobody.get('/api/nothing')).status_code == 401
    client = await make_client()
    assert (await client.get('/api/nothing')).json()['error']['type'] == 'not_found'


@pytest.mark.slow
async def test_openapi_document_requires_a_key(nobody: httpx.AsyncClient, make_client: MakeClient) -> None:
    assert (await nobody.get('/openapi.json')).status_code == 401
    client = await make_client()
    assert (await client.get('/openapi.json')).status_code == 200


async def test_body_is_not_read_before_authentication(nobody: httpx.AsyncClient) -> None:
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(b'')
        yield b'{"query": '

    answer = await nobody.post('/api/sql', content=body(), headers={'content-type': 'application/json'})
    assert (answer.status_code, read) == (401, [])


@pytest.mark.parametrize(
    ('path', 'body'),
    [
        (
            '/v1/models',
            {
                'error': {
                    'message': UNAUTHENTICATED,
                    'type': 'authentication_error',
                    'param': None,
                    'code': 'invalid_api_key',
                }
            },
        ),
        ('/v1/messages', {'type': 'error', 'error': {'type': 'authentication_error', 'message': UNAUTHENTICATED}}),
        ('/v1beta/models', {'error': {'code': 401, 'message': UNAUTHENTICATED, 'status': 'UNAUTHENTICATED'}}),
        ('/ag-ui/analyst', {'error': {'type': 'unauthenticated', 'message': UNAUTHENTICATED}}),
    ],
)
async def test_refusal_has_the_error_format_of_the_api(nobody: httpx.AsyncClient, path: str, body: object) -> None:
    answer = await nobody.post(path)
    assert (answer.status_code, answer.json()) == (401, body)


async def test_revoked_key_is_refused_immediately(served: Served, make_client: MakeClient) -> None:
    client = await make_client()
    assert (await client.get('/api/me')).status_code == 200
    [key] = await list_api_keys(served.store)
    await revoke_api_key(served.store, key.id)
    assert (await client.get('/api/me')).status_code == 401


async def test_key_with_a_wrong_secret_is_refused(served: Served, nobody: httpx.AsyncClient) -> None:
    key = await served.key()
    forged = key[:-1] + ('a' if key[-1] != 'a' else 'b')
    assert (await nobody.get('/api/me', headers={'x-api-key': forged})).status_code == 401


async def test_unavailable_store_is_not_reported_as_a_wrong_key(served: Served, make_client: MakeClient) -> None:
    client = await make_client()
    await served.state.keys.keys.aclose()
    answer = await client.get('/v1/models')
    assert (answer.status_code, answer.headers['retry-after']) == (503, '5')
    assert answer.json()['error']['code'] == 'unavailable'


async def test_google_key_in_the_query_is_removed_from_the_scope(served: Served) -> None:
    """Access logs are written from the scope, so it must not contain the key."""
    key = await served.key()
    scope: Scope = {
        'type': 'http', 'method': 'GET', 'path': '/v1beta/nothing', 'raw_path': b'/v1beta/nothing',
        'query_string': f'alt=sse&key={key}&a=b%20c'.encode(), 'headers': [(b'host', b'localhost')],
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        return {'type': 'http.request'}

    async def send(message: Message) -> None:
        sent.append(message)

    await served.app(scope, receive, send)
    assert sent[0]['status'] == 404  # not 401
    assert scope['query_string'] == b'alt=sse&a=b%20c'


async def test_key_in_the_query_is_refused_for_other_apis(served: Served, nobody: httpx.AsyncClient) -> None:
    key = await served.key()
    assert (await nobody.get('/api/me', params={'key': key})).status_code == 401
    assert (await nobody.get('/v1/models', params={'key': key})).status_code == 401


@pytest.mark.parametrize('key', ['é', '%00', '%0d%0ax-evil:1', ''])
async def test_key_in_the_query_cannot_inject_headers(key: str) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    scope: Scope = {
        'type': 'http', 'method': 'GET', 'path': '/v1beta/models', 'query_string': f'key={key}'.encode(),
        'headers': [(b'x-goog-api-key', b'real')],
    }  # fmt: skip
    await KeyInQuery(app)(scope, receive, send)
    assert seen[0]['headers'] == [(b'x-goog-api-key', b'real')]


async def test_keys_are_not_logged(served: Served, make_client: MakeClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = await served.key('admin')
    async with served.client(key) as client:
        for path in ('/api/me', '/api/nothing', '/metrics', f'/v1beta/models?key={key}'):
            answer = await client.get(path)
            assert key[40:] not in answer.text
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith('httpx')]
    assert [line for line in ours if key[40:] in line] == []


@pytest.mark.parametrize('is_away', [False, True])
async def test_stream_ends_when_its_key_is_revoked_and_the_run_continues(
    serve: Serve, gate: Gate, listen: Listen, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    async def away(ring: KeyRing, sent: str) -> None:
        monkeypatch.undo()  # only once
        raise StoreUnavailableError('The store is away.')

    agent = create_deep_agent(ScriptedModel([call('hold')], 'Done.'), tools=[gate.hold])
    async with (
        serve({'slow': agent}, ServerSettings(keepalive_seconds=0.01)) as served,
        listen(served.app) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        mine, lost = [{'authorization': f'Bearer {await served.key()}'} for _ in range(2)]
        made = await client.post('/api/conversations', json={'agent': 'slow'}, headers=mine)
        turns = f'/api/conversations/{made.json()["id"]}/turns'
        headers = {**lost, 'accept': 'text/event-stream'}
        async with client.stream('POST', turns, json={'prompt': 'Go'}, headers=headers) as response:
            await gate.reached.wait()
            if is_away:
                monkeypatch.setattr(KeyRing, 'find', away)
            await revoke_api_key(served.store, (await list_api_keys(served.store))[1].id)
            told = [line async for line in response.aiter_lines() if line.startswith('event: ')]
        run = f'/api/runs/{response.headers["x-run-id"]}'
        states = [(await client.get(run, headers=mine)).json()['state']]
        gate.opened.set()
        await served.state.runs.drain()
        states.append((await client.get(run, headers=mine)).json()['state'])

        assert told[:2] == ['event: start', 'event: notice']
        assert 'event: end' not in told
        assert states == ['running', 'complete']
        assert (await client.get(f'{run}/events', headers=lost)).status_code == 401

"""Errors in the format of the called API."""

from __future__ import annotations

import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_deep.server.http._errors import MESSAGES, ServerError, api_of, render_error
from pydantic_deep.store import (
    ApprovalAnsweredError,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    VersionConflictError,
    VersionNotFoundError,
)
from pydantic_deep.versions import WorkspaceReplacedError
from pydantic_deep_backends import ScanLimitError
from tests.server.conftest import Client, MakeClient, Serve

pytestmark = pytest.mark.anyio


async def test_wrong_method_returns_the_allowed_ones(make_client: MakeClient) -> None:
    answer = await (await make_client()).delete('/api/me')
    assert (answer.status_code, answer.headers['allow']) == (405, 'GET')
    assert answer.json() == {'error': {'type': 'method_not_allowed', 'message': MESSAGES['method_not_allowed']}}


async def test_unparsable_body_is_refused(make_client: MakeClient) -> None:
    client = await make_client('admin')
    for content in (b'{', b'\xff', b'[' * 100_000, b'null', b''):
        answer = await client.post('/api/sql', content=content, headers={'content-type': 'application/json'})
        assert (answer.status_code, answer.json()['error']['type']) == (422, 'invalid'), content[:9]


@pytest.mark.parametrize(
    ('error', 'status', 'type'),
    [
        (VersionNotFoundError('v'), 404, 'not_found'),
        (StoreUnavailableError('postgresql://me:hunter2@db is away'), 503, 'unavailable'),
        (ApprovalAnsweredError('a', 'approved', 'bob', None), 409, 'conflict'),
        (UnfinishedCheckoutError('{"id":"/srv/secret"}', 'v'), 409, 'conflict'),
        (WorkspaceReplacedError('{"id":"/srv/secret"}', 'v', ['/hunter2']), 409, 'conflict'),
        (VersionConflictError('a', 'b'), 409, 'conflict'),
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


@pytest.mark.parametrize(
    ('path', 'match'),
    [
        ('/v1/nope', '`/openapi.json` lists those'),
        ('/v1/completions', 'Use `POST /v1/chat/completions`'),
        ('/v1/embeddings', 'computes no embeddings'),
        ('/v1/files/file-1', 'Send a file in the message'),
        ('/v1beta/models/analyst:embedContent', 'computes no embeddings'),
        ('/v1beta/models/analyst:predict', '`/openapi.json` lists those'),
        ('/v1/responses/compact', 'does not compact responses'),
        ('/v1/messages/batches', '`/openapi.json` lists those'),
        ('/api/nope', '`/openapi.json` lists those'),
    ],
)
async def test_unknown_route_is_no_unknown_model(make_client: MakeClient, path: str, match: str) -> None:
    answer = await (await make_client('run')).post(path, json={})

    assert answer.status_code == 404
    assert match in answer.json()['error']['message']
    assert answer.json()['error'].get('code') in (None, 404, 'unknown_url')


async def refusal_of(client: Client, path: str, body: dict[str, Any], **query: str) -> str:
    answer = await client.post(path, json=body, params=query)
    assert answer.status_code == 400, answer.text
    return answer.json()['error']['message']


async def test_an_invalid_body_is_described_by_the_path_and_the_remedy(make_client: MakeClient) -> None:
    """A value that has none of several types is described by its innermost problem, without names of our classes."""
    client = await make_client('run')
    hello = {'model': 'analyst', 'messages': [{'role': 'user', 'content': 'Hi'}]}
    found = {
        'option': await refusal_of(client, '/v1/chat/completions', {**hello, 'max_tokens': 0}),
        'missing': await refusal_of(client, '/v1/chat/completions', {'messages': hello['messages']}),
        'role': await refusal_of(client, '/v1/chat/completions', {**hello, 'messages': [{'role': 'function'}]}),
        'part': await refusal_of(
            client, '/v1/chat/completions', {**hello, 'messages': [{'role': 'user', 'content': [{'type': 'video'}]}]}
        ),
        'item': await refusal_of(client, '/v1/responses', {'model': 'analyst', 'input': [{'type': 'web_search_call'}]}),
        'content': await refusal_of(
            client, '/v1/responses', {'model': 'analyst', 'input': [{'role': 'user', 'content': 7}]}
        ),
        'source': await refusal_of(
            client,
            '/v1/messages',
            {**hello, 'messages': [{'role': 'user', 'content': [{'type': 'image', 'source': {'type': 'file'}}]}]},
        ),
    }
    assert found == snapshot(
        {
            'option': 'The request is invalid: body.max_tokens: Input should be greater than or equal to 1.',
            'missing': 'The request is invalid: body.model: Field required.',
            'role': "The request is invalid: body.messages.0: 'function' is not supported. Use one of 'system', 'developer', 'user', 'assistant', 'tool'.",
            'part': "The request is invalid: body.messages.0.content.0: 'video' is not supported. Use one of 'text', 'refusal', 'image_url', 'input_audio', 'file'.",
            'item': "The request is invalid: body.input.0: 'web_search_call' is not supported. Use one of 'message', 'item_reference', 'mcp_approval_response', 'function_call', 'function_call_output', 'reasoning', 'mcp_approval_request'.",
            'content': 'The request is invalid: body.input.0.content: Input should be a valid string; body.input.0.content: Input should be a valid list.',
            'source': "The request is invalid: body.messages.0.content.0.source: 'file' is not supported. Use one of 'base64', 'text', 'url'.",
        }
    )


async def test_an_invalid_query_is_described_by_its_parameter(make_client: MakeClient) -> None:
    answer = await (await make_client('run')).get('/v1/conversations/x/items', params={'limit': 0})
    assert answer.json()['error']['message'] == snapshot(
        'The request is invalid: query.limit: Input should be greater than or equal to 1.'
    )


async def test_an_unknown_agent_is_refused_with_the_place_of_the_list(make_client: MakeClient) -> None:
    answer = await (await make_client('run')).post('/v1/responses', json={'model': 'nobody', 'input': 'Hi'})
    assert (answer.status_code, answer.json()['error']['code']) == (404, 'model_not_found')
    assert '`GET /v1/models` lists those that it has' in answer.json()['error']['message']

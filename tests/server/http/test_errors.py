"""Errors in the format of the called API."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pydantic_deep.server.http._errors import MESSAGES, ServerError, api_of, render_error
from pydantic_deep.store import (
    ApprovalAnsweredError,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    VersionNotFoundError,
)
from pydantic_deep.versions import WorkspaceReplacedError
from pydantic_deep_backends import ScanLimitError
from tests.server.conftest import MakeClient, Serve

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
        ('/v1/messages/batches', '`/openapi.json` lists those'),
        ('/api/nope', '`/openapi.json` lists those'),
    ],
)
async def test_unknown_route_is_no_unknown_model(make_client: MakeClient, path: str, match: str) -> None:
    answer = await (await make_client('run')).post(path, json={})

    assert answer.status_code == 404
    assert match in answer.json()['error']['message']
    assert answer.json()['error'].get('code') in (None, 404, 'unknown_url')

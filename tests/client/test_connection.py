"""Errors of requests, and ids in paths."""

from __future__ import annotations

import math
from typing import Any

import httpx2
import pytest

from pydantic_deep.client import ApiError, Client
from pydantic_deep.errors import ValidationError
from tests.client.conftest import Server, answered_by

pytestmark = pytest.mark.anyio


async def test_error_has_the_status_and_the_message_of_the_server(ada: Client):
    """A refused request raises an error with the status, the type and the sentence that the server sent."""
    with pytest.raises(ApiError) as missing:
        await ada.conversations.get('nothing')
    assert (missing.value.status, missing.value.type) == (404, 'not_found')
    assert missing.value.message == 'This resource does not exist, or this key has no access to it.'
    assert str(missing.value) == f'{missing.value.message} (HTTP 404)'


async def test_missing_scope_is_reported(server: Server):
    """A key without the scope gets the status 403."""
    async with server.client('run') as client:
        with pytest.raises(ApiError) as refused:
            [_ async for _ in client.approvals.list()]
    assert (refused.value.status, refused.value.type) == (403, 'forbidden')


@pytest.mark.parametrize(('header', 'seconds'), [('7', 7), ('Wed, 21 Oct 2026 07:28:00 GMT', None), (None, None)])
async def test_required_waiting_time_is_an_attribute(header: str | None, seconds: int | None):
    """The seconds of `Retry-After` are an attribute of the error; a date and no header are not."""
    body = {'error': {'type': 'rate_limited', 'message': 'Too many.', 'limit': 3}}
    headers = {} if header is None else {'retry-after': header}
    async with answered_by(lambda _: httpx2.Response(429, json=body, headers=headers)) as client:
        with pytest.raises(ApiError) as refused:
            await client.turns.get('1')
    assert (refused.value.retry_after_seconds, refused.value.facts) == (seconds, {'limit': 3})


@pytest.mark.parametrize(('status', 'text'), [(502, '<html>'), (307, ''), (404, '{"detail": "Not Found"}')])
async def test_answer_of_another_program_is_named(status: int, text: str):
    """An error that no server of ours has sent names the request and what to check; redirects are not followed."""
    async with answered_by(lambda _: httpx2.Response(status, text=text)) as client:
        with pytest.raises(
            ApiError, match=r'^GET /api/runs/1 failed, and the answer is not one of a pydantic-deep'
        ) as e:
            await client.turns.get('1')
    assert (e.value.status, e.value.type) == (status, None)


async def test_success_of_another_shape_is_an_error():
    """An answer that is not the requested resource is an error instead of a value without fields."""
    async with answered_by(lambda _: httpx2.Response(200, json={})) as client:
        with pytest.raises(ApiError, match='The server answered with something other than a Run: Field required'):
            await client.turns.get('1')


@pytest.mark.parametrize(
    ('error', 'reason'),
    [
        (httpx2.ConnectError('refused'), 'refused'),
        (httpx2.ReadTimeout(''), 'ReadTimeout'),
        (httpx2.DecodingError('gzip'), 'gzip'),
    ],
)
async def test_no_answer_has_no_status(error: httpx2.RequestError, reason: str):
    """A request without an answer has no status, so that a caller knows that its effect is unknown."""

    def fail(request: httpx2.Request) -> httpx2.Response:
        raise error

    async with answered_by(fail) as client:
        with pytest.raises(ApiError, match=f'POST /api/runs/1/cancel got no answer: {reason}. Check the URL') as failed:
            await client.turns.cancel('1')
    assert failed.value.status is None


@pytest.mark.parametrize('id', ['', '.', '..'])
async def test_id_that_changes_the_path_is_refused(ada: Client, id: str):
    """An empty id, or one that would address the collection or its parent, is refused before a request is sent."""
    with pytest.raises(ValidationError, match=r'conversation_id: .* is no name or id'):
        await ada.conversations.delete(id)
    with pytest.raises(ValidationError, match='path: '):
        await ada.files.read('1', f'/a/{id}/b')


async def test_id_is_one_segment_of_the_path():
    """A slash, a question mark or a number sign in an id does not address another resource."""
    seen: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.raw_path)
        return httpx2.Response(204)

    async with answered_by(answer) as client:
        await client.conversations.delete('a/b?c#d')
        await client.files.delete_upload('1', 'x/y z')
    assert seen == [b'/api/conversations/a%2Fb%3Fc%23d', b'/api/conversations/1/uploads/x/y%20z']


@pytest.mark.parametrize('value', ['half \ud83d', math.nan, object()])
async def test_request_that_json_cannot_represent_is_refused(ada: Client, value: Any):
    """Halves of surrogate pairs, NaN and objects are refused before anything is sent."""
    with pytest.raises(ValidationError, match='json: JSON cannot represent the request'):
        await ada.turns.start('a', 'Go', model_settings={'temperature': value})


async def test_id_with_half_of_a_surrogate_pair_is_refused(ada: Client):
    with pytest.raises(ValidationError, match='conversation_id: the character 5 is half of a surrogate pair'):
        await ada.conversations.get('half \ud83d')

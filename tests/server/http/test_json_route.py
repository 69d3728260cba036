"""Routes accept only strict JSON, and return it unchanged."""

from __future__ import annotations

import json

import pytest
from fastapi.routing import APIRoute

from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.routes._routers import ROUTERS
from tests.server.conftest import Client, MakeClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('admin')


@pytest.fixture
async def conversation(ada: Client) -> str:
    """The path of a conversation."""
    return (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


NO_JSON = {
    'not a number': b'NaN',
    'infinity': b'-Infinity',
    'a number beyond any float': b'1e400',
    'too many digits': b'9' * 5000,
    'half of a surrogate pair': b'"\\ud800"',
    'half of a surrogate pair as a key': b'{"\\udfff": 1}',
    'bytes that are no UTF-8': b'"\xff"',
    'a surrogate in UTF-8': b'"\xed\xa0\x80"',
    'lists in lists': b'[' * 1_000_000,
    'lists in lists that end': b'[' * 5000 + b']' * 5000,
    'objects in objects': b'{"a":' * 5000 + b'1' + b'}' * 5000,
    'nothing': b'',
}
"""Invalid values, inserted into JSON bodies."""

PLACES = {
    'metadata': ('/api/conversations', b'{"agent": "analyst", "metadata": {"k": %s}}'),
    'sql': ('/api/sql', b'{"query": "select ?", "parameters": [%s]}'),
    'openai': ('/v1/chat/completions', b'{"model": "analyst", "messages": [{"role": "user", "content": %s}]}'),
    'anthropic': ('/v1/messages', b'{"model": "analyst", "max_tokens": 9, "messages": [{"role": "user", "content": %s}]}'),
    'google': ('/v1beta/models/analyst:generateContent', b'{"contents": [{"parts": [{"text": %s}]}]}'),
}  # fmt: skip
"""Routes and bodies with a place for any value or a text."""


@pytest.mark.parametrize('place', PLACES)
async def test_invalid_json_is_refused_before_anything_is_stored(ada: Client, place: str) -> None:
    path, body = PLACES[place]
    statuses = {name: (await send(ada, path, body.replace(b'%s', value)))[0] for name, value in NO_JSON.items()}
    assert {name: status for name, status in statuses.items() if status not in (400, 422)} == {}
    assert (await ada.get('/api/conversations')).json()['items'] == []


@pytest.mark.parametrize(('place', 'field'), [('turns', 'prompt'), ('resume', 'answers'), ('head', 'version')])
async def test_invalid_json_is_refused_in_routes_of_a_conversation(
    ada: Client, conversation: str, place: str, field: str
) -> None:
    body = b'{"%s": %%s}' % field.encode()
    answers = [await send(ada, f'{conversation}/{place}', body.replace(b'%s', value)) for value in NO_JSON.values()]
    assert {(status, json.loads(text)['error']['type']) for status, text in answers} == {(422, 'invalid')}


@pytest.mark.parametrize('type', ['text/plain', 'application/x-www-form-urlencoded'])
async def test_body_of_another_content_type_is_refused_with_the_one_to_send(ada: Client, type: str) -> None:
    answer = await ada.post('/api/conversations', content=b'{"agent": "analyst"}', headers={'content-type': type})
    assert (answer.status_code, answer.json()['error']['message']) == (
        422,
        'The request is invalid: body: Send JSON with the header `Content-Type: application/json`.',
    )


async def send(client: Client, path: str, body: bytes) -> tuple[int, str]:
    """Send a body as JSON."""
    answer = await client.post(path, content=body, headers={'content-type': 'application/json'})
    return answer.status_code, answer.text


async def test_last_value_of_a_repeated_key_is_used(ada: Client) -> None:
    body = b'{"agent": "nobody", "agent": "analyst", "metadata": {"a": 1, "a": 2}}'
    answer = await ada.post('/api/conversations', content=body, headers={'content-type': 'application/json'})
    assert (answer.status_code, answer.json()['metadata']) == (201, {'a': 2})


async def test_unusual_json_is_returned_unchanged(ada: Client) -> None:
    odd = {'big': 2**80, 'nul': 'a\x00b', 'pair': '😀', 'small': 5e-324, 'deep': json.loads('[' * 90 + ']' * 90)}
    answer = await ada.post('/api/conversations', json={'agent': 'analyst', 'metadata': odd})
    assert (answer.status_code, answer.json()['metadata']) == (201, odd)


def test_every_json_route_parses_strictly() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    lenient = [route.path for route in routes if route.body_field and not isinstance(route, JsonRoute)]
    assert lenient == []

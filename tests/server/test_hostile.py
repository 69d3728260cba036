"""Hostile requests: odd paths and headers, and bodies that never end."""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

import anyio
import httpx
import pytest
from anyio.abc import SocketStream

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, ServerSettings, create_api_key
from pydantic_deep.server import serve as serve_until_signal
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel

from .conftest import Client, MakeClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('admin')


@pytest.fixture
async def conversation(ada: Client) -> str:
    """The path of a conversation."""
    return (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


# Bodies


async def test_conversation_title_omits_control_characters(ada: Client) -> None:
    odd = ' a\x00b\x1b[31m\u202ec\r\nx-owner: bob '
    await ada.post('/v1/chat/completions', json={'model': 'analyst', 'messages': [{'role': 'user', 'content': odd}]})
    [named] = (await ada.get('/api/conversations')).json()['items']
    assert named['name'] == 'ab[31mc'


@pytest.mark.parametrize('data', ['ü', 'A', '=', 'AA==AA', 'AA AA', '\x00'])
async def test_invalid_base64_is_refused(ada: Client, data: str) -> None:
    sound = {'type': 'input_audio', 'input_audio': {'data': data, 'format': 'wav'}}
    openai = {'model': 'analyst', 'messages': [{'role': 'user', 'content': [sound]}]}
    image = {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': data}}
    anthropic = {'model': 'analyst', 'max_tokens': 9, 'messages': [{'role': 'user', 'content': [image]}]}
    google = {'contents': [{'parts': [{'inlineData': {'mimeType': 'image/png', 'data': data}}]}]}
    asked = {
        '/v1/chat/completions': openai,
        '/v1/messages': anthropic,
        '/v1beta/models/analyst:generateContent': google,
    }
    assert [(await ada.post(path, json=body)).status_code for path, body in asked.items()] == [400] * 3


# Paths and headers

ODD = {
    'nul': '%00',
    'a line break': 'a%0d%0ax-owner:%20bob',
    'a slash': '%2f',
    'a parent': '..%2f..%2f..%2fetc%2fpasswd',
    'a backslash': 'a%5c..%5cb',
    'dots': '%2e%2e',
    'a percent': '%25%30%30',
    'no UTF-8': '%ff%fe',
    'a surrogate': '%ed%a0%80',
    'other digits': '%D9%A0%D9%A1-%EF%BC%90',
    'very long': 'x' * 60_000,
    'an id in capitals': '019AA1B2-0000-7000-8000-000000000001',
    'an id and a line break': '019aa1b2-0000-7000-8000-000000000001%0a',
    'a beginning of an id': '0',
    'a wildcard': '%25',
    'a quote': "'%20or%20'1'='1",
}
"""Odd values for ids and names in URLs."""

WITH_ID = (
    '/api/conversations/{}',
    '/api/conversations/{}/messages',
    '/api/conversations/{}/uploads',
    '/api/runs/{}',
    '/api/runs/{}/events',
    '/api/versions/{}',
    '/api/versions/{}/files',
    '/api/versions/{}/archive',
    '/api/approvals/{}',
    '/api/audit/{}',
    '/api/agents/{}',
    '/static/{}',
    '/v1/models/{}',
    '/v1beta/models/{}',
)

WITH_QUERY = (
    '/api/conversations?agent={}',
    '/api/conversations?cursor={}',
    '/api/runs?conversation={}',
    '/api/approvals?agent={}',
    '/api/approvals?conversation={}',
    '/api/approvals?cursor={}',
    '/api/audit?agent={}',
    '/api/audit?conversation={}',
    '/api/audit?since={}',
    '/api/audit?cursor={}',
)


@pytest.mark.slow
async def test_malformed_ids_are_not_found(ada: Client, conversation: str) -> None:
    for path in (path.format(odd) for path in WITH_ID for odd in ODD.values()):
        answer = await ada.get(path)
        assert (answer.status_code, answer.headers.get('location')) in ((400, None), (404, None)), path[:80]
    for path in (path.format(odd) for path in WITH_QUERY for odd in ODD.values()):
        answer = await ada.get(path)
        assert answer.status_code in (404, 422) or answer.json()['items'] == [], path[:80]


async def test_odd_file_paths_of_a_version_are_not_found(ada: Client, conversation: str) -> None:
    version = (await ada.put(f'{conversation}/uploads/a.txt', content=b'x')).json()['version_id']
    for odd in ODD.values():
        answer = await ada.get(f'/api/versions/{version}/files/{odd}')
        assert answer.status_code in (404, 422), odd


async def test_odd_upload_names_are_stored_unchanged_or_refused(ada: Client, conversation: str) -> None:
    kept: list[str] = []
    for odd in ODD.values():
        answer = await ada.put(f'{conversation}/uploads/{odd}', content=b'x')
        assert answer.status_code in (201, 404, 422), odd
        if answer.status_code == 201:
            kept.append(answer.json()['upload']['name'])
    assert all('\n' not in name and '\x00' not in name and '..' not in name for name in kept)
    listed = (await ada.get(f'{conversation}/uploads')).json()['items']
    assert sorted(each['name'] for each in listed) == sorted(set(kept))


async def test_slower_of_two_concurrent_uploads_is_refused(ada: Client, conversation: str) -> None:
    async def slowly() -> AsyncGenerator[bytes]:
        yield b'x'
        assert (await ada.put(f'{conversation}/uploads/b.txt', content=b'y')).status_code == 201
        yield b'x'

    answer = await ada.put(f'{conversation}/uploads/a.txt', content=slowly())
    listed = (await ada.get(f'{conversation}/uploads')).json()['items']
    assert (answer.status_code, [each['name'] for each in listed]) == (409, ['b.txt'])


async def test_input_is_not_copied_into_headers(ada: Client, conversation: str) -> None:
    odd = 'a\r\nx-owner: bob\r\n\r\n'
    answer = await ada.post(f'{conversation}/turns', json={'prompt': odd, 'session_id': odd})
    named = await ada.post('/api/conversations', json={'agent': 'analyst', 'name': odd})
    headers = {b'last-event-id': odd.encode()}
    watched = await ada.get(f'/api/runs/{answer.json().get("id")}/events', headers=headers)
    assert [each.headers.get('x-owner') for each in (answer, named, watched)] == [None] * 3
    assert (named.status_code, watched.status_code) == (422, 422)


# Keys


async def test_all_wrong_keys_have_the_same_response(ada: Client, nobody: Client, make_client: MakeClient) -> None:
    right = ada.headers['authorization'].removeprefix('Bearer ')
    id, secret = right[3:39], right[40:]
    expired = (await make_client('run', expires_in_seconds=1e-6)).headers['authorization'].removeprefix('Bearer ')
    wrong = [
        '',
        'x',
        right[:-1],
        right + 'A',
        f'pd_{id}_{"A" * 43}',
        f'pd_00000000-0000-7000-8000-000000000000_{secret}',
        f'pd_{id.upper()}_{secret}',
        expired,
        'x' * 60_000,
        "' or 1=1 --",
        '\xa0' * 20,
    ]
    answers = [await nobody.get('/api/me', headers={b'x-api-key': each.encode('latin-1')}) for each in wrong]
    assert {(each.status_code, each.text) for each in answers} == {(401, answers[0].text)}
    assert {tuple(sorted(each.headers.items())) for each in answers} == {tuple(sorted(answers[0].headers.items()))}
    assert (await ada.get('/api/me')).status_code == 200


# Sockets


@dataclass(frozen=True)
class Place:
    """A server process on a port."""

    port: int
    key: str
    upload: str
    """A path that accepts uploads."""

    async def connect(self, *pieces: bytes) -> SocketStream:
        """Connect and send the pieces."""
        stream = await anyio.connect_tcp('127.0.0.1', self.port)
        for piece in pieces:
            await stream.send(piece)
        return stream

    def head(self, *lines: str) -> bytes:
        """Return the header of an authenticated upload."""
        first = (f'PUT {self.upload} HTTP/1.1', 'host: localhost', f'x-api-key: {self.key}')
        return '\r\n'.join([*first, *lines, '', '']).encode()


@pytest.fixture
async def place(store: SqlStore) -> AsyncGenerator[Place]:
    """A running `pydantic-deep serve` with an upload limit of 16 MiB, stopped by a signal."""
    agents: dict[str, AnyAgent] = {'analyst': create_deep_agent(ScriptedModel('Hello.'))}
    urls: list[str] = []
    started = anyio.Event()

    def on_start(url: str) -> None:
        urls.append(url)
        started.set()

    settings = ServerSettings(port=0, max_upload_bytes=LIMIT_BYTES)
    key = await create_api_key(store, name='x', scopes=['run'], owner='ada')
    async with anyio.create_task_group() as group:
        group.start_soon(partial(serve_until_signal, agents, store, settings, on_start=on_start))
        await started.wait()
        async with httpx.AsyncClient(base_url=urls[0], headers={'x-api-key': key}, timeout=60) as client:
            path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        yield Place(int(urls[0].rpartition(':')[2]), key, f'{path}/uploads/a.bin')
        os.kill(os.getpid(), signal.SIGTERM)


LIMIT_BYTES = 16 * 2**20
"""Upload limit of this server."""


async def read_all(stream: SocketStream) -> bytes:
    """Return all data until the connection ends."""
    data = b''
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


@pytest.mark.parametrize('host', ['localhost', 'elsewhere.example'])
@pytest.mark.parametrize('coding', ['chunked', 'CHUNKED'])
async def test_body_with_two_lengths_is_refused_and_the_connection_closed(place: Place, coding: str, host: str) -> None:
    """A request with both Content-Length and Transfer-Encoding is refused, and no request is read after it."""
    smuggled = b'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n'
    head = place.head('content-length: 5', f'transfer-encoding: {coding}').replace(b'localhost', host.encode())
    async with await place.connect(head + b'0\r\n\r\n' + smuggled) as stream:
        answer = await read_all(stream)
    assert answer.startswith(b'HTTP/1.1 400 ')
    assert b'\r\nconnection: close\r\n' in answer.lower()
    assert answer.count(b'HTTP/1.1 ') == 1


@pytest.mark.parametrize('expect', [(), ('expect: 100-continue',)])
async def test_large_content_length_is_refused_before_the_body(place: Place, expect: Sequence[str]) -> None:
    async with await place.connect(place.head(f'content-length: {10 * 2**30}', *expect)) as stream:
        answer = await read_all(stream)
    assert answer.startswith(b'HTTP/1.1 413 ')
    assert b'100 Continue' not in answer
    assert b'"too_large"' in answer


async def test_chunked_upload_is_refused_at_the_limit_without_buffering(place: Place) -> None:
    piece = b'%x\r\n%s\r\n' % (2**18, b'x' * 2**18)
    tracemalloc.start()
    try:
        async with await place.connect(place.head('transfer-encoding: chunked')) as stream:
            sent = 0
            with suppress(anyio.BrokenResourceError):
                while sent < 64:
                    await stream.send(piece)
                    sent += 1
                await stream.send(piece)
            answer = await read_all(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sent == 64
    assert answer.startswith(b'HTTP/1.1 413 ')
    assert peak < LIMIT_BYTES // 2


async def test_endless_header_is_refused(place: Place) -> None:
    async with await place.connect(b'GET /health HTTP/1.1\r\nx-odd: ') as stream:
        sent = 0
        with suppress(anyio.BrokenResourceError):
            while sent < 1024:
                await stream.send(b'x' * 2**16)
                sent += 1
    assert sent < 1024


@pytest.mark.slow
async def test_unfinished_requests_do_not_block_requests_or_shutdown(place: Place) -> None:
    """The fixture waits for the server to stop."""
    unfinished = (
        b'',
        b'GET /hea',
        b'GET /health HTTP/1.1\r\nhost: localhost\r\n',
        place.head('content-length: 100') + b'x',
        place.head('transfer-encoding: chunked') + b'5\r\nxx',
    )
    async with AsyncExitStack() as stack:
        for pieces in unfinished * 20:
            await stack.enter_async_context(await place.connect(pieces))
        async with httpx.AsyncClient(base_url=f'http://127.0.0.1:{place.port}', timeout=60) as client:
            answer = await client.put(place.upload, content=b'x', headers={'x-api-key': place.key})
    assert answer.status_code == 201


async def test_missing_key_is_refused_before_the_body_ends(place: Place) -> None:
    head = place.head('content-length: 1000').replace(place.key.encode(), b'wrong')
    async with await place.connect(head, b'x') as stream:
        assert (await stream.receive()).startswith(b'HTTP/1.1 401 ')

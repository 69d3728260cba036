"""Bodies are limited by their announced and by their received length."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.server import ServerSettings
from pydantic_deep.server._metrics import RequestCounter, ServerMetrics
from pydantic_deep.server.access._authentication import Authentication, KeyInQuery
from pydantic_deep.server.http._body_limit import BodyLimit
from pydantic_deep.server.http._security_headers import SecurityHeaders
from tests.server.conftest import Serve

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(inner: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    limited = BodyLimit(inner, lambda method, path: 10 if method == 'POST' else 0)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url='http://localhost') as client:
        yield client


async def _chunks(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b'x' * size


async def test_body_at_the_limit_is_accepted(client: httpx.AsyncClient) -> None:
    answer = await client.post('/count', content=b'x' * 10)
    assert (answer.status_code, answer.text) == (200, '10')
    assert 'connection' not in answer.headers


async def test_body_with_a_large_content_length_is_refused_unread(client: httpx.AsyncClient, read: list[int]) -> None:
    answer = await client.post('/count', content=b'x' * 11)
    assert (answer.status_code, answer.json()['error']['type']) == (413, 'too_large')
    assert '10 bytes' in answer.json()['error']['message']
    assert read == []


async def test_body_without_content_length_is_counted(client: httpx.AsyncClient, read: list[int]) -> None:
    assert (await client.post('/count', content=_chunks(4, 6))).text == '10'
    read.clear()
    answer = await client.post('/count', content=_chunks(4, 6, 1, 1000))
    assert (answer.status_code, answer.json()['error']['type']) == (413, 'too_large')
    assert read == [4, 6]
    assert answer.headers['connection'] == 'close'


async def test_body_limit_error_has_the_format_of_the_api(client: httpx.AsyncClient) -> None:
    answer = await client.post('/v1/messages', content=b'x' * 11)
    assert (answer.status_code, answer.json()['error']['type']) == (413, 'request_too_large')


async def test_large_content_length_closes_the_connection(client: httpx.AsyncClient, read: list[int]) -> None:
    answer = await client.post('/count', content=b'', headers={'content-length': str(10 * 2**30)})
    assert (answer.status_code, answer.headers['connection']) == (413, 'close')
    assert read == []


@pytest.mark.parametrize('length', ['-1', '1e9', '٣', ''])
async def test_body_with_invalid_content_length_is_counted(
    client: httpx.AsyncClient, read: list[int], length: str
) -> None:
    answer = await client.post('/count', content=b'x' * 11, headers={b'content-length': length.encode()})
    assert answer.status_code == 413
    assert read == []


async def test_unread_large_body_closes_the_connection(inner: Starlette) -> None:
    limited = BodyLimit(inner, lambda method, path: 10**6)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url='http://localhost') as client:
        small = await client.post('/ignore', content=b'x')
        large = await client.post('/ignore', content=b'x' * 100_000)
    assert ('connection' in small.headers, large.headers['connection']) == (False, 'close')


async def test_disconnect_during_the_body_is_passed_on(inner: Starlette) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((await receive())['type'])

    async def receive() -> Message:
        return {'type': 'http.disconnect'}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    await BodyLimit(app, lambda method, path: 1)(
        {'type': 'http', 'method': 'POST', 'path': '/', 'headers': []}, receive, send
    )
    assert seen == ['http.disconnect']


def _limited(app: ASGIApp) -> ASGIApp:
    return BodyLimit(app, lambda method, path: 0)


def _counted(app: ASGIApp) -> ASGIApp:
    return RequestCounter(app, ServerMetrics())


@pytest.mark.parametrize('layer', [_limited, SecurityHeaders, _counted, Authentication, KeyInQuery])
async def test_other_scopes_than_http_are_passed_unchanged(layer: Callable[[ASGIApp], ASGIApp]) -> None:
    passed: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.extend([scope, receive, send])

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    scope: Scope = {'type': 'lifespan'}
    await layer(app)(scope, receive, send)
    assert passed == [scope, receive, send]


async def test_body_limit_raises_an_http_exception(inner: Starlette) -> None:
    """FastAPI passes on an HTTPException instead of reporting a malformed body."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with pytest.raises(HTTPException) as caught:
            await receive()
        assert caught.value.status_code == 413
        await PlainTextResponse('seen')(scope, receive, send)

    limited = BodyLimit(app, lambda method, path: 1)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url='http://localhost') as client:
        assert (await client.post('/', content=_chunks(1, 1))).text == 'seen'


async def test_body_size_limit_differs_for_uploads(serve: Serve) -> None:
    settings = ServerSettings(max_body_bytes=10, max_upload_bytes=20)
    async with serve(settings=settings) as served, served.client(await served.key('admin')) as client:
        upload = '/api/conversations/x/uploads/a.csv'
        assert (await client.post('/api/sql', content=b'x' * 11)).status_code == 413
        assert (await client.put(upload, content=b'x' * 20)).status_code != 413
        assert (await client.put(upload, content=b'x' * 21)).status_code == 413
        assert (await client.post(upload, content=b'x' * 11)).status_code == 413

"""Security headers are added to every response."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from pydantic_deep.server.http._errors import install_error_handlers
from pydantic_deep.server.http._security_headers import HEADERS, SecurityHeaders

pytestmark = pytest.mark.anyio

read: list[int] = []


async def _count(request: Request) -> PlainTextResponse:
    """Count the bytes of the body while reading it."""
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        read.append(len(chunk))
    return PlainTextResponse(str(total))


async def _ignore(request: Request) -> PlainTextResponse:
    return PlainTextResponse('ignored')


async def _stream(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'one'
        yield b'two'

    return StreamingResponse(pieces(), headers={'cache-control': 'no-cache'})


async def _fail(request: Request) -> PlainTextResponse:
    raise RuntimeError('a defect')


@pytest.fixture
def inner() -> Starlette:
    read.clear()
    app = Starlette(
        routes=[
            Route('/count', _count, methods=['POST']),
            Route('/v1/messages', _count, methods=['POST']),
            Route('/ignore', _ignore, methods=['POST']),
            Route('/stream', _stream),
            Route('/fail', _fail),
        ]
    )
    install_error_handlers(app)
    return app


async def test_headers_are_added_to_streams_unless_set(inner: Starlette) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(SecurityHeaders(inner)), base_url='http://localhost'
    ) as client:
        answer = await client.get('/stream')
    assert answer.text == 'onetwo'
    assert {name: answer.headers[name] for name in HEADERS} == {**HEADERS, 'cache-control': 'no-cache'}


async def test_internal_error_has_security_headers_and_no_details(inner: Starlette) -> None:
    transport = httpx.ASGITransport(SecurityHeaders(inner), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url='http://localhost') as client:
        answer = await client.get('/fail')
    assert (answer.status_code, answer.json()) == (
        500,
        {'error': {'type': 'failed', 'message': 'Internal server error. The log of the server contains the details.'}},
    )
    assert answer.headers['x-content-type-options'] == 'nosniff'


@pytest.mark.parametrize('path', ['/health', '/api/me', '/api/nothing', '/v1/models'])
async def test_every_response_has_security_headers(nobody: httpx.AsyncClient, path: str) -> None:
    answer = await nobody.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert 'server' not in answer.headers

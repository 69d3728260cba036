"""Security headers are added to every response."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette

from pydantic_deep.server.http._security_headers import HEADERS, SecurityHeaders

pytestmark = pytest.mark.anyio


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
